/* Datasets over HTTP: requests to calls. See dataset.h. */
#include "admin/audit.h"
#include "base/cleanup.h"
#include "master/dataset.h"
#include "master/service.h"

#include <string.h>

static struct dataset_set *datasets_of(void *arg)
{
	struct service *service = arg;

	return service->datasets;
}

/* For the audit log; NULL: there was, or is, none. A change by another request at the same time may be in it as well. */
static json_t *record_of(struct dataset_set *set, const char *name)
{
	_cleanup_(dataset_release) struct dataset d = { 0 };

	return dataset_set_find(set, name, &d, NULL) == 0 ? dataset_record_json(&d) : NULL;
}

/* Takes `before` over. `d`: NULL, or empty: it is gone. */
static void note(const struct admin_request *request, json_t *before, const struct dataset *d)
{
	json_t *after = d && d->name[0] ? dataset_record_json(d) : NULL;

	audit_change(request->changes, before, after);
	json_decref(before);
	json_decref(after);
}

static const struct source_rules *rules_of(void *arg, const struct admin_request *request)
{
	const struct service *service = arg;

	return source_rules_of(&service->rules, &request->caller.peer);
}

static bool is_set(const struct admin_request *request, const char *name)
{
	const char *value = request->query(request, name);

	return value && strcmp(value, "0") != 0;
}

static int answer(
	struct dataset_set *set, const struct dataset *d, json_t **ret_json, struct err *e)
{
	*ret_json = dataset_json(set, d);
	return *ret_json ? 0 : err_set(e, -ENOMEM, "out of memory");
}

int dataset_api_list(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	struct dataset_set *set = datasets_of(arg);
	uint64_t failures = admin_json_failures();
	struct dataset *all = NULL;
	json_t *list = json_array();
	uint32_t n = 0;
	int r = dataset_set_all(set, &all, &n);

	(void)request;
	for (uint32_t i = 0; i < n; i++) {
		(void)json_array_append_new(list, dataset_json(set, &all[i])); /* counted */
		dataset_release(&all[i]);
	}
	free(all);
	if (r == 0)
		*ret_json = json_pack("{s:o}", "datasets", list);
	else
		json_decref(list);
	if (r == 0 && admin_json_failures() == failures)
		return 0;
	json_decref(*ret_json);
	*ret_json = NULL;
	return err_set(e, -ENOMEM, "out of memory");
}

int dataset_api_create(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	struct dataset_set *set = datasets_of(arg);
	_cleanup_(dataset_release) struct dataset d = { 0 };
	int r = dataset_create(
		set, request->body, !is_set(request, "no_check"), rules_of(arg, request), &d, e);

	note(request, NULL, &d);
	return r == 0 ? answer(set, &d, ret_json, e) : r;
}

int dataset_api_preview(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	struct dataset_set *set = datasets_of(arg);
	_cleanup_(dataset_release) struct dataset d = { 0 };
	int r = admin_caller_may_change(&request->caller, e);

	if (r == 0)
		r = dataset_preview(set, request->body, !is_set(request, "no_check"),
			rules_of(arg, request), &d, e);
	return r == 0 ? answer(set, &d, ret_json, e) : r;
}

static void keep_keys(json_t *json, const char *const *keys)
{
	const char *key;
	json_t *value;
	void *next;

	json_object_foreach_safe(json, next, key, value)
	{
		bool kept = false;

		for (const char *const *k = keys; *k; k++)
			kept |= strcmp(*k, key) == 0;
		if (!kept)
			(void)json_object_del(json, key); /* it is there */
	}
}

/* What a caller that sees a part of the sources needs to mount it; nothing that is counted over all of them. */
static void keep_of_part(json_t *json)
{
	static const char *const of_dataset[] = { "name", "uuid", "created", "consistency",
		"interval_s", "rolled_back", "direct", "phase", "generation", "lineage",
		"total_files", "total_bytes", "mounts", NULL };
	static const char *const of_mount[] = { "path", "url", "volume", "subtree", "endpoint",
		"region", "path_style", "anonymous", "requester_pays", "versions", "phase",
		"rolled_back", "generation", "lineage", "total_files", "total_bytes", NULL };
	json_t *mount;
	size_t i;

	keep_keys(json, of_dataset);
	json_array_foreach (json_object_get(json, "mounts"), i, mount)
		keep_keys(mount, of_mount);
}

/*
 * `claims` of the query: as a caller sees it that claims these. The daemon that asks vouches for them; with `user` it must. What a pod
 * claims is to be proved by its token (token_api_exchange()) where the master can verify these.
 */
static int find_for(struct dataset_set *set, const struct admin_request *request, bool needs_token,
	struct dataset *ret, struct err *e)
{
	const char *name = request->param(request, "name");
	const char *claims = request->query(request, "claims");

	if (!claims && request->query(request, "user"))
		return err_set(e, -EINVAL, "a request for a user needs the claims of that user");
	if (claims && claims_of_pod(claims) && request->caller.peer.kind != PEER_TOKEN &&
		needs_token)
		return err_set(e, -EPERM,
			"permission denied: the token of the pod's service account is missing; use "
			"`tokenRequests` in the CSIDriver");
	return claims ? dataset_set_find_allowed(set, name, claims, ret, e)
		      : dataset_set_find(set, name, ret, e);
}

int dataset_api_get(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	struct dataset_set *set = datasets_of(arg);
	_cleanup_(dataset_release) struct dataset d = { 0 };
	json_t *left_out = NULL;
	const struct service *service = arg;
	int r = find_for(set, request, service->accounts != NULL, &d, e);

	if (r == 0)
		r = answer(set, &d, ret_json, e);
	if (r == 0 && peer_has_part(&request->caller.peer))
		keep_of_part(*ret_json);
	if (r < 0 || !is_set(request, "left_out"))
		return r;
	r = dataset_left_out_json(dataset_sources(set), &d, &left_out, e);
	if (r == 0 && json_object_set_new(*ret_json, "left_out", left_out) < 0)
		r = err_set(e, -ENOMEM, "out of memory");
	if (r < 0) {
		json_decref(*ret_json);
		*ret_json = NULL;
	}
	return r;
}

int dataset_api_update(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	struct dataset_set *set = datasets_of(arg);
	_cleanup_(dataset_release) struct dataset d = { 0 };
	const char *name = request->param(request, "name");
	json_t *before = record_of(set, name);
	int r = dataset_update(set, name, request->body, !is_set(request, "no_check"),
		rules_of(arg, request), &d, e);

	note(request, before, &d);
	return r == 0 ? answer(set, &d, ret_json, e) : r;
}

int dataset_api_delete(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	struct dataset_set *set = datasets_of(arg);
	const char *name = request->param(request, "name");

	(void)ret_json; /* {} */
	note(request, record_of(set, name), NULL);
	return dataset_delete(set, name, is_set(request, "force"), e);
}

/* The generations of one source, each with where it is shown. */
static int add_generations(
	struct source_set *sources, const struct dataset_mount *mount, json_t *list, struct err *e)
{
	json_t *some = source_set_generations_json(sources, &mount->volume);
	json_t *one;
	size_t i;
	int r = some ? 0 : -ENOMEM;

	json_array_foreach (some, i, one)
		if (r == 0 && json_object_set_new(one, "mount", json_string(mount->path)) < 0)
			r = -ENOMEM;
	if (r == 0 && json_array_extend(list, some) < 0)
		r = -ENOMEM;
	json_decref(some);
	return r < 0 ? err_set(e, r, "out of memory") : 0;
}

int dataset_api_generations(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	struct dataset_set *set = datasets_of(arg);
	_cleanup_(dataset_release) struct dataset d = { 0 };
	json_t *list = json_array();
	json_t *shown = json_object();
	int r = dataset_set_find(set, request->param(request, "name"), &d, e);

	for (uint32_t i = 0; i < d.n_mounts && r == 0; i++) {
		const struct dataset_mount *mount = &d.mounts[i];
		const struct dataset_generation *back = dataset_shown(&d, &mount->volume);

		if (!dataset_is_first(&d, i))
			continue;
		r = add_generations(dataset_sources(set), mount, list, e);
		if (r == 0 && json_object_set_new(shown, mount->path,
				      json_integer(back ? (json_int_t)back->generation : 0)) < 0)
			r = err_set(e, -ENOMEM, "out of memory");
	}
	if (r == 0) {
		*ret_json = json_pack("{s:O, s:O, s:I}", "generations", list, "shown_of", shown,
			"shown", (json_int_t)(d.n_shown > 0 ? d.shown[0].generation : 0));
		if (!*ret_json)
			r = err_set(e, -ENOMEM, "out of memory");
	}
	json_decref(list);
	json_decref(shown);
	return r;
}

/* `mount` of the query; without it the only source. */
static int get_mount(const struct admin_request *request, const struct dataset *d,
	const struct dataset_mount **ret_mount, struct err *e)
{
	const char *path = request->query(request, "mount");

	*ret_mount = path ? dataset_mount_at(d, path) : &d->mounts[0];
	if (!*ret_mount)
		return err_set(e, -EINVAL, "dataset %s has no source at '%.200s'", d->name, path);
	if (!path && d->n_mounts > 1)
		return err_set(e, -EINVAL,
			"dataset %s has %u mounts, which are compared one at a time: choose one, "
			"such as %s=NUMBER",
			d->name, d->n_mounts, d->mounts[0].path);
	return 0;
}

int dataset_api_diff(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	struct dataset_set *set = datasets_of(arg);
	_cleanup_(dataset_release) struct dataset d = { 0 };
	const struct dataset_mount *mount = NULL;
	uint64_t from = 0;
	uint64_t to = 0;
	uint64_t limit = 0;
	int r = dataset_set_find(set, request->param(request, "name"), &d, e);

	if (r == 0)
		r = get_mount(request, &d, &mount, e);
	if (r == 0)
		r = admin_query_number(request, "from", 0, &from, e);
	if (r == 0)
		r = admin_query_number(request, "to", 0, &to, e);
	if (r == 0)
		r = admin_query_number(request, "limit", 0, &limit, e);
	if (r == 0 && from == 0)
		r = err_set(e, -EINVAL, "'from' is missing: give the number of a generation");
	if (r < 0)
		return r;
	limit = limit ? min(limit, (uint64_t)DIFF_PAGE_MAX) : DIFF_PAGE;
	return dataset_diff_json(set, &d, mount, from, to, request->query(request, "after"),
		(uint32_t)limit, ret_json, e);
}

static int get_one(const json_t *value, bool null_too, uint64_t *ret, struct err *e)
{
	*ret = 0;
	if (null_too && json_is_null(value))
		return 0;
	if (!json_is_integer(value) || json_integer_value(value) < (null_too ? 0 : 1))
		return err_set(e, -EINVAL, "'generation' must be the number of a generation");
	*ret = (uint64_t)json_integer_value(value);
	return 0;
}

/* {"generation": N}, or {"generations": {"/path": N, ...}} of several sources; `null_too`: null, or 0,
 * is allowed. Paths are borrowed. */
static int get_generations(const struct admin_request *request, bool null_too,
	struct dataset_which which[DATASET_MOUNTS_MAX], uint32_t *ret_n, struct err *e)
{
	json_t *all = json_object_get(request->body, "generations");
	const char *path;
	json_t *value;
	uint32_t n = 0;

	if (!all) {
		*ret_n = 1;
		which[0].path = NULL;
		return get_one(json_object_get(request->body, "generation"), null_too,
			&which[0].generation, e);
	}
	if (!json_is_object(all) || json_object_size(all) == 0 ||
		json_object_size(all) > DATASET_MOUNTS_MAX)
		return err_set(e, -EINVAL,
			"'generations' must be an object of 1 to %u paths, each with a number",
			DATASET_MOUNTS_MAX);
	json_object_foreach (all, path, value) {
		int r = get_one(value, null_too, &which[n].generation, e);

		if (r < 0)
			return r;
		which[n++].path = path;
	}
	*ret_n = n;
	return 0;
}

int dataset_api_rollback(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	struct dataset_set *set = datasets_of(arg);
	_cleanup_(dataset_release) struct dataset d = { 0 };
	struct dataset_which which[DATASET_MOUNTS_MAX];
	json_t *before = record_of(set, request->param(request, "name"));
	uint32_t n = 0;
	int r = get_generations(request, true, which, &n, e);

	if (r == 0 && !which[0].path && which[0].generation == 0)
		n = 0; /* the newest of all */
	if (r == 0)
		r = dataset_rollback(set, request->param(request, "name"), which, n, &d, e);
	note(request, before, &d);
	return r == 0 ? answer(set, &d, ret_json, e) : r;
}

int dataset_api_pin(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	struct dataset_set *set = datasets_of(arg);
	_cleanup_(dataset_release) struct dataset d = { 0 };
	const json_t *pin = json_object_get(request->body, "pin");
	struct dataset_which which[DATASET_MOUNTS_MAX];
	json_t *before = record_of(set, request->param(request, "name"));
	uint32_t n = 0;
	int r = get_generations(request, false, which, &n, e);

	if (r == 0 && pin && !json_is_boolean(pin))
		r = err_set(e, -EINVAL, "'pin' must be true or false");
	if (r == 0)
		r = dataset_pin(
			set, request->param(request, "name"), which, n, !json_is_false(pin), &d, e);
	note(request, before, &d);
	return r == 0 ? answer(set, &d, ret_json, e) : r;
}

int dataset_api_evict(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	return dataset_evict(datasets_of(arg), request->param(request, "name"),
		json_string_value(json_object_get(request->body, "mount")),
		json_object_get(request->body, "paths"), is_set(request, "force"), ret_json, e);
}
