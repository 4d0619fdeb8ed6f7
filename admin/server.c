/*
 * The daemons' HTTP server, over libmicrohttpd on a unix socket. See admin.h.
 *
 * A small pool of threads waits on the socket and its connections; a handler may hold its thread
 * for a short while, so there is more than one. Everything is bounded: connections, size of a body,
 * time a connection may be silent. The library calls on_path() with the path as it was sent, then
 * on_request() first with nothing, then with each part of the body, then with none left.
 */
#include "admin/admin_internal.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/unix_socket.h"

#include <microhttpd.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define SERVER_MAGIC  0x41444d53u
#define THREADS       4u
#define CONNECTIONS   64u
#define IDLE_SECONDS  30u
#define CONN_BYTES    16384 /* per connection: request line and headers */
#define BACKLOG       64
#define TABLES_MAX    16u
#define METRICS_BYTES (1u << 20)
#define ANSWER_GRACE  (2 * CLOCK_SECOND) /* at the end: for answers that are on their way */

struct table {
	const struct counter_info *rows;
	uint32_t n;
	const void *counters;
};

struct admin_server {
	uint32_t magic;
	const struct admin_route *routes;
	void *arg;
	char path[SOCKET_PATH_MAX];
	struct MHD_Daemon *daemon;
	struct table tables[TABLES_MAX];
	uint32_t n_tables;
	void (*refresh)(void *arg); /* may be NULL */
	void *refresh_arg;
	_Atomic uint32_t under_way; /* requests that began and whose answers are not out */
};

/* A request while its body arrives. */
struct upload {
	char *path; /* as it was sent, without the query */
	bool begun;
	struct buf body;
	bool too_large;
};

/* A request that a route is called for: admin_request.priv. */
struct call {
	struct MHD_Connection *connection;
	struct admin_params params;
};

/* ---- answers --------------------------------------------------------------------------------- */

static enum MHD_Result respond(struct MHD_Connection *connection, unsigned int status,
	const char *type, const void *data, size_t len, const char *allow)
{
	struct MHD_Response *response = MHD_create_response_from_buffer(
		len, (void *)(uintptr_t)data, MHD_RESPMEM_MUST_COPY);
	enum MHD_Result r;

	if (!response)
		return MHD_NO;
	/* Without memory for a header the answer is still the answer. */
	(void)MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
	if (allow)
		(void)MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, allow);
	r = MHD_queue_response(connection, status, response);
	MHD_destroy_response(response);
	return r;
}

static enum MHD_Result respond_json(struct MHD_Connection *connection, unsigned int status,
	const json_t *json, const char *allow)
{
	_cleanup_free_ char *text = admin_json_text(json, JSON_COMPACT | JSON_ENCODE_ANY);

	if (json && !text)
		return MHD_NO;
	return respond(connection, status, "application/json", text ? text : "{}",
		text ? strlen(text) : 2, allow);
}

static enum MHD_Result respond_error(struct MHD_Connection *connection, unsigned int status,
	int code, const char *text, const char *allow)
{
	json_t *json = json_pack("{s:{s:s,s:s}}", "error", "code", err_name(code), "text", text);
	enum MHD_Result r;

	if (!json) /* a text that is not UTF-8 */
		json = json_pack(
			"{s:{s:s,s:s}}", "error", "code", err_name(code), "text", err_str(code));
	r = respond_json(connection, status, json, allow);
	json_decref(json);
	return r;
}

static unsigned int http_status(int code)
{
	switch (code) {
	case -ENOENT:
		return MHD_HTTP_NOT_FOUND;
	case -EINVAL:
		return MHD_HTTP_BAD_REQUEST;
	case -EBUSY:
	case -EEXIST:
		return MHD_HTTP_CONFLICT;
	case -EACCES:
	case -EPERM:
		return MHD_HTTP_FORBIDDEN;
	case -EAGAIN:
		return MHD_HTTP_SERVICE_UNAVAILABLE;
	default:
		return MHD_HTTP_INTERNAL_SERVER_ERROR;
	}
}

/* ---- counters -------------------------------------------------------------------------------- */

int admin_server_add_counters(struct admin_server *server, const struct counter_info *table,
	uint32_t n, const void *counters)
{
	CHECK_MAGIC(server, SERVER_MAGIC);
	if (server->n_tables == TABLES_MAX)
		return -ENOBUFS;
	server->tables[server->n_tables++] =
		(struct table){ .rows = table, .n = n, .counters = counters };
	return 0;
}

void admin_server_on_metrics(struct admin_server *server, void (*refresh)(void *arg), void *arg)
{
	CHECK_MAGIC(server, SERVER_MAGIC);
	server->refresh = refresh;
	server->refresh_arg = arg;
}

json_t *admin_counters_json(const struct counter_info *table, uint32_t n, const void *counters)
{
	json_t *json = json_object();

	for (uint32_t i = 0; json && i < n; i++)
		if (json_object_set_new(json, table[i].symbol,
			    json_integer((json_int_t)counter_read(&table[i], counters))) != 0) {
			json_decref(json);
			return NULL;
		}
	return json;
}

/* One counter in the Prometheus text format, version 0.0.4. */
static int metric_text(const struct counter_info *row, uint64_t value, struct buf *out)
{
	return buf_printf(out, "# HELP %s %s (%s)\n# TYPE %s %s\n%s %llu\n", row->name, row->help,
		row->unit, row->name, row->kind == GAUGE ? "gauge" : "counter", row->name,
		(unsigned long long)value);
}

static enum MHD_Result respond_metrics(
	const struct admin_server *server, struct MHD_Connection *connection)
{
	_cleanup_(buf_release) struct buf out = BUF_INIT(METRICS_BYTES);
	int r = 0;

	if (server->refresh)
		server->refresh(server->refresh_arg);
	for (uint32_t t = 0; t < server->n_tables; t++) {
		const struct table *table = &server->tables[t];

		for (uint32_t i = 0; i < table->n && r == 0; i++)
			r = metric_text(&table->rows[i],
				counter_read(&table->rows[i], table->counters), &out);
	}
	if (r == 0)
		r = admin_bounds_metrics(&out);
	if (r < 0)
		return respond_error(connection, MHD_HTTP_INTERNAL_SERVER_ERROR, r,
			"no memory for the metrics", NULL);
	return respond(connection, MHD_HTTP_OK, "text/plain; version=0.0.4; charset=utf-8",
		buf_str(&out), out.len, NULL);
}

/* ---- requests -------------------------------------------------------------------------------- */

static const char *query(const struct admin_request *request, const char *name)
{
	const struct call *call = request->priv;

	return MHD_lookup_connection_value(call->connection, MHD_GET_ARGUMENT_KIND, name);
}

static const char *param(const struct admin_request *request, const char *name)
{
	const struct call *call = request->priv;

	return admin_params_find(&call->params, name);
}

static void find_caller(struct MHD_Connection *connection, struct admin_caller *ret_caller)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);

	admin_caller_of(info ? info->connect_fd : -1, ret_caller);
}

static enum MHD_Result call_route(const struct admin_server *server,
	const struct admin_route *route, struct call *call, const struct upload *upload)
{
	struct MHD_Connection *connection = call->connection;
	struct admin_request request = {
		.path = route->path, .query = query, .param = param, .priv = call
	};
	struct err e = ERR_INIT;
	json_error_t where;
	json_t *body = NULL;
	json_t *json = NULL;
	enum MHD_Result answered;
	int r = 0;

	find_caller(connection, &request.caller);
	if (route->act)
		r = admin_caller_may_change(&request.caller, &e);
	if (r < 0)
		return respond_error(connection, http_status(r), r, e.text, NULL);
	if (upload->body.len > 0) {
		r = admin_json_parse(
			upload->body.data, upload->body.len, JSON_REJECT_DUPLICATES, &body, &where);
		if (r == -ENOMEM)
			return respond_error(connection, MHD_HTTP_INTERNAL_SERVER_ERROR, r,
				"out of memory", NULL);
		if (r < 0) {
			(void)err_set(&e, -EINVAL, "the request's body is not JSON: line %d: %s",
				where.line, where.text);
			return respond_error(
				connection, MHD_HTTP_BAD_REQUEST, -EINVAL, e.text, NULL);
		}
	}
	request.body = body;
	r = route->handler(server->arg, &request, &json, &e);
	if (r == 0 && json && strcmp(route->path, "/v1/status") == 0)
		(void)json_object_set_new(json, "bounds", admin_bounds_json()); /* told only */
	json_decref(body);
	if (r < 0) {
		(void)err_default(&e, r, route->path); /* returns r */
		answered = respond_error(connection, http_status(r), r, e.text, NULL);
	} else {
		answered = respond_json(connection, MHD_HTTP_OK, json, NULL);
	}
	json_decref(json);
	return answered;
}

/* {"routes": [{"method": "GET", "path": "/v1/status", "act": null}, ...]} */
static enum MHD_Result respond_routes(
	const struct admin_server *server, struct MHD_Connection *connection)
{
	json_t *list = json_array();
	json_t *json = json_pack("{s:o}", "routes", list);
	enum MHD_Result r;

	for (const struct admin_route *route = server->routes; json && route->path; route++)
		if (json_array_append_new(
			    list, json_pack("{s:s, s:s, s:s?}", "method", route->method, "path",
					  route->path, "act", route->act)) != 0) {
			json_decref(json);
			json = NULL;
		}
	r = json ? respond_json(connection, MHD_HTTP_OK, json, NULL)
		 : respond_error(connection, MHD_HTTP_INTERNAL_SERVER_ERROR, -ENOMEM,
			   "out of memory", NULL);
	json_decref(json);
	return r;
}

static bool is_own(const char *path)
{
	return strcmp(path, "/metrics") == 0 || strcmp(path, "/healthz") == 0 ||
	       strcmp(path, "/v1/routes") == 0;
}

static enum MHD_Result respond_own(const struct admin_server *server,
	struct MHD_Connection *connection, const char *path, const char *method)
{
	if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
		return respond_error(connection, MHD_HTTP_METHOD_NOT_ALLOWED, -EOPNOTSUPP,
			"this path knows GET only", "GET");
	if (strcmp(path, "/metrics") == 0)
		return respond_metrics(server, connection);
	if (strcmp(path, "/v1/routes") == 0)
		return respond_routes(server, connection);
	return respond(connection, MHD_HTTP_OK, "text/plain", "ok\n", 3, NULL);
}

const struct admin_route *admin_debug_routes;

static enum MHD_Result dispatch(const struct admin_server *server,
	struct MHD_Connection *connection, const char *method, const struct upload *upload)
{
	const struct admin_route *const tables[] = { server->routes, admin_debug_routes };
	_cleanup_(buf_release) struct buf allow = BUF_INIT(256);
	struct call call = { .connection = connection };

	if (upload->too_large)
		return respond_error(connection, MHD_HTTP_CONTENT_TOO_LARGE, -EMSGSIZE,
			"the request's body is too large", NULL);
	if (is_own(upload->path))
		return respond_own(server, connection, upload->path, method);
	for (size_t i = 0; i < ARRAY_SIZE(tables); i++) {
		for (const struct admin_route *route = tables[i]; route && route->path; route++) {
			int r = admin_route_match(route->path, upload->path, &call.params);

			if (r < 0)
				return respond_error(connection, MHD_HTTP_BAD_REQUEST, r,
					"a name in the path is too long, or has a character that "
					"no name may have",
					NULL);
			if (r == 0)
				continue;
			if (strcmp(route->method, method) == 0)
				return call_route(server, route, &call, upload);
			if (buf_printf(&allow, "%s%s", allow.len ? ", " : "", route->method) < 0)
				return MHD_NO;
		}
	}
	if (allow.len)
		return respond_error(connection, MHD_HTTP_METHOD_NOT_ALLOWED, -EOPNOTSUPP,
			"this path does not know that method", buf_str(&allow));
	return respond_error(connection, MHD_HTTP_NOT_FOUND, -ENOENT, "no such path", NULL);
}

static void upload_free(struct upload *upload)
{
	if (upload) {
		buf_release(&upload->body);
		free(upload->path);
		free(upload);
	}
}

/* First of all, with the path before the library decodes it; on_completed() follows. */
static void *on_path(void *arg, const char *uri, struct MHD_Connection *connection)
{
	struct admin_server *server = arg;
	struct upload *upload = calloc(1, sizeof(*upload));

	(void)connection;
	CHECK_MAGIC(server, SERVER_MAGIC);
	if (upload)
		upload->path = strndup(uri, strcspn(uri, "?"));
	if (!upload || !upload->path) {
		upload_free(upload);
		return NULL; /* on_request() ends the connection */
	}
	upload->body.max = ADMIN_REQUEST_BYTES;
	atomic_fetch_add(&server->under_way, 1);
	return upload;
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *connection, const char *path,
	const char *method, const char *version, const char *data, size_t *len, void **state)
{
	struct admin_server *server = arg;
	struct upload *upload = *state;

	(void)version; /* 1.0 or 1.1 */
	(void)path;    /* decoded: no longer known what was a '/' */
	CHECK_MAGIC(server, SERVER_MAGIC);
	if (!upload)
		return MHD_NO;
	if (!upload->begun) {
		upload->begun = true;
		return MHD_YES;
	}
	if (*len == 0)
		return dispatch(server, connection, method, upload);
	/* What is too large is read to its end and thrown away, so that the peer hears the
	 * answer. */
	if (!upload->too_large && buf_append(&upload->body, data, *len) < 0) {
		upload->too_large = true;
		buf_release(&upload->body);
	}
	*len = 0;
	return MHD_YES;
}

static void on_completed(void *arg, struct MHD_Connection *connection, void **state,
	enum MHD_RequestTerminationCode why)
{
	struct admin_server *server = arg;
	struct upload *upload = *state;

	(void)connection;
	(void)why; /* finished, or the peer went */
	if (!upload)
		return;
	upload_free(upload);
	*state = NULL;
	atomic_fetch_sub(&server->under_way, 1);
}

static void on_log(void *arg, const char *fmt, va_list ap) __printf(2, 0);

static void on_log(void *arg, const char *fmt, va_list ap)
{
	char text[256];

	(void)arg;
	(void)vsnprintf(text, sizeof(text), fmt, ap); /* cut */
	LOG_LIMITED(LOG_DEBUG, "admin", "%s", text);
}

/* ---- life ------------------------------------------------------------------------------------ */

int admin_server_new(const char *socket_path, const struct admin_route *routes, void *arg,
	struct admin_server **ret_server, struct err *e)
{
	struct admin_server *server = calloc(1, sizeof(*server));
	int fd = -1;
	int r;

	if (!server)
		return err_set(e, -ENOMEM, "no memory to listen on '%s': free some", socket_path);
	server->magic = SERVER_MAGIC;
	server->routes = routes;
	server->arg = arg;
	r = unix_socket_listen(socket_path, BACKLOG, &fd, e);
	if (r < 0) {
		free(server);
		return r;
	}
	memcpy(server->path, socket_path, strlen(socket_path) + 1); /* fits: it is listened on */
	server->daemon = MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_ERROR_LOG, 0,
		NULL, NULL, on_request, server, MHD_OPTION_EXTERNAL_LOGGER, on_log, NULL,
		MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_THREAD_POOL_SIZE, THREADS,
		MHD_OPTION_CONNECTION_LIMIT, CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT,
		IDLE_SECONDS, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONN_BYTES,
		MHD_OPTION_NOTIFY_COMPLETED, on_completed, server, MHD_OPTION_URI_LOG_CALLBACK,
		on_path, server, MHD_OPTION_END);
	if (!server->daemon) {
		(void)close(fd);           /* nothing was served on it */
		(void)unlink(socket_path); /* a leftover is replaced at the next start */
		free(server);
		return err_set(e, -EAGAIN,
			"the HTTP server on '%s' does not start: raise the limits on threads and "
			"descriptors (ulimit -u, ulimit -n)",
			socket_path);
	}
	*ret_server = server;
	return 0;
}

/* Stopping cuts connections whose answer has not left: the answer to "end" would be lost. */
static void await_answers(struct admin_server *server)
{
	uint64_t deadline = clock_mono_ns() + ANSWER_GRACE;

	while (atomic_load(&server->under_way) > 0 && clock_mono_ns() < deadline)
		clock_sleep_ns(CLOCK_MS);
}

void admin_server_free(struct admin_server *server)
{
	if (!server)
		return;
	CHECK_MAGIC(server, SERVER_MAGIC);
	(void)unlink(server->path); /* a leftover is replaced at the next start */
	await_answers(server);
	MHD_stop_daemon(server->daemon); /* closes the socket, waits for handlers */
	server->magic = 0;
	free(server);
}
