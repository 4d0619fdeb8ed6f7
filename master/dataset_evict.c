/* What is cached of a dataset, given up. See dataset.h. */
#include "base/cleanup.h"
#include "base/glob.h"
#include "base/hash.h"
#include "master/dataset_internal.h"

#include <string.h>

static int take_paths(const json_t *json, struct source_paths *paths, struct err *e)
{
	const json_t *one;
	size_t i;
	int r = 0;

	if (!json_is_array(json) || json_array_size(json) == 0 ||
		json_array_size(json) > SOURCE_PATHS_MAX)
		return err_set(
			e, -EINVAL, "'paths' wants an array of 1 to %u patterns", SOURCE_PATHS_MAX);
	json_array_foreach (json, i, one) {
		const char *text = json_string_value(one);

		if (!text || strlen(text) != json_string_length(one) ||
			strlen(text) > SOURCE_PATH_BYTES)
			return err_set(e, -EINVAL, "'paths' wants patterns of 1 to %u bytes",
				SOURCE_PATH_BYTES);
		r = glob_check(text, e);
		if (r < 0)
			return r;
		paths->paths[paths->n++] = text;
	}
	return 0;
}

static json_t *serial_json(const struct volume_id *volume, const char *name, uint64_t serial)
{
	char hex[2 * VOLUME_ID_LEN + 1];

	hash_hex(volume->bytes, VOLUME_ID_LEN, hex);
	return json_pack("{s:s, s:I}", "volume", hex, name, (json_int_t)serial);
}

/* What one mount shows: all of its source, or some. */
static int evict(struct dataset_set *set, const struct dataset_mount *mount,
	struct source_paths paths, json_t *done, struct err *e)
{
	char at[DATASET_PATH_BYTES + 1];
	uint64_t serial = 0;
	int r;

	if (paths.n == 0 && !mount->subtree) {
		r = source_set_evict(set->config.sources, &mount->volume, &serial, e);
		if (r == 0)
			(void)json_array_append_new(/* failures are counted */
				done, serial_json(&mount->volume, "serial", serial));
		return r;
	}
	paths.subtree = mount->subtree ? mount->subtree : "";
	(void)snprintf(
		at, sizeof(at), "%s%s", mount->path + 1, mount->path[1] ? "/" : ""); /* fits */
	paths.at = at;
	r = source_set_evict_paths(set->config.sources, &mount->volume, &paths, &serial, e);
	if (r == 0)
		(void)json_array_append_new(/* likewise */
			done, serial_json(&mount->volume, "paths_serial", serial));
	return r;
}

/* Of a source that several mounts show all goes once; of those that show parts each names its own. */
static bool is_covered(const struct dataset *d, uint32_t i, bool whole)
{
	for (uint32_t k = 0; k < i; k++)
		if (whole && !d->mounts[k].subtree &&
			volume_id_equal(&d->mounts[k].volume, &d->mounts[i].volume))
			return true;
	return false;
}

int dataset_evict(struct dataset_set *set, const char *name, const char *path, const json_t *paths,
	bool force, json_t **ret_json, struct err *e)
{
	const struct dataset_mount *only = NULL;
	_cleanup_(dataset_release) struct dataset d = { 0 };
	struct source_paths wanted = { 0 };
	uint64_t failures = admin_json_failures();
	json_t *done = json_array();
	int r = dataset_set_find(set, name, &d, e);

	if (r == 0 && path) {
		only = dataset_mount_at(&d, path);
		r = only ? 0
			 : err_set(e, -EINVAL, "dataset %s has nothing at '%.200s'", name, path);
	}
	if (r == 0 && paths)
		r = take_paths(paths, &wanted, e);
	if (r == 0 && !force)
		r = dataset_check_unmounted(set, &d, "give --force: its readers fetch anew", e);
	for (uint32_t i = 0; i < d.n_mounts && r == 0; i++)
		if (only ? only == &d.mounts[i] : !is_covered(&d, i, wanted.n == 0))
			r = evict(set, &d.mounts[i], wanted, done, e);
	if (json_array_size(done) > 0)
		dataset_tell_workers(set);
	if (r == 0) {
		*ret_json = json_pack("{s:O, s:O*}", "sources", done, "serial",
			json_array_size(done) == 1
				? json_object_get(json_array_get(done, 0), "serial")
				: NULL);
		if (!*ret_json || admin_json_failures() != failures)
			r = err_set(e, -ENOMEM, "out of memory");
	}
	json_decref(done);
	return r;
}
