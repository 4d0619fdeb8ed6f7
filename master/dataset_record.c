/* Records of datasets as JSON. See dataset.h. */
#include "base/cleanup.h"
#include "base/hash.h"
#include "master/dataset.h"

#include <inttypes.h>
#include <string.h>

#define DATASET_FORMAT 1

static void json_free_p(json_t **json)
{
	json_decref(*json);
}

void dataset_release(struct dataset *d)
{
	for (uint32_t i = 0; i < d->n_mounts; i++) {
		free(d->mounts[i].path);
		free(d->mounts[i].url);
		ufs_config_release(&d->mounts[i].config);
	}
	free(d->cache_scope);
	*d = (struct dataset){ 0 };
}

int dataset_copy(const struct dataset *from, struct dataset *ret_to)
{
	struct dataset to = *from;
	int r = 0;

	to.n_mounts = 0;
	to.cache_scope = from->cache_scope ? strdup(from->cache_scope) : NULL;
	if (from->cache_scope && !to.cache_scope)
		r = -ENOMEM;
	for (uint32_t i = 0; i < from->n_mounts && r == 0; i++) {
		struct dataset_mount *m = &to.mounts[to.n_mounts++];

		*m = (struct dataset_mount){ .volume = from->mounts[i].volume };
		m->path = strdup(from->mounts[i].path);
		m->url = strdup(from->mounts[i].url);
		r = m->path && m->url ? ufs_config_copy(&from->mounts[i].config, &m->config)
				      : -ENOMEM;
	}
	if (r < 0)
		dataset_release(&to);
	else
		*ret_to = to;
	return r;
}

void dataset_key(const char *uuid, char out[DATASET_KEY_BYTES])
{
	(void)snprintf(out, DATASET_KEY_BYTES, "dataset/%.32s", uuid); /* always fits */
}

/* ---- writing --------------------------------------------------------------------------------- */

static json_t *volume_json(const struct volume_id *volume)
{
	char hex[2 * VOLUME_ID_LEN + 1];

	hash_hex(volume->bytes, VOLUME_ID_LEN, hex);
	return json_string(hex);
}

static json_t *generation_json(const struct dataset_generation *g)
{
	return json_pack("{s:o, s:o, s:I}", "volume", volume_json(&g->volume), "lineage",
		json_sprintf("%016" PRIx64, g->lineage), "generation", (json_int_t)g->generation);
}

static json_t *mounts_json(const struct dataset *d)
{
	json_t *all = json_array();

	for (uint32_t i = 0; i < d->n_mounts; i++) {
		const struct dataset_mount *m = &d->mounts[i];
		json_t *json = record_config_json(&m->config);
		json_t *more = json_pack("{s:s, s:s, s:o}", "path", m->path, "url", m->url,
			"volume", volume_json(&m->volume));

		(void)json_object_update(json, more);   /* failures are counted */
		(void)json_array_append_new(all, json); /* likewise */
		json_decref(more);
	}
	return all;
}

static json_t *pins_json(const struct dataset *d)
{
	json_t *all = json_array();

	for (uint32_t i = 0; i < d->n_pins; i++)
		(void)json_array_append_new(
			all, generation_json(&d->pins[i])); /* failures are counted */
	return all;
}

static void set_policy(json_t *json, const struct policy_change *policy)
{
	/* Failures are counted by the caller. */
	if (policy->parts & POLICY_QUOTA)
		(void)json_object_set_new(
			json, "quota", json_integer((json_int_t)policy->to.quota));
	if (policy->parts & POLICY_PRIORITY)
		(void)json_object_set_new(json, "priority", json_integer(policy->to.priority));
	if (policy->parts & POLICY_PIN)
		(void)json_object_set_new(json, "pin", json_boolean(policy->to.pin));
	if (policy->parts & POLICY_EVICT)
		(void)json_object_set_new(
			json, "evict", json_string(tier_evict_name(policy->to.evict)));
}

int dataset_encode(const struct dataset *d, struct buf *out)
{
	uint64_t failures = admin_json_failures();
	_cleanup_(json_free_p) json_t *json = json_pack(
		"{s:i, s:s, s:s, s:I, s:o, s:s*, s:I, s:I, s:s, s:o}", "format", DATASET_FORMAT,
		"name", d->name, "uuid", d->uuid, "created", (json_int_t)d->created, "mounts",
		mounts_json(d), "cache_scope", d->cache_scope, "idle_s", (json_int_t)d->idle_s,
		"ttl_s", (json_int_t)d->ttl_s, "consistency", "pinned", "pins", pins_json(d));
	_cleanup_free_ char *text = NULL;

	if (json)
		set_policy(json, &d->policy);
	if (json && d->shown.generation)
		(void)json_object_set_new(
			json, "shown", generation_json(&d->shown)); /* failures are counted */
	if (json && admin_json_failures() == failures)
		text = admin_json_text(json, JSON_COMPACT | JSON_SORT_KEYS);
	return text ? buf_puts(out, text) : -ENOMEM;
}

/* ---- reading --------------------------------------------------------------------------------- */

static int get_text(const json_t *json, const char *name, char **ret)
{
	const char *text = json_string_value(json_object_get(json, name));

	*ret = text ? strdup(text) : NULL;
	return text && !*ret ? -ENOMEM : 0;
}

static int get_u64(const json_t *json, const char *name, uint64_t *ret)
{
	const json_t *value = json_object_get(json, name);

	if (!value)
		return 0; /* as it is */
	if (!json_is_integer(value) || json_integer_value(value) < 0)
		return -EBADMSG;
	*ret = (uint64_t)json_integer_value(value);
	return 0;
}

static int get_volume(const json_t *json, struct volume_id *ret)
{
	const char *text = json_string_value(json_object_get(json, "volume"));

	return text && hash_unhex(text, ret->bytes, VOLUME_ID_LEN) == 0 ? 0 : -EBADMSG;
}

static int get_generation(const json_t *json, struct dataset_generation *ret)
{
	const char *lineage = json_string_value(json_object_get(json, "lineage"));
	uint8_t bytes[8];

	if (!json)
		return 0;
	if (!lineage || hash_unhex(lineage, bytes, sizeof(bytes)) < 0 ||
		get_volume(json, &ret->volume) < 0 ||
		get_u64(json, "generation", &ret->generation) < 0 || ret->generation == 0)
		return -EBADMSG;
	ret->lineage = strtoull(lineage, NULL, 16);
	return 0;
}

static int get_policy(const json_t *json, struct policy_change *ret)
{
	const json_t *priority = json_object_get(json, "priority");
	const json_t *pin = json_object_get(json, "pin");
	const char *evict = json_string_value(json_object_get(json, "evict"));

	if (json_object_get(json, "quota"))
		ret->parts |= POLICY_QUOTA;
	if (get_u64(json, "quota", &ret->to.quota) < 0)
		return -EBADMSG;
	if (priority) {
		json_int_t value = json_integer_value(priority);

		if (!json_is_integer(priority) || value < 0 || value > (json_int_t)PRIORITY_MAX)
			return -EBADMSG;
		ret->to.priority = (int32_t)value;
		ret->parts |= POLICY_PRIORITY;
	}
	if (pin) {
		ret->to.pin = json_is_true(pin);
		ret->parts |= POLICY_PIN;
	}
	if (!evict)
		return 0;
	ret->parts |= POLICY_EVICT;
	return tier_evict_parse(evict, &ret->to.evict) < 0 ? -EBADMSG : 0;
}

static int get_mounts(const json_t *json, struct dataset *d)
{
	const json_t *one;
	size_t i;

	if (json_array_size(json) == 0 || json_array_size(json) > DATASET_MOUNTS_MAX)
		return -EBADMSG;
	json_array_foreach (json, i, one) {
		struct dataset_mount *m = &d->mounts[d->n_mounts++];
		int r;

		*m = (struct dataset_mount){ 0 };
		r = record_config_decode(one, &m->config);
		if (r == 0)
			r = get_volume(one, &m->volume);
		if (r == 0)
			r = get_text(one, "path", &m->path);
		if (r == 0)
			r = get_text(one, "url", &m->url);
		if (r == 0 && (!m->path || !m->url))
			r = -EBADMSG;
		if (r < 0)
			return r;
	}
	return 0;
}

static int get_pins(const json_t *json, struct dataset *d)
{
	const json_t *one;
	size_t i;

	if (json_array_size(json) > GENERATIONS_PINNED)
		return -EBADMSG;
	json_array_foreach (json, i, one)
		if (get_generation(one, &d->pins[d->n_pins++]) < 0)
			return -EBADMSG;
	return 0;
}

static int get_words(const json_t *json, struct dataset *d)
{
	const char *name = json_string_value(json_object_get(json, "name"));
	const char *uuid = json_string_value(json_object_get(json, "uuid"));
	const char *consistency = json_string_value(json_object_get(json, "consistency"));
	uint8_t bytes[DATASET_UUID_BYTES];

	if (!name || dataset_check_name(name, NULL) < 0 || !uuid ||
		strlen(uuid) + 1 != sizeof(d->uuid) || hash_unhex(uuid, bytes, sizeof(bytes)) < 0)
		return -EBADMSG;
	if (consistency && strcmp(consistency, "pinned") != 0)
		return -EPROTONOSUPPORT;         /* of a newer version, which follows its source */
	memcpy(d->name, name, strlen(name) + 1); /* fits: checked */
	memcpy(d->uuid, uuid, sizeof(d->uuid));
	return 0;
}

static int decode(const json_t *json, struct dataset *d)
{
	json_int_t format = json_integer_value(json_object_get(json, "format"));
	uint64_t created = 0;
	int r;

	if (format != DATASET_FORMAT)
		return format > DATASET_FORMAT ? -EPROTONOSUPPORT : -EBADMSG;
	r = get_words(json, d);
	if (r == 0)
		r = get_mounts(json_object_get(json, "mounts"), d);
	if (r == 0)
		r = get_text(json, "cache_scope", &d->cache_scope);
	if (r == 0 && (get_u64(json, "created", &created) < 0 ||
			      get_u64(json, "idle_s", &d->idle_s) < 0 ||
			      get_u64(json, "ttl_s", &d->ttl_s) < 0))
		r = -EBADMSG;
	d->created = (int64_t)created;
	if (r == 0)
		r = get_policy(json, &d->policy);
	if (r == 0)
		r = get_generation(json_object_get(json, "shown"), &d->shown);
	return r == 0 ? get_pins(json_object_get(json, "pins"), d) : r;
}

int dataset_decode(const void *data, size_t len, struct dataset *ret)
{
	_cleanup_(json_free_p) json_t *json = NULL;
	struct dataset d = { 0 };
	int r = admin_json_parse(data, len, JSON_REJECT_DUPLICATES, &json, NULL);

	if (r < 0)
		return r;
	r = decode(json, &d);
	if (r < 0)
		dataset_release(&d);
	else
		*ret = d;
	return r;
}
