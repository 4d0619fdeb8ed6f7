/* Beats over a socket: whose they are, what is none, and a process that watches but was itself stopped. */
#include "base/watchdog.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/notify.h"
#include "tests/clock/test_clock.h"

static char dir[] = "/tmp/granary-watchdog-XXXXXX";
static char path[sizeof(dir) + 16];

static void open_it(struct watchdog *w)
{
	struct err e = ERR_INIT;

	assert_int_equal(watchdog_open(w, path, &e), 0);
	assert_int_equal(setenv("NOTIFY_SOCKET", path, 1), 0);
}

/* In another process: its number. */
static pid_t send_from_another(const char *text)
{
	int status;
	pid_t pid = fork();

	if (pid == 0)
		_exit(notify_send(text, NULL, 0) != 1);
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	return pid;
}

static void beats_name_their_sender(void **state)
{
	struct watchdog w;
	struct stat st;
	pid_t other;
	pid_t pid = 0;

	(void)state;
	open_it(&w);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_false(watchdog_receive(&w, &pid));
	assert_int_equal(notify_send("WATCHDOG=1", NULL, 0), 1);
	other = send_from_another("STATUS=well\nWATCHDOG=1\n");
	assert_true(watchdog_receive(&w, &pid));
	assert_int_equal(pid, getpid());
	assert_true(watchdog_receive(&w, &pid));
	assert_int_equal(pid, other);
	assert_false(watchdog_receive(&w, &pid));
	watchdog_close(&w, true);
	assert_int_equal(access(path, F_OK), -1);
}

static int count_fds(void)
{
	int n = 0;

	for (int fd = 0; fd < 256; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void other_messages_are_passed_over(void **state)
{
	const int fds[] = { STDIN_FILENO, STDERR_FILENO };
	struct watchdog w;
	pid_t pid = 0;
	int before;

	(void)state;
	open_it(&w);
	before = count_fds();
	assert_int_equal(notify_send("READY=1", NULL, 0), 1);
	assert_int_equal(notify_send("X_WATCHDOG=1", NULL, 0), 1);
	assert_int_equal(notify_send("WATCHDOG=trigger", NULL, 0), 1);
	assert_int_equal(notify_send("WATCHDOG=10", NULL, 0), 1);
	assert_int_equal(notify_send("FDSTORE=1", fds, 2), 1);
	assert_false(watchdog_receive(&w, &pid));
	assert_int_equal(count_fds(), before);
	watchdog_close(&w, true);
}

/* The path is the same, so daemons find the next process that watches them. */
static void the_next_one_takes_the_path(void **state)
{
	struct watchdog first;
	struct watchdog next;
	pid_t pid = 0;

	(void)state;
	open_it(&first);
	watchdog_close(&first, false); /* as if killed */
	assert_int_equal(access(path, F_OK), 0);
	open_it(&next);
	assert_int_equal(notify_send("WATCHDOG=1", NULL, 0), 1);
	assert_true(watchdog_receive(&next, &pid));
	assert_false(watchdog_receive(&first, &pid));
	watchdog_close(&next, true);
	watchdog_close(&next, true);
}

static void late(void **state)
{
	struct watchdog w = { .fd = -1 };
	uint64_t t = 1000 * CLOCK_SECOND;

	(void)state;
	assert_false(watchdog_was_late(&w, t)); /* the first time */
	assert_false(watchdog_was_late(&w, t += CLOCK_SECOND));
	assert_false(watchdog_was_late(&w, t += WATCHDOG_NS / 2));
	assert_true(watchdog_was_late(&w, t += 60 * CLOCK_SECOND));
	assert_false(watchdog_was_late(&w, t += CLOCK_SECOND));
}

static unsigned int received(struct watchdog *w)
{
	unsigned int n = 0;
	pid_t pid;

	while (watchdog_receive(w, &pid))
		n++;
	return n;
}

static void beats_once_a_second_if_watched(void **state)
{
	struct watchdog w;

	(void)state;
	open_it(&w);
	assert_int_equal(unsetenv("WATCHDOG_USEC"), 0);
	watchdog_beat(0);
	assert_int_equal(received(&w), 0);
	assert_int_equal(setenv("WATCHDOG_USEC", "5000000", 1), 0);
	watchdog_beat(0);
	watchdog_beat(0);
	assert_int_equal(received(&w), 1);
	test_advance(CLOCK_SECOND);
	watchdog_beat(0);
	assert_int_equal(received(&w), 1);
	while (notify_send("READY=1", NULL, 0) == 1)
		;
	test_advance(CLOCK_SECOND);
	watchdog_beat(0);
	assert_int_equal(received(&w), 0);
	test_advance(CLOCK_SECOND);
	watchdog_beat(0);
	assert_int_equal(received(&w), 1);
	watchdog_close(&w, true);
}

static pid_t beat_in_another(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		watchdog_beat(WATCHDOG_WAIT_NS);
		_exit(0);
	}
	assert_true(pid > 0);
	return pid;
}

/* It sleeps, or has ended. */
static bool waits(pid_t pid)
{
	char name[64];
	char text[256] = { 0 };
	const char *state;
	int fd;

	(void)snprintf(name, sizeof(name), "/proc/%d/stat", (int)pid); /* fits */
	fd = open(name, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_true(read(fd, text, sizeof(text) - 1) > 0);
	assert_int_equal(close(fd), 0);
	state = strrchr(text, ')');
	assert_non_null(state);
	return state[2] == 'S' || state[2] == 'Z';
}

/* As of hundreds of daemons whose keeper shares a busy machine: the queue is full whenever one of them looks. */
static void a_beat_waits_for_a_free_place(void **state)
{
	struct watchdog w;
	pid_t from = 0;
	pid_t pid;
	bool early;

	(void)state;
	open_it(&w);
	assert_int_equal(setenv("WATCHDOG_USEC", "5000000", 1), 0);
	while (notify_send("READY=1", NULL, 0) == 1)
		;
	test_advance(CLOCK_SECOND);
	pid = beat_in_another();
	test_wait(waits(pid));
	early = watchdog_receive(&w, &from); /* places are free from here on */
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_true(early || watchdog_receive(&w, &from));
	assert_int_equal(from, pid);
	watchdog_close(&w, true);
}

static int setup(void **state)
{
	(void)state;
	if (!mkdtemp(dir))
		return -1;
	return snprintf(path, sizeof(path), "%s/notify.sock", dir) > 0 ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	return rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(beats_name_their_sender),
		cmocka_unit_test(other_messages_are_passed_over),
		cmocka_unit_test(the_next_one_takes_the_path),
		cmocka_unit_test(late),
		cmocka_unit_test(beats_once_a_second_if_watched),
		cmocka_unit_test(a_beat_waits_for_a_free_place),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
