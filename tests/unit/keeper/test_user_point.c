/* Mount points that a user's process has opened: taken out of this process itself, which needs no rights. */
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
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "keeper/points/user_point.h"

struct fixture {
	char dir[PATH_MAX]; /* without links */
	char point[PATH_MAX + 8];
	char away[PATH_MAX + 8];
	int fd;
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	char name[] = "/tmp/user-point-XXXXXX";

	assert_non_null(f);
	assert_non_null(mkdtemp(name));
	assert_non_null(realpath(name, f->dir));
	(void)snprintf(f->point, sizeof(f->point), "%s/point", f->dir); /* fits */
	(void)snprintf(f->away, sizeof(f->away), "%s/away", f->dir);    /* fits */
	assert_int_equal(mkdir(f->point, 0700), 0);
	f->fd = open(f->point, O_PATH | O_DIRECTORY | O_CLOEXEC);
	assert_true(f->fd >= 0);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	(void)close(f->fd);
	(void)unlink(f->point);
	(void)rmdir(f->point);
	(void)rmdir(f->away);
	(void)rmdir(f->dir);
	free(f);
	return 0;
}

static int take(int number, uid_t user, struct err *e)
{
	char path[PATH_MAX];
	int fd = -1;
	int r;

	*e = ERR_INIT;
	r = user_point_take(getpid(), number, user, &fd, path, e);
	if (fd >= 0)
		(void)close(fd);
	assert_true((r == 0) == (fd >= 0));
	assert_true((r == 0) == (e->text[0] == '\0'));
	return r;
}

static void test_taken(void **state)
{
	const struct fixture *f = *state;
	char path[PATH_MAX];
	struct err e = ERR_INIT;
	int fd = -1;

	assert_int_equal(user_point_take(getpid(), f->fd, getuid(), &fd, path, &e), 0);
	assert_int_not_equal(fd, f->fd);
	assert_true(fcntl(fd, F_GETFL) & O_PATH);
	assert_string_equal(path, f->point);
	assert_true(file_mount_id(fd) == file_mount_id(f->fd) && file_mount_id(fd) > 0);
	assert_int_equal(user_point_check(fd, getuid(), path, &e), 0);
	(void)close(fd);
}

static void test_refused(void **state)
{
	const struct fixture *f = *state;
	struct err e;
	int proc = open("/proc/self", O_PATH | O_DIRECTORY | O_CLOEXEC);
	int file = open("/proc/self/exe", O_PATH | O_CLOEXEC);

	assert_int_equal(take(f->fd, getuid() + 1, &e), -EACCES); /* another's */
	assert_int_equal(take(1000000, getuid(), &e), -EACCES);   /* none */
	assert_int_equal(take(proc, getuid(), &e), -EOPNOTSUPP);  /* keeps no files */
	assert_int_equal(take(file, getuid(), &e), -ENOTDIR);
	assert_int_equal(file_mount_id(1000000), 0);
	(void)close(proc);
	(void)close(file);
}

/* What is taken is never the open file itself: to close that would ask its file system. */
static void test_without_the_open_file(void **state)
{
	const struct fixture *f = *state;
	char path[PATH_MAX];
	struct err e = ERR_INIT;
	int open_for_reading = open(f->point, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int ends[2];
	int fd = -1;

	assert_true(open_for_reading >= 0);
	assert_int_equal(user_point_take(getpid(), open_for_reading, getuid(), &fd, path, &e), 0);
	assert_true(fcntl(fd, F_GETFL) & O_PATH);
	assert_string_equal(path, f->point);
	(void)close(fd);
	(void)close(open_for_reading);
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	assert_int_equal(take(ends[0], getuid(), &e), -ENOTDIR);
	(void)close(ends[0]);
	(void)close(ends[1]);
}

/* The directory is checked by what it is, not by what lies at its path. */
static void test_replaced(void **state)
{
	const struct fixture *f = *state;
	struct err e;

	assert_int_equal(rename(f->point, f->away), 0);
	assert_int_equal(take(f->fd, getuid(), &e), 0); /* it is called otherwise now */
	assert_int_equal(user_point_check(f->fd, getuid(), f->point, &e), -ESTALE);
	e = ERR_INIT;
	assert_int_equal(symlink(f->away, f->point), 0);
	assert_int_equal(user_point_check(f->fd, getuid(), f->point, &e), -ESTALE);
	e = ERR_INIT;
	assert_int_equal(unlink(f->point), 0);
	assert_int_equal(mkdir(f->point, 0700), 0);
	assert_int_equal(user_point_check(f->fd, getuid(), f->point, &e), -ESTALE);
	assert_int_equal(rmdir(f->point), 0);
	assert_int_equal(rmdir(f->away), 0); /* nowhere */
	assert_int_equal(take(f->fd, getuid(), &e), -ESTALE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_taken, setup, teardown),
		cmocka_unit_test_setup_teardown(test_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(test_without_the_open_file, setup, teardown),
		cmocka_unit_test_setup_teardown(test_replaced, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
