/* fuse.conf as fusermount3 of libfuse 3.14 reads it. */
#include "base/mount_conf.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

static bool allows(const char *text)
{
	return mount_conf_find(text, "user_allow_other", NULL);
}

static void test_word(void **state)
{
	(void)state;
	assert_true(allows("user_allow_other\n"));
	assert_true(allows("a\n\t user_allow_other \r\nb"));
	assert_true(allows("user_allow_other # for the batch system\n"));
	assert_false(allows("user_allow_other"));
	assert_false(allows("#user_allow_other\n"));
	assert_false(allows("# user_allow_other\n"));
	assert_false(allows("user_allow_others\n"));
	assert_false(allows("user_allow_other = 1\n"));
	assert_false(allows("user_allow\n_other\n"));
	assert_false(allows(""));
}

static void test_number(void **state)
{
	uint64_t number = 0;

	(void)state;
	assert_true(mount_conf_find("# x\nmount_max = 12\n", "mount_max", &number));
	assert_int_equal(number, 12);
	assert_true(mount_conf_find("mount_max=7#x\n", "mount_max", &number));
	assert_int_equal(number, 7);
	assert_false(mount_conf_find("mount_max = 12 13\n", "mount_max", &number));
	assert_false(mount_conf_find("mount_max\n", "mount_max", &number));
	assert_false(mount_conf_find("mount_max =\n12\n", "mount_max", &number));
	assert_int_equal(number, 7);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_word),
		cmocka_unit_test(test_number),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
