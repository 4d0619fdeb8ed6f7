/* Whether a request over TCP is answered. See listen.h and server_internal.h. */
#include "admin/server_internal.h"

#include <string.h>
#include <strings.h>

#define BEARER "Bearer "

void admin_find_caller(struct MHD_Connection *connection, struct admin_caller *ret_caller)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);

	admin_caller_of(info ? info->connect_fd : -1, ret_caller);
}

static const char *header(struct MHD_Connection *connection, const char *name)
{
	return MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
}

static bool is_public(const struct admin_server *server, const char *path)
{
	return strcmp(path, "/healthz") == 0 || strcmp(path, "/readyz") == 0 ||
	       (server->anonymous_metrics && strcmp(path, "/metrics") == 0);
}

/* The line of a token file, whole. */
static bool has_token(struct MHD_Connection *connection)
{
	const char *value = header(connection, MHD_HTTP_HEADER_AUTHORIZATION);
	struct token_claims claims;

	return value && strncasecmp(value, BEARER, strlen(BEARER)) == 0 &&
	       token_verify(value + strlen(BEARER), &claims) == 0 && claims.admin;
}

static struct admin_gate refuse(struct admin_server *server, unsigned int status, const char *text)
{
	if (status == MHD_HTTP_UNAUTHORIZED)
		counter_add(&server->counters.unauthenticated, 1);
	return (struct admin_gate){ .status = status, .text = text };
}

/* A page of another site could send requests here, by a name that resolves to this host, too. */
static struct admin_gate at_loopback(struct admin_server *server, struct MHD_Connection *connection)
{
	if (!admin_loopback_host(header(connection, MHD_HTTP_HEADER_HOST)))
		return refuse(server, MHD_HTTP_FORBIDDEN,
			"invalid Host header: use localhost, [::1] or an address of 127.0.0.0/8");
	return (struct admin_gate){ .trusted = true };
}

struct admin_gate admin_gate(
	struct admin_server *server, struct MHD_Connection *connection, const char *path)
{
	struct admin_caller caller;

	admin_find_caller(connection, &caller);
	if (caller.peer.kind != PEER_UNKNOWN)
		return (struct admin_gate){ .trusted = true }; /* its unix socket */
	if (admin_page_is_foreign(
		    header(connection, "Sec-Fetch-Site"), header(connection, "Sec-Fetch-Mode")))
		return refuse(server, MHD_HTTP_FORBIDDEN,
			"cross-site request refused: open this address directly");
	if (server->tcp_for == ADMIN_LOOPBACK)
		return at_loopback(server, connection);
	if (server->tcp_for == ADMIN_TOKENS && has_token(connection))
		return (struct admin_gate){ .trusted = true };
	if (is_public(server, path))
		return (struct admin_gate){ .trusted = false };
	if (server->tcp_for == ADMIN_NO_KEYS)
		return refuse(server, MHD_HTTP_FORBIDDEN,
			"permission denied: no cluster key; use the daemon's unix socket, or start "
			"it with --cluster-key");
	return refuse(server, MHD_HTTP_UNAUTHORIZED,
		"permission denied: no valid token; send an administrator's token as "
		"'Authorization: Bearer TOKEN' (cachectl token create --admin)");
}
