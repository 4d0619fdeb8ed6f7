/* Sockets of --admin-listen. See listen.h and admin_internal.h. */
#include "admin/admin_internal.h"
#include "admin/listen.h"
#include "base/address.h"
#include "base/cleanup.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#define BACKLOG 64

union address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

/* "localhost:9182", "[::1]:9182"; of IPv6 the brackets are needed. */
static int split(const char *text, struct address_parts *ret_parts)
{
	int r = address_split(text, ret_parts);

	return r == 0 && strchr(ret_parts->host, ':') && text[0] != '[' ? -EINVAL : r;
}

int admin_check_listen(const struct admin_listen *where, struct err *e)
{
	struct address_parts parts;

	if (!where->address || split(where->address, &parts) == 0)
		return 0;
	return err_set(e, -EINVAL,
		"invalid address '%s' for admin-listen; use HOST:PORT, such as 127.0.0.1:9182 or "
		"0.0.0.0:9182",
		where->address);
}

static int find(const char *text, const struct address_parts *parts, union address *ret_address,
	socklen_t *ret_len, struct err *e)
{
	const struct addrinfo hints = { .ai_socktype = SOCK_STREAM,
		.ai_flags = AI_PASSIVE | AI_NUMERICSERV };
	struct addrinfo *found = NULL;
	/* Not ::1, which is found for that name, too. */
	int failure = getaddrinfo(strcmp(parts->host, "localhost") == 0 ? "127.0.0.1" : parts->host,
		parts->port, &hints, &found);

	if (failure || !found)
		return err_set(e, -EADDRNOTAVAIL,
			"cannot listen on %s: %s; use an address of this host", text,
			gai_strerror(failure));
	*ret_len = (socklen_t)min((size_t)found->ai_addrlen, sizeof(*ret_address));
	memcpy(ret_address, found->ai_addr, *ret_len);
	freeaddrinfo(found);
	if (parts->kind == ADDRESS_NAME && address_is_loopback(&ret_address->any))
		return err_set(e, -EADDRNOTAVAIL,
			"cannot listen on %s: %s resolves to the loopback address, which other "
			"hosts cannot reach; use an address, or correct /etc/hosts",
			text, parts->host);
	return 0;
}

int admin_listen_open(
	const struct admin_listen *where, struct admin_listener *ret_listener, struct err *e)
{
	_cleanup_close_ int fd = -1;
	const int yes = 1;
	union address address = { 0 };
	struct address_parts parts;
	socklen_t len = 0;
	int r = admin_check_listen(where, e);

	if (r < 0 || split(where->address, &parts) < 0)
		return -EINVAL;
	r = find(where->address, &parts, &address, &len, e);
	if (r < 0)
		return r;
	fd = socket(address.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return err_set(e, err_errno(), "no socket for %s: %m", where->address);
	/* Ports of connections that just ended may be used again; of listeners not. */
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) != 0 ||
		bind(fd, &address.any, len) != 0 || listen(fd, BACKLOG) != 0 ||
		getsockname(fd, &address.any, &len) != 0)
		return err_set(e, err_errno(), "cannot listen on %s: %m: choose another port",
			where->address);
	ret_listener->port = ntohs(
		address.any.sa_family == AF_INET6 ? address.v6.sin6_port : address.v4.sin_port);
	ret_listener->loopback = address_is_loopback(&address.any);
	ret_listener->fd = TAKE_FD(fd);
	return 0;
}

bool admin_loopback_host(const char *host)
{
	static const char *const names[] = { "localhost", "[::1]" };
	char number[INET_ADDRSTRLEN];
	struct in_addr address;
	size_t n = host ? strcspn(host, ":") : 0;

	if (!host)
		return true; /* HTTP/1.0: no browser */
	if (n < sizeof(number)) {
		memcpy(number, host, n);
		number[n] = '\0';
		if (inet_pton(AF_INET, number, &address) == 1)
			return ntohl(address.s_addr) >> 24 == IN_LOOPBACKNET;
	}
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		size_t len = strlen(names[i]);

		if (strncasecmp(host, names[i], len) == 0 &&
			(host[len] == '\0' || host[len] == ':'))
			return true;
	}
	return false;
}
