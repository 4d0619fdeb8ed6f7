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
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fuse/kernel.h"

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

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_number_given_again) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
