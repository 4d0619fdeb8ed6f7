/* The cache directory: made, found again, and refused for every reason there is. */
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

#include "base/file.h"
#include "ctl/cache_dir.h"

static char dir[64];

static int make_dir(void **state)
{
	(void)state;
	(void)snprintf(dir, sizeof(dir), "/var/tmp/granary-cd.XXXXXX");
	return mkdtemp(dir) && setenv("GRANARY_RUN_DIR", "/run/granary-test", 1) == 0 ? 0 : -1;
}

static int remove_dir(void **state)
{
	char command[128];

	(void)state;
	(void)snprintf(command, sizeof(command), "rm -rf %s", dir);
	return system(command);
}

static const char *in(const char *name)
{
	static char path[256];

	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	return path;
}

static void test_made_and_found(void **state)
{
	struct cache_dir first;
	struct cache_dir again;
	struct cache_dir other;
	struct err e = ERR_INIT;
	char socket[SOCKET_PATH_MAX];
	int lock = -1;
	int second = -1;

	(void)state;
	assert_int_equal(cache_dir_open(in("a/b"), 0, &first, &e), 0);
	assert_int_equal(access(in("a/b/granary.cache"), F_OK), 0);
	assert_int_equal(access(in("a/b/images"), F_OK), 0);
	assert_int_equal(cache_dir_open(in("a/../a/b"), 0, &again, &e), 0);
	assert_string_equal(first.id, again.id);
	assert_string_equal(first.path, again.path);
	assert_int_equal(cache_dir_open(in("c"), 0, &other, &e), 0);
	assert_string_not_equal(first.id, other.id);
	assert_string_equal(
		cache_dir_socket(&first, "x.sock", socket) + strlen(first.run), "/x.sock");
	assert_int_equal(cache_dir_lock(&first, &lock, &e), 0);
	assert_int_equal(cache_dir_lock(&again, &second, &e), -EBUSY);
	assert_non_null(strstr(e.text, "in use"));
	close(lock);
	assert_int_equal(cache_dir_lock(&again, &second, &e), 0);
	close(second);
}

static void expect_refused(const char *path, uint64_t capacity, int code, const char *says)
{
	struct cache_dir cache;
	struct err e = ERR_INIT;

	assert_int_equal(cache_dir_open(path, capacity, &cache, &e), code);
	if (!strstr(e.text, says))
		fail_msg("%s says: %s", path, e.text);
}

static void test_refused(void **state)
{
	static const char newer[] = "{\"format\": 99}";
	static const char broken[] = "{\"form";

	(void)state;
	assert_int_equal(file_mkdirs(in("foreign/x"), 0755), 0);
	expect_refused(in("foreign"), 0, -ENOTEMPTY, "not a Granary cache and not empty");
	assert_int_equal(access(in("foreign/granary.cache"), F_OK), -1);
	assert_int_equal(file_mkdirs(in("newer"), 0755), 0);
	assert_int_equal(
		file_write_atomic(in("newer/granary.cache"), newer, strlen(newer), 0600), 0);
	expect_refused(in("newer"), 0, -EPROTONOSUPPORT, "newer version (format 99");
	assert_int_equal(
		file_write_atomic(in("newer/granary.cache"), broken, strlen(broken), 0600), 0);
	expect_refused(in("newer"), 0, -ENOTEMPTY, "damaged");
	assert_int_equal(file_write_atomic(in("file"), "", 0, 0600), 0);
	expect_refused(in("file"), 0, -ENOTDIR, "not a directory");
	expect_refused(in("huge"), 1ull << 60, -ENOSPC, "too small");
	assert_int_equal(access(in("huge"), F_OK), -1);
	expect_refused("/proc/none", 0, -ENOENT, "cannot be made");
	if (access("/dev/shm", W_OK) == 0)
		expect_refused("/dev/shm/granary-test-cache", 0, -EOPNOTSUPP, "tmpfs");
}

static void test_default(void **state)
{
	char path[PATH_MAX];
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(setenv("XDG_CACHE_HOME", "/x/cache", 1), 0);
	assert_int_equal(cache_dir_default(path, &e), 0);
	assert_string_equal(path, "/x/cache/granary");
	assert_int_equal(unsetenv("XDG_CACHE_HOME"), 0);
	assert_int_equal(setenv("HOME", "/home/x", 1), 0);
	assert_int_equal(cache_dir_default(path, &e), 0);
	assert_string_equal(path, "/home/x/.cache/granary");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_made_and_found, make_dir, remove_dir),
		cmocka_unit_test_setup_teardown(test_refused, make_dir, remove_dir),
		cmocka_unit_test(test_default),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
