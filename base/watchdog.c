/* Beats of daemons. See watchdog.h. */
#include "base/watchdog.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/notify.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define BEAT    "WATCHDOG=1"
#define BEAT_NS (9 * CLOCK_SECOND / 10) /* a caller that comes every second sends one each time */

int watchdog_open(struct watchdog *w, const char *path, struct err *e)
{
	_cleanup_close_ int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int on = 1;
	int r = unix_socket_check(path, e);

	w->fd = -1;
	w->checked_ns = 0;
	if (r < 0)
		return r;
	memcpy(address.sun_path, path, strlen(path) + 1);
	if (fd < 0)
		return err_set(
			e, err_errno(), "no socket: %m: raise the limit of open files (ulimit -n)");
	(void)unlink(path); /* of a process that was killed, or there is none */
	/* The mode before bind(2), which takes the new file's from it. */
	if (setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) != 0 ||
		fchmod(fd, 0600) != 0 ||
		bind(fd, (const struct sockaddr *)&address, sizeof(address)) != 0)
		return err_set(e, err_errno(),
			"cannot receive messages at '%s': %m: choose a directory of yours", path);
	memcpy(w->path, path, strlen(path) + 1);
	w->fd = TAKE_FD(fd);
	return 0;
}

void watchdog_close(struct watchdog *w, bool unlink_it)
{
	if (w->fd < 0)
		return;
	if (unlink_it)
		(void)unlink(w->path); /* ours */
	(void)close(w->fd);            /* a socket */
	w->fd = -1;
}

/* Descriptors that came with a message belong to no owner: they are closed. */
static void close_all(const struct cmsghdr *head)
{
	size_t n = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);

	for (size_t i = 0; i < n; i++) {
		int fd;

		memcpy(&fd, CMSG_DATA(head) + i * sizeof(int), sizeof(fd));
		(void)close(fd); /* not asked for */
	}
}

/* The sender, as the kernel knows it; 0: unknown to it. */
static pid_t sender_of(struct msghdr *message)
{
	struct ucred sender = { 0 };

	for (struct cmsghdr *head = CMSG_FIRSTHDR(message); head;
		head = CMSG_NXTHDR(message, head)) {
		if (head->cmsg_level != SOL_SOCKET)
			continue;
		if (head->cmsg_type == SCM_CREDENTIALS)
			memcpy(&sender, CMSG_DATA(head), sizeof(sender));
		else if (head->cmsg_type == SCM_RIGHTS)
			close_all(head);
	}
	return sender.pid;
}

/* One of the lines is a beat. */
static bool has_beat(const char *text)
{
	const char *at = strstr(text, BEAT);

	return at && (at == text || at[-1] == '\n') &&
	       (at[sizeof(BEAT) - 1] == '\0' || at[sizeof(BEAT) - 1] == '\n');
}

bool watchdog_receive(struct watchdog *w, pid_t *ret_pid)
{
	for (;;) {
		_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(struct ucred)) +
						      CMSG_SPACE(NOTIFY_FDS_MAX * sizeof(int))];
		char text[256];
		struct iovec part = { .iov_base = text, .iov_len = sizeof(text) - 1 };
		struct msghdr message = { .msg_iov = &part,
			.msg_iovlen = 1,
			.msg_control = control,
			.msg_controllen = sizeof(control) };
		ssize_t n =
			w->fd < 0 ? -1 : recvmsg(w->fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
		pid_t pid;

		if (n < 0 && w->fd >= 0 && errno == EINTR)
			continue;
		if (n < 0)
			return false;
		text[n] = '\0';
		pid = sender_of(&message);
		if (pid <= 0 || !has_beat(text))
			continue;
		*ret_pid = pid;
		return true;
	}
}

bool watchdog_was_late(struct watchdog *w, uint64_t now_ns)
{
	bool late = w->checked_ns && now_ns - w->checked_ns > WATCHDOG_NS / 2;

	w->checked_ns = now_ns;
	if (late)
		log_warn("this process did not run for a while",
			"next=\"silent daemons get more time\"");
	return late;
}

void watchdog_beat(uint64_t wait_ns)
{
	static uint64_t sent_ns;
	uint64_t now = clock_mono_ns();
	int r;

	if (notify_watchdog_ns() == 0 || (sent_ns && now - sent_ns < BEAT_NS))
		return;
	sent_ns = now;
	if (!loops_turn())
		return;
	r = notify_send_wait(BEAT, wait_ns);
	if (r < 0) /* the next process to watch this one binds it again */
		log_debug("beat not sent", "error=%s", err_name(r));
}
