/*
 * Descriptors that outlive who had them: an owner that is killed, a second one that finds them, a
 * holder that dies, and one that nobody comes for.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "fuse/hold.h"
#include "fuse/keeper.h"
#include "tests/clock/test_clock.h"

#define LONG (60 * CLOCK_SECOND)

/* What an owner leaves written down. */
struct left {
	pid_t pid;
	uint64_t token;
};
static struct left *left;

static int file_of(const char *text)
{
	int fd = memfd_create("test", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	return fd;
}

static void expect_text(int fd, const char *text)
{
	char got[32] = "";

	assert_int_equal(pread(fd, got, sizeof(got) - 1, 0), strlen(text));
	assert_string_equal(got, text);
}

/* In a process of its own that is killed: what it held has no other owner left. */
static void die_as_owner(void (*act)(struct hold *hold), uint64_t holds_ns)
{
	int status;
	pid_t owner = fork();

	if (owner == 0) {
		struct hold hold;

		if (hold_begin(&hold, holds_ns) < 0)
			_exit(1);
		*left = (struct left){ hold.pid, hold.token };
		act(&hold);
		(void)raise(SIGKILL);
	}
	assert_int_equal(waitpid(owner, &status, 0), owner);
	assert_true(WIFSIGNALED(status));
}

/* Holders are our children when their owner is gone. */
static bool is_alive(pid_t pid)
{
	return waitpid(pid, NULL, WNOHANG) != pid && kill(pid, 0) == 0;
}

static void put_some(struct hold *hold)
{
	const int fds[HOLD_FDS] = { file_of("connection"), file_of("slots"), -1, file_of("far") };
	const int again[HOLD_FDS] = { fds[0], file_of("other"), -1, -1 };

	assert_int_equal(hold_put(hold, 0, fds), 0);
	assert_int_equal(hold_put(hold, 7, fds), 0);
	assert_int_equal(hold_put(hold, HOLD_PLACES - 1, fds), 0);
	assert_int_equal(hold_put(hold, 7, again), 0); /* instead of all four */
	hold_drop(hold, HOLD_PLACES - 1);
}

static void the_next_one_finds_them(void **state)
{
	struct hold_other other;
	int fd = -1;

	(void)state;
	die_as_owner(put_some, LONG);
	assert_int_equal(hold_find(left->pid, left->token + 1, &other), -ESRCH);
	assert_int_equal(hold_find(getpid(), left->token, &other), -ESRCH);
	assert_int_equal(hold_find(left->pid, left->token, &other), 0);
	assert_int_equal(hold_take(&other, 0, 0, &fd), 0);
	expect_text(fd, "connection");
	close(fd);
	assert_int_equal(hold_take(&other, 0, 1, &fd), 0);
	expect_text(fd, "slots");
	close(fd);
	assert_int_equal(hold_take(&other, 0, 2, &fd), -EBADF);
	assert_int_equal(hold_take(&other, 0, 3, &fd), 0);
	expect_text(fd, "far");
	close(fd);
	assert_int_equal(hold_take(&other, 7, 1, &fd), 0);
	expect_text(fd, "other");
	close(fd);
	assert_int_equal(hold_take(&other, 7, 3, &fd), -EBADF);
	assert_int_equal(hold_take(&other, HOLD_PLACES - 1, 1, &fd), -EBADF);
	assert_int_equal(hold_take(&other, HOLD_PLACES, 0, &fd), -EBADF);
	hold_release(&other);
	test_wait(!is_alive(left->pid));
	assert_int_equal(hold_find(left->pid, left->token, &other), -ESRCH);
	assert_int_equal(hold_take(&other, 0, 0, &fd), -EBADF);
	hold_release(&other);
}

static void put_nothing(struct hold *hold)
{
	const int fds[HOLD_FDS] = { -1, file_of("slots"), -1, -1 };

	assert_int_equal(hold_put(hold, 3, fds), 0); /* no connection: nobody waits for it */
}

static void without_connections_it_ends(void **state)
{
	(void)state;
	die_as_owner(put_nothing, LONG);
	test_wait(!is_alive(left->pid));
}

static void put_one(struct hold *hold)
{
	const int fds[HOLD_FDS] = { file_of("connection"), -1, -1, -1 };

	assert_int_equal(hold_put(hold, 1, fds), 0);
}

/* A pipe without a reader has an error, as a connection that is gone. */
static void put_both(struct hold *hold)
{
	int fds[HOLD_FDS] = { -1, -1, -1, -1 };
	int ends[2];

	put_one(hold);
	assert_int_equal(pipe(ends), 0);
	fds[0] = ends[1];
	assert_int_equal(hold_put(hold, 0, fds), 0);
}

static bool is_held(const struct hold_other *other, unsigned int place)
{
	int fd = -1;
	bool is = hold_take(other, place, 0, &fd) == 0;

	if (is)
		close(fd);
	return is;
}

static void those_that_are_gone_are_dropped(void **state)
{
	struct hold_other other;
	uint64_t began;
	int fd = -1;

	(void)state;
	die_as_owner(put_both, LONG);
	assert_int_equal(hold_find(left->pid, left->token, &other), 0);
	assert_int_equal(hold_take(&other, 1, 0, &fd), 0);
	close(fd);
	began = test_real_now();
	test_wait(!is_held(&other, 0));
	assert_true(test_real_now() - began < LONG / 4); /* before the holder ends by itself */
	hold_release(&other);
}

static void nobody_comes(void **state)
{
	(void)state;
	die_as_owner(put_one, CLOCK_MS);
	test_wait(!is_alive(left->pid));
}

static void put_one_for_less(struct hold *hold)
{
	hold_set_time(hold, CLOCK_MS);
	put_one(hold);
}

/* What is configured again counts for the holder that there is. */
static void nobody_comes_in_another_time(void **state)
{
	(void)state;
	die_as_owner(put_one_for_less, 3600 * CLOCK_SECOND);
	test_wait(!is_alive(left->pid));
}

static void it_dies_itself(void **state)
{
	struct hold hold;
	const int fds[HOLD_FDS] = { -1, -1, -1, -1 };
	pid_t first;

	(void)state;
	assert_int_equal(hold_begin(&hold, LONG), 0);
	assert_false(hold_lost(&hold));
	first = hold.pid;
	assert_int_equal(kill(first, SIGTERM), 0); /* which is not for it */
	assert_int_equal(hold_put(&hold, 0, fds), 0);
	assert_false(hold_lost(&hold));
	assert_int_equal(kill(first, SIGKILL), 0);
	test_wait(hold_lost(&hold));
	assert_int_equal(hold_put(&hold, 0, fds), 0); /* by nobody */
	hold_drop(&hold, 0);
	assert_int_equal(hold_begin(&hold, LONG), 0);
	assert_true(hold.pid != first);
	first = hold.pid;
	hold_end(&hold);
	assert_false(is_alive(first));
	hold_end(&hold);
}

/* One that cannot be told what it must not keep is ended; the keeper has another one soon. */
static void one_that_was_ended_is_begun_again(void **state)
{
	const struct keeper_config config = { 0 };
	struct keeper k = { .config = &config, .alive_fd = -1, .hold = { .socket = -1 } };
	pid_t first;

	(void)state;
	list_init(&k.mounts);
	keeper_hold_begin(&k);
	first = k.hold.pid;
	assert_true(first > 0);
	keeper_hold_look(&k);
	assert_int_equal(k.hold.pid, first);
	hold_end(&k.hold);
	k.hold_again_ns = UINT64_MAX; /* as after one that could not be begun */
	keeper_hold_look(&k);
	assert_int_equal(k.hold.pid, 0);
	k.hold_again_ns = 0;
	keeper_hold_look(&k);
	assert_true(k.hold.pid > 0);
	hold_end(&k.hold);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_next_one_finds_them),
		cmocka_unit_test(without_connections_it_ends),
		cmocka_unit_test(those_that_are_gone_are_dropped),
		cmocka_unit_test(nobody_comes),
		cmocka_unit_test(nobody_comes_in_another_time),
		cmocka_unit_test(it_dies_itself),
		cmocka_unit_test(one_that_was_ended_is_begun_again),
	};

	left = mmap(NULL, sizeof(*left), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (left == MAP_FAILED || prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
