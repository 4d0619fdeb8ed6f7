/*
 * A switch that ended halfway is ended. Needs CAP_SYS_ADMIN for a mount namespace of its own; skipped
 * without, and says so.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "mount/kernel/kernel.h"

static dev_t dev_of(const char *path)
{
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	return st.st_dev;
}

static void make_mount(const char *path)
{
	assert_int_equal(mkdir(path, 0755), 0);
	assert_int_equal(mount("test", path, "tmpfs", 0, NULL), 0);
}

/* The daemon died before the new mount was attached, and its number is that of another one by now:
 * what the mount point shows stays. */
static void test_number_given_again(void **state)
{
	char dir[] = "/tmp/granary-switch.XXXXXX";
	struct err e = ERR_INIT;
	char point[64];
	char other[64];
	dev_t shown;

	(void)state;
	if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_PRIVATE | MS_REC, NULL) != 0) {
		print_message("skipped: needs CAP_SYS_ADMIN\n");
		skip();
	}
	assert_non_null(mkdtemp(dir));
	(void)snprintf(point, sizeof(point), "%s/point", dir);
	(void)snprintf(other, sizeof(other), "%s/other", dir);
	make_mount(point);
	make_mount(other);
	shown = dev_of(point);
	assert_int_equal(kernel_switch_end(point, shown, dev_of(other), &e), -ENOENT);
	assert_int_equal(dev_of(point), shown);
	assert_int_equal(kernel_switch_end(point, dev_of(other), shown, &e), 0); /* it is done */
	assert_int_equal(umount2(point, MNT_DETACH), 0);
	assert_int_equal(umount2(other, MNT_DETACH), 0);
	assert_int_equal(rmdir(point), 0);
	assert_int_equal(rmdir(other), 0);
	assert_int_equal(rmdir(dir), 0);
}

/* A FUSE mount without a server: a lookup in it waits. */
static int mount_silent(const char *path, unsigned int user)
{
	char options[128];
	int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);

	(void)snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=%u,group_id=%u", fd,
		user, user);
	if (fd >= 0 && mount("silent", path, "fuse", MS_NOSUID | MS_NODEV, options) == 0)
		return fd;
	if (fd >= 0)
		(void)close(fd);
	return -1;
}

/* A user mounts a file system of its own above the mount point: it is asked for nothing. */
static void test_served_by_a_user_above(void **state)
{
	char dir[] = "/tmp/granary-switch.XXXXXX";
	struct err e = ERR_INIT;
	char above[64];
	char point[64];
	dev_t shown;
	dev_t dev;
	int silent;
	int fd = -1;

	(void)state;
	if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_PRIVATE | MS_REC, NULL) != 0) {
		print_message("skipped: needs CAP_SYS_ADMIN\n");
		skip();
	}
	assert_non_null(mkdtemp(dir));
	(void)snprintf(above, sizeof(above), "%s/above", dir);
	(void)snprintf(point, sizeof(point), "%s/above/point", dir);
	assert_int_equal(mkdir(above, 0755), 0);
	make_mount(point);
	shown = dev_of(point);
	assert_int_equal(kernel_dev_exact(point, &dev), 0);
	assert_true(dev == shown);
	silent = mount_silent(above, 1000);
	if (silent < 0) {
		print_message("skipped: needs FUSE\n");
		skip();
	}
	assert_int_equal(file_open_exact(above, &fd), 0); /* its root: no name is asked for */
	(void)close(fd);
	assert_int_equal(file_open_exact(point, &fd), -EOPNOTSUPP);
	assert_int_equal(kernel_switch_end(point, shown, shown + 1, &e), -EOPNOTSUPP);
	assert_int_equal(kernel_clone(point, shown, &fd), -EOPNOTSUPP);
	(void)close(silent);
	assert_int_equal(umount2(above, MNT_DETACH), 0);
	assert_int_equal(file_open_exact(point, &fd), 0); /* it is there again */
	(void)close(fd);
	assert_int_equal(umount2(point, MNT_DETACH), 0);
	assert_int_equal(rmdir(point), 0);
	assert_int_equal(rmdir(above), 0);
	assert_int_equal(rmdir(dir), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_number_given_again),
		cmocka_unit_test(test_served_by_a_user_above),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
