/* Mount points: what mountinfo says, and every way in which one cannot be used. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/mount_table.h"
#include "ctl/mount_point.h"

static char dir[PATH_MAX];

static int make_dir(void **state)
{
	(void)state;
	(void)snprintf(dir, sizeof(dir), "/tmp/granary-mt.XXXXXX");
	return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
	char command[PATH_MAX + 16];

	(void)state;
	(void)snprintf(command, sizeof(command), "rm -rf %s", dir);
	return system(command);
}

static void test_parse(void **state)
{
	struct mount_entry e;

	(void)state;
	assert_int_equal(
		mount_table_parse("36 35 0:41 / /mnt/a\\040b\\134c rw,noatime shared:1 - erofs "
				  "/c/images/x.img rw,ro\n",
			&e),
		0);
	assert_string_equal(e.point, "/mnt/a b\\c");
	assert_string_equal(e.type, "erofs");
	assert_string_equal(e.source, "/c/images/x.img");
	assert_int_equal(e.dev_minor, 41);
	assert_true(mount_entry_ours(&e));
	assert_int_equal(mount_table_parse("36 35 0:50 / /home/u/data ro,nosuid,nodev - "
					   "fuse.granary s3://bucket/a\\040b ro,user_id=1000\n",
				 &e),
		0);
	assert_string_equal(e.source, "s3://bucket/a b");
	assert_true(mount_entry_ours(&e));
	assert_int_equal(
		mount_table_parse("36 35 0:51 / /data ro - erofs granary://train ro", &e), 0);
	assert_string_equal(e.source, "granary://train");
	assert_true(mount_entry_ours(&e));
	assert_int_equal(mount_table_parse("36 35 0:51 / /data ro - erofs train ro", &e), 0);
	assert_false(mount_entry_ours(&e)); /* another's */
	assert_int_equal(mount_table_parse("36 35 98:0 / /proc rw - proc proc rw", &e), 0);
	assert_false(mount_entry_ours(&e));
	assert_int_equal(mount_table_parse("", &e), -EPROTO);
	assert_int_equal(mount_table_parse("36 35 98:0 / /proc rw", &e), -EPROTO);
	assert_int_equal(mount_table_parse("36 35 x / /proc rw - proc proc rw", &e), -EPROTO);
}

static void test_find(void **state)
{
	struct mount_entry e;

	(void)state;
	assert_int_equal(mount_table_find("/proc", &e), 0);
	assert_string_equal(e.type, "proc");
	assert_int_equal(mount_table_find("/proc/", &e), -ENOENT);
	assert_int_equal(mount_table_find(dir, &e), -ENOENT);
}

static void expect_refused(const char *name, int code, const char *says)
{
	char path[2 * PATH_MAX];
	char point[PATH_MAX];
	struct err e = ERR_INIT;
	int r;

	(void)snprintf(path, sizeof(path), "%s%s", strcmp(name, "/proc") == 0 ? "" : dir, name);
	r = mount_point_path(path, point, &e);
	if (r == 0)
		r = mount_point_check(point, &e);
	assert_int_equal(r, code);
	if (!strstr(e.text, says))
		fail_msg("%s says: %s", name, e.text);
}

static void test_refused(void **state)
{
	char path[2 * PATH_MAX];

	(void)state;
	(void)snprintf(path, sizeof(path), "%s/full", dir);
	assert_int_equal(mkdir(path, 0755), 0);
	(void)snprintf(path, sizeof(path), "%s/full/.hidden", dir);
	assert_int_equal(mkdir(path, 0755), 0);
	(void)snprintf(path, sizeof(path), "%s/file", dir);
	assert_non_null(freopen(path, "w", stdin));
	expect_refused("/none", -ENOENT, "does not exist: create it");
	expect_refused("/none/below", -ENOENT, "create it first");
	expect_refused("/full", -ENOTEMPTY, "is not empty");
	expect_refused("/file", -ENOTDIR, "is not a directory");
	expect_refused("/proc", -EBUSY, "already mounted");
}

static void test_path(void **state)
{
	char path[2 * PATH_MAX];
	char point[PATH_MAX];
	char real[PATH_MAX];
	struct err e = ERR_INIT;

	(void)state;
	assert_non_null(realpath(dir, real));
	assert_int_equal(chdir(dir), 0);
	(void)snprintf(path, sizeof(path), "%s/m", real);
	assert_int_equal(mkdir(path, 0755), 0);
	assert_int_equal(symlink("m", "link"), 0);
	assert_int_equal(mount_point_path("m", point, &e), 0);
	assert_string_equal(point, path);
	assert_int_equal(mount_point_path("./m///", point, &e), 0);
	assert_string_equal(point, path);
	assert_int_equal(mount_point_path("link", point, &e), 0);
	assert_string_equal(point, path);
	assert_int_equal(mount_point_path("m/.", point, &e), 0);
	assert_string_equal(point, path);
	assert_int_equal(mount_point_path(".", point, &e), 0);
	assert_string_equal(point, real);
	assert_int_equal(mount_point_path("/", point, &e), 0);
	assert_string_equal(point, "/");
	assert_int_equal(mount_point_check(path, &e), 0);
}

static void test_ids(void **state)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(1024);
	struct mount_entry e;

	(void)state;
	assert_int_equal(mount_table_find_id_in(&text, 36, &e), -ENOENT); /* nothing was read */
	assert_int_equal(
		buf_puts(&text, "36 35 0:50 / /a ro - fuse.granary s3://a/ ro\n"
				"361 35 0:51 / /b ro - fuse.granary s3://b/ ro,user_id=7\n"),
		0);
	assert_int_equal(mount_table_find_id_in(&text, 36, &e), 0);
	assert_string_equal(e.point, "/a");
	assert_int_equal(e.user, 0); /* the next line's is not its own */
	assert_int_equal(mount_table_find_id_in(&text, 361, &e), 0);
	assert_string_equal(e.point, "/b");
	assert_int_equal(e.user, 7);
	assert_int_equal(mount_table_find_id_in(&text, 35, &e), -ENOENT);
	assert_int_equal(mount_table_find_id_in(&text, 0, &e), -ENOENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_parse),
		cmocka_unit_test(test_ids),
		cmocka_unit_test_setup_teardown(test_find, make_dir, remove_dir),
		cmocka_unit_test_setup_teardown(test_refused, make_dir, remove_dir),
		cmocka_unit_test_setup_teardown(test_path, make_dir, remove_dir),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
