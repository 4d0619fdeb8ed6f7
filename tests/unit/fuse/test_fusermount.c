/* What fusermount3 says becomes a line and an errno: a script in its place says it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "fuse/engine/fusermount.h"

static char dir[] = "/var/tmp/granary-fusermount-XXXXXX";
static struct err e;

/* A fusermount3 that runs `script`; what it answers to a mount. */
static int mount_by(const char *script)
{
	const struct fusermount_options options = {
		.mountpoint = "/var/tmp",
		.source = "s3://bucket/a,b\\c",
	};
	char path[96];
	int fd = -1;
	int r;
	FILE *f;

	snprintf(path, sizeof(path), "%s/fusermount3", dir);
	f = fopen(path, "we");
	assert_non_null(f);
	fprintf(f, "#!/bin/sh\n%s\n", script);
	fclose(f);
	assert_int_equal(chmod(path, 0755), 0);
	e = ERR_INIT;
	r = fusermount_mount(&options, &fd, &e);
	print_message("%s\n", e.text);
	return r;
}

static void refusals(void **state)
{
	static const struct {
		const char *said;
		int code;
		const char *line;
	} cases[] = {
		{ "fusermount3: user has no write access to mountpoint /x", -EACCES,
			"a directory of your own" },
		{ "fusermount3: mountpoint /x not owned by user", -EACCES,
			"a directory of your own" },
		{ "fusermount3: option allow_other only allowed if user_allow_other is set in "
		  "/etc/fuse.conf",
			-EPERM, "leave --allow-other out" },
		{ "fusermount3: too many FUSE filesystems mounted; mount_max=1000 can be set in "
		  "/etc/fuse.conf",
			-EUSERS, "raise mount_max" },
		{ "fusermount3: fuse device not found, try modprobe fuse first", -ENODEV,
			"module fuse" },
		{ "fusermount3: failed to open /dev/fuse: Permission denied", -EPERM,
			"chmod 666 /dev/fuse" },
		{ "fusermount3: mount failed: Operation not permitted", -EPERM, "mount as root" },
		{ "fusermount3: mounting over filesystem type 0x6969 is forbidden", -EACCES,
			"another file system" },
		{ "fusermount3: could not determine username", -EPERM, "/etc/passwd" },
		{ "something new", -EIO, "fusermount3 failed: something new" },
	};
	char script[256];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		snprintf(script, sizeof(script), "echo '%s' >&2; echo second >&2; exit 1",
			cases[i].said);
		assert_int_equal(mount_by(script), cases[i].code);
		assert_non_null(strstr(e.text, cases[i].line));
		assert_null(strstr(e.text, "second"));
	}
	assert_int_equal(mount_by("exit 1"), -EIO);
	assert_non_null(strstr(e.text, "without a message"));
}

/* What it is given: a value with a comma is marked, nothing of ours is open in it. */
static void arguments(void **state)
{
	(void)state;
	assert_int_equal(mount_by("printf %s \"$2|$3|$4|$_FUSE_COMMFD\" >&2"), -EIO);
	assert_non_null(strstr(e.text, "fsname=s3://bucket/a\\,b\\\\c|--|/var/tmp|3"));
	assert_non_null(strstr(e.text, "ro,nosuid,nodev,default_permissions"));
	assert_null(strstr(e.text, "allow_other"));
	assert_int_equal(mount_by("ls /proc/self/fd | tr '\\n' ' ' >&2"), -EIO);
	assert_non_null(strstr(e.text, "0 1 2 3 ")); /* and that of ls itself */
	assert_null(strstr(e.text, " 6"));
}

static void not_to_be_started(void **state)
{
	char path[96];

	(void)state;
	assert_int_equal(mount_by("exit 1"), -EIO);
	snprintf(path, sizeof(path), "%s/fusermount3", dir);
	assert_int_equal(truncate(path, 0), 0);
	assert_int_equal(setenv("PATH", dir, 1), 0);
	assert_int_equal(fusermount_mount(&(struct fusermount_options){ .mountpoint = "/var/tmp",
						  .source = "file:///" },
				 &(int){ -1 }, &e),
		-ENOEXEC);
	assert_non_null(strstr(e.text, "cannot be started"));
}

static int setup(void **state)
{
	char path[256];

	(void)state;
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s:/usr/bin:/bin", dir);
	return setenv("PATH", path, 1);
}

static int teardown(void **state)
{
	char path[96];

	(void)state;
	snprintf(path, sizeof(path), "%s/fusermount3", dir);
	unlink(path);
	return rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(refusals),
		cmocka_unit_test(arguments),
		cmocka_unit_test(not_to_be_started),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
