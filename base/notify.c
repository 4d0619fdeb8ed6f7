/* sd_notify(3). See notify.h. */
#include "base/notify.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* The address in NOTIFY_SOCKET: a path, or '@' and an abstract name. */
static int make_address(const char *name, struct sockaddr_un *ret_address, socklen_t *ret_len)
{
	size_t len = strlen(name);

	if ((name[0] != '/' && name[0] != '@') || len < 2 || len >= sizeof(ret_address->sun_path))
		return -EINVAL;
	*ret_address = (struct sockaddr_un){ .sun_family = AF_UNIX };
	memcpy(ret_address->sun_path, name, len);
	*ret_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
	if (name[0] == '@')
		ret_address->sun_path[0] = '\0';
	else
		++*ret_len; /* the NUL */
	return 0;
}

static int send_message(int fd, const struct msghdr *message, uint64_t wait_ns)
{
	struct timeval wait = { .tv_usec = (suseconds_t)(wait_ns / 1000) };

	if (wait_ns > 0 && setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait)) != 0)
		return err_errno();
	while (sendmsg(fd, message, MSG_NOSIGNAL | (wait_ns > 0 ? 0 : MSG_DONTWAIT)) < 0)
		if (errno != EINTR)
			return err_errno();
	return 1;
}

static int send_text(const char *text, const int *fds, unsigned int n, uint64_t wait_ns)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(NOTIFY_FDS_MAX * sizeof(int))] = { 0 };
	// NOLINTNEXTLINE(concurrency-mt-unsafe): nothing sets it after the start
	const char *name = getenv(NOTIFY_SOCKET_ENV);
	struct iovec part = { .iov_base = (char *)(uintptr_t)text, .iov_len = strlen(text) };
	struct sockaddr_un address;
	struct msghdr message = { .msg_name = &address, .msg_iov = &part, .msg_iovlen = 1 };
	_cleanup_close_ int fd = -1;
	int r;

	ensure(n <= NOTIFY_FDS_MAX);
	if (!name || !name[0])
		return 0;
	r = make_address(name, &address, &message.msg_namelen);
	if (r < 0)
		return r;
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return err_errno();
	if (n > 0) {
		struct cmsghdr *head = (struct cmsghdr *)control;

		*head = (struct cmsghdr){ .cmsg_level = SOL_SOCKET,
			.cmsg_type = SCM_RIGHTS,
			.cmsg_len = CMSG_LEN(n * sizeof(int)) };
		memcpy(CMSG_DATA(head), fds, n * sizeof(int));
		message.msg_control = control;
		message.msg_controllen = CMSG_SPACE(n * sizeof(int));
	}
	return send_message(fd, &message, wait_ns);
}

int notify_send(const char *text, const int *fds, unsigned int n)
{
	return send_text(text, fds, n, 0);
}

int notify_send_wait(const char *text, uint64_t wait_ns)
{
	ensure(wait_ns < CLOCK_SECOND);
	return send_text(text, NULL, 0, wait_ns);
}

void notify_forget(void)
{
	static const char *const names[] = { NOTIFY_SOCKET_ENV, NOTIFY_WATCHDOG_ENV,
		NOTIFY_WATCHDOG_PID_ENV };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		(void)unsetenv(names[i]); // NOLINT(concurrency-mt-unsafe): no other threads
}

/* The value of a variable that is a positive number; 0: it is not set, or no such number. */
static uint64_t read_number(const char *name)
{
	// NOLINTNEXTLINE(concurrency-mt-unsafe): nothing sets it after the start
	const char *text = getenv(name);
	char *end;
	unsigned long long value;

	if (!text || text[0] < '0' || text[0] > '9')
		return 0;
	errno = 0;
	value = strtoull(text, &end, 10);
	return errno == 0 && *end == '\0' ? value : 0;
}

uint64_t notify_watchdog_ns(void)
{
	// NOLINTNEXTLINE(concurrency-mt-unsafe): nothing sets it after the start
	bool is_addressed = getenv(NOTIFY_WATCHDOG_PID_ENV) != NULL;
	uint64_t usec = read_number(NOTIFY_WATCHDOG_ENV);

	if (is_addressed && read_number(NOTIFY_WATCHDOG_PID_ENV) != (uint64_t)getpid())
		return 0; /* inherited from the process that is watched */
	return usec <= UINT64_MAX / 1000 ? usec * 1000 / 2 : 0;
}
