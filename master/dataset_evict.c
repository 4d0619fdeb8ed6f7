/* What is cached of a dataset, given up. See dataset.h. */
#include "base/cleanup.h"
#include "base/glob.h"
#include "base/hash.h"
#include "master/dataset_internal.h"

#include <stdlib.h>
#include <string.h>

static int take_paths(const json_t *json, struct source_paths *paths, struct err *e)
{
	const json_t *one;
	size_t i;
	int r = 0;

	if (!json_is_array(json) || json_array_size(json) == 0 ||
		json_array_size(json) > SOURCE_PATHS_MAX)
		return err_set(e, -EINVAL, "'paths' must be an array of 1 to %u patterns",
			SOURCE_PATHS_MAX);
	json_array_foreach (json, i, one) {
		const char *text = json_string_value(one);

		if (!text || strlen(text) != json_string_length(one) ||
			strlen(text) > SOURCE_PATH_BYTES)
			return err_set(e, -EINVAL, "'paths' must have patterns of 1 to %u bytes",
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

/* What is to go of one source: all of it, or some. */
struct eviction {
	const struct dataset_mount *mount; /* the first that shows it */
	bool whole;
	struct source_paths paths;
	char at[DATASET_PATH_BYTES + 2];
	char *globs[SOURCE_PATHS_MAX]; /* of several views; owned */
	uint32_t n_globs;
};

struct evictions {
	struct eviction all[DATASET_MOUNTS_MAX];
	uint32_t n;
};

static void evictions_free(struct evictions *evs)
{
	for (uint32_t i = 0; evs && i < evs->n; i++)
		for (uint32_t k = 0; k < evs->all[i].n_globs; k++)
			free(evs->all[i].globs[k]);
	free(evs);
}

static struct eviction *find_eviction(struct evictions *evs, const struct volume_id *volume)
{
	for (uint32_t i = 0; i < evs->n; i++)
		if (volume_id_equal(&evs->all[i].mount->volume, volume))
			return &evs->all[i];
	return NULL;
}

/* Means all keys below a prefix, taken as it is written. */
static int add_glob(struct eviction *ev, const char *subtree)
{
	char text[SOURCE_PATH_BYTES + 1];
	size_t len = 0;

	for (const char *c = subtree; *c; c++) {
		if (len + sizeof("\\x**") > sizeof(text))
			return -E2BIG;
		if (strchr("*?[\\", *c))
			text[len++] = '\\';
		text[len++] = *c;
	}
	memcpy(text + len, "**", sizeof("**"));
	if (ev->n_globs == SOURCE_PATHS_MAX)
		return -E2BIG;
	ev->globs[ev->n_globs] = strdup(text);
	if (!ev->globs[ev->n_globs])
		return -ENOMEM;
	ev->n_globs++;
	return 0;
}

/* One order, over keys: what the views show is all below their prefixes. */
static int join_views(struct eviction *ev, const struct dataset_mount *mount)
{
	int r = ev->n_globs == 0 ? add_glob(ev, ev->mount->subtree) : 0;

	if (r == 0)
		r = add_glob(ev, mount->subtree);
	ev->paths = (struct source_paths){ .n = ev->n_globs, .subtree = "", .at = "" };
	memcpy(ev->paths.paths, ev->globs, sizeof(ev->globs));
	return r;
}

static void plan_first(
	struct eviction *ev, const struct dataset_mount *mount, const struct source_paths *wanted)
{
	ev->mount = mount;
	ev->whole = wanted->n == 0 && !mount->subtree;
	ev->paths = *wanted;
	ev->paths.subtree = mount->subtree ? mount->subtree : "";
	(void)snprintf(ev->at, sizeof(ev->at), "%s%s", mount->path + 1,
		mount->path[1] ? "/" : ""); /* fits */
	ev->paths.at = ev->at;
}

/* A source takes one order at a time. */
static int plan(struct evictions *evs, const struct dataset *d, const struct dataset_mount *mount,
	const struct source_paths *wanted, struct err *e)
{
	struct eviction *ev = find_eviction(evs, &mount->volume);
	int r = 0;

	if (!ev) {
		plan_first(&evs->all[evs->n++], mount, wanted);
		return 0;
	}
	if (wanted->n == 0 && (ev->whole || !mount->subtree)) {
		ev->whole = true; /* and all that other mounts show of it */
		return 0;
	}
	r = wanted->n > 0 ? -E2BIG : join_views(ev, mount);
	if (r == -ENOMEM)
		return err_set(e, r, "out of memory");
	if (r < 0)
		return err_set(e, -EINVAL,
			"%s and %s of dataset %s have the same source, which accepts one eviction "
			"at a time: evict one 'mount' after the other",
			ev->mount->path, mount->path, d->name);
	return 0;
}

static int order(struct dataset_set *set, struct eviction *ev, json_t *done, struct err *e)
{
	const struct volume_id *volume = &ev->mount->volume;
	uint64_t serial = 0;
	int r = ev->whole ? source_set_evict(set->config.sources, volume, &serial, e)
			  : source_set_evict_paths(
				    set->config.sources, volume, &ev->paths, &serial, e);

	if (r == 0)
		(void)json_array_append_new(done, /* failures are counted */
			serial_json(volume, ev->whole ? "serial" : "paths_serial", serial));
	return r;
}

/* All, or none when one of them cannot be. */
static int order_all(struct dataset_set *set, struct evictions *evs, json_t *done, struct err *e)
{
	int r = 0;

	pthread_mutex_lock(&set->change); /* no order comes in between */
	for (uint32_t i = 0; i < evs->n && r == 0; i++)
		r = source_set_may_evict(
			set->config.sources, &evs->all[i].mount->volume, !evs->all[i].whole, e);
	for (uint32_t i = 0; i < evs->n && r == 0; i++)
		r = order(set, &evs->all[i], done, e);
	pthread_mutex_unlock(&set->change);
	return r;
}

int dataset_evict(struct dataset_set *set, const char *name, const char *path, const json_t *paths,
	bool force, json_t **ret_json, struct err *e)
{
	const struct dataset_mount *only = NULL;
	_cleanup_(dataset_release) struct dataset d = { 0 };
	struct evictions *evs = calloc(1, sizeof(*evs));
	struct source_paths wanted = { 0 };
	uint64_t failures = admin_json_failures();
	json_t *done;
	int r;

	if (!evs)
		return err_set(e, -ENOMEM, "out of memory");
	done = json_array();
	r = dataset_set_find(set, name, &d, e);
	if (r == 0 && path) {
		only = dataset_mount_at(&d, path);
		r = only ? 0
			 : err_set(e, -EINVAL, "dataset %s has no source at '%.200s'", name, path);
	}
	if (r == 0 && paths)
		r = take_paths(paths, &wanted, e);
	if (r == 0 && !force)
		r = dataset_check_unmounted(set, &d, "give --force: its readers fetch again", e);
	for (uint32_t i = 0; i < d.n_mounts && r == 0; i++)
		if (!only || only == &d.mounts[i])
			r = plan(evs, &d, &d.mounts[i], &wanted, e);
	if (r == 0)
		r = order_all(set, evs, done, e);
	evictions_free(evs);
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
