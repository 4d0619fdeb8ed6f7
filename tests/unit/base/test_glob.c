/* Patterns of paths: what they mean, and what they do not. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/glob.h"

static bool means(const char *pattern, const char *path)
{
	return glob_match(pattern, path, strlen(path));
}

static void names(void **state)
{
	(void)state;
	assert_true(means("a.jpg", "a.jpg"));
	assert_false(means("a.jpg", "a.jpg2"));
	assert_false(means("a.jpg", "xa.jpg"));
	assert_true(means("/a", "a"));
	assert_true(means("?.jpg", "a.jpg"));
	assert_false(means("?", "/"));
	assert_false(means("a?b", "a/b"));
	assert_true(means("[a-c]x", "bx"));
	assert_false(means("[a-c]x", "dx"));
	assert_true(means("[!a-c]x", "dx"));
	assert_false(means("[!a]b", "/b"));
	assert_true(means("[]]", "]"));
	assert_true(means("[a-]", "-"));
	assert_true(means("\\*", "*"));
	assert_false(means("\\*", "a"));
	assert_true(means("\\?", "?"));
	assert_false(means("\\?", "a"));
}

static void stars(void **state)
{
	(void)state;
	assert_true(means("*", "a"));
	assert_true(means("*.jpg", "a.jpg"));
	assert_false(means("*.jpg", "d/a.jpg"));
	assert_true(means("d/*.jpg", "d/.jpg"));
	assert_true(means("a*b*c", "axxbyybzc"));
	assert_false(means("a*b*c", "axxbyybz"));
	assert_true(means("**", "a/b/c"));
	assert_true(means("**/c", "c"));
	assert_true(means("**/c", "a/b/c"));
	assert_false(means("**/c", "a/bc"));
	assert_true(means("**/b/*.x", "a/b/b/f.x"));
	assert_true(means("**c", "a/bc"));
	assert_true(means("a/**/z", "a/z"));
	assert_true(means("a/**/z", "a/b/c/z"));
	assert_false(means("a/**/z", "b/z"));
	assert_true(means("a**z", "a/b/z"));
	assert_true(means("**/*-1[0-9].jpg", "x/y/img-17.jpg"));
	assert_false(means("**/*-1[0-9].jpg", "x/y/img-27.jpg"));
}

static void directories(void **state)
{
	(void)state;
	assert_true(means("train", "train/a/b"));
	assert_true(means("train/", "train/a"));
	assert_true(means("tr*", "train/a"));
	assert_true(means("*/x", "a/x/y"));
	assert_false(means("train", "training/a"));
	assert_false(means("train/a", "train"));
	assert_true(means("/", "a/b"));
}

/* The path has no NUL: what follows it is not looked at. */
static void bounded(void **state)
{
	(void)state;
	assert_true(glob_match("a", "ab", 1));
	assert_false(glob_match("ab", "ab", 1));
	assert_false(glob_match("**/b", "a/b", 2));
}

static void refused(void **state)
{
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(glob_check("a/[b-c]*\\[**", NULL), 0);
	assert_int_equal(glob_check("", &e), -EINVAL);
	assert_int_equal(glob_check("a[b", &e), -EINVAL);
	assert_non_null(strstr(e.text, "'a[b'"));
	assert_int_equal(glob_check("a\\", &e), -EINVAL);
	assert_non_null(strstr(e.text, "backslash"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names),
		cmocka_unit_test(stars),
		cmocka_unit_test(directories),
		cmocka_unit_test(bounded),
		cmocka_unit_test(refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
