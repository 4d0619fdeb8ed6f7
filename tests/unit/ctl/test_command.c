/* The commands with bad input: one line that says what is wrong, the documented exit status,
 * nothing started. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "base/file.h"
#include "ctl/command.h"
#include "ctl/kernel.h"
#include "tests/clock/test_clock.h"

static char dir[64];
static char output[8192]; /* of the last command: both streams */

static int setup(void **state)
{
	char path[256];

	(void)state;
	(void)snprintf(dir, sizeof(dir), "/var/tmp/granary-cm.XXXXXX");
	if (!mkdtemp(dir) || chdir(dir) != 0 || mkdir("empty", 0755) != 0 ||
		mkdir("full", 0755) != 0 || mkdir("full/x", 0755) != 0 ||
		file_write_atomic("file", "", 0, 0644) < 0)
		return -1;
	(void)snprintf(path, sizeof(path), "%s/run", dir);
	setenv("GRANARY_RUN_DIR", path, 1);
	(void)snprintf(path, sizeof(path), "%s/cache-home", dir);
	setenv("XDG_CACHE_HOME", path, 1);
	(void)snprintf(path, sizeof(path), "%s/no-programs", dir);
	setenv("GRANARY_BIN_DIR", path, 1);
	return 0;
}

static int teardown(void **state)
{
	char command[128];

	(void)state;
	(void)snprintf(command, sizeof(command), "rm -rf %s", dir);
	return system(command);
}

/* Runs a command line in a process of its own. */
static int run(int (*command)(int, char **), const char *line)
{
	char copy[512];
	char *argv[32] = { 0 };
	int argc = 0;
	int fd = open("output", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	struct buf text = BUF_INIT(sizeof(output) - 1);
	int status;
	pid_t pid;

	(void)snprintf(copy, sizeof(copy), "cachectl %s", line);
	for (char *word = strtok(copy, " "); word; word = strtok(NULL, " "))
		argv[argc++] = word;
	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		dup2(fd, STDOUT_FILENO);
		dup2(fd, STDERR_FILENO);
		status = command(argc, argv);
		fflush(NULL);
		_exit(status);
	}
	close(fd);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(file_read_all("output", &text), 0);
	(void)snprintf(output, sizeof(output), "%s", buf_str(&text));
	buf_release(&text);
	return WEXITSTATUS(status);
}

struct bad {
	int (*command)(int, char **);
	const char *line;
	int status;
	const char *says;
};

static void expect_all(const struct bad *cases, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		int status = run(cases[i].command, cases[i].line);

		if (status != cases[i].status || !strstr(output, cases[i].says))
			fail_msg("'%s' ends with %d and says: %s", cases[i].line, status, output);
		assert_int_equal(strncmp(output, "cachectl: ", 10), 0);
		assert_ptr_equal(strchr(output, '\n'), output + strlen(output) - 1); /* one line */
	}
}

static void test_bad_usage(void **state)
{
	static const struct bad cases[] = {
		{ command_mount, "", EXIT_USAGE, "an argument is missing" },
		{ command_mount, "s3://b", EXIT_USAGE, "NAME|URL DIR" },
		{ command_mount, "s3://b empty more", EXIT_USAGE, "too many arguments" },
		{ command_mount, "--frobnicate s3://b empty", EXIT_USAGE,
			"unknown option '--frobnicate'" },
		{ command_mount, "--cache-size 20GX s3://b empty", EXIT_USAGE,
			"'20GX' is not a size" },
		{ command_mount, "--cache-size 1k s3://b empty", EXIT_USAGE, "too small" },
		{ command_mount, "--memory 1MiB s3://b empty", EXIT_USAGE, "too small" },
		{ command_mount, "--umask 888 s3://b empty", EXIT_USAGE, "octal" },
		{ command_mount, "--uid root s3://b empty", EXIT_USAGE, "whole number" },
		{ command_mount, "--endpoint localhost:9000 s3://b empty", EXIT_USAGE,
			"is not a URL" },
		{ command_mount, "--region x file:///tmp empty", EXIT_USAGE, "leave them out" },
		{ command_mount, "--engine ext4 s3://b empty", EXIT_USAGE,
			"auto|native|loop|fuse" },
		{ command_mount, "--anonymous file:///tmp empty", EXIT_USAGE, "leave them out" },
		{ command_mount, "--anonymous --profile-name x s3://b empty", EXIT_USAGE,
			"leave one of them out" },
		{ command_mount, "--memory 4000TiB s3://b empty", EXIT_USAGE,
			"exceeds the memory of this host" },
		{ command_mount, "--cache empty/c s3://b empty", EXIT_USAGE,
			"is inside mount point" },
		{ command_mount, "--cache /proc/c file:///proc empty", EXIT_USAGE,
			"is inside the source" },
		{ command_mount, "--ca-file none s3://b empty", EXIT_USAGE,
			"cannot read --ca-file" },
		{ command_mount, "ftp://b empty", EXIT_USAGE, "ftp" },
		{ command_mount, "s3:// empty", EXIT_USAGE, "s3://" },
		{ command_umount, "", EXIT_USAGE, "DIR, or --all" },
		{ command_umount, "--now empty", EXIT_USAGE, "unknown option '--now'" },
		{ command_status, "-o xml", EXIT_USAGE, "one of table|wide|json" },
		{ command_explain, "a b", EXIT_USAGE, "too many" },
	};

	(void)state;
	expect_all(cases, ARRAY_SIZE(cases));
}

static void test_bad_mountpoint(void **state)
{
	static const struct bad cases[] = {
		{ command_mount, "s3://b none", EXIT_MOUNTPOINT, "does not exist" },
		{ command_mount, "s3://b none/none", EXIT_MOUNTPOINT, "create it first" },
		{ command_mount, "s3://b file", EXIT_MOUNTPOINT, "not a directory" },
		{ command_mount, "s3://b full", EXIT_MOUNTPOINT, "not empty" },
		{ command_mount, "s3://b /proc", EXIT_MOUNTPOINT, "already mounted" },
		{ command_umount, "empty", EXIT_MOUNTPOINT, "not a mount of Granary" },
		{ command_umount, "/proc", EXIT_MOUNTPOINT, "not a mount of Granary: use umount" },
		{ command_status, "empty", EXIT_MOUNTPOINT, "not a mount of Granary" },
		{ command_explain, "file", EXIT_MOUNTPOINT, "is not a mount of Granary" },
	};

	(void)state;
	expect_all(cases, ARRAY_SIZE(cases));
}

static void test_bad_cache(void **state)
{
	static const struct bad cases[] = {
		{ command_mount, "--cache full s3://b empty", EXIT_CACHE, "not a Granary cache" },
		{ command_mount, "--cache file s3://b empty", EXIT_CACHE, "not a directory" },
		{ command_mount, "--cache /proc/none s3://b empty", EXIT_CACHE, "cannot create" },
		{ command_mount, "--cache big --cache-size 900000TiB s3://b empty", EXIT_CACHE,
			"too small" },
	};
	struct err e = ERR_INIT;

	(void)state;
	if (kernel_check("auto", &e) < 0) { /* said first, and rightly so */
		assert_int_equal(run(command_mount, "--cache full s3://b empty"), EXIT_KERNEL);
		skip();
	}
	expect_all(cases, ARRAY_SIZE(cases));
	assert_int_equal(access("big", F_OK), -1);
}

/* Everything is right but the programs are not there: the line says so, and nothing is left. */
static void test_nothing_left(void **state)
{
	struct err e = ERR_INIT;

	(void)state;
	if (kernel_check("auto", &e) < 0)
		skip();
	assert_int_equal(run(command_mount, "--cache c s3://b empty"), EXIT_RUNTIME);
	if (!strstr(output, "GRANARY_BIN_DIR"))
		fail_msg("says: %s", output);
	assert_true(rmdir("run") == 0 || errno == ENOENT); /* no runtime directory is left in it */
}

static void test_nothing_mounted(void **state)
{
	(void)state;
	assert_int_equal(run(command_status, ""), EXIT_OK);
	/* notes may follow: of mounts that somebody else has */
	assert_int_equal(strncmp(output, "nothing is mounted\n", 19), 0);
	assert_int_equal(run(command_status, "-o json"), EXIT_OK);
	assert_non_null(strstr(output, "\"mounts\": []"));
	assert_non_null(strstr(output, "\"keepers\": []"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_bad_usage, setup, teardown),
		cmocka_unit_test_setup_teardown(test_bad_mountpoint, setup, teardown),
		cmocka_unit_test_setup_teardown(test_bad_cache, setup, teardown),
		cmocka_unit_test_setup_teardown(test_nothing_left, setup, teardown),
		cmocka_unit_test_setup_teardown(test_nothing_mounted, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
