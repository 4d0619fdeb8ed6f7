/* Records of datasets as JSON. See dataset.h. */
#include "base/cleanup.h"
#include "base/hash.h"
#include "master/dataset.h"

#include <inttypes.h>
#include <string.h>

#define DATASET_FORMAT  1
#define DATASET_SEVERAL 2 /* of several sources, or of a part of one: no older version shows them */

void dataset_release(struct dataset *d)
{
	for (uint32_t i = 0; i < d->n_mounts; i++) {
		free(d->mounts[i].path);
		free(d->mounts[i].url);
		free(d->mounts[i].subtree);
		ufs_config_release(&d->mounts[i].config);
	}
	free(d->cache_scope);
	free(d->allow);
	*d = (struct dataset){ 0 };
}

int dataset_copy(const struct dataset *from, struct dataset *ret_to)
{
	struct dataset to = *from;
	int r = 0;

	to.n_mounts = 0;
	to.cache_scope = from->cache_scope ? strdup(from->cache_scope) : NULL;
	to.allow = from->allow ? strdup(from->allow) : NULL;
	if (!from->cache_scope != !to.cache_scope || !from->allow != !to.allow)
		r = -ENOMEM;
	for (uint32_t i = 0; i < from->n_mounts && r == 0; i++) {
		struct dataset_mount *m = &to.mounts[to.n_mounts++];

		*m = (struct dataset_mount){ .volume = from->mounts[i].volume };
		m->path = strdup(from->mounts[i].path);
		m->url = strdup(from->mounts[i].url);
		if (from->mounts[i].subtree)
			m->subtree = strdup(from->mounts[i].subtree);
		r = m->path && m->url && !m->subtree == !from->mounts[i].subtree
			    ? ufs_config_copy(&from->mounts[i].config, &m->config)
			    : -ENOMEM;
	}
	if (r < 0)
		dataset_release(&to);
	else
		*ret_to = to;
	return r;
}

bool dataset_is_first(const struct dataset *d, uint32_t i)
{
	for (uint32_t k = 0; k < i; k++)
		if (volume_id_equal(&d->mounts[k].volume, &d->mounts[i].volume))
			return false;
	return true;
}

uint32_t dataset_sources_of(const struct dataset *d)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < d->n_mounts; i++)
		n += dataset_is_first(d, i);
	return n;
}

bool dataset_has_volume(const struct dataset *d, const struct volume_id *volume)
{
	for (uint32_t i = 0; i < d->n_mounts; i++)
		if (volume_id_equal(&d->mounts[i].volume, volume))
			return true;
	return false;
}

const struct dataset_generation *dataset_shown(
	const struct dataset *d, const struct volume_id *volume)
{
	for (uint32_t i = 0; i < d->n_shown; i++)
		if (volume_id_equal(&d->shown[i].volume, volume))
			return &d->shown[i];
	return NULL;
}

const struct dataset_mount *dataset_mount_at(const struct dataset *d, const char *path)
{
	char normal[DATASET_PATH_BYTES];

	if (dataset_path_normal(path, normal, NULL) < 0)
		return NULL;
	for (uint32_t i = 0; i < d->n_mounts; i++)
		if (strcmp(d->mounts[i].path, normal) == 0)
			return &d->mounts[i];
	return NULL;
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
		json_t *more = json_pack("{s:s, s:s, s:o, s:s*}", "path", m->path, "url", m->url,
			"volume", volume_json(&m->volume), "subtree", m->subtree);

		(void)json_object_update(json, more);   /* failures are counted */
		(void)json_array_append_new(all, json); /* likewise */
		json_decref(more);
	}
	return all;
}

static json_t *generations_json(const struct dataset_generation *all, uint32_t n)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < n; i++)
		(void)json_array_append_new(
			list, generation_json(&all[i])); /* failures are counted */
	return list;
}

static bool is_simple(const struct dataset *d)
{
	return d->n_mounts == 1 && !d->mounts[0].subtree && strcmp(d->mounts[0].path, "/") == 0;
}

/* As older versions know it, where they know it at all. */
static void set_shown(json_t *json, const struct dataset *d)
{
	if (d->n_shown > 0)
		(void)json_object_set_new(json, "shown", /* failures are counted */
			is_simple(d) ? generation_json(&d->shown[0])
				     : generations_json(d->shown, d->n_shown));
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
	if (policy->parts & POLICY_BANDWIDTH)
		(void)json_object_set_new(json, "origin_bandwidth",
			json_integer((json_int_t)policy->to.origin_bandwidth));
	if (policy->parts & POLICY_REQUESTS)
		(void)json_object_set_new(json, "origin_requests",
			json_integer((json_int_t)policy->to.origin_requests));
	if (policy->parts & POLICY_COPIES)
		(void)json_object_set_new(
			json, "copies", json_integer((json_int_t)policy->to.copies));
	if (policy->parts & POLICY_DIRECT)
		(void)json_object_set_new(json, "direct", json_boolean(policy->to.direct));
}

int dataset_encode(const struct dataset *d, struct buf *out)
{
	uint64_t failures = admin_json_failures();
	json_auto_t *json =
		json_pack("{s:i, s:s, s:s, s:I, s:o, s:s*, s:s*, s:I, s:I, s:s, s:I, s:o}",
			"format", is_simple(d) ? DATASET_FORMAT : DATASET_SEVERAL, "name", d->name,
			"uuid", d->uuid, "created", (json_int_t)d->created, "mounts",
			mounts_json(d), "cache_scope", d->cache_scope, "allow", d->allow, "idle_s",
			(json_int_t)d->idle_s, "ttl_s", (json_int_t)d->ttl_s, "consistency",
			d->consistency == DATASET_FOLLOW ? "follow" : "pinned", "interval_s",
			(json_int_t)d->interval_s, "pins", generations_json(d->pins, d->n_pins));
	_cleanup_free_ char *text = NULL;

	if (json)
		set_policy(json, &d->policy);
	if (json)
		set_shown(json, d);
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
	if (!json)
		return 0;
	if (record_u64_hex(json, "lineage", &ret->lineage) < 0 ||
		get_volume(json, &ret->volume) < 0 ||
		get_u64(json, "generation", &ret->generation) < 0 || ret->generation == 0)
		return -EBADMSG;
	return 0;
}

/* How the cluster serves it. */
static int get_spread(const json_t *json, struct policy_change *ret)
{
	uint64_t copies = COPIES_AUTO;

	if (json_object_get(json, "copies"))
		ret->parts |= POLICY_COPIES;
	if (get_u64(json, "copies", &copies) < 0 || !copies_valid(copies))
		return -EBADMSG;
	ret->to.copies = (uint32_t)copies;
	if (json_object_get(json, "direct")) {
		ret->parts |= POLICY_DIRECT;
		ret->to.direct = json_is_true(json_object_get(json, "direct"));
	}
	return 0;
}

static int get_policy(const json_t *json, struct policy_change *ret)
{
	const json_t *priority = json_object_get(json, "priority");
	const json_t *pin = json_object_get(json, "pin");
	const char *evict = json_string_value(json_object_get(json, "evict"));

	if (json_object_get(json, "quota"))
		ret->parts |= POLICY_QUOTA;
	if (json_object_get(json, "origin_bandwidth"))
		ret->parts |= POLICY_BANDWIDTH;
	if (json_object_get(json, "origin_requests"))
		ret->parts |= POLICY_REQUESTS;
	if (get_u64(json, "quota", &ret->to.quota) < 0 ||
		get_u64(json, "origin_bandwidth", &ret->to.origin_bandwidth) < 0 ||
		get_u64(json, "origin_requests", &ret->to.origin_requests) < 0)
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
	if (get_spread(json, ret) < 0)
		return -EBADMSG;
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
		if (r == 0)
			r = get_text(one, "subtree", &m->subtree);
		if (r == 0 && (!m->path || !m->url))
			r = -EBADMSG;
		if (r < 0)
			return r;
	}
	return 0;
}

static int get_generations(
	const json_t *json, struct dataset_generation *all, uint32_t most, uint32_t *ret_n)
{
	const json_t *one;
	size_t i;

	if (json_array_size(json) > most)
		return -EBADMSG;
	json_array_foreach (json, i, one)
		if (get_generation(one, &all[i]) < 0)
			return -EBADMSG;
	*ret_n = (uint32_t)json_array_size(json);
	return 0;
}

static int get_shown(const json_t *json, struct dataset *d)
{
	if (!json || json_is_array(json))
		return get_generations(json, d->shown, DATASET_MOUNTS_MAX, &d->n_shown);
	d->n_shown = 1;
	return get_generation(json, &d->shown[0]);
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
	if (consistency && strcmp(consistency, "follow") == 0)
		d->consistency = DATASET_FOLLOW;
	else if (consistency && strcmp(consistency, "pinned") != 0)
		return -EPROTONOSUPPORT;         /* of a newer version, which knows another */
	memcpy(d->name, name, strlen(name) + 1); /* fits: checked */
	memcpy(d->uuid, uuid, sizeof(d->uuid));
	return 0;
}

static int decode(const json_t *json, struct dataset *d)
{
	json_int_t format = json_integer_value(json_object_get(json, "format"));
	uint64_t created = 0;
	int r;

	if (format != DATASET_FORMAT && format != DATASET_SEVERAL)
		return format > DATASET_SEVERAL ? -EPROTONOSUPPORT : -EBADMSG;
	r = get_words(json, d);
	if (r == 0)
		r = get_mounts(json_object_get(json, "mounts"), d);
	if (r == 0)
		r = get_text(json, "cache_scope", &d->cache_scope);
	if (r == 0)
		r = get_text(json, "allow", &d->allow);
	if (r == 0 && (get_u64(json, "created", &created) < 0 ||
			      get_u64(json, "idle_s", &d->idle_s) < 0 ||
			      get_u64(json, "ttl_s", &d->ttl_s) < 0 ||
			      get_u64(json, "interval_s", &d->interval_s) < 0 ||
			      d->interval_s > FOLLOW_MOST_S))
		r = -EBADMSG;
	d->created = (int64_t)created;
	if (r == 0)
		r = get_policy(json, &d->policy);
	if (r == 0)
		r = get_shown(json_object_get(json, "shown"), d);
	return r == 0 ? get_generations(json_object_get(json, "pins"), d->pins, DATASET_PINS_MAX,
				&d->n_pins)
		      : r;
}

int dataset_decode(const void *data, size_t len, struct dataset *ret)
{
	json_auto_t *json = NULL;
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
