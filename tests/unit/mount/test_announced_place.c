/* Where orders are announced: what a killed daemon left goes, what somebody listens to stays. */
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

#include "base/unix_socket.h"
#include "mount/announced_place.h"

static char dir[64];

static int setup(void **state)
{
	char path[96];

	(void)state;
	(void)snprintf(dir, sizeof(dir), "/tmp/granary-ap.XXXXXX");
	if (!mkdtemp(dir))
		return -1;
	(void)snprintf(path, sizeof(path), "%s/order", dir);
	return mkdir(path, 0700);
}

static int teardown(void **state)
{
	char command[128];

	(void)state;
	(void)snprintf(command, sizeof(command), "rm -rf %s", dir);
	return system(command);
}

static bool is_there(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0;
}

static void test_places(void **state)
{
	struct announced_place place;

	(void)state;
	assert_true(announced_find_place("/run/g/cache/mount", NULL, "/mnt/a", &place));
	assert_string_equal(place.directory, "/run/g/order");
	assert_int_equal(strncmp(place.name, "m-", 2), 0);
	assert_true(announced_find_place("/run/g/cache/mount", "/orders", "/mnt/a", &place));
	assert_string_equal(place.directory, "/orders");
	assert_false(announced_find_place(NULL, NULL, "/mnt/a", &place));
	assert_false(announced_find_place("/run", NULL, "/mnt/a", &place));
}

static void test_forget(void **state)
{
	struct announced_place place;
	struct err e = ERR_INIT;
	char run[96];
	char path[PATH_MAX + 64];
	char mine[PATH_MAX + 64];
	char other[PATH_MAX + 64];
	int fd;

	(void)state;
	(void)snprintf(run, sizeof(run), "%s/cache/mount", dir);
	assert_true(announced_find_place(run, NULL, "/mnt/a", &place));
	(void)snprintf(path, sizeof(path), "%s/%s", place.directory, place.name);
	(void)snprintf(mine, sizeof(mine), "%s/0:77", place.directory);
	(void)snprintf(other, sizeof(other), "%s/0:78", place.directory);
	announced_forget(run, "/mnt/a"); /* nothing there */
	assert_int_equal(unix_socket_listen(path, 1, &fd, &e), 0);
	assert_int_equal(symlink(place.name, mine), 0);
	assert_int_equal(symlink("m-ffffffffffffffff", other), 0);
	announced_forget(run, "/mnt/a"); /* another daemon of the same mount point listens */
	assert_true(is_there(path) && is_there(mine));
	(void)close(fd);
	announced_forget(run, "/mnt/b");
	assert_true(is_there(path) && is_there(mine));
	announced_forget(run, "/mnt/a");
	assert_false(is_there(path));
	assert_false(is_there(mine));
	assert_true(is_there(other));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_places),
		cmocka_unit_test_setup_teardown(test_forget, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
