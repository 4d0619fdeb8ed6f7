/* A descriptor that goes over a socket, and what comes instead of one. */
#include "base/fd_pass.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

static int ends[2];

static int setup(void **state)
{
	(void)state;
	return socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
}

static int teardown(void **state)
{
	(void)state;
	close(ends[0]);
	if (ends[1] >= 0)
		close(ends[1]);
	return 0;
}

static void test_arrives(void **state)
{
	int fds[2];
	int got = -1;
	char byte = 0;

	(void)state;
	assert_int_equal(pipe(fds), 0);
	assert_int_equal(fd_pass_send(ends[0], fds[0]), 0);
	close(fds[0]);
	assert_int_equal(fd_pass_receive(ends[1], 0, &got), 0);
	assert_int_equal(fcntl(got, F_GETFD), FD_CLOEXEC);
	assert_int_equal(write(fds[1], "x", 1), 1);
	assert_int_equal(read(got, &byte, 1), 1);
	assert_int_equal(byte, 'x');
	close(fds[1]);
	close(got);
}

/* Each of several messages has its own, and one without is passed over. */
static void test_one_after_the_other(void **state)
{
	int got = -1;

	(void)state;
	assert_int_equal(write(ends[0], "x", 1), 1);
	assert_int_equal(fd_pass_send(ends[0], STDERR_FILENO), 0);
	assert_int_equal(fd_pass_receive(ends[1], MSG_DONTWAIT, &got), -EBADMSG);
	assert_int_equal(got, -1);
	assert_int_equal(fd_pass_receive(ends[1], MSG_DONTWAIT, &got), 0);
	close(got);
	assert_int_equal(fd_pass_receive(ends[1], MSG_DONTWAIT, &got), -EAGAIN);
}

static void test_gone(void **state)
{
	int got = -1;

	(void)state;
	close(ends[1]);
	assert_int_equal(fd_pass_receive(ends[0], 0, &got), -ENODATA);
	assert_int_equal(fd_pass_send(ends[0], STDERR_FILENO), -EPIPE);
	assert_int_equal(got, -1);
	ends[1] = -1;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_arrives, setup, teardown),
		cmocka_unit_test_setup_teardown(test_one_after_the_other, setup, teardown),
		cmocka_unit_test_setup_teardown(test_gone, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
