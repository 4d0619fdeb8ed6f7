/*
 * What people and tools ask a daemon: JSON over HTTP/1.1 on a unix socket (`/v1/...`), `/metrics`,
 * `/healthz` (it lives), `/readyz` (it serves).
 *
 * A daemon registers routes; handlers run on the server's own threads, may block for a short while,
 * and must take the locks of what they read. JSON values are jansson's (json_t), whose header comes
 * with this one.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <jansson.h>
#include "base/buf.h"
#include "base/claims.h"
#include "base/counter.h"
#include "base/err.h"
#include "base/histogram.h"
#include "net/rights.h"

struct admin_server;
struct admin_listen;
struct metrics;

/* Who asks: over HTTP PEER_NODE on the unix socket, else PEER_UNKNOWN; over the cluster's wire the connection's. */
struct admin_caller {
	struct peer_identity peer;
	gid_t gid; /* of PEER_NODE */
	pid_t pid;
	gid_t groups
		[CLAIMS_GROUPS]; /* likewise: gid and the further ones, as the kernel has them */
	uint32_t n_groups;
};

/* What a caller on the unix socket may claim (base/claims.h), `names`: by name, too. Of others nothing. */
int admin_caller_claims(
	const struct admin_caller *caller, bool names, struct buf *out) __must_check;

static inline enum right admin_right(const struct admin_caller *caller, enum rights_admin_op op)
{
	return rights_of(principal_of(&caller->peer), RIGHTS_ADMIN, op);
}

/* RIGHTS_OP_CHANGE, else -EPERM with its line. For handlers without an `act` that are for the same callers. */
int admin_caller_may_change(const struct admin_caller *caller, struct err *e) __must_check;

struct admin_request {
	const char *path; /* the route's: "/v1/status" */
	const char *(*query)(
		const struct admin_request *request, const char *name); /* value or NULL */
	/* The part of the path that the route calls {name}: decoded, 1 to 255 bytes, without '/'.
	 * NULL when the route has no such part. */
	const char *(*param)(const struct admin_request *request, const char *name);
	const json_t *body; /* parsed JSON body; NULL when there is none */
	struct admin_caller caller;
	/* Of a route with an `act`: an object, to which the handler adds what it changed, as audit_change() does. */
	json_t *changes;
	void *priv;
};

/* A decimal number of the query, at most INT64_MAX; absent: `otherwise`. -EINVAL with its line. */
int admin_query_number(const struct admin_request *request, const char *name, uint64_t otherwise,
	uint64_t *ret, struct err *e) __must_check;

/*
 * Answers one request: *ret_json (a new reference, may be NULL for "{}") on 0; on a negative errno
 * the answer is {"error": {"code": "ENOENT", "text": "..."}} from `e` with a matching HTTP status
 * (404 -ENOENT, 400 -EINVAL, 409 -EBUSY/-EEXIST, 403 -EACCES/-EPERM, 503 -EAGAIN, else 500).
 */
typedef int (*admin_handler)(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e);

/*
 * "/v1/datasets/{name}/pin": {name} stands for any one part of a path. Of several routes that fit,
 * the first in the table is meant: exact ones go before.
 *
 * A route with an `act` ("dataset.delete") changes something: it is for those with RIGHTS_OP_CHANGE
 * (net/rights.h; but see admin_server_allow_use()), and each call is a line of the audit log under that name (admin/audit.h). Without,
 * it only reads, whatever its method.
 */
struct admin_route {
	const char *method; /* "GET", "POST", "PUT", "PATCH", "DELETE" */
	const char *path;
	admin_handler handler;
	const char *act; /* NULL: only reads */
};

/*
 * `routes` ends with { 0 } and is borrowed, like arg, until admin_server_free(). Replaces a stale
 * socket file. The answer to GET /v1/status gets a part "bounds" from here: memory, descriptors,
 * threads and the like with their maxima. GET /v1/routes lists the routes.
 */
int admin_server_new(const char *socket_path, const struct admin_route *routes, void *arg,
	struct admin_server **ret_server, struct err *e) __must_check;
void admin_server_free(struct admin_server *server); /* waits for handlers under way */

#define ADMIN_HANDLERS     4u          /* that a server runs at the same time */
#define ADMIN_ANSWER_BYTES (16u << 20) /* largest answer of a daemon */

/* A request that came another way than HTTP: over the cluster's wire. */
struct admin_ask {
	const char *method;
	const char *path; /* "/v1/...", with the query */
	const void *body; /* JSON, or NULL */
	size_t len;
	struct admin_caller caller;
};

/*
 * Answers it as the routes of `server` answer over HTTP, and as it would there: who may, audit, counters.
 * The status is HTTP's; `out` gets the JSON. Pages, /metrics and the like are not there. -ENOMEM, or
 * -ENOBUFS when `out` may not hold it. On a thread that may block.
 */
int admin_server_ask(struct admin_server *server, const struct admin_ask *ask,
	unsigned int *ret_status, struct buf *out) __must_check;

/*
 * Serves the same over TCP, for reading only, as admin/listen.h says; without an address it does nothing. Port 0: any;
 * *ret_port, which may be NULL, is the one that the kernel chose. Once, after net_keys_load(): the certificate is that of the keys
 * loaded then.
 */
int admin_server_listen(struct admin_server *server, const struct admin_listen *where,
	uint16_t *ret_port, struct err *e) __must_check;

/* Is its address one to listen on, by its form? -EINVAL with its line. */
int admin_check_listen(const struct admin_listen *where, struct err *e) __must_check;

/*
 * `acts` (ends with NULL, borrowed): changes that are for callers with RIGHTS_OP_USE, too. Where that is RIGHT_OWN the handler
 * decides what is the caller's.
 */
void admin_server_allow_use(struct admin_server *server, const char *const *acts);

/*
 * A file that the server has at `path`, exactly that, for browsers. It may load others of these and
 * ask this server, nothing else (Content-Security-Policy).
 */
struct admin_page {
	const char *path; /* "/dashboard" */
	const char *type; /* "text/html; charset=utf-8" */
	const void *data;
	size_t len;
};

/* `pages` ends with { 0 } and is borrowed until admin_server_free(). GET /v1/routes lists them, too. */
void admin_server_set_pages(struct admin_server *server, const struct admin_page *pages);

/* Adds a table of counters to /metrics and to admin_counters_json(); all borrowed. Before the first
 * request only. */
int admin_server_add_counters(struct admin_server *server, const struct counter_info *table,
	uint32_t n, const void *counters) __must_check;
/* Calls refresh(arg) before /metrics is written: for counters that are sums of others. On the
 * server's threads, several at a time. Before the first request only. */
void admin_server_on_metrics(struct admin_server *server, void (*refresh)(void *arg), void *arg);
/* The same for histograms. */
int admin_server_add_histograms(struct admin_server *server, const struct histogram_info *table,
	uint32_t n, const void *histograms) __must_check;
/* Calls write(arg) when /metrics is written: for values with labels (admin/metrics.h). As
 * refresh(). */
int admin_server_add_metrics(struct admin_server *server,
	void (*write)(void *arg, struct metrics *m), void *arg) __must_check;
/*
 * /readyz asks it: adds a line (json_string()) to `reasons` for everything that keeps the daemon
 * from serving; none: it serves. Without it a daemon that answers is ready. As refresh().
 */
void admin_server_on_ready(
	struct admin_server *server, void (*ready)(void *arg, json_t *reasons), void *arg);
/* {"symbol": value, ...} of one table; NULL without memory. */
json_t *admin_counters_json(const struct counter_info *table, uint32_t n, const void *counters);

/*
 * What json_dumps() and json_loadb() do, but never cut short for want of memory: jansson alone may
 * then drop what it could not hold. Text is the caller's to free; NULL without memory. Parsing:
 * -ENOMEM, -EBADMSG (`ret_where`, may be NULL, says where). Real numbers have up to 15 digits: 0.939 is written as such.
 */
char *admin_json_text(const json_t *json, size_t flags) __must_check;
int admin_json_parse(const char *text, size_t len, size_t flags, json_t **ret_json,
	json_error_t *ret_where) __must_check;
/* A string of what may be no UTF-8, of an origin, a path or cut: each byte past ASCII is '?' then.
 * NULL without memory. */
json_t *admin_json_string(const char *text) __must_check;
/* A point in time, as all JSON of daemons and commands has it: seconds since 1970, with a fraction. NULL without memory. */
json_t *admin_json_time(int64_t wall_ns) __must_check;
/* How often this thread's JSON was out of memory: unchanged around json_pack() with optional
 * values, which it leaves out then. */
uint64_t admin_json_failures(void);

/* The address of a daemon's admin_server_listen(), in place of its socket's path: "tcp:HOST:PORT". */
#define ADMIN_TCP "tcp:"
static inline bool admin_is_tcp(const char *address)
{
	return strncmp(address, ADMIN_TCP, sizeof(ADMIN_TCP) - 1) == 0;
}
/* -EINVAL with a line. */
int admin_tcp_check(const char *address, struct err *e) __must_check;

#define ADMIN_CALL_BYTES ((1u << 20) + 16384) /* of a request with its headers */

/*
 * Appends the request that admin_call() sends, for a caller that waits on a loop of its own: http_reply.h parses the answer,
 * admin_take_answer() takes it. -EINVAL, -ENOBUFS or -ENOMEM with a line.
 */
int admin_write_request(struct buf *out, const char *method, const char *path, const json_t *body,
	struct err *e) __must_check;

/*
 * One request to a daemon: GET when body is NULL and method NULL. 0 and *ret_json (a new
 * reference); the daemon's own error code and line on a failed answer; -ECONNREFUSED when no
 * process listens, whether the socket exists or not; -ETIMEDOUT past the deadline (ns from now).
 */
int admin_call(const char *socket_path, const char *method, const char *path, const json_t *body,
	uint64_t timeout_ns, json_t **ret_json, struct err *e) __must_check;
/* What admin_call() makes of an answer, of one that came another way (admin_server_ask()): `status` and
 * text are the daemon's. ret_json may be NULL. */
int admin_take_answer(unsigned int status, const char *path, const char *text, size_t len,
	json_t **ret_json, struct err *e) __must_check;
/* The same for text answers (/metrics). */
int admin_call_text(const char *socket_path, const char *path, uint64_t timeout_ns, struct buf *out,
	struct err *e) __must_check;
