/* What a request for a preload says, checked. See preload.h. */
#include "base/cleanup.h"
#include "base/glob.h"
#include "base/hash.h"
#include "master/dataset.h"
#include "master/preload.h"

#include <string.h>

static const char *const known[] = { "url", "dataset", "volume", "label", "lineage", "generation",
	"refresh", "paths", "bandwidth", "endpoint", "region", "profile", "credentials", "ca_file",
	"path_style", "anonymous", "requester_pays", "versions", "subtree", "at", "part" };

static int check_members(const json_t *body, struct err *e)
{
	const char *name;
	const json_t *value;

	json_object_foreach ((json_t *)(uintptr_t)body, name, value) {
		bool found = false;

		for (size_t i = 0; i < ARRAY_SIZE(known); i++)
			found |= strcmp(name, known[i]) == 0;
		if (!found)
			return err_set(e, -EINVAL,
				"a preload has no field '%.64s': see docs/openapi.yaml", name);
	}
	return 0;
}

static int take_text(const json_t *body, const char *name, char **ret, struct err *e)
{
	const json_t *value = json_object_get(body, name);
	const char *text = json_string_value(value);

	if (!value)
		return 0;
	if (!text || !*text || strlen(text) > LIMIT_URL_BYTES ||
		strlen(text) != json_string_length(value))
		return err_set(e, -EINVAL, "'%s' must be a string of 1 to %u bytes", name,
			LIMIT_URL_BYTES);
	*ret = strdup(text);
	return *ret ? 0 : err_set(e, -ENOMEM, "out of memory");
}

static int take_config(struct preload_record *record, const char *url, const json_t *body,
	const struct source_rules *rules, struct err *e)
{
	struct ufs_config *c = &record->config;
	int r = ufs_config_parse(url, c, e);

	if (r < 0)
		return r;
	c->path_style = json_is_true(json_object_get(body, "path_style"));
	c->anonymous = json_is_true(json_object_get(body, "anonymous"));
	c->requester_pays = json_is_true(json_object_get(body, "requester_pays"));
	if ((r = take_text(body, "endpoint", &c->endpoint, e)) < 0 ||
		(r = take_text(body, "region", &c->region, e)) < 0 ||
		(r = take_text(body, "profile", &c->profile, e)) < 0 ||
		(r = take_text(body, "credentials", &c->credentials, e)) < 0 ||
		(r = take_text(body, "ca_file", &c->ca_file, e)) < 0)
		return r;
	if (c->credentials && (r = ufs_credentials_check(c->credentials, e)) < 0)
		return r;
	r = ufs_versions_parse(
		json_string_value(json_object_get(body, "versions")), &c->versions, e);
	return r == 0 ? source_rules_check(rules, c, NULL, e) : r;
}

static int take_mount(
	struct preload_record *record, const struct dataset *d, const struct dataset_mount *m)
{
	const struct dataset_generation *shown = dataset_shown(d, &m->volume);
	int r = ufs_config_copy(&m->config, &record->config);

	if (shown) { /* it was rolled back to */
		record->lineage = shown->lineage;
		record->generation = shown->generation;
	}
	record->exact = shown != NULL;
	record->part = d->n_mounts > 1;
	if (record->bandwidth && record->part) /* of all together */
		record->bandwidth = record->bandwidth / d->n_mounts + 1;
	if (r == 0 && m->subtree) {
		record->subtree = strdup(m->subtree);
		r = record->subtree ? 0 : -ENOMEM;
	}
	if (r == 0 && m->path[1] && asprintf(&record->at, "%s/", m->path + 1) < 0) {
		record->at = NULL;
		r = -ENOMEM;
	}
	return r;
}

static int take_dataset(struct preload_record *record, const char *name, uint32_t mount,
	struct dataset_set *datasets, struct err *e)
{
	struct dataset found = { 0 };
	int r;

	if (!datasets)
		return err_set(e, -ENOENT, "no dataset '%.80s': see `cachectl dataset list`", name);
	r = dataset_set_find(datasets, name, &found, e);
	if (r < 0)
		return r;
	if (mount >= found.n_mounts)
		r = -ENOENT; /* there was another one when the request came */
	else
		r = take_mount(record, &found, &found.mounts[mount]);
	dataset_release(&found);
	return r < 0 ? err_set(e, r, "the dataset cannot be preloaded now: %s", err_str(r)) : 0;
}

/* Of keys or paths: what ends with a slash. */
static int take_directory(const json_t *body, const char *name, char **ret, struct err *e)
{
	int r = take_text(body, name, ret, e);
	size_t len = r == 0 && *ret ? strlen(*ret) : 0;

	if (len && ((*ret)[len - 1] != '/' || len > LIMIT_KEY_BYTES))
		r = err_set(e, -EINVAL, "'%s' must end with '/' and have at most %u bytes", name,
			LIMIT_KEY_BYTES);
	return r;
}

static int take_lineage(const json_t *body, uint64_t *ret, struct err *e)
{
	if (!json_object_get(body, "lineage") || record_u64_hex(body, "lineage", ret) == 0)
		return 0;
	return err_set(e, -EINVAL, "'lineage' must be 16 hexadecimal digits");
}

/* A volume, or what a mount shows of it. */
static int take_volume(
	struct preload_record *record, const char *volume, const json_t *body, struct err *e)
{
	int r;

	if (hash_unhex(volume, record->volume.bytes, VOLUME_ID_LEN) < 0)
		return err_set(
			e, -EINVAL, "'volume' must be %u hexadecimal digits", 2 * VOLUME_ID_LEN);
	if (json_is_integer(json_object_get(body, "generation")))
		record->generation =
			(uint64_t)json_integer_value(json_object_get(body, "generation"));
	record->part = json_is_true(json_object_get(body, "part"));
	r = take_lineage(body, &record->lineage, e);
	if (r == 0)
		r = take_directory(body, "subtree", &record->subtree, e);
	return r < 0 ? r : take_directory(body, "at", &record->at, e);
}

static int take_target(struct preload_record *record, const json_t *body, uint32_t mount,
	struct dataset_set *datasets, const struct source_rules *rules, struct err *e)
{
	const char *url = json_string_value(json_object_get(body, "url"));
	const char *dataset = json_string_value(json_object_get(body, "dataset"));
	const char *volume = json_string_value(json_object_get(body, "volume"));
	const char *label = json_string_value(json_object_get(body, "label"));
	const char *target = url ? url : dataset ? dataset : label ? label : volume;

	if ((url != NULL) + (dataset != NULL) + (volume != NULL) != 1)
		return err_set(
			e, -EINVAL, "a preload needs exactly one of 'url', 'dataset' and 'volume'");
	record->state = volume ? PRELOAD_WAITING : PRELOAD_LISTING;
	record->refresh = url && !json_is_false(json_object_get(body, "refresh"));
	record->target = strdup(target);
	if (!record->target)
		return err_set(e, -ENOMEM, "out of memory");
	if (volume)
		return take_volume(record, volume, body, e);
	return url ? take_config(record, url, body, rules, e)
		   : take_dataset(record, dataset, mount, datasets, e);
}

static int take_paths(struct preload_record *record, const json_t *paths, struct err *e)
{
	if (paths && !json_is_array(paths))
		return err_set(e, -EINVAL, "'paths' must be an array of patterns");
	if (json_array_size(paths) > PRELOAD_PATHS_MAX)
		return err_set(e, -EINVAL,
			"'paths' has at most %u patterns: create several preloads",
			PRELOAD_PATHS_MAX);
	for (size_t i = 0; i < json_array_size(paths); i++) {
		const json_t *value = json_array_get(paths, i);
		const char *path = json_string_value(value);
		int r;

		if (!path || strlen(path) != json_string_length(value) ||
			strlen(path) > PRELOAD_PATH_BYTES)
			return err_set(e, -EINVAL, "'paths' must have patterns of 1 to %u bytes",
				PRELOAD_PATH_BYTES);
		r = glob_check(path, e);
		if (r < 0)
			return r;
		record->paths[record->n_paths] = strdup(path);
		if (!record->paths[record->n_paths])
			return err_set(e, -ENOMEM, "out of memory");
		record->n_paths++;
	}
	return 0;
}

uint32_t preload_count(const json_t *body, struct dataset_set *datasets)
{
	const char *name = json_string_value(json_object_get(body, "dataset"));
	struct dataset found = { 0 };
	uint32_t n = 1;

	if (name && datasets && dataset_set_find(datasets, name, &found, NULL) == 0) {
		n = max(found.n_mounts, 1u);
		dataset_release(&found);
	}
	return n;
}

int preload_apply(struct preload_record *record, const json_t *body, uint32_t mount,
	struct dataset_set *datasets, const struct source_rules *rules, struct err *e)
{
	const json_t *bandwidth = json_object_get(body, "bandwidth");
	json_int_t rate = json_integer_value(bandwidth);
	int r;

	if (!json_is_object(body))
		return err_set(e, -EINVAL, "the request needs a JSON object as its body");
	if (bandwidth &&
		(!json_is_integer(bandwidth) || rate < 0 || (uint64_t)rate > PRELOAD_RATE_MAX))
		return err_set(e, -EINVAL,
			"'bandwidth' must be bytes per second, at most 1 TiB/s, or 0 for no limit");
	record->bandwidth = (uint64_t)rate;
	r = check_members(body, e);
	if (r == 0)
		r = take_target(record, body, mount, datasets, rules, e);
	return r == 0 ? take_paths(record, json_object_get(body, "paths"), e) : r;
}
