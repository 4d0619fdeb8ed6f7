/* SCM_RIGHTS. See fd_pass.h. */
#include "base/fd_pass.h"

#include <string.h>
#include <sys/socket.h>

/* Room for one; of more that come the kernel closes those that do not fit. */
union control {
	struct cmsghdr head;
	char space[CMSG_SPACE(sizeof(int))];
};

int fd_pass_send(int socket, int fd)
{
	char byte = 'f';
	struct iovec iov = { &byte, 1 };
	union control control = { 0 };
	struct msghdr message = { .msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&message);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	while (sendmsg(socket, &message, MSG_NOSIGNAL) < 0)
		if (errno != EINTR)
			return err_errno();
	return 0;
}

int fd_pass_receive(int socket, int flags, int *ret_fd)
{
	char byte;
	struct iovec iov = { &byte, 1 };
	union control control = { 0 };
	struct msghdr message = { .msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control) };
	const struct cmsghdr *c;
	ssize_t n;

	do {
		n = recvmsg(socket, &message, flags | MSG_CMSG_CLOEXEC);
	} while (n < 0 && errno == EINTR);
	if (n <= 0)
		return n < 0 ? err_errno() : -ENODATA;
	c = CMSG_FIRSTHDR(&message);
	if (!c || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS ||
		c->cmsg_len != CMSG_LEN(sizeof(int)))
		return -EBADMSG;
	memcpy(ret_fd, CMSG_DATA(c), sizeof(*ret_fd));
	return 0;
}
