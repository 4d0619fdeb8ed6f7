/* libfuse3's low-level session. See lowlevel.h. */
#include "fuse/protocol/lowlevel.h"
#include "base/err.h"
#include "base/log.h"

#include <errno.h>
#include <linux/fuse.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Errors are the sender's to report: the library would print them on standard error. */
static ssize_t send_message(int fd, struct iovec *iov, int n, void *arg)
{
	struct lowlevel *l = arg;
	ssize_t len = 0;

	(void)fd;
	for (int i = 0; i < n; i++)
		len += (ssize_t)iov[i].iov_len;
	if (!l->resuming)
		l->send(l, iov, n);
	return len;
}

/* The library wants one, and never calls it: requests are read by the session's threads. */
static ssize_t read_nothing(int fd, void *buf, size_t len, void *arg)
{
	(void)fd;
	(void)buf;
	(void)len;
	(void)arg;
	errno = EIO;
	return -1;
}

__attribute__((format(printf, 2, 0))) static void on_log(
	enum fuse_log_level level, const char *format, va_list args)
{
	char text[256];

	(void)level;
	(void)vsnprintf(text, sizeof(text), format, args); /* cut where it is longer */
	text[strcspn(text, "\n")] = '\0';
	LOG_LIMITED(LOG_WARN, "message of libfuse3", "text=\"%s\"", text);
}

int lowlevel_init(struct lowlevel *l, const struct fuse_lowlevel_ops *ops)
{
	static const struct fuse_custom_io io = { .writev = send_message, .read = read_nothing };
	char name[] = "cachefuse";
	char *argv[] = { name, NULL };
	struct fuse_args args = FUSE_ARGS_INIT(1, argv);
	int fd = eventfd(0, EFD_CLOEXEC); /* the library closes its descriptor at the end */

	if (fd < 0)
		return err_errno();
	fuse_set_log_func(on_log);
	l->resuming = false;
	l->session = fuse_session_new(&args, ops, sizeof(*ops), l);
	fuse_opt_free_args(&args);
	if (l->session && fuse_session_custom_io(l->session, &io, fd) == 0)
		return 0;
	(void)close(fd); /* an eventfd */
	lowlevel_release(l);
	return -ENOMEM;
}

void lowlevel_resume(struct lowlevel *l, uint32_t minor)
{
	struct {
		struct fuse_in_header head;
		struct fuse_init_in in;
	} request = {
		.head = { .len = sizeof(request), .opcode = FUSE_INIT, .unique = 1 },
		.in = { .major = FUSE_KERNEL_VERSION,
			.minor = minor,
			.flags = ~(uint32_t)FUSE_INIT_EXT },
	};

	l->resuming = true;
	fuse_session_process_buf(
		l->session, &(struct fuse_buf){ .mem = &request, .size = sizeof(request) });
	l->resuming = false;
}

void lowlevel_release(struct lowlevel *l)
{
	if (l->session)
		fuse_session_destroy(l->session);
	l->session = NULL;
}
