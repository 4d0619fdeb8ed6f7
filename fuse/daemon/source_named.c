/*
 * What --dataset-name means, for a mount of an ordinary user: the master is asked with what the keeper vouches for of that user
 * (base/claims.h), and answers only if the dataset allows it. The answer is kept in the mount's directory: a daemon that takes the
 * mount over goes on with it, though the dataset was renamed, deleted, or does not allow the user any more. See cachefuse.h.
 */
#include "admin/state_file.h"
#include "base/claims.h"
#include "base/cleanup.h"
#include "base/dataset_name.h"
#include "client/client_admin.h"
#include "fuse/daemon/cachefuse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ASK_NS (30 * CLOCK_SECOND)
#define FORMAT 1

static int ask(const struct cachefuse_options *o, json_t **ret_json, struct err *e)
{
	_cleanup_(buf_release) struct buf path = BUF_INIT(CLAIMS_BYTES + 128);
	_cleanup_(buf_release) struct buf claims = BUF_INIT(CLAIMS_BYTES);
	_cleanup_(buf_release) struct buf answer = BUF_INIT(ADMIN_ANSWER_BYTES);
	struct client_admin *master = NULL;
	unsigned int status = 0;
	int r = dataset_check_name(o->dataset_name, e); /* it goes into the path as it is */

	if (r < 0)
		return r;
	r = claims_add_names(&claims, o->claims ? o->claims : "");
	/* `user` first: the master refuses a request that has it and no claims. */
	if (r == 0)
		r = buf_printf(&path, "/v1/datasets/%s?user=1&claims=%s", o->dataset_name,
			buf_str(&claims));
	if (r < 0)
		return err_set(
			e, r, "cannot send the claims of the user to the master: %s", err_str(r));
	r = client_admin_open(o->master, &master, e);
	if (r == 0)
		r = client_admin_ask(
			master, "GET", buf_str(&path), NULL, 0, ASK_NS, &status, &answer, e);
	client_admin_close(master);
	return r == 0 ? admin_take_answer(
				status, buf_str(&path), buf_str(&answer), answer.len, ret_json, e)
		      : r;
}

/* What follows `above` in the path; NULL: it is not below it. Both are absolute. */
static const char *below(const char *path, const char *above)
{
	size_t len = strcmp(above, "/") == 0 ? 0 : strlen(above);

	return strncmp(path, above, len) == 0 && (path[len] == '/' || !path[len]) ? path + len
										  : NULL;
}

static const char *path_of(const json_t *mount)
{
	const char *path = json_string_value(json_object_get(mount, "path"));

	return path ? path : "";
}

/* The source that has the directory: the one mounted deepest. NULL: none has. */
static const json_t *find_covering(const json_t *mounts, const char *directory)
{
	const json_t *found = NULL;
	const json_t *mount;
	size_t i;

	json_array_foreach (mounts, i, mount)
		if (below(directory, path_of(mount)) &&
			(!found || strlen(path_of(mount)) > strlen(path_of(found))))
			found = mount;
	return found;
}

static void add_source(json_t *sources, const json_t *mount, const char *path, const char *rest)
{
	const char *subtree = json_string_value(json_object_get(mount, "subtree"));

	rest += *rest == '/';
	(void)json_array_append_new(sources, /* counted */
		json_pack("{s:s, s:O?, s:O?, s:o}", "path", path, "volume",
			json_object_get(mount, "volume"), "url", json_object_get(mount, "url"),
			"subtree",
			json_sprintf("%s%s%s", subtree ? subtree : "", rest, *rest ? "/" : "")));
}

json_t *source_named_sources(const json_t *mounts, const char *directory)
{
	json_t *sources = json_array();
	const json_t *covering = find_covering(mounts, directory);
	const json_t *mount;
	size_t i;

	json_array_foreach (mounts, i, mount) {
		const char *path = below(path_of(mount), directory);

		if (mount == covering)
			add_source(sources, mount, "/", below(directory, path_of(mount)));
		else if (path && *path)
			add_source(sources, mount, path, "");
	}
	return sources;
}

/* {"format", "dataset": UUID.VOLUME, "sources", "follow", "rolled_back"} */
static json_t *found_of(const json_t *dataset, const char *path)
{
	_cleanup_free_ char *directory = NULL;
	const char *uuid = json_string_value(json_object_get(dataset, "uuid"));
	const char *consistency = json_string_value(json_object_get(dataset, "consistency"));
	const char *volume;
	json_t *sources;

	if (asprintf(&directory, "/%s", path ? path : "") < 0)
		directory = NULL;
	sources = directory ? source_named_sources(json_object_get(dataset, "mounts"), directory)
			    : NULL;
	volume = json_string_value(json_object_get(json_array_get(sources, 0), "volume"));
	if (!uuid || !volume) {
		json_decref(sources);
		return NULL;
	}
	return json_pack("{s:i, s:o, s:o, s:b, s:b}", "format", FORMAT, "dataset",
		json_sprintf("%s.%s", uuid, volume), "sources", sources, "follow",
		(int)(consistency && strcmp(consistency, "follow") == 0), "rolled_back",
		json_is_true(json_object_get(dataset, "rolled_back")));
}

static int save(const char *path, const json_t *found, struct err *e)
{
	_cleanup_free_ char *text = admin_json_text(found, JSON_COMPACT);
	uint64_t saved = 0;
	int r = state_file_write(path, text, &saved);

	return r < 0 ? err_set(e, r, "%s cannot be written: %s", path, err_str(r)) : 0;
}

/* The options that would have been given. They live as long as the process. */
static enum exit_status take(struct cachefuse_options *o, const json_t *found, struct err *e)
{
	const char *dataset = json_string_value(json_object_get(found, "dataset"));
	bool follows = json_is_true(json_object_get(found, "follow"));

	if (o->follow_dataset && !follows) {
		(void)err_set(e, -EINVAL,
			"dataset %s does not follow its sources: run `cachectl dataset update %s "
			"--consistency follow`, or mount it without `follow`",
			o->dataset_name, o->dataset_name);
		return EXIT_USAGE;
	}
	o->dataset = dataset ? strdup(dataset) : NULL;
	o->sources = admin_json_text(json_object_get(found, "sources"), JSON_COMPACT);
	o->follow_dataset = follows && !o->pinned;
	o->rolled_back = json_is_true(json_object_get(found, "rolled_back"));
	if (o->dataset && o->sources)
		return EXIT_OK;
	(void)err_set(e, -ENOMEM, "out of memory");
	return EXIT_RUNTIME;
}

/* From the master, and written down. */
static enum exit_status find(
	const char *path, const struct cachefuse *c, json_t **ret_found, struct err *e)
{
	json_auto_t *dataset = NULL;
	uint64_t failures = admin_json_failures();
	int r = ask(&c->options, &dataset, e);

	if (r < 0)
		return r == -EPERM ? EXIT_KERNEL : EXIT_RUNTIME;
	*ret_found = found_of(dataset, c->options.path);
	if (!*ret_found && c->options.path && json_array_size(json_object_get(dataset, "mounts"))) {
		(void)err_set(e, -ENOENT, "dataset %s has no directory '%s': check the path",
			c->options.dataset_name, c->options.path);
		return EXIT_USAGE;
	}
	if (!*ret_found || admin_json_failures() != failures) {
		(void)err_set(e, -EBADMSG,
			"invalid answer of the master about dataset %s: check its version",
			c->options.dataset_name);
		return EXIT_RUNTIME;
	}
	return save(path, *ret_found, e) < 0 ? EXIT_RUNTIME : EXIT_OK;
}

enum exit_status source_find_named(struct cachefuse *c, struct err *e)
{
	json_auto_t *found = NULL;
	enum exit_status status = EXIT_OK;
	char path[PATH_MAX];

	if (!c->options.run_dir || snprintf(path, sizeof(path), "%s/" CACHEFUSE_DATASET_FILE,
					   c->options.run_dir) >= (int)sizeof(path)) {
		(void)err_set(e, -EINVAL, "--dataset-name needs a --run-dir");
		return EXIT_USAGE;
	}
	if (!c->taken_over || state_file_read(path, FORMAT, &found) < 0)
		status = find(path, c, &found, e);
	return status == EXIT_OK ? take(&c->options, found, e) : status;
}
