/* See fake_kube.h. */
#include "tests/unit/kube/fake_kube.h"
#include "base/buf.h"
#include "base/cleanup.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <time.h>

#define PATH_BYTES 2048u
#define HUGE_BUF   (64u << 20)

static const struct fake_kube_kind standard_kinds[] = {
	{ "v1", "Pod", "pods", false },
	{ "v1", "Service", "services", false },
	{ "v1", "ConfigMap", "configmaps", false },
	{ "v1", "Event", "events", false },
	{ "v1", "Node", "nodes", true },
	{ "v1", "PersistentVolumeClaim", "persistentvolumeclaims", false },
	{ "apps/v1", "Deployment", "deployments", false },
	{ "batch/v1", "Job", "jobs", false },
	{ "kubeflow.org/v1", "PyTorchJob", "pytorchjobs", false },
	{ "kubeflow.org/v1", "TFJob", "tfjobs", false },
	{ "kubeflow.org/v1", "XGBoostJob", "xgboostjobs", false },
	{ "kubeflow.org/v1", "Notebook", "notebooks", false },
	{ "kubeflow.org/v2beta1", "MPIJob", "mpijobs", false },
	{ "batch.volcano.sh/v1alpha1", "Job", "jobs", false },
	{ "bus.volcano.sh/v1alpha1", "Command", "commands", false },
	{ "scheduling.volcano.sh/v1beta1", "PodGroup", "podgroups", false },
	{ "scheduling.volcano.sh/v1beta1", "Queue", "queues", true },
	{ 0 },
};

/* A request, taken apart. */
struct call {
	struct fake_kube *kube;
	int fd;
	char method[16];
	char path[PATH_BYTES]; /* without the query, and without the subresource */
	char query[PATH_BYTES];
	char sub[64];
	const char *name; /* in path; NULL: the collection */
	const struct fake_kube_kind *kind;
	json_t *body;
	bool applies; /* a patch that creates */
};

/* ---- answers --------------------------------------------------------------------------------- */

static void put_answer(int fd, int status, const char *more, const char *type, const char *body)
{
	char head[512];

	(void)snprintf(head, sizeof(head),
		"HTTP/1.1 %d x\r\nContent-Type: %s\r\n%sContent-Length: %zu\r\n\r\n", status, type,
		more, strlen(body));
	server_puts(fd, head);
	server_puts(fd, body);
}

static void put_json(int fd, int status, const char *more, json_t *json)
{
	_cleanup_free_ char *text = json_dumps(json, JSON_COMPACT);

	ensure(text);
	put_answer(fd, status, more, "application/json", text);
	json_decref(json);
}

static void put_status(int fd, int status, const char *reason, const char *message)
{
	put_json(fd, status, "",
		json_pack("{s:s, s:s, s:s, s:s, s:s, s:i}", "kind", "Status", "apiVersion", "v1",
			"status", "Failure", "reason", reason, "message", message, "code", status));
}

/* ---- the store ------------------------------------------------------------------------------- */

static json_t *meta_of(json_t *object)
{
	json_t *meta = json_object_get(object, "metadata");

	if (!meta) {
		meta = json_object();
		json_object_set_new(object, "metadata", meta);
	}
	return meta;
}

static void record(struct fake_kube *kube, const char *type, const char *path, json_t *object)
{
	struct fake_kube_change *change = &kube->changes[kube->n_changes++];
	char version[32];

	ensure(kube->n_changes < FAKE_KUBE_CHANGES);
	(void)snprintf(version, sizeof(version), "%lld", ++kube->version);
	json_object_set_new(meta_of(object), "resourceVersion", json_string(version));
	*change = (struct fake_kube_change){ .version = kube->version,
		.path = strdup(path),
		.event = json_pack("{s:s, s:o}", "type", type, "object", json_deep_copy(object)) };
	pthread_cond_broadcast(&kube->changed);
}

static void put_new(struct fake_kube *kube, const char *path, json_t *object)
{
	json_t *meta = meta_of(object);
	const char *in = strstr(path, "/namespaces/");
	char uid[64];
	bool exists = json_object_get(kube->objects, path) != NULL;

	if (in && !json_object_get(meta, "namespace"))
		json_object_set_new(
			meta, "namespace", json_stringn(in + 12, strcspn(in + 12, "/")));
	if (!json_object_get(meta, "uid")) {
		(void)snprintf(
			uid, sizeof(uid), "00000000-0000-0000-0000-%012lld", kube->version + 1);
		json_object_set_new(meta, "uid", json_string(uid));
		json_object_set_new(meta, "creationTimestamp", json_string("2026-01-31T10:00:00Z"));
	}
	record(kube, exists ? "MODIFIED" : "ADDED", path, object);
	json_object_set_new(kube->objects, path, object);
}

static bool is_owned(json_t *object, const char *uid)
{
	json_t *owner;
	size_t i;

	json_array_foreach (json_object_get(meta_of(object), "ownerReferences"), i, owner)
		if (strcmp(json_string_value(json_object_get(owner, "uid")), uid) == 0)
			return true;
	return false;
}

static void take_away(struct fake_kube *kube, const char *path)
{
	json_t *object = json_incref(json_object_get(kube->objects, path));
	const char *uid = json_string_value(json_object_get(meta_of(object), "uid"));
	const char *key;
	json_t *other;
	void *next;

	record(kube, "DELETED", path, object);
	json_object_del(kube->objects, path);
	json_object_foreach_safe(kube->objects, next, key, other) if (is_owned(other, uid))
	{
		_cleanup_free_ char *owned = strdup(key);

		take_away(kube, owned);
		next = json_object_iter(kube->objects); /* others may have gone, too */
	}
	json_decref(object);
}

/* RFC 7396. */
static void merge(json_t *target, const json_t *patch)
{
	const char *key;
	json_t *value;

	json_object_foreach ((json_t *)(uintptr_t)patch, key, value) { /* only read */
		json_t *at = json_object_get(target, key);

		if (json_is_null(value))
			json_object_del(target, key);
		else if (json_is_object(value) && json_is_object(at))
			merge(at, value);
		else
			json_object_set_new(target, key, json_deep_copy(value));
	}
}

/* ---- queries --------------------------------------------------------------------------------- */

/* Of the query, decoded; false: it is not there. */
static bool parameter(const struct call *call, const char *name, char *out, size_t size)
{
	const char *s = call->query;
	size_t n = strlen(name);

	while (*s && !(strncmp(s, name, n) == 0 && s[n] == '='))
		s += strcspn(s, "&"), s += *s == '&';
	if (!*s)
		return false;
	s += n + 1;
	for (; *s && *s != '&' && size > 1; size--) {
		unsigned int c;

		if (*s == '%' && sscanf(s + 1, "%2x", &c) == 1) {
			*out++ = (char)c;
			s += 3;
		} else {
			*out++ = *s++;
		}
	}
	*out = '\0';
	return true;
}

static const char *field(json_t *object, const char *path)
{
	char part[128];

	while (object && *path) {
		size_t n = strcspn(path, ".");

		(void)snprintf(part, sizeof(part), "%.*s", (int)n, path);
		object = json_object_get(object, part);
		path += n + (path[n] == '.');
	}
	return json_string_value(object) ? json_string_value(object) : "";
}

/* "a=b,c=d" of labels (map not NULL) or of fields. */
static bool selects(const char *selector, json_t *labels, json_t *object)
{
	char one[512];

	while (*selector) {
		size_t n = strcspn(selector, ",");
		char *is;
		const char *value;

		(void)snprintf(one, sizeof(one), "%.*s", (int)n, selector);
		selector += n + (selector[n] == ',');
		is = strchr(one, '=');
		ensure(is);
		*is++ = '\0';
		is += *is == '=';
		value = labels ? json_string_value(json_object_get(labels, one))
			       : field(object, one);
		if (!value || strcmp(value, is) != 0)
			return false;
	}
	return true;
}

static bool wanted(const struct call *call, const char *path, json_t *object)
{
	char selector[512];
	size_t n = strlen(call->path);
	json_t *labels = json_object_get(meta_of(object), "labels");

	if (call->kind->cluster_wide || strstr(call->path, "/namespaces/")) {
		if (strncmp(path, call->path, n) != 0 || path[n] != '/')
			return false;
	} else if (!strstr(path, call->kind->plural) || !strstr(path, call->kind->api_version)) {
		return false; /* of all namespaces */
	}
	if (parameter(call, "labelSelector", selector, sizeof(selector)) &&
		!(labels ? selects(selector, labels, object) : false))
		return false;
	return !parameter(call, "fieldSelector", selector, sizeof(selector)) ||
	       selects(selector, NULL, object);
}

/* ---- reads ----------------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static json_t *items_of(struct call *call)
{
	size_t n = json_object_size(call->kube->objects);
	_cleanup_free_ const char **keys = calloc(n + 1, sizeof(*keys));
	json_t *items = json_array();
	const char *key;
	json_t *object;
	size_t i = 0;

	json_object_foreach (call->kube->objects, key, object)
		keys[i++] = key;
	qsort(keys, n, sizeof(*keys), compare);
	for (i = 0; i < n; i++) {
		object = json_object_get(call->kube->objects, keys[i]);
		if (wanted(call, keys[i], object))
			json_array_append_new(items, json_deep_copy(object));
	}
	return items;
}

static void list(struct call *call)
{
	char text[64] = "";
	char version[32];
	json_t *items = items_of(call);
	json_t *page = json_array();
	size_t limit = json_array_size(items);
	size_t from = 0;
	size_t end;
	json_t *meta;

	(void)snprintf(version, sizeof(version), "%lld", call->kube->version);
	if (parameter(call, "limit", text, sizeof(text)))
		limit = strtoul(text, NULL, 10);
	if (parameter(call, "continue", text, sizeof(text)))
		from = strtoul(text, NULL, 10);
	if (from && call->kube->expires) {
		call->kube->expires--;
		json_decref(items);
		json_decref(page);
		put_status(call->fd, 410, "Expired", "The provided continue parameter is too old");
		return;
	}
	end = min(from + limit, json_array_size(items));
	for (size_t i = from; i < end; i++)
		json_array_append(page, json_array_get(items, i));
	meta = json_pack("{s:s}", "resourceVersion", version);
	if (end < json_array_size(items)) {
		(void)snprintf(text, sizeof(text), "%zu", end);
		json_object_set_new(meta, "continue", json_string(text));
	}
	json_decref(items);
	put_json(call->fd, 200, "",
		json_pack("{s:s, s:s, s:o, s:o}", "kind", "List", "apiVersion",
			call->kind->api_version, "metadata", meta, "items", page));
}

static void put_chunk(int fd, const char *text, size_t len)
{
	char size[32];

	(void)snprintf(size, sizeof(size), "%zx\r\n", len);
	server_puts(fd, size);
	server_put(fd, text, len);
	server_puts(fd, "\r\n");
}

static bool put_change(struct call *call, const json_t *event)
{
	_cleanup_free_ char *text = json_dumps(event, JSON_COMPACT);
	_cleanup_free_ char *line = NULL;

	ensure(asprintf(&line, "%s\n", text) > 0);
	if (call->kube->breaks) {
		call->kube->breaks--;
		put_chunk(call->fd, line, strlen(line) / 2);
		return false;
	}
	put_chunk(call->fd, line, strlen(line));
	return true;
}

static bool watch_error(struct call *call)
{
	json_t *event;

	if (!call->kube->watch_errors)
		return false;
	call->kube->watch_errors--;
	event = json_pack("{s:s, s:{s:s, s:i, s:s}}", "type", "ERROR", "object", "kind", "Status",
		"code", 410, "reason", "Expired");
	(void)put_change(call, event);
	json_decref(event);
	return true;
}

/* With the lock, which it leaves while it waits. Returns whether the connection stays. */
static bool watch(struct call *call)
{
	struct fake_kube *kube = call->kube;
	char text[64] = "0";
	long long from;
	unsigned int ended = kube->watches_ended;
	struct timespec until;

	(void)parameter(call, "resourceVersion", text, sizeof(text));
	from = strtoll(text, NULL, 10);
	if (from < kube->forgotten) {
		put_status(call->fd, 410, "Expired", "too old resource version");
		return true;
	}
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += parameter(call, "timeoutSeconds", text, sizeof(text)) ? atoi(text) : 3600;
	server_puts(call->fd, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
	if (watch_error(call))
		return false;
	for (unsigned int i = 0;;) {
		const struct fake_kube_change *change = &kube->changes[i];

		if (i == kube->n_changes) {
			if (kube->stopping || ended != kube->watches_ended ||
				pthread_cond_timedwait(&kube->changed, &kube->lock, &until) ==
					ETIMEDOUT)
				break;
			continue;
		}
		i++;
		if (change->version <= from ||
			(*change->path && !wanted(call, change->path,
						  json_object_get(change->event, "object"))))
			continue;
		if (!put_change(call, change->event))
			return false;
	}
	server_puts(call->fd, "0\r\n\r\n");
	return true;
}

/* Of its annotation fake/log. */
static void log_of(struct call *call, json_t *object)
{
	const char *text = json_string_value(
		json_object_get(json_object_get(meta_of(object), "annotations"), "fake/log"));

	put_answer(call->fd, 200, "", "text/plain", text ? text : "");
}

static bool read_objects(struct call *call)
{
	json_t *object;
	char text[16];

	if (!call->name && parameter(call, "watch", text, sizeof(text)))
		return watch(call);
	if (!call->name) {
		list(call);
		return true;
	}
	object = json_object_get(call->kube->objects, call->path);
	if (!object)
		put_status(call->fd, 404, "NotFound", "the object was not found");
	else if (strcmp(call->sub, "log") == 0)
		log_of(call, object);
	else
		put_json(call->fd, 200, "", json_deep_copy(object));
	return true;
}

/* ---- writes ---------------------------------------------------------------------------------- */

static bool is_dry(const struct call *call)
{
	char text[16];

	return parameter(call, "dryRun", text, sizeof(text));
}

static void create(struct call *call)
{
	char path[PATH_BYTES + 300];
	const char *name = json_string_value(json_object_get(meta_of(call->body), "name"));
	json_t *object;

	if (!name) {
		put_status(call->fd, 422, "Invalid", "metadata.name: Required value");
		return;
	}
	(void)snprintf(path, sizeof(path), "%s/%s", call->path, name);
	if (json_object_get(call->kube->objects, path)) {
		put_status(call->fd, 409, "AlreadyExists", "the object already exists");
		return;
	}
	object = json_deep_copy(call->body);
	if (!is_dry(call))
		put_new(call->kube, path, json_incref(object));
	put_json(call->fd, 201, "", object);
}

static void patch(struct call *call)
{
	json_t *old = json_object_get(call->kube->objects, call->path);
	json_t *object;

	if (!old && !call->applies) {
		put_status(call->fd, 404, "NotFound", "the object was not found");
		return;
	}
	object = old ? json_deep_copy(old) : json_object();
	merge(object, call->body);
	if (!is_dry(call))
		put_new(call->kube, call->path, json_incref(object));
	put_json(call->fd, old ? 200 : 201, "", object);
}

static void delete (struct call *call)
{
	json_t *old = json_object_get(call->kube->objects, call->path);
	const char *uid = json_string_value(
		json_object_get(json_object_get(call->body, "preconditions"), "uid"));

	if (!old) {
		put_status(call->fd, 404, "NotFound", "the object was not found");
		return;
	}
	if (uid && strcmp(uid, json_string_value(json_object_get(meta_of(old), "uid"))) != 0) {
		put_status(call->fd, 409, "Conflict", "the UID in the precondition does not match");
		return;
	}
	if (json_array_size(json_object_get(call->body, "dryRun")) == 0)
		take_away(call->kube, call->path);
	put_json(call->fd, 200, "", json_pack("{s:s, s:s}", "kind", "Status", "status", "Success"));
}

/* ---- requests -------------------------------------------------------------------------------- */

static void discover(struct call *call, const char *api_version)
{
	json_t *all = json_array();

	for (const struct fake_kube_kind *k = call->kube->kinds; k->kind; k++)
		if (strcmp(k->api_version, api_version) == 0 &&
			strcmp(call->kube->hidden, api_version) != 0)
			json_array_append_new(
				all, json_pack("{s:s, s:s, s:b}", "name", k->plural, "kind",
					     k->kind, "namespaced", !k->cluster_wide));
	if (json_array_size(all) == 0) {
		json_decref(all);
		put_answer(call->fd, 404, "", "text/plain", "404 page not found\n");
		return;
	}
	put_json(call->fd, 200, "",
		json_pack("{s:s, s:s, s:o}", "kind", "APIResourceList", "groupVersion", api_version,
			"resources", all));
}

/* Its kind, and what is below it, by the path: /api[s]/VERSION[/namespaces/NS]/PLURAL[/NAME[/SUB]]. */
static bool find_kind(struct call *call)
{
	char *at = call->path + (strncmp(call->path, "/apis/", 6) == 0 ? 6 : 5);

	for (const struct fake_kube_kind *k = call->kube->kinds; k->kind; k++) {
		size_t n = strlen(k->api_version);
		char *s = at + n;
		size_t p = strlen(k->plural);
		char *sub;

		if (strncmp(at, k->api_version, n) != 0 || *s++ != '/')
			continue;
		if (strncmp(s, "namespaces/", 11) == 0 && strchr(s + 11, '/'))
			s = strchr(s + 11, '/') + 1;
		if (strncmp(s, k->plural, p) != 0 || (s[p] && s[p] != '/'))
			continue;
		call->kind = k;
		call->name = s[p] ? s + p + 1 : NULL;
		sub = call->name ? strchr(call->name, '/') : NULL;
		if (sub) {
			(void)snprintf(call->sub, sizeof(call->sub), "%s", sub + 1);
			*sub = '\0';
		}
		return true;
	}
	return false;
}

static void set_fault(struct fake_kube *kube, const char *name, unsigned int n)
{
	const struct {
		const char *name;
		unsigned int *value;
	} all[] = {
		{ "throttles", &kube->throttles },
		{ "retry_after", &kube->retry_after },
		{ "fails", &kube->fails },
		{ "closes", &kube->closes },
		{ "loses", &kube->loses },
		{ "conflicts", &kube->conflicts },
	};

	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		if (strcmp(all[i].name, name) == 0)
			*all[i].value = n;
}

static void control(struct call *call)
{
	const char *hidden = json_string_value(json_object_get(call->body, "hidden"));
	const char *key;
	json_t *value;

	json_object_foreach (json_object_get(call->body, "put"), key, value)
		if (json_is_null(value))
			take_away(call->kube, key);
		else
			put_new(call->kube, key, json_deep_copy(value));
	json_object_foreach (json_object_get(call->body, "set"), key, value)
		set_fault(call->kube, key, (unsigned int)json_integer_value(value));
	(void)snprintf(call->kube->hidden, sizeof(call->kube->hidden), "%s", hidden ? hidden : "");
	put_json(call->fd, 200, "", json_object());
}

static bool carry_out(struct call *call)
{
	const char *version =
		strncmp(call->path, "/apis/", 6) == 0 ? call->path + 6 : call->path + 5;
	size_t n = strlen(call->path);

	if (call->path[n - 1] == '/') { /* the path of a group has a slash at its end */
		call->path[n - 1] = '\0';
		discover(call, version);
		return true;
	}
	if (!find_kind(call)) {
		discover(call, version);
		return true;
	}
	if (strcmp(call->method, "GET") == 0)
		return read_objects(call);
	if (call->kube->conflicts) {
		call->kube->conflicts--;
		put_status(call->fd, 409, "Conflict", "the object has been modified");
	} else if (strcmp(call->method, "POST") == 0) {
		create(call);
	} else if (strcmp(call->method, "PATCH") == 0) {
		patch(call);
	} else {
		delete (call);
	}
	return true;
}

static bool has_token(const struct fake_kube *kube, const char *head)
{
	char line[4200];

	if (!kube->token)
		return true;
	(void)snprintf(line, sizeof(line), "\r\nAuthorization: Bearer %s\r\n", kube->token);
	return strstr(head, line) != NULL;
}

/* True: it was answered, or *ret_stays says that the connection ends. */
static bool fail(struct fake_kube *kube, int fd, const char *head, bool *ret_stays)
{
	char more[64];

	*ret_stays = true;
	if (!has_token(kube, head)) {
		put_status(fd, 401, "Unauthorized", "Unauthorized");
	} else if (kube->closes) {
		kube->closes--;
		*ret_stays = false;
	} else if (kube->throttles) {
		kube->throttles--;
		(void)snprintf(more, sizeof(more), "Retry-After: %u\r\n", kube->retry_after);
		put_answer(fd, 429, more, "text/plain", "too many requests");
	} else if (kube->fails) {
		kube->fails--;
		put_status(fd, 500, "InternalError", "etcdserver: leader changed");
	} else {
		return false;
	}
	return true;
}

static void write_log(const struct fake_kube *kube, const struct call *call, const char *head)
{
	json_t *line;
	_cleanup_free_ char *text = NULL;

	if (!kube->log)
		return;
	line = json_pack("{s:s, s:s, s:s, s:s, s:O?}", "method", call->method, "path", call->path,
		"query", call->query, "head", head, "body", call->body);
	text = json_dumps(line, JSON_COMPACT);
	json_decref(line);
	(void)fprintf(kube->log, "%s\n", text ? text : "{}");
	(void)fflush(kube->log);
}

static bool answer(struct server *server, int fd, const char *head)
{
	struct fake_kube *kube = server->arg;
	struct call call = { .kube = kube, .fd = fd };
	const char *body = strstr(head, "\r\n\r\n") + 4;
	bool loses;
	bool stays = true;
	char *query;

	ensure(sscanf(head, "%15s %2047s", call.method, call.path) == 2);
	query = strchr(call.path, '?');
	if (query) {
		*query++ = '\0';
		(void)snprintf(call.query, sizeof(call.query), "%s", query);
	}
	call.applies = strstr(head, "apply-patch+yaml") != NULL;
	call.body = *body ? json_loads(body, 0, NULL) : NULL;
	pthread_mutex_lock(&kube->lock);
	ensure(kube->n_requests < FAKE_KUBE_REQUESTS);
	kube->requests[kube->n_requests++] = strdup(head);
	if (strcmp(call.path, "/fake") == 0) {
		control(&call);
		pthread_mutex_unlock(&kube->lock);
		json_decref(call.body);
		return true;
	}
	write_log(kube, &call, head);
	loses = kube->loses > 0;
	kube->loses -= loses;
	if (loses) {
		call.fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
		(void)carry_out(&call);
		(void)close(call.fd);
		stays = false;
	} else if (!fail(kube, fd, head, &stays)) {
		stays = carry_out(&call);
	}
	pthread_mutex_unlock(&kube->lock);
	json_decref(call.body);
	return stays;
}

/* ---- face ------------------------------------------------------------------------------------ */

void fake_kube_start(struct fake_kube *kube)
{
	memset(kube, 0, sizeof(*kube));
	pthread_mutex_init(&kube->lock, NULL);
	pthread_cond_init(&kube->changed, NULL);
	kube->objects = json_object();
	kube->kinds = standard_kinds;
	server_start(&kube->server, answer, kube);
	(void)snprintf(kube->url, sizeof(kube->url), "http://127.0.0.1:%u", kube->server.port);
}

void fake_kube_stop(struct fake_kube *kube)
{
	pthread_mutex_lock(&kube->lock);
	kube->stopping = true;
	pthread_cond_broadcast(&kube->changed);
	pthread_mutex_unlock(&kube->lock);
	server_stop(&kube->server);
	for (unsigned int i = 0; i < kube->n_requests; i++)
		free(kube->requests[i]);
	for (unsigned int i = 0; i < kube->n_changes; i++) {
		free(kube->changes[i].path);
		json_decref(kube->changes[i].event);
	}
	json_decref(kube->objects);
	pthread_cond_destroy(&kube->changed);
	pthread_mutex_destroy(&kube->lock);
}

void fake_kube_config(const struct fake_kube *kube, const char *path, const char *token)
{
	FILE *f = fopen(path, "we");

	ensure(f);
	(void)fprintf(f,
		"apiVersion: v1\nkind: Config\ncurrent-context: fake\ncontexts:\n- name: fake\n"
		"  context: {cluster: c, user: u, namespace: team}\nclusters:\n- name: c\n"
		"  cluster: {server: '%s/'}\nusers:\n- name: u\n  user: {token: %s}\n",
		kube->url, token);
	ensure(fclose(f) == 0);
}

void fake_kube_put(struct fake_kube *kube, const char *path, json_t *object)
{
	pthread_mutex_lock(&kube->lock);
	if (object)
		put_new(kube, path, object);
	else
		take_away(kube, path);
	pthread_mutex_unlock(&kube->lock);
}

json_t *fake_kube_object(struct fake_kube *kube, const char *path)
{
	json_t *object;

	pthread_mutex_lock(&kube->lock);
	object = json_deep_copy(json_object_get(kube->objects, path));
	pthread_mutex_unlock(&kube->lock);
	return object;
}

void fake_kube_end_watches(struct fake_kube *kube)
{
	pthread_mutex_lock(&kube->lock);
	kube->watches_ended++;
	pthread_cond_broadcast(&kube->changed);
	pthread_mutex_unlock(&kube->lock);
}

void fake_kube_bookmark(struct fake_kube *kube)
{
	json_t *object = json_object();

	pthread_mutex_lock(&kube->lock);
	record(kube, "BOOKMARK", "", object);
	pthread_mutex_unlock(&kube->lock);
	json_decref(object);
}

unsigned int fake_kube_count(struct fake_kube *kube, const char *begin)
{
	unsigned int n = 0;

	pthread_mutex_lock(&kube->lock);
	for (unsigned int i = 0; i < kube->n_requests; i++)
		n += strncmp(kube->requests[i], begin, strlen(begin)) == 0;
	pthread_mutex_unlock(&kube->lock);
	return n;
}

const char *fake_kube_last(struct fake_kube *kube, const char *begin)
{
	const char *last = NULL;

	pthread_mutex_lock(&kube->lock);
	for (unsigned int i = 0; i < kube->n_requests; i++)
		if (strncmp(kube->requests[i], begin, strlen(begin)) == 0)
			last = kube->requests[i];
	pthread_mutex_unlock(&kube->lock);
	return last;
}
