/* What the HTTP server and its client share. */
#pragma once

#include "admin/admin.h"
#include "admin/metrics.h"

#define ADMIN_REQUEST_BYTES (1u << 20) /* largest body of a request */
#define ADMIN_HEADER_BYTES  16384u

/* Routes of every server of a debug program, whose handlers do not look at `arg`; NULL in
 * production. Set before the first server is made. */
extern const struct admin_route *admin_debug_routes;

/* ---- routes ---------------------------------------------------------------------------------- */

#define ADMIN_PARAM_BYTES 256 /* of a part of a path, decoded, with its NUL */
#define ADMIN_PARAMS_MAX  4u
#define ADMIN_QUERY_MAX   8u

struct admin_param {
	const char *name; /* in the route's path; not NUL-terminated */
	size_t name_len;
	char value[ADMIN_PARAM_BYTES];
};

struct admin_params {
	struct admin_param list[ADMIN_PARAMS_MAX];
	unsigned int n;
};

/*
 * Is `path`, as it was sent but for its query, one that `pattern` means? 1 with its parts, 0, or
 * -EINVAL: it would be, but for a part that cannot be a name (with NUL, '/', half an escape, or too
 * long).
 */
int admin_route_match(
	const char *pattern, const char *path, struct admin_params *ret_params) __must_check;

/* "a=1&b=two": names and values, which point into its text. */
struct admin_query {
	const char *names[ADMIN_QUERY_MAX];
	const char *values[ADMIN_QUERY_MAX];
	unsigned int n;
};
/* Changes `text`. -EINVAL with a line: too many, a name twice, or what no value may be. */
int admin_query_parse(char *text, struct admin_query *ret_query, struct err *e) __must_check;
/* NULL: there is none. */
const char *admin_query_find(const struct admin_query *query, const char *name);
/* The part of that name; NULL: there is none. */
const char *admin_params_find(const struct admin_params *params, const char *name);

/* Who is at the other end of a connection. */
void admin_caller_of(int fd, struct admin_caller *ret_caller);
#define ADMIN_VIA_BYTES 24u
/* What it proved to have, over the cluster's wire: "cluster key", "token 0123456789abcdef". */
const char *admin_caller_via(const struct admin_caller *caller, char out[ADMIN_VIA_BYTES]);

/* What the process may have and has; NULL without memory. */
json_t *admin_bounds_json(void);
void admin_bounds_metrics(struct metrics *m);
void admin_process_metrics(struct metrics *m);

struct admin_listener {
	int fd;
	uint16_t port;
	bool loopback; /* only processes of this host can connect */
};
/* A listening socket at an address that is not NULL. May wait for DNS. */
int admin_listen_open(const struct admin_listen *where, struct admin_listener *ret_listener,
	struct err *e) __must_check;
/* Does a Host header name this host's loopback? A browser's page could have been led here. */
bool admin_loopback_host(const char *host);

/* ---- client ---------------------------------------------------------------------------------- */

/* Until the descriptor is ready; -ETIMEDOUT. */
int admin_wait_ready(int fd, short events, uint64_t deadline_ns) __must_check;
/* To an address for which admin_is_tcp() holds. A non-blocking socket; -EINVAL, -EHOSTUNREACH, another
 * -errno, -ETIMEDOUT. The name of a host is looked up, which may take longer. */
int admin_tcp_connect(const char *address, uint64_t deadline_ns, int *ret_fd) __must_check;
