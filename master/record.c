/* Records of the master's store as JSON. See record.h. */
#include "master/record.h"
#include "admin/admin.h"
#include "base/hash.h"

#include <inttypes.h>
#include <string.h>

#define RECORD_FORMAT 1

void record_source_release(struct record_source *record)
{
	ufs_config_release(&record->config);
	record_drop_release(&record->drop);
	free(record->text);
	record->text = NULL;
}

static void volume_key(const char *kind, const struct volume_id *volume, char out[RECORD_KEY_BYTES])
{
	char hex[2 * VOLUME_ID_LEN + 1];

	hash_hex(volume->bytes, VOLUME_ID_LEN, hex);
	(void)snprintf(out, RECORD_KEY_BYTES, "%s/%s", kind, hex); /* always fits */
}

static void serial_key(const char *kind, const struct volume_id *volume, uint64_t serial,
	char out[RECORD_KEY_BYTES])
{
	char hex[2 * VOLUME_ID_LEN + 1];

	hash_hex(volume->bytes, VOLUME_ID_LEN, hex);
	(void)snprintf(
		out, RECORD_KEY_BYTES, "%s/%s/%020" PRIu64, kind, hex, serial); /* always fits */
}

void record_source_key(const struct volume_id *volume, char out[RECORD_KEY_BYTES])
{
	volume_key("source", volume, out);
}

void record_generation_key(
	const struct volume_id *volume, uint64_t serial, char out[RECORD_KEY_BYTES])
{
	serial_key("generation", volume, serial, out);
}

void record_held_key(const struct volume_id *volume, uint64_t serial, char out[RECORD_KEY_BYTES])
{
	serial_key("held", volume, serial, out);
}

/* ---- writing --------------------------------------------------------------------------------- */

static json_t *json_hex(const void *data, size_t len)
{
	char hex[2 * SHA256_BYTES + 1];

	ensure(len <= SHA256_BYTES);
	hash_hex(data, len, hex);
	return json_string(hex);
}

static json_t *json_u64_hex(uint64_t value)
{
	return json_sprintf("%016" PRIx64, value);
}

/* Takes the reference `json`, which is NULL without memory, and not whole when JSON has failed more
 * often than `failures`. */
static int append_json(json_t *json, uint64_t failures, struct buf *out)
{
	char *text;
	int r;

	text = failures == admin_json_failures()
		       ? admin_json_text(json, JSON_COMPACT | JSON_SORT_KEYS)
		       : NULL;
	json_decref(json);
	if (!text)
		return -ENOMEM;
	r = buf_puts(out, text);
	free(text);
	return r;
}

/* Members of a record in addition to others: older versions know no `credentials` and what follows. */
static int set_config(json_t *json, const struct ufs_config *c)
{
	json_t *more = json_pack("{s:i, s:s*, s:s*, s:s*, s:s*, s:s*, s:s*, s:s*, s:s*, s:b, s:b, "
				 "s:b, s:b, s:b, s:i}",
		"scheme", (int)c->scheme, "endpoint", c->endpoint, "region", c->region, "bucket",
		c->bucket, "prefix", c->prefix, "profile", c->profile, "credentials",
		c->credentials, "ca_file", c->ca_file, "scope", c->scope, "resolved",
		(int)c->resolved, "no_local", (int)c->no_local, "path_style", (int)c->path_style,
		"anonymous", (int)c->anonymous, "requester_pays", (int)c->requester_pays,
		"versions", (int)c->versions);
	int r = json && more && json_object_update(json, more) == 0 ? 0 : -ENOMEM;

	json_decref(more);
	return r;
}

json_t *record_config_json(const struct ufs_config *config)
{
	json_t *json = json_object();

	if (set_config(json, config) < 0) {
		json_decref(json);
		return NULL;
	}
	return json;
}

void record_drop_release(struct record_drop *drop)
{
	for (uint32_t i = 0; i < drop->n; i++)
		free(drop->paths[i]);
	free(drop->subtree);
	free(drop->at);
	*drop = (struct record_drop){ 0 };
}

int record_drop_init(struct record_drop *drop, const char *const *paths, uint32_t n,
	const char *subtree, const char *at)
{
	bool whole = true;

	ensure(n <= RECORD_DROP_MAX);
	*drop = (struct record_drop){ .subtree = strdup(subtree), .at = strdup(at) };
	for (uint32_t i = 0; i < n; i++) {
		drop->paths[drop->n] = strdup(paths[i]);
		whole = whole && drop->paths[drop->n];
		drop->n++;
	}
	if (whole && drop->subtree && drop->at)
		return 0;
	record_drop_release(drop);
	return -ENOMEM;
}

static json_t *drop_json(const struct record_drop *drop)
{
	json_t *paths = json_array();

	for (uint32_t i = 0; i < drop->n; i++)
		(void)json_array_append_new(
			paths, json_string(drop->paths[i])); /* failures are counted */
	return json_pack("{s:I, s:o, s:s, s:s}", "serial", (json_int_t)drop->serial, "paths", paths,
		"subtree", drop->subtree, "at", drop->at);
}

/* Only where there are some: an older version passes them over. */
static void set_caps(json_t *json, const struct tier_policy *policy)
{
	if (policy->origin_bandwidth)
		(void)json_object_set_new(json, "origin_bandwidth", /* failures are counted */
			json_integer((json_int_t)policy->origin_bandwidth));
	if (policy->origin_requests)
		(void)json_object_set_new(json, "origin_requests", /* likewise */
			json_integer((json_int_t)policy->origin_requests));
	if (policy->copies)
		(void)json_object_set_new(/* likewise */
			json, "copies", json_integer((json_int_t)policy->copies));
	if (policy->direct)
		(void)json_object_set_new(json, "direct", json_true()); /* likewise */
}

int record_source_encode(const struct record_source *record, struct buf *out)
{
	uint64_t failures = admin_json_failures();
	json_t *json = json_pack("{s:i, s:o, s:s, s:I, s:i, s:b, s:s, s:I, s:I}", "format",
		RECORD_FORMAT, "volume", json_hex(record->volume.bytes, VOLUME_ID_LEN), "text",
		record->text, "quota", (json_int_t)record->policy.quota, "priority",
		(int)record->policy.priority, "pin", (int)record->policy.pin, "evict",
		tier_evict_name(record->policy.evict), "evict_serial", (json_int_t)record->evict,
		"used", (json_int_t)record->used);

	if (set_config(json, &record->config) < 0) {
		json_decref(json);
		return -ENOMEM;
	}
	set_caps(json, &record->policy);
	if (record->drop.serial)
		(void)json_object_set_new(
			json, "drop", drop_json(&record->drop)); /* failures are counted */
	return append_json(json, failures, out);
}

int record_generation_encode(const struct record_generation *record, struct buf *out)
{
	const struct generation_id *id = &record->id;
	uint64_t failures = admin_json_failures();

	return append_json(
		json_pack("{s:i, s:o, s:o, s:I, s:I, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, "
			  "s:I, s:I, s:b}",
			"format", RECORD_FORMAT, "volume",
			json_hex(id->volume.bytes, VOLUME_ID_LEN), "lineage",
			json_u64_hex(id->lineage), "generation", (json_int_t)id->generation,
			"serial", (json_int_t)record->serial, "hash",
			json_hex(id->hash, SHA256_BYTES), "prev_hash",
			json_hex(id->prev_hash, SHA256_BYTES), "rows", (json_int_t)record->rows,
			"files", (json_int_t)record->files, "bytes", (json_int_t)record->bytes,
			"table_bytes", (json_int_t)record->table_bytes, "end",
			(json_int_t)record->end, "built_at", (json_int_t)record->built_at, "added",
			(json_int_t)record->added, "changed", (json_int_t)record->changed,
			"removed", (json_int_t)record->removed, "kept", (int)record->kept),
		failures, out);
}

int record_cluster_encode(const struct record_cluster *record, struct buf *out)
{
	uint64_t failures = admin_json_failures();

	return append_json(json_pack("{s:i, s:s, s:I, s:o}", "format", RECORD_FORMAT, "uuid",
				   record->uuid, "epoch", (json_int_t)record->epoch, "seal_key",
				   json_hex(record->seal_key, SHA256_BYTES)),
		failures, out);
}

int record_refuse(struct err *e, int code, const char *what)
{
	if (code == -ENOMEM)
		return err_set(e, code, "out of memory");
	if (code == -EPROTONOSUPPORT)
		return err_set(e, code,
			"the master's store has %s of a newer version: start that version, or "
			"restore a backup of this version",
			what);
	return err_set(e, code,
		"the master's store has %s that cannot be decoded: %s: restore a backup", what,
		err_str(code));
}

/* ---- reading --------------------------------------------------------------------------------- */

static int load(const void *data, size_t len, json_t **ret_json)
{
	json_t *json;
	json_int_t format;
	int r = admin_json_parse(data, len, JSON_REJECT_DUPLICATES, &json, NULL);

	if (r < 0)
		return r;
	if (!json_is_object(json)) {
		json_decref(json);
		return -EBADMSG;
	}
	format = json_integer_value(json_object_get(json, "format"));
	if (format != RECORD_FORMAT) {
		json_decref(json);
		return format > RECORD_FORMAT ? -EPROTONOSUPPORT : -EBADMSG;
	}
	*ret_json = json;
	return 0;
}

static int get_hex(const json_t *json, const char *name, void *out, size_t len)
{
	const char *text = json_string_value(json_object_get(json, name));

	return text && hash_unhex(text, out, len) == 0 ? 0 : -EBADMSG;
}

int record_u64_hex(const json_t *json, const char *name, uint64_t *ret)
{
	uint8_t bytes[8];
	int r = get_hex(json, name, bytes, sizeof(bytes));

	if (r < 0)
		return r;
	*ret = 0;
	for (size_t i = 0; i < sizeof(bytes); i++)
		*ret = *ret << 8 | bytes[i];
	return 0;
}

static int get_u64(const json_t *json, const char *name, uint64_t *ret)
{
	const json_t *value = json_object_get(json, name);

	if (!json_is_integer(value) || json_integer_value(value) < 0)
		return -EBADMSG;
	*ret = (uint64_t)json_integer_value(value);
	return 0;
}

/* A string that may be absent. */
static int get_text(const json_t *json, const char *name, char **ret)
{
	const char *text = json_string_value(json_object_get(json, name));

	*ret = text ? strdup(text) : NULL;
	return text && !*ret ? -ENOMEM : 0;
}

/* Absent in the records of an older version: the default. */
static int get_policy(const json_t *json, struct tier_policy *ret)
{
	const char *evict = json_string_value(json_object_get(json, "evict"));
	const json_t *quota = json_object_get(json, "quota");
	json_int_t priority = json_integer_value(json_object_get(json, "priority"));
	uint64_t copies = COPIES_AUTO;

	if (quota && get_u64(json, "quota", &ret->quota) < 0)
		return -EBADMSG;
	if (priority < INT32_MIN || priority > INT32_MAX)
		return -EBADMSG;
	(void)get_u64(json, "origin_bandwidth", &ret->origin_bandwidth); /* none */
	(void)get_u64(json, "origin_requests", &ret->origin_requests);   /* likewise */
	(void)get_u64(json, "copies", &copies);                          /* likewise */
	if (!copies_valid(copies))
		return -EBADMSG;
	ret->copies = (uint32_t)copies;
	ret->direct = json_is_true(json_object_get(json, "direct"));
	ret->priority = (int32_t)priority;
	ret->pin = json_is_true(json_object_get(json, "pin"));
	return evict ? tier_evict_parse(evict, &ret->evict) : 0;
}

int record_config_decode(const json_t *json, struct ufs_config *ret_config)
{
	const json_t *versions = json_object_get(json, "versions");
	struct ufs_config c = { 0 };
	uint64_t scheme;
	uint64_t how = UFS_VERSIONS_AUTO;

	if (get_u64(json, "scheme", &scheme) < 0 || scheme > UFS_OBS ||
		(versions && (get_u64(json, "versions", &how) < 0 || how > UFS_VERSIONS_OFF)))
		return -EBADMSG;
	c.scheme = (enum ufs_scheme)scheme;
	c.versions = (enum ufs_versions)how;
	c.resolved = json_is_true(json_object_get(json, "resolved"));
	c.no_local = json_is_true(json_object_get(json, "no_local"));
	c.path_style = json_is_true(json_object_get(json, "path_style"));
	c.anonymous = json_is_true(json_object_get(json, "anonymous"));
	c.requester_pays = json_is_true(json_object_get(json, "requester_pays"));
	if (get_text(json, "endpoint", &c.endpoint) < 0 ||
		get_text(json, "region", &c.region) < 0 ||
		get_text(json, "bucket", &c.bucket) < 0 ||
		get_text(json, "prefix", &c.prefix) < 0 ||
		get_text(json, "profile", &c.profile) < 0 ||
		get_text(json, "credentials", &c.credentials) < 0 ||
		get_text(json, "ca_file", &c.ca_file) < 0 ||
		get_text(json, "scope", &c.scope) < 0) {
		ufs_config_release(&c);
		return -ENOMEM;
	}
	if (!c.prefix) {
		ufs_config_release(&c);
		return -EBADMSG;
	}
	*ret_config = c;
	return 0;
}

/* Absent, and in the records of an older version: none. */
static int get_drop(const json_t *json, struct record_drop *ret)
{
	const json_t *drop = json_object_get(json, "drop");
	const json_t *paths = json_object_get(drop, "paths");
	const char *subtree = json_string_value(json_object_get(drop, "subtree"));
	const char *at = json_string_value(json_object_get(drop, "at"));
	const char *texts[RECORD_DROP_MAX];
	uint64_t serial;
	uint32_t n = 0;
	int r;

	if (!drop)
		return 0;
	if (get_u64(drop, "serial", &serial) < 0 || !subtree || !at ||
		json_array_size(paths) > RECORD_DROP_MAX)
		return -EBADMSG;
	for (size_t i = 0; i < json_array_size(paths); i++) {
		texts[n] = json_string_value(json_array_get(paths, i));
		if (!texts[n++])
			return -EBADMSG;
	}
	r = record_drop_init(ret, texts, n, subtree, at);
	ret->serial = serial;
	return r;
}

int record_source_decode(const void *data, size_t len, struct record_source *ret_record)
{
	json_auto_t *json = NULL;
	struct record_source record = { 0 };
	uint64_t used = 0;
	int r = load(data, len, &json);

	if (r < 0)
		return r;
	if (get_hex(json, "volume", record.volume.bytes, VOLUME_ID_LEN) < 0 ||
		get_policy(json, &record.policy) < 0)
		return -EBADMSG;
	(void)get_u64(json, "evict_serial", &record.evict); /* older records have none */
	(void)get_u64(json, "used", &used);                 /* likewise */
	record.used = (int64_t)used;
	r = record_config_decode(json, &record.config);
	if (r == 0)
		r = get_drop(json, &record.drop);
	if (r == 0)
		r = get_text(json, "text", &record.text);
	if (r == 0 && !record.text)
		r = -EBADMSG;
	if (r < 0) {
		record_source_release(&record);
		return r;
	}
	*ret_record = record;
	return 0;
}

int record_generation_decode(const void *data, size_t len, struct record_generation *ret_record)
{
	json_auto_t *json = NULL;
	struct record_generation g = { 0 };
	uint64_t built_at;
	int r = load(data, len, &json);

	if (r < 0)
		return r;
	if (get_hex(json, "volume", g.id.volume.bytes, VOLUME_ID_LEN) < 0 ||
		record_u64_hex(json, "lineage", &g.id.lineage) < 0 ||
		get_u64(json, "generation", &g.id.generation) < 0 ||
		get_u64(json, "serial", &g.serial) < 0 ||
		get_hex(json, "hash", g.id.hash, SHA256_BYTES) < 0 ||
		get_hex(json, "prev_hash", g.id.prev_hash, SHA256_BYTES) < 0 ||
		get_u64(json, "rows", &g.rows) < 0 || get_u64(json, "files", &g.files) < 0 ||
		get_u64(json, "bytes", &g.bytes) < 0 ||
		get_u64(json, "table_bytes", &g.table_bytes) < 0 ||
		get_u64(json, "built_at", &built_at) < 0)
		return -EBADMSG;
	g.built_at = (int64_t)built_at;
	(void)get_u64(json, "end", &g.end); /* older records have none, nor what follows */
	(void)get_u64(json, "added", &g.added);
	(void)get_u64(json, "changed", &g.changed);
	(void)get_u64(json, "removed", &g.removed);
	g.kept = json_is_true(json_object_get(json, "kept"));
	*ret_record = g;
	return 0;
}

int record_cluster_decode(const void *data, size_t len, struct record_cluster *ret_record)
{
	json_auto_t *json = NULL;
	struct record_cluster record = { 0 };
	const char *uuid;
	int r = load(data, len, &json);

	if (r < 0)
		return r;
	uuid = json_string_value(json_object_get(json, "uuid"));
	if (!uuid || strlen(uuid) != sizeof(record.uuid) - 1 ||
		get_u64(json, "epoch", &record.epoch) < 0 ||
		(json_object_get(json, "seal_key") &&
			get_hex(json, "seal_key", record.seal_key, SHA256_BYTES) < 0))
		return -EBADMSG;
	memcpy(record.uuid, uuid, sizeof(record.uuid));
	*ret_record = record;
	return 0;
}
