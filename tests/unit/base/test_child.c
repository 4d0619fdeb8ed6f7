/* A daemon that is told to end while it starts: what it says afterwards changes nothing. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/child.h"

/* Says READY only when it is told to end. $0: made once it can be told; $2: its --ready-fd. */
#define SCRIPT                                                                                     \
	"trap 'echo \"READY {}\" > /proc/self/fd/$2; exit 0' TERM; : > \"$0\"; while :; do sleep " \
	"0.01; done"

static void await_file(const char *path)
{
	while (access(path, F_OK) != 0)
		usleep(1000);
}

static void await(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	assert_int_equal(poll(&p, 1, -1), 1);
}

static void ready_too_late(void **state)
{
	char dir[] = "/tmp/granary-child-XXXXXX";
	char up[sizeof(dir) + 8];
	struct child child;

	(void)state;
	assert_non_null(mkdtemp(dir));
	assert_true(snprintf(up, sizeof(up), "%s/up", dir) > 0);
	child_init(&child, "late");
	assert_int_equal(child_arg(&child, "/bin/sh"), 0);
	assert_int_equal(child_arg_text(&child, "-c", SCRIPT), 0);
	assert_int_equal(child_arg(&child, "%s", up), 0);
	child_start(&child);
	assert_int_equal(child.state, CHILD_STARTING);
	await_file(up);
	child_end(&child);
	assert_int_equal(child.state, CHILD_ENDING);
	await(child.ready_fd);
	child_on_ready(&child); /* its line comes before its end is seen */
	assert_int_equal(child.state, CHILD_ENDING);
	await(child.pidfd);
	child_on_exit(&child);
	assert_int_equal(child.state, CHILD_STOPPED);
	child_release(&child);
	assert_int_equal(unlink(up), 0);
	assert_int_equal(rmdir(dir), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ready_too_late),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
