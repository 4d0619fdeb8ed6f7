/*
 * The HTTP server inside: server.c (life, how a request arrives), dispatch.c (which route, for whom),
 * answer.c (what goes out), server_metrics.c (/metrics and /readyz).
 */
#pragma once

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>
#include "admin/audit.h"
#include "admin/page_internal.h"
#include "base/pool.h"
#include "base/unix_socket.h"

#define ADMIN_SERVER_MAGIC 0x41444d53u
#define ADMIN_TABLES_MAX   16u
#define ADMIN_WRITERS_MAX  8u

struct admin_table {
	const struct counter_info *rows;
	uint32_t n;
	const void *counters;
};

struct admin_histogram_table {
	const struct histogram_info *rows;
	uint32_t n;
	const void *histograms;
};

struct admin_writer {
	void (*write)(void *arg, struct metrics *m);
	void *arg;
};

#define ADMIN_COUNTERS(X)                                                                       \
	X(requests, "granary_admin_requests_total", COUNTER, "requests", "Requests of HTTP")    \
	X(failed, "granary_admin_failed_requests_total", COUNTER, "requests",                   \
		"Requests of HTTP that a route answered with an error")                         \
	X(changes, "granary_admin_changes_total", COUNTER, "requests",                          \
		"Requests of HTTP that changed something, or tried to")                         \
	X(refused, "granary_admin_refused_changes_total", COUNTER, "requests",                  \
		"Changes refused to callers that may only read")                                \
	X(unauthenticated, "granary_admin_unauthenticated_requests_total", COUNTER, "requests", \
		"Requests over TCP refused without a valid token")                              \
	X(audit_lost, "granary_admin_audit_lines_lost_total", COUNTER, "lines",                 \
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
	const char *const *_Atomic use_acts;    /* admin_server_allow_use(); may be NULL */
	char path[SOCKET_PATH_MAX];
	struct MHD_Daemon *daemon;
	struct MHD_Daemon
		*tcp; /* NULL: on its unix socket only. Set once, with the rest of this group */
	enum admin_tcp {
		ADMIN_LOOPBACK, /* each process of this host may read */
		ADMIN_TOKENS,   /* TLS: holders of an administrator's token may */
		ADMIN_NO_KEYS,  /* no more than what is public */
	} tcp_for;
	bool anonymous_metrics;
	/* They are added while requests are answered: first the row, then its number. */
	struct admin_table tables[ADMIN_TABLES_MAX];
	_Atomic uint32_t n_tables;
	struct admin_histogram_table histogram_tables[ADMIN_TABLES_MAX];
	_Atomic uint32_t n_histogram_tables;
	struct admin_writer writers[ADMIN_WRITERS_MAX];
	_Atomic uint32_t n_writers;
	struct admin_counters counters;
	struct admin_histograms histograms;
	void (*_Atomic ready)(void *arg, json_t *reasons); /* may be NULL; set after its argument */
	void *ready_arg;
	void (*_Atomic refresh)(void *arg); /* the same */
	void *refresh_arg;
	_Atomic uint32_t under_way; /* requests that began and whose answers are not out */
	struct pool *pool;          /* of handlers */
	pthread_mutex_t
		lock; /* of `closing`, and held to suspend a connection; a leaf but for the pool's */
	bool closing;
};

/* A request. Its connection is suspended while a handler runs. */
struct admin_upload {
	struct pool_job job;
	struct admin_server *server;
	struct MHD_Connection *connection;
	const char *method; /* the library's; set with the connection, before the job runs */
	bool handled;
	bool refused; /* by the pool */
	char *path;   /* as it was sent, without the query */
	char *query;  /* in the same memory; NULL: none */
	bool begun;
	struct buf body;
	bool too_large;
};

/* ---- answer.c: each queues one; MHD_NO ends the connection ----------------------------------- */

/* `data` is copied. `allow`: the header of that name, or NULL. */
enum MHD_Result admin_respond(struct MHD_Connection *connection, unsigned int status,
	const char *type, const void *data, size_t len, const char *allow) __must_check;
/* NULL: {} */
enum MHD_Result admin_respond_json(struct MHD_Connection *connection, unsigned int status,
	const json_t *json, const char *allow) __must_check;
/* {"error": {"code", "text"}} */
enum MHD_Result admin_respond_error(struct MHD_Connection *connection, unsigned int status,
	int code, const char *text, const char *allow) __must_check;
/* {"error": {"code", "text"}}; NULL without memory. */
json_t *admin_error_json(int code, const char *text);
/* Of a negative errno. */
unsigned int admin_http_status(int code);

/* ---- server_metrics.c ------------------------------------------------------------------------ */

enum MHD_Result admin_respond_metrics(
	struct admin_server *server, struct MHD_Connection *connection) __must_check;
/* Reasons are for `trusted` callers. */
enum MHD_Result admin_respond_ready(const struct admin_server *server,
	struct MHD_Connection *connection, bool trusted) __must_check;

/* ---- gate.c ---------------------------------------------------------------------------------- */

struct admin_gate {
	bool trusted;        /* may read everything; otherwise only what is public */
	unsigned int status; /* 0: the request is answered; otherwise HTTP's of the refusal */
	const char *text;    /* of the refusal */
};
/* Decides whether a request for `path` is answered. */
struct admin_gate admin_gate(
	struct admin_server *server, struct MHD_Connection *connection, const char *path);
/* The peer of a connection. */
void admin_find_caller(struct MHD_Connection *connection, struct admin_caller *ret_caller);

/* ---- dispatch.c ------------------------------------------------------------------------------ */

/* A request that a route is called for: admin_request.priv. */
struct admin_handled {
	struct admin_params params; /* of the path */
	char *query_text;           /* as it was sent; admin_handle() changes it; NULL: none */
	struct admin_query query;   /* points into that */
};

/* The route for a request. -EINVAL: a part of the path cannot be a name; -ENOENT; -EOPNOTSUPP: `allow`
 * has the methods there are. */
int admin_find_route(const struct admin_server *server, const char *method, const char *path,
	struct admin_params *ret_params, const struct admin_route **ret_route,
	struct buf *allow) __must_check;
/* The line for what that returned. */
const char *admin_no_route(int code);
/* Calls it: who may, counters and audit included. *ret_json may be NULL then. */
int admin_handle(struct admin_server *server, const struct admin_route *route,
	struct admin_handled *call, const struct admin_caller *caller, const void *text, size_t len,
	json_t **ret_json, struct err *e) __must_check;

/* GET or HEAD. */
bool admin_is_reading(const char *method);
/* A request has arrived whole, or is refused before its body arrives. */
enum MHD_Result admin_dispatch(struct admin_server *server, struct MHD_Connection *connection,
	const char *method, const struct admin_upload *upload) __must_check;
