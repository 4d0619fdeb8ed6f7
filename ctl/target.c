/* Datasets and mounts by name, URL or mount point. See target.h. */
#include "ctl/target.h"
#include "base/cleanup.h"
#include "ctl/command.h"
#include "ctl/dataset_command.h"
#include "ctl/mount_point.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define SHOWN 4u /* names or mount points that a line lists */

struct target {
	const char *word; /* borrowed */
	enum target_kind kind;
	char point[PATH_MAX]; /* of a DIR */
	json_t *mounts;       /* of a NAME: those of the dataset */
};

enum target_kind target_kind(const char *word)
{
	size_t scheme = strspn(word, "abcdefghijklmnopqrstuvwxyz0123456789");

	if (scheme > 0 && strncmp(word + scheme, ":/", 2) == 0)
		return TARGET_URL;
	if (strchr(word, '/') || strcmp(word, ".") == 0 || strcmp(word, "..") == 0)
		return TARGET_DIR;
	return TARGET_NAME;
}

static const char *text(const json_t *json, const char *name)
{
	const char *value = json_string_value(json_object_get(json, name));

	return value ? value : "";
}

/* "a, b, ..." */
static void list(char *out, size_t size, unsigned int n, const char *name)
{
	size_t len = strlen(out);

	if (n <= SHOWN)
		(void)snprintf(out + len, size - len, "%s%s", len ? ", " : "",
			n == SHOWN ? "..." : name); /* cut: for people */
}

/* "s3://bucket/train" and "s3://bucket/train/" are one. */
static bool is_same_url(const char *a, const char *b)
{
	size_t n = strlen(a);
	size_t m = strlen(b);

	n -= n > 0 && a[n - 1] == '/';
	m -= m > 0 && b[m - 1] == '/';
	return n > 0 && n == m && memcmp(a, b, n) == 0;
}

/* ---- datasets -------------------------------------------------------------------------------- */

/* What is mounted at `dir`: {"sources": [{"volume", "subtree"}]} or {"volume"}. A new reference. */
static int ask_mount(const char *dir, json_t **ret_status, struct err *e)
{
	struct fleet_mount mount;
	char point[PATH_MAX];
	int r = mount_point_path(dir, point, e);

	if (r < 0)
		return EXIT_MOUNTPOINT;
	if (fleet_find(point, true, &mount) < 0) {
		(void)command_not_found(point, e); /* its line */
		return EXIT_MOUNTPOINT;
	}
	r = admin_call(mount.socket, NULL, "/v1/status", NULL, fleet_timeout(), ret_status, e);
	return r < 0 ? command_exit(r) : EXIT_OK;
}

static bool shows_same(const json_t *shown, const json_t *mount)
{
	return strcmp(text(shown, "volume"), text(mount, "volume")) == 0 &&
	       strcmp(text(shown, "subtree"), text(mount, "subtree")) == 0;
}

bool target_shows(const json_t *status, const json_t *dataset)
{
	const json_t *mounts = json_object_get(dataset, "mounts");
	const json_t *sources = json_object_get(status, "sources");
	size_t n = json_array_size(sources);
	size_t i;
	const json_t *mount;

	if (json_array_size(mounts) != max(n, (size_t)1))
		return false;
	if (n == 0)
		return shows_same(status, json_array_get(mounts, 0));
	json_array_foreach (mounts, i, mount) {
		bool found = false;

		for (size_t k = 0; k < n; k++)
			found |= shows_same(json_array_get(sources, k), mount);
		if (!found)
			return false;
	}
	return true;
}

static bool is_of_url(const json_t *dataset, const char *url)
{
	const json_t *mounts = json_object_get(dataset, "mounts");

	return json_array_size(mounts) == 1 &&
	       is_same_url(text(json_array_get(mounts, 0), "url"), url);
}

static int choose(const json_t *datasets, const char *word, const json_t *status,
	char out[DATASET_NAME_BYTES], struct err *e)
{
	char names[ERR_TEXT_MAX / 2] = "";
	const json_t *dataset;
	unsigned int n = 0;
	size_t i;

	json_array_foreach (datasets, i, dataset) {
		if (!(status ? target_shows(status, dataset) : is_of_url(dataset, word)))
			continue;
		list(names, sizeof(names), n, text(dataset, "name"));
		if (n++ == 0)
			(void)snprintf(out, DATASET_NAME_BYTES, "%s", text(dataset, "name"));
	}
	if (n == 1)
		return EXIT_OK;
	if (n > 1)
		(void)err_set(e, -EEXIST, "%s is the source of several datasets (%s): give NAME",
			word, names);
	else
		(void)err_set(e, -ENOENT,
			"no dataset of %s: see `cachectl dataset list`, or create one with "
			"`cachectl dataset create NAME URL`",
			word);
	return EXIT_USAGE;
}

int target_dataset(const struct master_where *where, char **word, struct err *e)
{
	static char name[DATASET_NAME_BYTES];
	enum target_kind kind = target_kind(*word);
	json_t *status = NULL;
	json_t *answer = NULL;
	int result = EXIT_OK;
	int r;

	if (kind == TARGET_NAME)
		return EXIT_OK;
	if (kind == TARGET_DIR)
		result = ask_mount(*word, &status, e);
	if (result != EXIT_OK)
		return result;
	r = master_call(where, NULL, "/v1/datasets", NULL, MASTER_CALL_NS, &answer, e);
	result = r < 0 ? command_exit(r)
		       : choose(json_object_get(answer, "datasets"), *word, status, name, e);
	json_decref(status);
	json_decref(answer);
	if (result == EXIT_OK)
		*word = name;
	return result;
}

/* ---- mounts ---------------------------------------------------------------------------------- */

void target_free(struct target *target)
{
	if (target)
		json_decref(target->mounts);
	free(target);
}

/* A directory that is not mounted, and no dataset either, was probably meant as a mount point. */
static int take_name(const struct master_where *where, struct target *target, struct err *e)
{
	json_t *dataset = NULL;
	struct stat st;
	int status = dataset_call(where, NULL, target->word, "", NULL, &dataset, e);

	target->mounts = json_incref(json_object_get(dataset, "mounts"));
	json_decref(dataset);
	if (status == EXIT_OK || !target->point[0] || lstat(target->point, &st) != 0)
		return status;
	(void)command_not_found(target->point, e); /* its line */
	return EXIT_MOUNTPOINT;
}

int target_new(const struct master_where *where, const char *word, struct target **ret_target,
	struct err *e)
{
	struct target *target = calloc(1, sizeof(*target));
	struct err no_path = ERR_INIT;
	struct fleet_mount mount;
	int status = EXIT_OK;

	if (!target) {
		(void)err_set(e, -ENOMEM, "out of memory");
		return EXIT_RUNTIME;
	}
	target->word = word;
	target->kind = target_kind(word);
	if (target->kind != TARGET_URL && mount_point_path(word, target->point, &no_path) == 0 &&
		fleet_find(target->point, true, &mount) == 0) {
		target->kind = TARGET_DIR;
		memcpy(target->point, mount.mountpoint, sizeof(target->point));
	} else if (target->kind == TARGET_DIR && no_path.code < 0) {
		*e = no_path;
		status = EXIT_MOUNTPOINT;
	} else if (target->kind == TARGET_NAME) {
		status = take_name(where, target, e);
	}
	if (status == EXIT_OK)
		*ret_target = target;
	else
		target_free(target);
	return status;
}

/* By the answer of its daemon, which has volumes. */
static bool is_of_name(const struct target *target, const json_t *answer)
{
	json_t *dataset = answer ? json_pack("{s:O}", "mounts", target->mounts) : NULL;
	bool matches = dataset && target_shows(answer, dataset);

	json_decref(dataset);
	return matches;
}

bool target_is_answer(const struct target *target, const json_t *mount, const json_t *answer)
{
	if (fleet_detached(mount) || !*text(mount, "mountpoint"))
		return false;
	switch (target->kind) {
	case TARGET_DIR:
		return strcmp(text(mount, "mountpoint"), target->point) == 0;
	case TARGET_URL:
		return is_same_url(text(mount, "source"), target->word);
	case TARGET_NAME:
		return is_of_name(target, answer);
	}
	return false;
}

bool target_is(const struct target *target, const json_t *mount)
{
	struct err ignored = ERR_INIT;
	json_t *answer = NULL;
	bool matches;

	if (target->kind == TARGET_NAME && admin_call(text(mount, "socket"), NULL, "/v1/status",
						   NULL, fleet_timeout(), &answer, &ignored) < 0)
		return false;
	matches = target_is_answer(target, mount, answer);
	json_decref(answer);
	return matches;
}

int target_not_found(const struct target *target, struct err *e)
{
	if (target->kind == TARGET_DIR)
		(void)command_not_found(target->point, e); /* its line */
	else
		(void)err_set(e, -ENOENT,
			"%s is not mounted on this host: see `cachectl status`, or run `cachectl "
			"mount %s DIR`",
			target->word, target->word);
	return EXIT_MOUNTPOINT;
}

struct search {
	const struct target *target;
	char points[ERR_TEXT_MAX / 2];
	char first[PATH_MAX];
	unsigned int n;
};

static int look(void *arg, const char *run)
{
	struct search *s = arg;
	json_t *state = fleet_state(run);
	const json_t *mount;
	size_t i;

	json_array_foreach (json_object_get(state, "mounts"), i, mount) {
		if (!target_is(s->target, mount))
			continue;
		list(s->points, sizeof(s->points), s->n, text(mount, "mountpoint"));
		if (s->n++ == 0)
			(void)snprintf(s->first, sizeof(s->first), "%s", text(mount, "mountpoint"));
	}
	json_decref(state);
	return 0;
}

int target_mount(const struct master_where *where, const char *word, struct fleet_mount *ret_mount,
	struct err *e)
{
	struct search s = { 0 };
	struct target *target = NULL;
	int status = target_new(where, word, &target, e);
	int r;

	if (status != EXIT_OK)
		return status;
	s.target = target;
	r = fleet_each_run(look, &s);
	if (r < 0) {
		(void)err_set(e, r, "cannot read the runtime directory: %s", err_str(r));
		status = EXIT_RUNTIME;
	} else if (s.n > 1) {
		(void)err_set(e, -EEXIST, "%s is mounted at %s: give DIR", word, s.points);
		status = EXIT_USAGE;
	} else if (s.n == 0 || fleet_find(s.first, false, ret_mount) < 0) {
		status = target_not_found(target, e);
	}
	target_free(target);
	return status;
}
