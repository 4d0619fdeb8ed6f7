/* Messages to a service manager: to which socket, with what, and when there is none or it does not read. */
#include "base/notify.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static char dir[] = "/tmp/granary-notify-XXXXXX";

/* A manager's socket; NOTIFY_SOCKET is `name`. */
static int listen_at(const char *name)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	size_t len = strlen(name);
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	assert_true(fd >= 0);
	assert_true(len < sizeof(address.sun_path));
	memcpy(address.sun_path, name, len);
	if (name[0] == '@')
		address.sun_path[0] = '\0';
	else
		len++;
	assert_int_equal(bind(fd, (const struct sockaddr *)&address,
				 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len)),
		0);
	assert_int_equal(setenv("NOTIFY_SOCKET", name, 1), 0);
	return fd;
}

/* The next message is `text` with `n` descriptors, which are put into `fds`. */
static void expect(int fd, const char *text, int *fds, unsigned int n)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(8 * sizeof(int))];
	char got[256] = "";
	struct iovec part = { .iov_base = got, .iov_len = sizeof(got) - 1 };
	struct msghdr message = { .msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(control) };
	const struct cmsghdr *head;

	assert_int_equal(recvmsg(fd, &message, MSG_CMSG_CLOEXEC), strlen(text));
	assert_string_equal(got, text);
	assert_false(message.msg_flags & MSG_CTRUNC);
	head = CMSG_FIRSTHDR(&message);
	if (n == 0) {
		assert_null(head);
		return;
	}
	assert_non_null(head);
	assert_int_equal(head->cmsg_level, SOL_SOCKET);
	assert_int_equal(head->cmsg_type, SCM_RIGHTS);
	assert_int_equal(head->cmsg_len, CMSG_LEN(n * sizeof(int)));
	memcpy(fds, CMSG_DATA(head), n * sizeof(int));
}

static void sends_to_a_path(void **state)
{
	char path[sizeof(dir) + 16];
	int fd;

	(void)state;
	assert_true(snprintf(path, sizeof(path), "%s/notify.sock", dir) > 0);
	fd = listen_at(path);
	assert_int_equal(notify_send("READY=1", NULL, 0), 1);
	assert_int_equal(notify_send("WATCHDOG=1", NULL, 0), 1);
	expect(fd, "READY=1", NULL, 0);
	expect(fd, "WATCHDOG=1", NULL, 0);
	close(fd);
	assert_int_equal(notify_send("WATCHDOG=1", NULL, 0), -ECONNREFUSED);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(notify_send("WATCHDOG=1", NULL, 0), -ENOENT);
}

static void sends_to_an_abstract_name(void **state)
{
	char name[64];
	int fd;

	(void)state;
	assert_true(snprintf(name, sizeof(name), "@granary-notify-%d", (int)getpid()) > 0);
	fd = listen_at(name);
	assert_int_equal(notify_send("STOPPING=1", NULL, 0), 1);
	expect(fd, "STOPPING=1", NULL, 0);
	close(fd);
}

static void passes_descriptors(void **state)
{
	char path[sizeof(dir) + 16];
	int ends[2];
	int got[2] = { -1, -1 };
	char byte = 0;
	int fd;

	(void)state;
	assert_true(snprintf(path, sizeof(path), "%s/store.sock", dir) > 0);
	fd = listen_at(path);
	assert_int_equal(pipe(ends), 0);
	assert_int_equal(notify_send("FDSTORE=1\nFDNAME=mount-1", ends, 2), 1);
	expect(fd, "FDSTORE=1\nFDNAME=mount-1", got, 2);
	assert_int_equal(write(got[1], "x", 1), 1);
	assert_int_equal(read(ends[0], &byte, 1), 1);
	assert_int_equal(byte, 'x');
	for (int i = 0; i < 2; i++) {
		close(got[i]);
		close(ends[i]);
	}
	close(fd);
	assert_int_equal(unlink(path), 0);
}

static void never_waits(void **state)
{
	char path[sizeof(dir) + 16];
	int fd;
	int r;

	(void)state;
	assert_true(snprintf(path, sizeof(path), "%s/full.sock", dir) > 0);
	fd = listen_at(path);
	do
		r = notify_send("WATCHDOG=1", NULL, 0);
	while (r == 1);
	assert_int_equal(r, -EAGAIN);
	expect(fd, "WATCHDOG=1", NULL, 0);
	assert_int_equal(notify_send("WATCHDOG=1", NULL, 0), 1);
	close(fd);
	assert_int_equal(unlink(path), 0);
}

static void nobody_to_send_to(void **state)
{
	char longest[200];

	(void)state;
	assert_int_equal(unsetenv("NOTIFY_SOCKET"), 0);
	assert_int_equal(notify_send("READY=1", NULL, 0), 0);
	assert_int_equal(setenv("NOTIFY_SOCKET", "", 1), 0);
	assert_int_equal(notify_send("READY=1", NULL, 0), 0);
	assert_int_equal(setenv("NOTIFY_SOCKET", "notify.sock", 1), 0);
	assert_int_equal(notify_send("READY=1", NULL, 0), -EINVAL);
	assert_int_equal(setenv("NOTIFY_SOCKET", "@", 1), 0);
	assert_int_equal(notify_send("READY=1", NULL, 0), -EINVAL);
	memset(longest, 'n', sizeof(longest));
	longest[0] = '/';
	longest[sizeof(longest) - 1] = '\0';
	assert_int_equal(setenv("NOTIFY_SOCKET", longest, 1), 0);
	assert_int_equal(notify_send("READY=1", NULL, 0), -EINVAL);
}

static void time_between_beats(void **state)
{
	char pid[16];

	(void)state;
	assert_int_equal(unsetenv("WATCHDOG_PID"), 0);
	assert_int_equal(unsetenv("WATCHDOG_USEC"), 0);
	assert_int_equal(notify_watchdog_ns(), 0);
	assert_int_equal(setenv("WATCHDOG_USEC", "5000000", 1), 0);
	assert_int_equal(notify_watchdog_ns(), 2500000000ull);
	assert_int_equal(setenv("WATCHDOG_USEC", "5s", 1), 0);
	assert_int_equal(notify_watchdog_ns(), 0);
	assert_int_equal(setenv("WATCHDOG_USEC", "-1", 1), 0);
	assert_int_equal(notify_watchdog_ns(), 0);
	assert_int_equal(setenv("WATCHDOG_USEC", "18446744073709551615", 1), 0);
	assert_int_equal(notify_watchdog_ns(), 0);
	assert_int_equal(setenv("WATCHDOG_USEC", "5000000", 1), 0);
	assert_true(snprintf(pid, sizeof(pid), "%d", (int)getpid()) > 0);
	assert_int_equal(setenv("WATCHDOG_PID", pid, 1), 0);
	assert_int_equal(notify_watchdog_ns(), 2500000000ull);
	assert_true(snprintf(pid, sizeof(pid), "%d", (int)getppid()) > 0);
	assert_int_equal(setenv("WATCHDOG_PID", pid, 1), 0);
	assert_int_equal(notify_watchdog_ns(), 0);
}

/* A process that inherited the variables of another one, or took its environment. */
static void what_was_for_another_process_is_forgotten(void **state)
{
	(void)state;
	assert_int_equal(setenv("NOTIFY_SOCKET", "/nowhere", 1), 0);
	assert_int_equal(setenv("WATCHDOG_USEC", "5000000", 1), 0);
	assert_int_equal(unsetenv("WATCHDOG_PID"), 0);
	notify_forget();
	assert_int_equal(notify_send("READY=1", NULL, 0), 0);
	assert_int_equal(notify_watchdog_ns(), 0);
	assert_int_equal(setenv("WATCHDOG_USEC", "5000000", 1), 0);
	assert_int_equal(setenv("WATCHDOG_PID", "1", 1), 0);
	notify_forget();
	assert_null(getenv("WATCHDOG_PID"));
}

static int setup(void **state)
{
	(void)state;
	return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	return rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sends_to_a_path),
		cmocka_unit_test(sends_to_an_abstract_name),
		cmocka_unit_test(passes_descriptors),
		cmocka_unit_test(never_waits),
		cmocka_unit_test(nobody_to_send_to),
		cmocka_unit_test(time_between_beats),
		cmocka_unit_test(what_was_for_another_process_is_forgotten),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
