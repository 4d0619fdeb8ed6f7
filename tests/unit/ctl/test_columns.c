/* Text in columns. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/columns.h"

static void expect_print(const struct columns *columns, const char *expect)
{
	char *text = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&text, &size);

	assert_non_null(out);
	columns_print(columns, out);
	assert_int_equal(fclose(out), 0);
	assert_string_equal(text, expect);
	free(text);
}

static void test_aligns(void **state)
{
	const char *const titles[] = { "NAME", "SIZE", "STATE" };
	const char *const first[] = { "/a/long/name", "1", "serving" };
	const char *const second[] = { "\xc3\xa9", NULL, "ends" };
	struct columns columns;

	(void)state;
	assert_int_equal(columns_init(&columns, titles, 3, 1u << 1), 0);
	expect_print(&columns, "NAME  SIZE  STATE\n");
	assert_int_equal(columns_add(&columns, first), 0);
	assert_int_equal(columns_add(&columns, second), 0);
	expect_print(&columns, "NAME          SIZE  STATE\n"
			       "/a/long/name     1  serving\n"
			       "\xc3\xa9                -  ends\n");
	columns_release(&columns);
}

/* What a bucket's keys say is shown, and not obeyed. */
static void test_controls(void **state)
{
	const char *const cells[] = { "\033[2Ja\x7f\n", "\xc2\x9b\xc2\xa0\xc2", "b" };
	struct columns columns;

	(void)state;
	assert_int_equal(columns_init(&columns, cells, 3, 0), 0);
	expect_print(&columns, "?[2Ja??  ?\xc2\xa0\xc2  b\n");
	columns_release(&columns);
}

static void test_bounded(void **state)
{
	const char *const cells[] = { "x" };
	struct columns columns;
	int r = 0;

	(void)state;
	assert_int_equal(columns_init(&columns, cells, 1, 0), 0);
	for (unsigned int i = 1; i < COLUMNS_ROWS_MAX; i++)
		r |= columns_add(&columns, cells);
	assert_int_equal(r, 0);
	assert_int_equal(columns_add(&columns, cells), -ENOBUFS);
	columns_release(&columns);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_aligns),
		cmocka_unit_test(test_controls),
		cmocka_unit_test(test_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
