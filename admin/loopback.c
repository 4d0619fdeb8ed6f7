/* TCP addresses of this host's loopback. See admin_internal.h. */
#include "admin/admin_internal.h"
#include "base/cleanup.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
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

static int parse_port(const char *text, uint16_t *ret_port)
{
	unsigned long n;
	char *end;

	if (*text < '0' || *text > '9')
		return -EINVAL;
	n = strtoul(text, &end, 10);
	if (*end || n > UINT16_MAX)
		return -EINVAL;
	*ret_port = (uint16_t)n;
	return 0;
}

/* "127.0.0.1:9182" as the kernel has it. */
static int parse(const char *text, union address *ret_address, socklen_t *ret_len)
{
	static const char *const v4[] = { "127.0.0.1:", "localhost:" };
	union address address;
	uint16_t port;

	memset(&address, 0, sizeof(address));
	for (size_t i = 0; i < ARRAY_SIZE(v4); i++)
		if (strncmp(text, v4[i], strlen(v4[i])) == 0 &&
			parse_port(text + strlen(v4[i]), &port) == 0) {
			address.v4.sin_family = AF_INET;
			address.v4.sin_port = htons(port);
			address.v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
			*ret_address = address;
			*ret_len = sizeof(address.v4);
			return 0;
		}
	if (strncmp(text, "[::1]:", 6) != 0 || parse_port(text + 6, &port) < 0)
		return -EINVAL;
	address.v6.sin6_family = AF_INET6;
	address.v6.sin6_port = htons(port);
	address.v6.sin6_addr = in6addr_loopback;
	*ret_address = address;
	*ret_len = sizeof(address.v6);
	return 0;
}

int admin_check_listen(const char *text, struct err *e)
{
	union address address;
	socklen_t len;

	if (!text || parse(text, &address, &len) == 0)
		return 0;
	return err_set(e, -EINVAL,
		"%s: only 127.0.0.1:PORT, localhost:PORT and [::1]:PORT are served: whoever "
		"reaches another address could read all of it",
		text);
}

int admin_loopback_listen(const char *text, int *ret_fd, uint16_t *ret_port, struct err *e)
{
	_cleanup_close_ int fd = -1;
	const int yes = 1;
	union address address;
	socklen_t len;

	if (admin_check_listen(text, e) < 0 || parse(text, &address, &len) < 0)
		return -EINVAL;
	fd = socket(address.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return err_set(e, err_errno(), "no socket for %s: %m", text);
	/* Ports of connections that just ended may be used again; of listeners not. */
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) != 0 ||
		bind(fd, &address.any, len) != 0 || listen(fd, BACKLOG) != 0 ||
		getsockname(fd, &address.any, &len) != 0)
		return err_set(
			e, err_errno(), "cannot listen on %s: %m: choose another port", text);
	*ret_port = ntohs(
		address.any.sa_family == AF_INET6 ? address.v6.sin6_port : address.v4.sin_port);
	*ret_fd = TAKE_FD(fd);
	return 0;
}

bool admin_loopback_host(const char *host)
{
	static const char *const names[] = { "127.0.0.1", "localhost", "[::1]" };

	if (!host)
		return true; /* HTTP/1.0: no browser */
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		size_t len = strlen(names[i]);

		if (strncasecmp(host, names[i], len) == 0 &&
			(host[len] == '\0' || host[len] == ':'))
			return true;
	}
	return false;
}
