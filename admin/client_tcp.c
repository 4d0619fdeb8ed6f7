/* The way to a daemon's admin_server_listen(): TCP, for reading only. See admin_internal.h. */
#include "admin/admin_internal.h"
#include "base/clock.h"

#include <netdb.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define HOST_MAX 64u

/* "HOST:PORT", "[::1]:PORT". */
static int split(const char *where, char host[HOST_MAX], const char **ret_port)
{
	const char *colon = strrchr(where, ':');
	size_t len = colon ? (size_t)(colon - where) : 0;

	if (len > 1 && where[0] == '[' && where[len - 1] == ']') {
		where++;
		len -= 2;
	}
	if (!colon || len == 0 || len >= HOST_MAX || !colon[1] ||
		strspn(colon + 1, "0123456789") != strlen(colon + 1))
		return -EINVAL;
	memcpy(host, where, len);
	host[len] = '\0';
	*ret_port = colon + 1;
	return 0;
}

int admin_tcp_check(const char *address, struct err *e)
{
	char host[HOST_MAX];
	const char *port;

	if (admin_is_tcp(address) && split(address + strlen(ADMIN_TCP), host, &port) == 0)
		return 0;
	return err_set(e, -EINVAL,
		"'%s' is no address of a daemon: a socket's path, or HOST:PORT of its "
		"--admin-listen",
		address);
}

static int connect_one(const struct addrinfo *to, uint64_t deadline_ns, int *ret_fd)
{
	int fd = socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int error = 0;
	socklen_t len = sizeof(error);
	int r = 0;

	if (fd < 0)
		return err_errno();
	if (connect(fd, to->ai_addr, to->ai_addrlen) != 0)
		r = errno == EINPROGRESS ? admin_wait_ready(fd, POLLOUT, deadline_ns) : err_errno();
	if (r == 0 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0)
		r = -error;
	if (r < 0)
		(void)close(fd); /* nothing was sent */
	else
		*ret_fd = fd;
	return r;
}

int admin_tcp_connect(const char *address, uint64_t deadline_ns, int *ret_fd)
{
	const struct addrinfo wanted = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV };
	struct addrinfo *found = NULL;
	char host[HOST_MAX];
	const char *port = NULL;
	int r = split(address + strlen(ADMIN_TCP), host, &port);

	if (r < 0)
		return r;
	if (getaddrinfo(host, port, &wanted, &found) != 0)
		return -EHOSTUNREACH;
	r = -EHOSTUNREACH;
	for (const struct addrinfo *to = found; to && r < 0; to = to->ai_next)
		r = connect_one(to, deadline_ns, ret_fd);
	freeaddrinfo(found);
	return r;
}
