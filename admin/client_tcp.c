/* The way to a daemon's admin_server_listen(): TCP, for reading only. See admin_internal.h. */
#include "admin/admin_internal.h"
#include "base/address.h"
#include "base/clock.h"

#include <netdb.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int admin_tcp_check(const char *address, struct err *e)
{
	struct address_parts parts;

	if (admin_is_tcp(address) && address_split(address + strlen(ADMIN_TCP), &parts) == 0)
		return 0;
	return err_set(e, -EINVAL,
		"invalid address '%s': use the path of a daemon's socket, or HOST:PORT of its "
		"--admin-listen",
		address + (admin_is_tcp(address) ? strlen(ADMIN_TCP) : 0));
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
	struct address_parts parts;
	int r = address_split(address + strlen(ADMIN_TCP), &parts);

	if (r < 0)
		return r;
	if (getaddrinfo(parts.host, parts.port, &wanted, &found) != 0)
		return -EHOSTUNREACH;
	r = -EHOSTUNREACH;
	for (const struct addrinfo *to = found; to && r < 0; to = to->ai_next)
		r = connect_one(to, deadline_ns, ret_fd);
	freeaddrinfo(found);
	return r;
}
