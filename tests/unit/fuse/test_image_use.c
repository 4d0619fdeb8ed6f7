/* The second name of an image that a mount shows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include "fuse/engine/image_use.h"

static char dir[] = "/var/tmp/granary-use-XXXXXX";

static const char *in_dir(const char *name)
{
	static char path[128];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return path;
}

static void make(const char *name, const char *text)
{
	int fd = open(in_dir(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

/* The byte that a file begins with; 0: there is none. */
static char first_byte(const char *name)
{
	int fd = -1;
	char byte = 0;

	if (image_use_open(in_dir(name), &fd) < 0)
		return 0;
	assert_int_equal(read(fd, &byte, 1), 1);
	close(fd);
	return byte;
}

static void kept_until_dropped(void **state)
{
	char name[64] = "";

	(void)state;
	make("a.erofs", "A");
	assert_int_equal(
		image_use_take(in_dir("a.erofs"), makedev(0, 300), "", name, sizeof(name)), 0);
	assert_string_equal(name, "mounted.0-300");
	assert_int_equal(unlink(in_dir("a.erofs")), 0);
	assert_int_equal(first_byte(name), 'A');
	image_use_drop(in_dir(name));
	assert_int_equal(first_byte(name), 0);
}

/* A number is given again when its mount is no more. */
static void number_given_again(void **state)
{
	char name[64] = "";

	(void)state;
	make("a.erofs", "A");
	make("b.erofs", "B");
	assert_int_equal(
		image_use_take(in_dir("a.erofs"), makedev(0, 7), "", name, sizeof(name)), 0);
	assert_int_equal(
		image_use_take(in_dir("b.erofs"), makedev(0, 7), "", name, sizeof(name)), 0);
	assert_int_equal(first_byte(name), 'B');
	/* Others' names stay: too young to be left over. */
	assert_int_equal(
		image_use_take(in_dir("a.erofs"), makedev(0, 8), "", name, sizeof(name)), 0);
	assert_int_equal(first_byte("mounted.0-7"), 'B');
	image_use_drop(in_dir("mounted.0-7"));
	image_use_drop(in_dir("mounted.0-8"));
	image_use_drop(in_dir("a.erofs")); /* an image is not such a name */
	assert_int_equal(first_byte("a.erofs"), 'A');
	unlink(in_dir("a.erofs"));
	unlink(in_dir("b.erofs"));
}

static void errors(void **state)
{
	char name[64] = "unchanged";
	char little[8] = "";
	int fd = -1;

	(void)state;
	assert_int_equal(
		image_use_take(in_dir("none"), makedev(0, 1), "", name, sizeof(name)), -ENOENT);
	assert_string_equal(name, "unchanged");
	make("a.erofs", "A");
	assert_int_equal(
		image_use_take(in_dir("a.erofs"), makedev(0, 1), "", little, sizeof(little)),
		-ENAMETOOLONG);
	assert_int_equal(symlink("a.erofs", in_dir("link")), 0);
	assert_int_equal(image_use_open(in_dir("link"), &fd), -ELOOP);
	unlink(in_dir("link"));
	unlink(in_dir("a.erofs"));
}

static int setup(void **state)
{
	(void)state;
	return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	return rmdir(dir); /* nothing is left */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(kept_until_dropped),
		cmocka_unit_test(number_given_again),
		cmocka_unit_test(errors),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
