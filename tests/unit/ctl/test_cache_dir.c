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
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
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

/* The first start was interrupted before the identity had its name. */
static void test_interrupted(void **state)
{
	struct cache_dir cache;
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(mkdir(in("cut"), 0700), 0);
	assert_int_equal(file_write_atomic(in("cut/granary.cache.new"), "", 0, 0600), 0);
	assert_int_equal(cache_dir_open(in("cut"), 0, &cache, &e), 0);
	assert_int_equal(access(in("cut/granary.cache"), F_OK), 0);
}

static void test_made_and_found(void **state)
{
	struct cache_dir first;
	struct cache_dir again;
	struct cache_dir other;
	struct err e = ERR_INIT;
	char socket[SOCKET_PATH_MAX];

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
	expect_refused(in("caf\xe9"), 0, -EINVAL, "its path is not UTF-8");
	assert_int_equal(access(in("caf\xe9"), F_OK), -1);
	assert_int_equal(file_write_atomic(in("file"), "", 0, 0600), 0);
	expect_refused(in("file"), 0, -ENOTDIR, "not a directory");
	expect_refused(in("huge"), 1ull << 60, -ENOSPC, "too small");
	assert_int_equal(access(in("huge"), F_OK), -1);
	expect_refused("/proc/none", 0, -ENOENT, "cannot create");
}

/* The fuse engine may have its cache on tmpfs, the native one may not. */
static void test_images(void **state)
{
	struct cache_dir cache;
	struct err e = ERR_INIT;
	const char *at = "/dev/shm/granary-test-cache";

	(void)state;
	assert_int_equal(cache_dir_open(in("disk"), 0, &cache, &e), 0);
	assert_int_equal(cache_dir_check_images(&cache, &e), 0);
	if (access("/dev/shm", W_OK) != 0)
		skip();
	assert_int_equal(cache_dir_open(at, 0, &cache, &e), 0);
	assert_int_equal(cache_dir_check_images(&cache, &e), -EOPNOTSUPP);
	assert_non_null(strstr(e.text, "tmpfs"));
	assert_non_null(strstr(e.text, "--engine fuse"));
	assert_int_equal(system("rm -rf /dev/shm/granary-test-cache"), 0);
}

static void test_below(void **state)
{
	char real[PATH_MAX];
	char below[PATH_MAX + 8];

	(void)state;
	assert_non_null(realpath(dir, real));
	assert_int_equal(file_mkdirs(in("x/y"), 0755), 0);
	assert_int_equal(symlink("x/y", in("link")), 0);
	assert_true(cache_dir_path_below(in("x"), real));
	assert_true(cache_dir_path_below(in("new/newer"), real));
	assert_true(cache_dir_path_below(real, real));
	assert_true(cache_dir_path_below("/new", "/"));
	assert_false(cache_dir_path_below("/new", real));
	(void)snprintf(below, sizeof(below), "%s/x", real); /* fits */
	assert_false(cache_dir_path_below(in("xx"), below));
	(void)snprintf(below, sizeof(below), "%s/x/y", real); /* fits */
	assert_true(cache_dir_path_below(in("link/new"), below));
	assert_int_equal(chdir(in("x/y")), 0);
	assert_true(cache_dir_path_below("new", below));
	assert_true(cache_dir_path_below("../y/new", below));
	assert_int_equal(chdir("/"), 0);
}

static uid_t user;      /* nobody's: it must not meet what is there */
static char in_tmp[64]; /* where it falls back to */

/* In a process of an ordinary user: 0 when `expect` is the only or first base. */
static int user_bases(const char *runtime, const char *expect, bool foreign)
{
	char bases[CACHE_RUN_BASES][PATH_MAX];
	unsigned int n = 0;

	if (unsetenv("GRANARY_RUN_DIR") != 0 || unsetenv("XDG_RUNTIME_DIR") != 0 ||
		(runtime && setenv("XDG_RUNTIME_DIR", runtime, 1) != 0))
		return 10;
	if (foreign && mkdir(in_tmp, 0755) != 0 && errno != EEXIST)
		return 11; /* still root's */
	if (setresgid(user, user, user) != 0 || setresuid(user, user, user) != 0)
		return 12;
	cache_dir_run_bases(bases, &n);
	if (!expect)
		return n == 0 ? 0 : 13;
	return n > 0 && strcmp(bases[0], expect) == 0 ? 0 : 14;
}

static void expect_bases(const char *runtime, const char *expect, bool foreign)
{
	int status = -1;
	pid_t pid = fork();

	if (pid == 0)
		_exit(user_bases(runtime, expect, foreign));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void test_run_of_a_user(void **state)
{
	char expect[300];
	char runtime[256];

	(void)state;
	if (geteuid() != 0)
		skip();
	user = 1000000 + (uid_t)(clock_mono_ns() % 1000000000); /* whom no other run is, either */
	(void)snprintf(in_tmp, sizeof(in_tmp), "/tmp/granary-%u", user);
	assert_int_equal(chmod(dir, 0755), 0);
	(void)snprintf(runtime, sizeof(runtime), "%s/runtime", dir);
	(void)snprintf(expect, sizeof(expect), "%s/granary", runtime);
	assert_int_equal(mkdir(runtime, 0700), 0);
	expect_bases(NULL, in_tmp, false);
	expect_bases(runtime, in_tmp, false); /* another user's: left alone */
	assert_int_equal(chown(runtime, user, user), 0);
	expect_bases(runtime, expect, false);
	expect_bases(NULL, NULL, true); /* somebody else took the name in /tmp */
	assert_int_equal(rmdir(in_tmp), 0);
}

/* The advice is of use to root, too, which no other variable leads elsewhere. */
static void test_run_of_others(void **state)
{
	struct cache_dir cache = { 0 };
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(mkdir(in("open"), 0700), 0);
	assert_true(snprintf(cache.run, sizeof(cache.run), "%s/0123456789abcdef", in("open")) <
		    (int)sizeof(cache.run));
	assert_int_equal(cache_dir_make_run(&cache, &e), 0);
	assert_int_equal(chmod(in("open"), 0777), 0);
	assert_int_equal(cache_dir_make_run(&cache, &e), -EPERM);
	assert_non_null(strstr(e.text, in("open")));
	assert_non_null(strstr(e.text, "set GRANARY_RUN_DIR to a private directory"));
}

static void test_default(void **state)
{
	char home[] = "/var/tmp/granary-cd.XXXXXX";
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
	if (geteuid() != 0)
		return;
	/* a user's home, as sudo -E leaves it */
	assert_non_null(mkdtemp(home));
	assert_int_equal(chown(home, 1000000, 1000000), 0);
	assert_int_equal(setenv("HOME", home, 1), 0);
	assert_int_equal(cache_dir_default(path, &e), 0);
	assert_string_equal(path, "/root/.cache/granary");
	assert_int_equal(rmdir(home), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_made_and_found, make_dir, remove_dir),
		cmocka_unit_test_setup_teardown(test_interrupted, make_dir, remove_dir),
		cmocka_unit_test_setup_teardown(test_refused, make_dir, remove_dir),
		cmocka_unit_test_setup_teardown(test_images, make_dir, remove_dir),
		cmocka_unit_test_setup_teardown(test_below, make_dir, remove_dir),
		cmocka_unit_test_setup_teardown(test_run_of_a_user, make_dir, remove_dir),
		cmocka_unit_test_setup_teardown(test_run_of_others, make_dir, remove_dir),
		cmocka_unit_test(test_default),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
