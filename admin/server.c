/*
 * The daemons' HTTP server, over libmicrohttpd on a unix socket. See admin.h.
 *
 * A small pool of threads waits on the socket and its connections; a handler may hold its thread
 * for a short while, so there is more than one. Everything is bounded: connections, size of a body,
 * time a connection may be silent. The library calls on_path() with the path as it was sent, then
 * on_request() first with nothing, then with each part of the body, then with none left.
 */
#include "admin/audit.h"
#include "admin/page_internal.h"
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
#define WRITERS_MAX   8u
#define METRICS_BYTES (4u << 20)
#define ANSWER_GRACE  (2 * CLOCK_SECOND) /* at the end: for answers that are on their way */

struct table {
	const struct counter_info *rows;
	uint32_t n;
	const void *counters;
};

struct histogram_table {
	const struct histogram_info *rows;
	uint32_t n;
	const void *histograms;
};

struct writer {
	void (*write)(void *arg, struct metrics *m);
	void *arg;
};

#define ADMIN_COUNTERS(X)                                                                    \
	X(requests, "granary_admin_requests_total", COUNTER, "requests", "Requests of HTTP") \
	X(failed, "granary_admin_failed_requests_total", COUNTER, "requests",                \
		"Requests of HTTP that a route answered with an error")                      \
	X(changes, "granary_admin_changes_total", COUNTER, "requests",                       \
		"Requests of HTTP that changed something, or tried to")                      \
	X(refused, "granary_admin_refused_changes_total", COUNTER, "requests",               \
		"Changes refused: asked for by somebody who may only look")                  \
	X(audit_lost, "granary_admin_audit_lines_lost_total", COUNTER, "lines",              \
		"Lines of the audit log that could not be written")
COUNTER_STRUCT(admin_counters, ADMIN_COUNTERS);

#define ADMIN_HISTOGRAMS(X)                                     \
	X(request, "granary_admin_request_seconds", NULL, NULL, \
		"From a request of HTTP to its answer, in a route")
HISTOGRAM_STRUCT(admin_histograms, ADMIN_HISTOGRAMS);

struct admin_server {
	uint32_t magic;
	const struct admin_route *routes;
	void *arg;
	const struct admin_page *_Atomic pages; /* may be NULL */
	char path[SOCKET_PATH_MAX];
	struct MHD_Daemon *daemon;
	struct MHD_Daemon *tcp; /* NULL: on its unix socket only */
	/* They are added while requests are answered: first the row, then its number. */
	struct table tables[TABLES_MAX];
	_Atomic uint32_t n_tables;
	struct histogram_table histogram_tables[TABLES_MAX];
	_Atomic uint32_t n_histogram_tables;
	struct writer writers[WRITERS_MAX];
	_Atomic uint32_t n_writers;
	struct admin_counters counters;
	struct admin_histograms histograms;
	void (*_Atomic ready)(void *arg, json_t *reasons); /* may be NULL; set after its argument */
	void *ready_arg;
	void (*_Atomic refresh)(void *arg); /* the same */
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
	admin_page_headers(response, false);
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

void admin_server_set_pages(struct admin_server *server, const struct admin_page *pages)
{
	CHECK_MAGIC(server, SERVER_MAGIC);
	atomic_store(&server->pages, pages);
}

/* ---- counters -------------------------------------------------------------------------------- */

int admin_server_add_counters(struct admin_server *server, const struct counter_info *table,
	uint32_t n, const void *counters)
{
	uint32_t at = atomic_load(&server->n_tables);

	CHECK_MAGIC(server, SERVER_MAGIC);
	if (at == TABLES_MAX)
		return -ENOBUFS;
	server->tables[at] = (struct table){ .rows = table, .n = n, .counters = counters };
	atomic_store(&server->n_tables, at + 1);
	return 0;
}

void admin_server_on_metrics(struct admin_server *server, void (*refresh)(void *arg), void *arg)
{
	CHECK_MAGIC(server, SERVER_MAGIC);
	server->refresh_arg = arg;
	atomic_store(&server->refresh, refresh);
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

int admin_server_add_histograms(struct admin_server *server, const struct histogram_info *table,
	uint32_t n, const void *histograms)
{
	uint32_t at = atomic_load(&server->n_histogram_tables);

	CHECK_MAGIC(server, SERVER_MAGIC);
	if (at == TABLES_MAX)
		return -ENOBUFS;
	server->histogram_tables[at] =
		(struct histogram_table){ .rows = table, .n = n, .histograms = histograms };
	atomic_store(&server->n_histogram_tables, at + 1);
	return 0;
}

int admin_server_add_metrics(
	struct admin_server *server, void (*write)(void *arg, struct metrics *m), void *arg)
{
	uint32_t at = atomic_load(&server->n_writers);

	CHECK_MAGIC(server, SERVER_MAGIC);
	if (at == WRITERS_MAX)
		return -ENOBUFS;
	server->writers[at] = (struct writer){ write, arg };
	atomic_store(&server->n_writers, at + 1);
	return 0;
}

void admin_server_on_ready(
	struct admin_server *server, void (*ready)(void *arg, json_t *reasons), void *arg)
{
	CHECK_MAGIC(server, SERVER_MAGIC);
	server->ready_arg = arg;
	atomic_store(&server->ready, ready);
}

static void own_metrics(struct admin_server *server, struct metrics *m)
{
	static const struct counter_info counters[] = {
#define ROW(symbol, name, kind, unit, help) \
	COUNTER_ROW(admin_counters, symbol, name, kind, unit, help)
		ADMIN_COUNTERS(ROW)
#undef ROW
	};
	static const struct histogram_info histograms[] = {
#define ROW(symbol, name, label, value, help) \
	HISTOGRAM_ROW(admin_histograms, symbol, name, label, value, help)
		ADMIN_HISTOGRAMS(ROW)
#undef ROW
	};

	counter_set(&server->counters.audit_lost, audit_lost());
	metrics_counters(m, counters, ARRAY_SIZE(counters), &server->counters);
	metrics_histograms(m, histograms, ARRAY_SIZE(histograms), &server->histograms);
	admin_bounds_metrics(m);
	admin_process_metrics(m);
}

static enum MHD_Result respond_metrics(
	struct admin_server *server, struct MHD_Connection *connection)
{
	_cleanup_(buf_release) struct buf out = BUF_INIT(METRICS_BYTES);
	const char *accept =
		MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_ACCEPT);
	struct metrics m = { .out = &out,
		.open = accept && strstr(accept, "application/openmetrics-text") };

	void (*refresh)(void *arg) = atomic_load(&server->refresh);

	if (refresh)
		refresh(server->refresh_arg);
	for (uint32_t i = 0; i < server->n_tables; i++)
		metrics_counters(&m, server->tables[i].rows, server->tables[i].n,
			server->tables[i].counters);
	for (uint32_t i = 0; i < server->n_histogram_tables; i++)
		metrics_histograms(&m, server->histogram_tables[i].rows,
			server->histogram_tables[i].n, server->histogram_tables[i].histograms);
	for (uint32_t i = 0; i < server->n_writers; i++)
		server->writers[i].write(server->writers[i].arg, &m);
	own_metrics(server, &m);
	metrics_end(&m);
	if (m.error < 0)
		return respond_error(connection, MHD_HTTP_INTERNAL_SERVER_ERROR, m.error,
			"no memory for the metrics", NULL);
	return respond(connection, MHD_HTTP_OK,
		m.open ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
		       : "text/plain; version=0.0.4; charset=utf-8",
		buf_str(&out), out.len, NULL);
}

/* {"ready": false, "reasons": ["..."]} */
static enum MHD_Result respond_ready(
	const struct admin_server *server, struct MHD_Connection *connection)
{
	void (*tell)(void *arg, json_t *reasons) = atomic_load(&server->ready);
	json_t *reasons = json_array();
	json_t *json;
	enum MHD_Result r;
	bool ready;

	if (reasons && tell)
		tell(server->ready_arg, reasons);
	ready = reasons && json_array_size(reasons) == 0;
	json = json_pack("{s:b, s:o}", "ready", ready, "reasons", reasons);
	r = json ? respond_json(connection, ready ? MHD_HTTP_OK : MHD_HTTP_SERVICE_UNAVAILABLE,
			   json, NULL)
		 : MHD_NO;
	json_decref(json);
	return r;
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

/* {"name": "imagenet"}: the names in the path. */
static json_t *params_json(const struct admin_params *params)
{
	json_t *json = json_object();

	for (unsigned int i = 0; json && i < params->n; i++) {
		const struct admin_param *p = &params->list[i];
		char name[ADMIN_PARAM_BYTES];

		(void)snprintf(name, sizeof(name), "%.*s", (int)p->name_len, p->name); /* fits */
		/* What is no text for JSON is left out: told only. */
		(void)json_object_set_new(json, name, json_string(p->value));
	}
	return json;
}

/* Who may only look must not be able to push what others did out of the file: of what is refused
 * there is a short line a second at most. All are counted. */
static bool is_noted(bool refused)
{
	static struct log_limit limit;
	uint32_t left_out;

	return !refused || log_limit_pass(&limit, 1, &left_out);
}

static void audit(const struct admin_route *route, const struct call *call,
	const struct admin_request *request, bool refused, int code, const struct err *e)
{
	json_t *params = params_json(&call->params);
	json_t *on = audit_names(params, refused ? NULL : request->body);
	const struct audit_act act = { .act = route->act,
		.caller = &request->caller,
		.on = on,
		.code = code,
		.text = code < 0 ? e->text : NULL };

	audit_write(&act);
	json_decref(on);
	json_decref(params);
}

/* The body as JSON, if there is one. */
static int parse_body(const struct upload *upload, json_t **ret_body, struct err *e)
{
	json_error_t where;
	int r;

	if (upload->body.len == 0)
		return 0;
	r = admin_json_parse(
		upload->body.data, upload->body.len, JSON_REJECT_DUPLICATES, ret_body, &where);
	if (r == -ENOMEM)
		return err_set(e, r, "out of memory");
	return r < 0 ? err_set(e, -EINVAL, "the request's body is not JSON: line %d: %s",
			       where.line, where.text)
		     : 0;
}

static int run_route(struct admin_server *server, const struct admin_route *route,
	const struct call *call, struct admin_request *request, json_t **ret_json, struct err *e)
{
	uint64_t began = clock_mono_ns();
	int r = route->act ? admin_caller_may_change(&request->caller, e) : 0;
	bool refused = r < 0;

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
	histogram_note(&server->histograms.request, clock_mono_ns() - began);
	return r;
}

static enum MHD_Result call_route(struct admin_server *server, const struct admin_route *route,
	struct call *call, const struct upload *upload)
{
	struct MHD_Connection *connection = call->connection;
	struct admin_request request = {
		.path = route->path, .query = query, .param = param, .priv = call
	};
	struct err e = ERR_INIT;
	json_t *body = NULL;
	json_t *json = NULL;
	enum MHD_Result answered;
	int r;

	find_caller(connection, &request.caller);
	r = parse_body(upload, &body, &e);
	request.body = body;
	if (r == 0)
		r = run_route(server, route, call, &request, &json, &e);
	if (r == 0 && json && strcmp(route->path, "/v1/status") == 0)
		(void)json_object_set_new(json, "bounds", admin_bounds_json()); /* told only */
	json_decref(body);
	if (r < 0)
		answered = respond_error(connection, http_status(r), r, e.text, NULL);
	else
		answered = respond_json(connection, MHD_HTTP_OK, json, NULL);
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
	r = json ? respond_json(connection, MHD_HTTP_OK, json, NULL)
		 : respond_error(connection, MHD_HTTP_INTERNAL_SERVER_ERROR, -ENOMEM,
			   "out of memory", NULL);
	json_decref(json);
	return r;
}

static bool is_own(const char *path)
{
	return strcmp(path, "/metrics") == 0 || strcmp(path, "/healthz") == 0 ||
	       strcmp(path, "/readyz") == 0 || strcmp(path, "/v1/routes") == 0;
}

static bool is_reading(const char *method)
{
	return strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0;
}

static enum MHD_Result respond_own(struct admin_server *server, struct MHD_Connection *connection,
	const char *path, const char *method)
{
	if (!is_reading(method))
		return respond_error(connection, MHD_HTTP_METHOD_NOT_ALLOWED, -EOPNOTSUPP,
			"this path knows GET only", "GET");
	if (strcmp(path, "/metrics") == 0)
		return respond_metrics(server, connection);
	if (strcmp(path, "/v1/routes") == 0)
		return respond_routes(server, connection);
	if (strcmp(path, "/readyz") == 0)
		return respond_ready(server, connection);
	return respond(connection, MHD_HTTP_OK, "text/plain", "ok\n", 3, NULL);
}

const struct admin_route *admin_debug_routes;

static const char *header(struct MHD_Connection *connection, const char *name)
{
	return MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
}

/* Over TCP a page of somebody else's could ask, by a name that it made mean this host. */
static bool is_stray(struct MHD_Connection *connection)
{
	struct admin_caller caller;

	find_caller(connection, &caller);
	return !caller.known && (!admin_loopback_host(header(connection, MHD_HTTP_HEADER_HOST)) ||
					admin_page_is_foreign(header(connection, "Sec-Fetch-Site"),
						header(connection, "Sec-Fetch-Mode")));
}

static enum MHD_Result dispatch(struct admin_server *server, struct MHD_Connection *connection,
	const char *method, const struct upload *upload)
{
	const struct admin_route *const tables[] = { server->routes, admin_debug_routes };
	_cleanup_(buf_release) struct buf allow = BUF_INIT(256);
	const struct admin_page *page;
	struct call call = { .connection = connection };

	if (upload->too_large)
		return respond_error(connection, MHD_HTTP_CONTENT_TOO_LARGE, -EMSGSIZE,
			"the request's body is too large", NULL);
	counter_add(&server->counters.requests, 1);
	if (is_stray(connection))
		return respond_error(connection, MHD_HTTP_FORBIDDEN, -EPERM,
			"ask for this address by its number, or as localhost, and from no "
			"other site's page",
			NULL);
	page = admin_page_find(atomic_load(&server->pages), upload->path);
	if (page && is_reading(method))
		return admin_page_respond(connection, page);
	if (page || is_own(upload->path))
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

/* NULL: it cannot start, and the socket is still the caller's. */
static struct MHD_Daemon *start_daemon(struct admin_server *server, int fd)
{
	return MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_ERROR_LOG, 0, NULL, NULL,
		on_request, server, MHD_OPTION_EXTERNAL_LOGGER, on_log, NULL,
		MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_THREAD_POOL_SIZE, THREADS,
		MHD_OPTION_CONNECTION_LIMIT, CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT,
		IDLE_SECONDS, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONN_BYTES,
		MHD_OPTION_NOTIFY_COMPLETED, on_completed, server, MHD_OPTION_URI_LOG_CALLBACK,
		on_path, server, MHD_OPTION_END);
}

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
	server->daemon = start_daemon(server, fd);
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

int admin_server_listen(
	struct admin_server *server, const char *address, uint16_t *ret_port, struct err *e)
{
	uint16_t port = 0;
	int fd = -1;
	int r;

	CHECK_MAGIC(server, SERVER_MAGIC);
	ensure(!server->tcp);
	r = admin_loopback_listen(address, &fd, &port, e);
	if (r < 0)
		return r;
	server->tcp = start_daemon(server, fd);
	if (!server->tcp) {
		(void)close(fd); /* nothing was served on it */
		return err_set(e, -EAGAIN,
			"the HTTP server on %s does not start: raise the limits on threads and "
			"descriptors (ulimit -u, ulimit -n)",
			address);
	}
	if (ret_port)
		*ret_port = port;
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
	if (server->tcp)
		MHD_stop_daemon(server->tcp);
	MHD_stop_daemon(server->daemon); /* closes the socket, waits for handlers */
	server->magic = 0;
	free(server);
}
