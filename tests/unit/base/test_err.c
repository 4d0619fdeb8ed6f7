/* Errors: the line a person reads, and names of errnos in both directions. */
#include "base/err.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

static void a_line_is_one_line(void **state)
{
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(err_set(&e, -EINVAL, "key '%s'", "a\nb\x7f"), -EINVAL);
	assert_int_equal(e.code, -EINVAL);
	assert_string_equal(e.text, "key 'a?b?'");
	assert_int_equal(err_prefix(&e, "mount %d", 7), -EINVAL);
	assert_string_equal(e.text, "mount 7: key 'a?b?'");
	(void)err_set(&e, -EINVAL, "key '%s'", "\xe4\xb8\xad\xe4"); /* JSON has no other bytes */
	assert_string_equal(e.text, "key '\xe4\xb8\xad?'");
	assert_int_equal(err_set(NULL, -EIO, "nobody reads it"), -EIO);
}

static void what_is_said_stays_said(void **state)
{
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(err_default(&e, -ENOSPC, "tier"), -ENOSPC);
	assert_string_equal(e.text, "tier: No space left on device");
	assert_int_equal(err_default(&e, -EIO, "disk"), -EIO);
	assert_int_equal(e.code, -ENOSPC);
}

static void what_to_do_is_added_once(void **state)
{
	struct err e = ERR_INIT;
	char before[ERR_TEXT_MAX];

	(void)state;
	(void)err_set(&e, -ENOMEM, "out of memory");
	assert_int_equal(err_advise(&e), -ENOMEM);
	assert_string_equal(
		e.text, "out of memory: free some, or raise the limit of the control group");
	memcpy(before, e.text, sizeof(before));
	(void)err_advise(&e);
	assert_string_equal(e.text, before);
	(void)err_set(&e, -EMFILE, "no descriptors");
	(void)err_advise(&e);
	assert_non_null(strstr(e.text, "ulimit -n"));
	(void)err_set(&e, -EIO, "a failure");
	(void)err_advise(&e);
	assert_string_equal(e.text, "a failure");
}

static void a_long_line_is_cut(void **state)
{
	char text[2 * ERR_TEXT_MAX];
	struct err e = ERR_INIT;

	(void)state;
	memset(text, 'x', sizeof(text));
	text[sizeof(text) - 1] = '\0';
	assert_int_equal(err_set(&e, -EIO, "%s", text), -EIO);
	assert_int_equal(strlen(e.text), ERR_TEXT_MAX - 1);
	assert_int_equal(err_prefix(&e, "%s", text), -EIO);
	assert_true(strlen(e.text) < ERR_TEXT_MAX);
}

static void names_go_both_ways(void **state)
{
	(void)state;
	assert_string_equal(err_name(-ESTALE), "ESTALE");
	assert_string_equal(err_name(-100000), "E100000");
	for (int n = 1; n <= EHWPOISON; n++)
		if (n != 41 && n != 58) /* Linux has none */
			assert_int_equal(err_of_name(err_name(-n)), -n);
	assert_int_equal(err_of_name("ENOSUCHTHING"), -EIO);
	assert_int_equal(err_of_name(NULL), -EIO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_line_is_one_line),
		cmocka_unit_test(what_is_said_stays_said),
		cmocka_unit_test(what_to_do_is_added_once),
		cmocka_unit_test(a_long_line_is_cut),
		cmocka_unit_test(names_go_both_ways),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
