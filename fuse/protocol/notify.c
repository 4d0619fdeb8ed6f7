/* See notify.h. */
#include "fuse/protocol/notify.h"
#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define NAME_MAX_BYTES 255u
#define MESSAGE_BYTES  512u /* the longest has a name */
#define PACE           512u /* messages, and then a pause: others use the directories, too */
#define LOOK_MS        100
#define NOTIFY_MINOR   31u /* of the protocol, as every session needs: all have these messages */

static const struct fuse_lowlevel_ops no_ops;

/*
 * Only system calls: other threads' locks were copied as they were. What the kernel says to a message
 * does not matter: mostly that it does not know the name, or that the mount is gone.
 */
_Noreturn static void notify_main(int fd, int dev_fd)
{
	char message[MESSAGE_BYTES];
	ssize_t n;

	(void)setsid();
	for (int i = 1; i < NSIG; i++)
		(void)signal(i, SIG_IGN);
	if (fd <= STDERR_FILENO || dev_fd <= STDERR_FILENO) {
		fd = fcntl(fd, F_DUPFD, STDERR_FILENO + 1);
		dev_fd = fcntl(dev_fd, F_DUPFD, STDERR_FILENO + 1);
	}
	(void)dup2(fd, STDIN_FILENO);
	(void)dup2(dev_fd, STDOUT_FILENO);
	(void)close_range(STDERR_FILENO, UINT_MAX, 0);
	(void)open("/dev/null", O_WRONLY);
	if (chdir("/") != 0)
		_exit(1);
	while ((n = recv(STDIN_FILENO, message, sizeof(message), 0)) != 0) {
		if (n < 0 && errno != EINTR)
			_exit(1);
		while (n > 0 && write(STDOUT_FILENO, message, (size_t)n) < 0 &&
			(errno == EINTR || errno == EAGAIN))
			;
	}
	_exit(0);
}

static bool is_stopped(const struct notify *notify)
{
	return notify->stopped && notify->stopped(notify->arg);
}

/* 0; -ECANCELED: stopped; -EPIPE: the process is gone. */
static int send_message(struct notify *notify, struct iovec *iov, int n)
{
	const struct msghdr message = { .msg_iov = iov, .msg_iovlen = (size_t)n };

	while (sendmsg(notify->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
		struct pollfd wait = { .fd = notify->fd, .events = POLLOUT };

		if (errno != EAGAIN && errno != EINTR && errno != ENOBUFS)
			return -EPIPE;
		if (is_stopped(notify))
			return -ECANCELED;
		(void)poll(&wait, 1, LOOK_MS); /* the send says what is */
	}
	if (++notify->sent % PACE == 0)
		clock_sleep_ns(CLOCK_MS);
	return 0;
}

static void on_message(struct lowlevel *l, struct iovec *iov, int n)
{
	struct notify *notify = container_of(l, struct notify, lowlevel);

	notify->status = send_message(notify, iov, n);
}

int notify_start(
	struct notify *notify, int dev_fd, bool (*stopped)(void *arg), void *arg, struct err *e)
{
	int ends[2];
	int r;

	*notify = (struct notify){ .stopped = stopped, .arg = arg, .fd = -1 };
	notify->lowlevel.send = on_message;
	r = lowlevel_init(&notify->lowlevel, &no_ops);
	if (r < 0)
		return err_set(e, r, "libfuse3 cannot be used: %s: free some memory", err_str(r));
	lowlevel_resume(&notify->lowlevel, NOTIFY_MINOR);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
		r = err_set(e, err_errno(), "no descriptors: %m");
		lowlevel_release(&notify->lowlevel);
		return r;
	}
	notify->pid = fork();
	if (notify->pid == 0)
		notify_main(ends[0], dev_fd);
	(void)close(ends[0]); /* the child's */
	if (notify->pid < 0) {
		r = err_set(e, err_errno(),
			"the process that reports changes to the kernel cannot be started: %m");
		notify->pid = 0;
		(void)close(ends[1]); /* nobody reads */
		lowlevel_release(&notify->lowlevel);
		return r;
	}
	notify->fd = ends[1];
	return 0;
}

int notify_entry(struct notify *notify, uint64_t parent, const char *name, uint32_t len)
{
	char text[NAME_MAX_BYTES + 1];

	if (len > NAME_MAX_BYTES)
		return 0; /* no name that the kernel could know */
	memcpy(text, name, len);
	text[len] = '\0';
	/* What the library itself returns is of its session, which is there. */
	(void)fuse_lowlevel_notify_inval_entry(notify->lowlevel.session, parent, text, len);
	return notify->status;
}

int notify_inode(struct notify *notify, uint64_t node, bool listing)
{
	(void)fuse_lowlevel_notify_inval_inode(
		notify->lowlevel.session, node, listing ? 0 : -1, 0); /* as above */
	return notify->status;
}

int notify_end(struct notify *notify)
{
	int status = 0;
	pid_t pid;

	if (notify->pid <= 0)
		return -EPIPE;
	(void)close(notify->fd); /* what it has, it sends */
	lowlevel_release(&notify->lowlevel);
	while ((pid = waitpid(notify->pid, &status, WNOHANG)) == 0 && !is_stopped(notify))
		clock_sleep_ns(CLOCK_MS);
	notify->pid = 0;
	if (pid == 0)
		return -ECANCELED;
	return pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EPIPE;
}
