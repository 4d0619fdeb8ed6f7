/*
 * Looks at the descriptor that comes with a greeting, in a process of its own. Anybody may send one
 * of a file system of his own, and who closes it waits in the kernel for as long as that likes: not
 * the feed, and not a process that holds the mount.
 */
#include "fuse/order/order_internal.h"
#include "base/clock.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATIENCE_MS 5000 /* for a process that asks nobody */

/* Nothing that could wait for the file's own system. */
static void look_at(int fd, struct order_shown *shown)
{
	struct statx st;

	if (fcntl(fd, F_GETFL) & O_PATH)
		return;
	if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &st) != 0)
		return;
	shown->dev = makedev(st.stx_dev_major, st.stx_dev_minor);
	shown->given = true;
}

/* Only system calls: other threads' locks were copied as they were. */
_Noreturn static void greeter_main(int connection, int said)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
	uint8_t data[ORDER_HELLO_BYTES];
	struct iovec iov = { .iov_base = data, .iov_len = sizeof(data) };
	struct msghdr msg = { .msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(control) };
	struct order_shown shown = { 0 };
	const struct cmsghdr *c;
	int fd;

	connection = fcntl(connection, F_DUPFD, STDERR_FILENO);
	said = fcntl(said, F_DUPFD, STDERR_FILENO);
	if (dup2(connection, STDIN_FILENO) < 0 || dup2(said, STDOUT_FILENO) < 0)
		_exit(1);
	(void)close_range(STDERR_FILENO, UINT_MAX, 0); /* must not keep the mount alive */
	shown.bytes = (int)recvmsg(STDIN_FILENO, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	c = shown.bytes > 0 ? CMSG_FIRSTHDR(&msg) : NULL;
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
		memcpy(&fd, CMSG_DATA(c), sizeof(fd)); /* others are closed with this process */
		look_at(fd, &shown);
	}
	_exit(write(STDOUT_FILENO, &shown, sizeof(shown)) == sizeof(shown) ? 0 : 1);
}

uint32_t order_greeters(struct order *order)
{
	uint32_t left = 0;

	for (uint32_t i = 0; i < order->n_greeters; i++)
		if (waitpid(order->greeters[i].pid, NULL, WNOHANG) == 0)
			order->greeters[left++] = order->greeters[i];
	order->n_greeters = left;
	return left;
}

static bool too_many(struct order *order, uid_t uid)
{
	uint32_t n = order_greeters(order);
	uint32_t same = 0;

	for (uint32_t i = 0; i < n; i++)
		same += order->greeters[i].uid == uid;
	return n == ORDER_GREETERS || same >= ORDER_USER_GREETERS;
}

int order_greeting(struct order *order, const struct order_job *job, struct order_shown *ret_shown)
{
	struct pollfd wait = { .events = POLLIN };
	int said[2];
	pid_t pid;
	int r = 0;

	if (too_many(order, job->uid))
		return -EBUSY;
	if (pipe2(said, O_CLOEXEC) != 0)
		return err_errno();
	pid = fork();
	if (pid == 0)
		greeter_main(job->fd, said[1]);
	if (pid < 0)
		r = err_errno();
	else
		order->greeters[order->n_greeters++] = (struct order_greeter){ pid, job->uid };
	(void)close(said[1]); /* the greeter's */
	wait.fd = said[0];
	if (r == 0 && (poll(&wait, 1, PATIENCE_MS) != 1 ||
			      read(said[0], ret_shown, sizeof(*ret_shown)) != sizeof(*ret_shown)))
		r = -EIO;
	(void)close(said[0]); /* a pipe */
	return r;
}
