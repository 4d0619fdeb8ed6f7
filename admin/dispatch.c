/* Which route answers a request, and who may ask for it. See server_internal.h. */
#include "admin/server_internal.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"

#include <stdlib.h>
#include <string.h>

static const char *query(const struct admin_request *request, const char *name)
{
	const struct admin_handled *call = request->priv;

	return admin_query_find(&call->query, name);
}

int admin_query_number(const struct admin_request *request, const char *name, uint64_t otherwise,
	uint64_t *ret, struct err *e)
{
	const char *text = request->query(request, name);
	uint64_t value = otherwise;
	char *end;

	if (text) {
		errno = 0;
		value = strtoull(text, &end, 10);
		if (errno || *text < '0' || *text > '9' || *end || value > INT64_MAX)
			return err_set(e, -EINVAL, "'%s' must be a number", name);
	}
	*ret = value;
	return 0;
}

static const char *param(const struct admin_request *request, const char *name)
{
	const struct admin_handled *call = request->priv;

	return admin_params_find(&call->params, name);
}

/* {"name": "imagenet"}: the names in the path. */
static json_t *params_json(const struct admin_params *params)
{
	json_t *json = json_object();

	for (unsigned int i = 0; json && i < params->n; i++) {
		const struct admin_param *p = &params->list[i];
		char name[ADMIN_PARAM_BYTES];

		(void)snprintf(name, sizeof(name), "%.*s", (int)p->name_len, p->name); /* fits */
		/* Text that is not UTF-8 is left out: for display only. */
		(void)json_object_set_new(json, name, json_string(p->value));
	}
	return json;
}

/* A caller that may only read must not be able to rotate the lines of others out of the file: refusals are written once a
 * second at most. All are counted. */
static bool is_noted(bool refused)
{
	static struct log_limit limit;
	uint32_t left_out;

	return !refused || log_limit_pass(&limit, 1, &left_out);
}

static void audit(const struct admin_route *route, const struct admin_handled *call,
	const struct admin_request *request, bool refused, int code, const struct err *e)
{
	json_t *params = params_json(&call->params);
	json_t *on = audit_names(params, refused ? NULL : request->body);
	const struct audit_act act = { .act = route->act,
		.caller = &request->caller,
		.on = on,
		.changes = code == 0 ? request->changes : NULL,
		.code = code,
		.text = code < 0 ? e->text : NULL };

	audit_write(&act);
	json_decref(on);
	json_decref(params);
}

/* The body as JSON, if there is one. */
static int parse_body(const void *body, size_t len, json_t **ret_body, struct err *e)
{
	json_error_t where;
	int r;

	if (len == 0)
		return 0;
	r = admin_json_parse(body, len, JSON_REJECT_DUPLICATES, ret_body, &where);
	if (r == -ENOMEM)
		return err_set(e, r, "out of memory");
	return r < 0 ? err_set(e, -EINVAL, "the request's body is not JSON: line %d: %s",
			       where.line, where.text)
		     : 0;
}

static int check_right(const struct admin_server *server, const struct admin_route *route,
	const struct admin_caller *caller, struct err *e)
{
	const char *const *act = atomic_load(&server->use_acts);

	for (; act && *act; act++)
		if (strcmp(*act, route->act) == 0 &&
			admin_right(caller, RIGHTS_OP_USE) != RIGHT_NONE)
			return 0;
	return admin_caller_may_change(caller, e);
}

static int run_route(struct admin_server *server, const struct admin_route *route,
	const struct admin_handled *call, struct admin_request *request, json_t **ret_json,
	struct err *e)
{
	uint64_t began = clock_mono_ns();
	int r = route->act ? check_right(server, route, &request->caller, e) : 0;
	bool refused = r < 0;

	request->changes = route->act ? json_object() : NULL;
	if (refused)
		counter_add(&server->counters.refused, 1);
	else
		r = route->handler(server->arg, request, ret_json, e);
	if (r < 0) {
		(void)err_default(e, r, route->path); /* returns r */
		counter_add(&server->counters.failed, 1);
	}
	if (route->act) {
		counter_add(&server->counters.changes, 1);
		if (is_noted(refused))
			audit(route, call, request, refused, r, e);
	}
	json_decref(request->changes);
	request->changes = NULL;
	histogram_note(&server->histograms.request, clock_mono_ns() - began);
	return r;
}

int admin_handle(struct admin_server *server, const struct admin_route *route,
	struct admin_handled *call, const struct admin_caller *caller, const void *text, size_t len,
	json_t **ret_json, struct err *e)
{
	struct admin_request request = {
		.path = route->path, .query = query, .param = param, .caller = *caller, .priv = call
	};
	json_t *body = NULL;
	json_t *json = NULL;
	int r = call->query_text ? admin_query_parse(call->query_text, &call->query, e) : 0;

	if (r == 0)
		r = parse_body(text, len, &body, e);
	request.body = body;
	if (r == 0)
		r = run_route(server, route, call, &request, &json, e);
	if (r == 0 && json && strcmp(route->path, "/v1/status") == 0)
		(void)json_object_set_new(
			json, "bounds", admin_bounds_json()); /* for display only */
	json_decref(body);
	if (r == 0)
		*ret_json = json;
	else
		json_decref(json);
	return r;
}

static enum MHD_Result call_route(struct admin_server *server, const struct admin_route *route,
	struct admin_handled *call, struct MHD_Connection *connection,
	const struct admin_upload *upload)
{
	struct admin_caller caller;
	struct err e = ERR_INIT;
	json_t *json = NULL;
	enum MHD_Result answered;
	int r;

	admin_find_caller(connection, &caller);
	r = admin_handle(
		server, route, call, &caller, upload->body.data, upload->body.len, &json, &e);
	if (r < 0)
		answered = admin_respond_error(connection, admin_http_status(r), r, e.text, NULL);
	else
		answered = admin_respond_json(connection, MHD_HTTP_OK, json, NULL);
	json_decref(json);
	return answered;
}

static int add_route(json_t *list, const char *method, const char *path, const char *act)
{
	return json_array_append_new(
		list, json_pack("{s:s, s:s, s:s?}", "method", method, "path", path, "act", act));
}

/* {"routes": [{"method": "GET", "path": "/v1/status", "act": null}, ...]} */
static enum MHD_Result respond_routes(
	const struct admin_server *server, struct MHD_Connection *connection)
{
	const struct admin_page *page = atomic_load(&server->pages);
	json_t *list = json_array();
	json_t *json = json_pack("{s:o}", "routes", list);
	enum MHD_Result r;
	int bad = 0;

	for (; json && page && page->path; page++)
		bad |= add_route(list, "GET", page->path, NULL);
	for (const struct admin_route *route = server->routes; json && route->path; route++)
		bad |= add_route(list, route->method, route->path, route->act);
	if (bad) {
		json_decref(json);
		json = NULL;
	}
	r = json ? admin_respond_json(connection, MHD_HTTP_OK, json, NULL)
		 : admin_respond_error(connection, MHD_HTTP_INTERNAL_SERVER_ERROR, -ENOMEM,
			   "out of memory", NULL);
	json_decref(json);
	return r;
}

static bool is_own(const char *path)
{
	return strcmp(path, "/metrics") == 0 || strcmp(path, "/healthz") == 0 ||
	       strcmp(path, "/readyz") == 0 || strcmp(path, "/v1/routes") == 0;
}

bool admin_is_reading(const char *method)
{
	return strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0;
}

static enum MHD_Result respond_own(struct admin_server *server, struct MHD_Connection *connection,
	const char *path, const char *method, bool trusted)
{
	if (!admin_is_reading(method))
		return admin_respond_error(connection, MHD_HTTP_METHOD_NOT_ALLOWED, -EOPNOTSUPP,
			"method not allowed: use GET", "GET");
	if (strcmp(path, "/metrics") == 0)
		return admin_respond_metrics(server, connection);
	if (strcmp(path, "/v1/routes") == 0)
		return respond_routes(server, connection);
	if (strcmp(path, "/readyz") == 0)
		return admin_respond_ready(server, connection, trusted);
	return admin_respond(connection, MHD_HTTP_OK, "text/plain", "ok\n", 3, NULL);
}

const struct admin_route *admin_debug_routes;

int admin_find_route(const struct admin_server *server, const char *method, const char *path,
	struct admin_params *ret_params, const struct admin_route **ret_route, struct buf *allow)
{
	const struct admin_route *const tables[] = { server->routes, admin_debug_routes };

	for (size_t i = 0; i < ARRAY_SIZE(tables); i++) {
		for (const struct admin_route *route = tables[i]; route && route->path; route++) {
			int r = admin_route_match(route->path, path, ret_params);

			if (r < 0)
				return r;
			if (r == 0)
				continue;
			if (strcmp(route->method, method) == 0) {
				*ret_route = route;
				return 0;
			}
			if (buf_printf(allow, "%s%s", allow->len ? ", " : "", route->method) < 0)
				return -ENOMEM;
		}
	}
	return allow->len ? -EOPNOTSUPP : -ENOENT;
}

const char *admin_no_route(int code)
{
	if (code == -EOPNOTSUPP)
		return "method not allowed";
	return code == -ENOENT ? "no such path"
			       : "a name in the path is too long, or has a character that no name "
				 "may have";
}

enum MHD_Result admin_dispatch(struct admin_server *server, struct MHD_Connection *connection,
	const char *method, const struct admin_upload *upload)
{
	_cleanup_(buf_release) struct buf allow = BUF_INIT(256);
	const struct admin_route *route = NULL;
	const struct admin_page *page;
	struct admin_handled call = { .query_text = upload->query };
	struct admin_gate gate;
	int r;

	if (upload->too_large)
		return admin_respond_error(connection, MHD_HTTP_CONTENT_TOO_LARGE, -EMSGSIZE,
			"the request's body is too large", NULL);
	counter_add(&server->counters.requests, 1);
	gate = admin_gate(server, connection, upload->path);
	if (gate.status)
		return admin_respond_error(connection, gate.status, -EPERM, gate.text, NULL);
	page = admin_page_find(atomic_load(&server->pages), upload->path);
	if (page && admin_is_reading(method))
		return admin_page_respond(connection, page);
	if (page || is_own(upload->path))
		return respond_own(server, connection, upload->path, method, gate.trusted);
	r = admin_find_route(server, method, upload->path, &call.params, &route, &allow);
	if (r == -ENOMEM)
		return MHD_NO;
	if (r < 0)
		return admin_respond_error(connection,
			r == -EOPNOTSUPP ? MHD_HTTP_METHOD_NOT_ALLOWED : admin_http_status(r), r,
			admin_no_route(r), allow.len ? buf_str(&allow) : NULL);
	return call_route(server, route, &call, connection, upload);
}
