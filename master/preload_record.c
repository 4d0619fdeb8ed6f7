/* A preload's record as JSON. See preload.h. */
#include "base/cleanup.h"
#include "base/hash.h"
#include "master/preload.h"

#include <inttypes.h>
#include <string.h>

#define PRELOAD_FORMAT 1

void preload_record_release(struct preload_record *record)
{
	ufs_config_release(&record->config);
	free(TAKE(record->target));
	free(TAKE(record->subtree));
	free(TAKE(record->at));
	for (uint32_t i = 0; i < record->n_paths; i++)
		free(record->paths[i]);
	record->n_paths = 0;
	for (uint32_t i = 0; i < record->n_parts; i++)
		json_decref(record->parts[i].failures);
	record->n_parts = 0;
	free(TAKE(record->parts));
	json_decref(TAKE(record->failures));
}

void preload_record_key(uint64_t id, char out[RECORD_KEY_BYTES])
{
	(void)snprintf(out, RECORD_KEY_BYTES, "preload/%020" PRIu64, id); /* always fits */
}

static json_t *paths_json(const struct preload_record *record)
{
	json_t *all = json_array();

	for (uint32_t i = 0; i < record->n_paths; i++)
		if (json_array_append_new(all, json_string(record->paths[i])) != 0) {
			json_decref(all);
			return NULL;
		}
	return all;
}

/* A record that its reader refuses keeps the next master from starting: workers may count what they
 * like. */
static json_int_t number(uint64_t value)
{
	return (json_int_t)min(value, (uint64_t)INT64_MAX);
}

static json_t *part_json(const struct preload_part *part)
{
	return json_pack("{s:o, s:s, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:I}", "id",
		json_sprintf("%016" PRIx64, part->worker), "state", preload_state_name(part->state),
		"files_done", number(part->files_done), "files_failed", number(part->files_failed),
		"bytes_done", number(part->bytes_done), "bytes_copied", number(part->bytes_copied),
		"bytes_fetched", number(part->fetched_before + part->run_fetched), "reason",
		admin_json_string(part->reason), "run", json_sprintf("%016" PRIx64, part->run),
		"run_fetched", number(part->run_fetched));
}

/* Failures are counted. */
static json_t *parts_json(const struct preload_record *record)
{
	json_t *all = json_array();

	for (uint32_t i = 0; i < record->n_parts && i < PRELOAD_PARTS_KEPT; i++)
		(void)json_array_append_new(all, part_json(&record->parts[i]));
	return all;
}

json_t *preload_record_json(const struct preload_record *r)
{
	uint64_t failures = admin_json_failures();
	char volume[2 * VOLUME_ID_LEN + 1];
	json_t *json;

	hash_hex(r->volume.bytes, VOLUME_ID_LEN, volume);
	json = json_pack("{s:I, s:s, s:s, s:s, s:o, s:I, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, "
			 "s:I, s:I, s:I, s:b, s:b, s:o, s:O*, s:s*, s:s*, s:o, s:o*}",
		"id", (json_int_t)r->id, "state", preload_state_name(r->state), "target", r->target,
		"volume", volume, "lineage", json_sprintf("%016" PRIx64, r->lineage), "generation",
		number(r->generation), "paths", paths_json(r), "bandwidth", number(r->bandwidth),
		"created", (json_int_t)r->created, "started", (json_int_t)r->started, "ended",
		(json_int_t)r->ended, "files", number(r->files), "files_done",
		number(r->files_done), "files_failed", number(r->files_failed), "bytes",
		number(r->bytes), "bytes_done", number(r->bytes_done), "bytes_fetched",
		number(r->bytes_fetched), "exact", (int)r->exact, "part", (int)r->part, "reason",
		admin_json_string(r->reason), "failures", r->failures, "subtree", r->subtree, "at",
		r->at, "workers", parts_json(r), "user", r->user ? json_integer(r->user) : NULL);
	if (admin_json_failures() == failures)
		return json;
	json_decref(json);
	return NULL;
}

int preload_record_encode(const struct preload_record *record, struct buf *out)
{
	json_auto_t *json = preload_record_json(record);
	_cleanup_free_ char *text = NULL;

	if (!json || json_object_set_new(json, "format", json_integer(PRELOAD_FORMAT)) != 0)
		return -ENOMEM;
	if (record->state == PRELOAD_LISTING &&
		(json_object_set_new(json, "refresh", json_boolean(record->refresh)) != 0 ||
			json_object_set_new(json, "config", record_config_json(&record->config)) !=
				0))
		return -ENOMEM;
	text = admin_json_text(json, JSON_COMPACT | JSON_SORT_KEYS);
	return text ? buf_puts(out, text) : -ENOMEM;
}

/* ---- reading --------------------------------------------------------------------------------- */

static int get_u64(const json_t *json, const char *name, uint64_t *ret)
{
	const json_t *value = json_object_get(json, name);

	if (!json_is_integer(value) || json_integer_value(value) < 0)
		return -EBADMSG;
	*ret = (uint64_t)json_integer_value(value);
	return 0;
}

static int get_time(const json_t *json, const char *name, int64_t *ret)
{
	uint64_t seconds;
	int r = get_u64(json, name, &seconds);

	if (r == 0)
		*ret = (int64_t)seconds;
	return r;
}

static int get_state(const json_t *json, enum preload_state *ret)
{
	const char *name = json_string_value(json_object_get(json, "state"));

	for (int i = 0; name && i < PRELOAD_STATES; i++) {
		if (strcmp(name, preload_state_name((enum preload_state)i)) != 0)
			continue;
		*ret = (enum preload_state)i;
		return 0;
	}
	return -EBADMSG;
}

static int get_paths(const json_t *json, struct preload_record *record)
{
	const json_t *paths = json_object_get(json, "paths");

	if (json_array_size(paths) > PRELOAD_PATHS_MAX)
		return -EBADMSG;
	for (size_t i = 0; i < json_array_size(paths); i++) {
		const char *path = json_string_value(json_array_get(paths, i));

		if (!path)
			return -EBADMSG;
		record->paths[record->n_paths] = strdup(path);
		if (!record->paths[record->n_paths])
			return -ENOMEM;
		record->n_paths++;
	}
	return 0;
}

static int get_numbers(const json_t *json, struct preload_record *r)
{
	bool bad = get_u64(json, "id", &r->id) < 0 || r->id == 0 ||
		   get_u64(json, "generation", &r->generation) < 0 ||
		   get_u64(json, "bandwidth", &r->bandwidth) < 0 ||
		   get_time(json, "created", &r->created) < 0 ||
		   get_time(json, "started", &r->started) < 0 ||
		   get_time(json, "ended", &r->ended) < 0 ||
		   get_u64(json, "files", &r->files) < 0 ||
		   get_u64(json, "files_done", &r->files_done) < 0 ||
		   get_u64(json, "files_failed", &r->files_failed) < 0 ||
		   get_u64(json, "bytes", &r->bytes) < 0 ||
		   get_u64(json, "bytes_done", &r->bytes_done) < 0 ||
		   get_u64(json, "bytes_fetched", &r->bytes_fetched) < 0;

	return bad ? -EBADMSG : 0;
}

static int get_part(const json_t *json, struct preload_part *part)
{
	const char *reason = json_string_value(json_object_get(json, "reason"));
	uint64_t fetched;

	if (record_u64_hex(json, "id", &part->worker) < 0 ||
		record_u64_hex(json, "run", &part->run) < 0 || get_state(json, &part->state) < 0 ||
		get_u64(json, "files_done", &part->files_done) < 0 ||
		get_u64(json, "files_failed", &part->files_failed) < 0 ||
		get_u64(json, "bytes_done", &part->bytes_done) < 0 ||
		get_u64(json, "bytes_copied", &part->bytes_copied) < 0 ||
		get_u64(json, "bytes_fetched", &fetched) < 0 ||
		get_u64(json, "run_fetched", &part->run_fetched) < 0)
		return -EBADMSG;
	part->fetched_before = fetched - min(fetched, part->run_fetched);
	(void)snprintf(part->reason, sizeof(part->reason), "%s", reason ? reason : ""); /* cut */
	return 0;
}

/* Of versions before there were several workers: one run, or none. */
static int get_run(const json_t *json, struct preload_record *r)
{
	struct preload_part *part = &r->parts[0];

	if (!json_object_get(json, "run"))
		return 0;
	r->n_parts = 1;
	part->state = PRELOAD_RUNNING;
	if (record_u64_hex(json, "run", &part->run) < 0 ||
		get_u64(json, "run_fetched", &part->run_fetched) < 0)
		return -EBADMSG;
	part->run_fetched = min(part->run_fetched, r->bytes_fetched);
	part->fetched_before = r->bytes_fetched - part->run_fetched;
	return 0;
}

static int get_parts(const json_t *json, struct preload_record *r)
{
	const json_t *parts = json_object_get(json, "workers");
	size_t n = json_array_size(parts);
	int e = 0;

	if (n > PRELOAD_PARTS_KEPT)
		return -EBADMSG;
	r->parts = calloc(n + 1, sizeof(*r->parts));
	if (!r->parts)
		return -ENOMEM;
	if (!parts)
		return get_run(json, r);
	for (size_t i = 0; i < n && e == 0; i++) {
		e = get_part(json_array_get(parts, i), &r->parts[i]);
		r->n_parts++;
	}
	return e;
}

static int get_ids(const json_t *json, struct preload_record *r)
{
	const char *volume = json_string_value(json_object_get(json, "volume"));

	if (!volume || hash_unhex(volume, r->volume.bytes, VOLUME_ID_LEN) < 0)
		return -EBADMSG;
	return record_u64_hex(json, "lineage", &r->lineage);
}

static int get_texts(const json_t *json, struct preload_record *r)
{
	const char *target = json_string_value(json_object_get(json, "target"));
	const char *reason = json_string_value(json_object_get(json, "reason"));
	const char *subtree = json_string_value(json_object_get(json, "subtree"));
	const char *at = json_string_value(json_object_get(json, "at"));

	if (!target || !reason)
		return -EBADMSG;
	(void)snprintf(r->reason, sizeof(r->reason), "%s", reason); /* cut: for people */
	r->target = strdup(target);
	r->subtree = subtree ? strdup(subtree) : NULL;
	r->at = at ? strdup(at) : NULL;
	return r->target && !r->subtree == !subtree && !r->at == !at ? 0 : -ENOMEM;
}

static int get_all(const json_t *json, struct preload_record *r)
{
	json_int_t format = json_integer_value(json_object_get(json, "format"));
	int e;

	if (format != PRELOAD_FORMAT)
		return format > PRELOAD_FORMAT ? -EPROTONOSUPPORT : -EBADMSG;
	if ((e = get_state(json, &r->state)) < 0 || (e = get_numbers(json, r)) < 0 ||
		(e = get_ids(json, r)) < 0 || (e = get_parts(json, r)) < 0 ||
		(e = get_texts(json, r)) < 0 || (e = get_paths(json, r)) < 0)
		return e;
	r->user = (uint32_t)json_integer_value(json_object_get(json, "user"));
	r->failures = json_incref(json_object_get(json, "failures"));
	r->exact = json_is_true(json_object_get(json, "exact"));
	r->part = json_is_true(json_object_get(json, "part"));
	if (r->state != PRELOAD_LISTING)
		return 0;
	r->refresh = json_is_true(json_object_get(json, "refresh"));
	return record_config_decode(json_object_get(json, "config"), &r->config);
}

int preload_record_decode(const void *data, size_t len, struct preload_record *ret_record)
{
	json_auto_t *json = NULL;
	struct preload_record record = { 0 };
	int r = admin_json_parse(data, len, JSON_REJECT_DUPLICATES, &json, NULL);

	if (r == 0)
		r = get_all(json, &record);
	if (r < 0)
		preload_record_release(&record);
	else
		*ret_record = record;
	return r;
}
