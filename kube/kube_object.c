/* Objects by their kinds: paths, writes, lists by pages, discovery. See kube.h. */
#include "base/cleanup.h"
#include "kube/kube_internal.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define PATH_BYTES    8192u
#define MERGE_PATCH   "application/merge-patch+json"
#define APPLY_PATCH   "application/apply-patch+yaml" /* JSON is YAML */
#define RESTARTS_MAX  5u                             /* of a list whose pages expire */
#define OUT_OF_MEMORY "out of memory"

/* ---- paths ----------------------------------------------------------------------------------- */

int kube_put_escaped(struct buf *out, const char *text)
{
	int r = 0;

	for (; *text && r == 0; text++) {
		unsigned char c = (unsigned char)*text;

		if (isalnum(c) || strchr("-._~", c))
			r = buf_append(out, text, 1);
		else
			r = buf_printf(out, "%%%02X", c);
	}
	return r;
}

static int put_part(struct buf *out, const char *before, const char *text)
{
	int r = buf_puts(out, before);

	return r < 0 ? r : kube_put_escaped(out, text);
}

/* "." and ".." would be another path. */
static bool is_part(const char *text)
{
	return *text && strcmp(text, ".") != 0 && strcmp(text, "..") != 0;
}

int kube_path(const struct kube *kube, const struct kube_kind *kind, const char *name_space,
	const char *name, const char *more, struct buf *out, struct err *e)
{
	const char *slash = strchr(kind->api_version, '/');
	const char *in = name_space ? name_space : kube->access.name_space;
	int r;

	if ((name && !is_part(name)) || (*in && !is_part(in)))
		return err_set(e, -EINVAL, "invalid name '%s' in namespace '%s': use a-z, 0-9, '-'",
			name ? name : "", in);
	r = slash ? buf_printf(out, "/apis/%s", kind->api_version)
		  : buf_printf(out, "/api/%s", kind->api_version);
	if (r == 0 && !kind->cluster_wide && *in)
		r = put_part(out, "/namespaces/", in);
	if (r == 0)
		r = put_part(out, "/", kind->plural);
	if (r == 0 && name)
		r = put_part(out, "/", name);
	if (r == 0 && more)
		r = buf_puts(out, more);
	return r < 0 ? err_set(e, r, "cannot make the path of a request: %s", err_str(r)) : 0;
}

/* ---- one object ------------------------------------------------------------------------------ */

int kube_get(struct kube *kube, const struct kube_kind *kind, const char *name_space,
	const char *name, json_t **ret_json, struct err *e)
{
	_cleanup_(buf_release) struct buf path = BUF_INIT(PATH_BYTES);
	int r = kube_path(kube, kind, name_space, name, NULL, &path, e);

	return r < 0 ? r
		     : kube_call(
			       kube, &(struct kube_request){ .path = buf_str(&path) }, ret_json, e);
}

/* The query of a write. */
static int put_how(struct buf *path, const struct kube_write *how, bool validate)
{
	int r = put_part(path, "?fieldManager=", how->manager);

	if (r == 0 && validate)
		r = buf_puts(path, "&fieldValidation=Strict");
	if (r == 0 && how->dry_run)
		r = buf_puts(path, "&dryRun=All");
	if (r == 0 && how->force)
		r = buf_puts(path, "&force=true");
	return r;
}

static int write_object(struct kube *kube, struct buf *path, const struct kube_write *how,
	const struct kube_request *request, json_t **ret_json, struct err *e)
{
	struct kube_request full = *request;
	int r = put_how(path, how, true);

	if (r < 0)
		return err_set(e, r, "cannot make the path of a request: %s", err_str(r));
	full.path = buf_str(path);
	return kube_call(kube, &full, ret_json, e);
}

int kube_create(struct kube *kube, const struct kube_kind *kind, const char *name_space,
	const json_t *object, const struct kube_write *how, json_t **ret_json, struct err *e)
{
	_cleanup_(buf_release) struct buf path = BUF_INIT(PATH_BYTES);
	int r = kube_path(kube, kind, name_space, NULL, NULL, &path, e);

	return r < 0 ? r
		     : write_object(kube, &path, how,
			       &(struct kube_request){ .method = "POST", .body = object }, ret_json,
			       e);
}

int kube_apply(struct kube *kube, const struct kube_kind *kind, const char *name_space,
	const char *name, const json_t *object, const struct kube_write *how, json_t **ret_json,
	struct err *e)
{
	_cleanup_(buf_release) struct buf path = BUF_INIT(PATH_BYTES);
	int r = kube_path(kube, kind, name_space, name, NULL, &path, e);

	return r < 0 ? r
		     : write_object(kube, &path, how,
			       &(struct kube_request){
				       .method = "PATCH", .body = object, .type = APPLY_PATCH },
			       ret_json, e);
}

int kube_patch(struct kube *kube, const struct kube_kind *kind, const char *name_space,
	const char *name, const char *subresource, const json_t *patch,
	const struct kube_write *how, json_t **ret_json, struct err *e)
{
	_cleanup_(buf_release) struct buf path = BUF_INIT(PATH_BYTES);
	int r = kube_path(kube, kind, name_space, name, NULL, &path, e);

	if (r == 0 && subresource && buf_printf(&path, "/%s", subresource) < 0)
		r = err_set(e, -ENOMEM, OUT_OF_MEMORY);
	return r < 0 ? r
		     : write_object(kube, &path, how,
			       &(struct kube_request){
				       .method = "PATCH", .body = patch, .type = MERGE_PATCH },
			       ret_json, e);
}

int kube_delete(struct kube *kube, const struct kube_kind *kind, const char *name_space,
	const char *name, const char *uid, const struct kube_write *how, struct err *e)
{
	_cleanup_(buf_release) struct buf path = BUF_INIT(PATH_BYTES);
	json_t *body = json_pack("{s:s, s:s, s:s}", "apiVersion", "v1", "kind", "DeleteOptions",
		"propagationPolicy", "Background");
	int r = kube_path(kube, kind, name_space, name, NULL, &path, e);

	if (r == 0 && (!body ||
			      (uid && json_object_set_new(body, "preconditions",
					      json_pack("{s:s}", "uid", uid)) < 0) ||
			      (how->dry_run && json_object_set_new(body, "dryRun",
						       json_pack("[s]", "All")) < 0)))
		r = err_set(e, -ENOMEM, OUT_OF_MEMORY);
	if (r == 0)
		r = kube_call(kube,
			&(struct kube_request){
				.method = "DELETE", .path = buf_str(&path), .body = body },
			NULL, e);
	json_decref(body);
	return r;
}

/* ---- lists ----------------------------------------------------------------------------------- */

static int put_selectors(struct buf *path, const struct kube_query *query)
{
	int r = 0;

	if (query->labels)
		r = put_part(path, "&labelSelector=", query->labels);
	if (r == 0 && query->fields)
		r = put_part(path, "&fieldSelector=", query->fields);
	return r;
}

/* `next` is the page's, or "". */
static int list_page(struct kube *kube, const struct kube_kind *kind,
	const struct kube_query *query, const char *next, json_t **ret_page, struct err *e)
{
	_cleanup_(buf_release) struct buf path = BUF_INIT(PATH_BYTES);
	char first[32];
	int r;

	(void)snprintf(first, sizeof(first), "?limit=%u", KUBE_PAGE_OBJECTS); /* fits */
	r = kube_path(kube, kind, query->name_space, NULL, first, &path, e);
	if (r < 0)
		return r;
	r = put_selectors(&path, query);
	if (r == 0 && *next)
		r = put_part(&path, "&continue=", next);
	if (r < 0)
		return err_set(e, r, "cannot make the path of a list: %s", err_str(r));
	return kube_call(kube, &(struct kube_request){ .path = buf_str(&path) }, ret_page, e);
}

static const char *meta_text(const json_t *object, const char *key)
{
	const char *text =
		json_string_value(json_object_get(json_object_get(object, "metadata"), key));

	return text ? text : "";
}

int kube_list(struct kube *kube, const struct kube_kind *kind, const struct kube_query *query,
	int (*see)(void *arg, json_t *object), int (*restart)(void *arg), void *arg,
	char **ret_version, struct err *e)
{
	_cleanup_free_ char *next = strdup("");
	unsigned int restarts = 0;

	while (next) {
		_cleanup_(json_decrefp) json_t *page = NULL;
		json_t *object;
		size_t i;
		int r = list_page(kube, kind, query, next, &page, e);

		if (r == -ESTALE && *next && restarts++ < RESTARTS_MAX) {
			next[0] = '\0';
			r = restart ? restart(arg) : 0;
			if (r == 0)
				continue;
		}
		json_array_foreach (json_object_get(page, "items"), i, object)
			if (r == 0)
				r = see(arg, object);
		if (r != 0)
			return r;
		free(next);
		next = strdup(meta_text(page, "continue"));
		if (!next || *next)
			continue;
		if (!ret_version)
			return 0;
		*ret_version = strdup(meta_text(page, "resourceVersion"));
		return *ret_version ? 0 : err_set(e, -ENOMEM, OUT_OF_MEMORY);
	}
	return err_set(e, -ENOMEM, OUT_OF_MEMORY);
}

/* ---- discovery ------------------------------------------------------------------------------- */

static int group_of(struct kube *kube, const char *api_version, json_t **ret_group, struct err *e)
{
	struct kube_kind all = { .api_version = api_version, .plural = "", .cluster_wide = true };
	_cleanup_(buf_release) struct buf path = BUF_INIT(PATH_BYTES);
	json_t *group;
	int r;

	pthread_mutex_lock(&kube->lock);
	group = json_incref(json_object_get(kube->resources, api_version));
	pthread_mutex_unlock(&kube->lock);
	if (group) {
		*ret_group = group;
		return 0;
	}
	r = kube_path(kube, &all, NULL, NULL, NULL, &path, e);
	if (r < 0)
		return r;
	r = kube_call(kube, &(struct kube_request){ .path = buf_str(&path) }, &group, e);
	if (r < 0)
		return r;
	pthread_mutex_lock(&kube->lock);
	r = json_object_set(kube->resources, api_version, group);
	pthread_mutex_unlock(&kube->lock);
	if (r < 0) {
		json_decref(group);
		return err_set(e, -ENOMEM, OUT_OF_MEMORY);
	}
	*ret_group = group;
	return 0;
}

int kube_find_kind(struct kube *kube, const char *api_version, const char *kind,
	struct kube_resource *ret, struct err *e)
{
	json_t *group = NULL;
	const json_t *one;
	size_t i;
	int r = group_of(kube, api_version, &group, e);

	if (r < 0 && r != -ENOENT)
		return r;
	json_array_foreach (json_object_get(group, "resources"), i, one) {
		const char *name = json_string_value(json_object_get(one, "name"));
		const char *its = json_string_value(json_object_get(one, "kind"));

		if (!name || !its || strchr(name, '/') || strcmp(its, kind) != 0 ||
			strlen(name) >= sizeof(ret->plural))
			continue;
		(void)snprintf(ret->plural, sizeof(ret->plural), "%s", name); /* fits */
		ret->cluster_wide = !json_is_true(json_object_get(one, "namespaced"));
		json_decref(group);
		return 0;
	}
	json_decref(group);
	return err_set(e, -ENOENT,
		"%s does not have kind %s of %s: install its operator, or choose another --engine",
		kube->name, kind, api_version);
}
