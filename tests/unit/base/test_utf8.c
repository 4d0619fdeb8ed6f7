/* What is UTF-8 and what only looks like it. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>

#include "base/check.h"
#include "base/utf8.h"

static void test_texts(void **state)
{
	static const char *const good[] = { "", "a/b", "\x7f\x01", "\xc2\x80", "\xdf\xbf",
		"\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80", "\xef\xbf\xbf", "\xf0\x90\x80\x80",
		"\xf4\x8f\xbf\xbf", "\xe4\xb8\xad\xe6\x96\x87" };
	static const char *const bad[] = { "\x80", "a\xff", "\xc0\xaf", "\xc1\xbf", "\xc2", "\xc2z",
		"\xe0\x9f\xbf", "\xe4\xb8", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80",
		"\xf5\x80\x80\x80", "\xf0\x90\x80", "ab\xfe" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		assert_true(utf8_is(good[i]));
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_false(utf8_is(bad[i]));
	assert_int_equal(utf8_bytes(""), 1);
	assert_int_equal(utf8_bytes("\xe4\xb8\xad"), 3);
	assert_int_equal(utf8_bytes("\xe4"), 0);
}

static void test_lines(void **state)
{
	static const char *const lines[][2] = { { "", "" }, { "a\nb\x7f\x1b[0m", "a?b??[0m" },
		{ "\xe4\xb8\xad\xff/\xe6\x96\x87", "\xe4\xb8\xad?/\xe6\x96\x87" },
		{ "cut \xe4\xb8", "cut ??" }, { "\xed\xa0\x80", "???" } };
	char text[64];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
		(void)snprintf(text, sizeof(text), "%s", lines[i][0]);
		utf8_make_line(text);
		assert_string_equal(text, lines[i][1]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_texts),
		cmocka_unit_test(test_lines),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
