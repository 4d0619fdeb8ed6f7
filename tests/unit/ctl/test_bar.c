/* The line that says how far something is. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/units.h"
#include "ctl/bar.h"

static const struct bar_progress half = {
	.bytes = 2 * GiB,
	.bytes_done = GiB,
	.files = 1000,
	.files_done = 480,
	.rate = 100 * MiB,
	.eta_s = 71,
};

static void plain(void **state)
{
	char line[256];

	(void)state;
	assert_string_equal(bar_text(&half, 0, line, sizeof(line)),
		"50.0% 1.0GiB of 2.0GiB, 480 of 1000 files, 100MiB/s, 71s left");
}

static void says_what_failed(void **state)
{
	struct bar_progress p = half;
	char line[256];

	(void)state;
	p.files_failed = 3;
	assert_non_null(strstr(bar_text(&p, 0, line, sizeof(line)), ", 3 failed,"));
}

static void with_bar(void **state)
{
	char line[256];

	(void)state;
	(void)bar_text(&half, 110, line, sizeof(line));
	assert_int_equal(strncmp(line, "[====================>                   ] 50.0% ", 49), 0);
	assert_true(strlen(line) <= 110);
}

/* Whatever the terminal, the line does not wrap; a bar is there when there is room. */
static void any_width(void **state)
{
	char line[256];

	(void)state;
	for (unsigned int columns = 1; columns < 200; columns++) {
		(void)bar_text(&half, columns, line, sizeof(line));
		assert_true(strlen(line) <= columns);
		assert_int_equal(line[0] == '[', columns >= 75);
	}
}

static void ends(void **state)
{
	struct bar_progress p = half;
	char line[256];

	(void)state;
	p.bytes_done = p.bytes - 1; /* not all */
	assert_int_equal(strncmp(bar_text(&p, 0, line, sizeof(line)), "99.9% ", 6), 0);
	p.bytes_done = p.bytes;
	assert_int_equal(strncmp(bar_text(&p, 0, line, sizeof(line)), "100.0% ", 7), 0);
	assert_null(strstr(line, "left"));
	p.bytes = p.bytes_done = 0; /* only empty files */
	assert_int_equal(strncmp(bar_text(&p, 0, line, sizeof(line)), "48.0% ", 6), 0);
	p = (struct bar_progress){ .note = "listing the source" };
	assert_string_equal(bar_text(&p, 0, line, sizeof(line)), "listing the source");
}

/* Not a terminal: a line at once, and not the same again and again. */
static void no_terminal(void **state)
{
	char *text = NULL;
	size_t len = 0;
	FILE *out = tmpfile();
	struct bar bar;

	(void)state;
	assert_non_null(out);
	bar_init(&bar, out);
	assert_false(bar.terminal);
	for (unsigned int i = 0; i < 100; i++)
		bar_show(&bar, &half);
	bar_end(&bar);
	rewind(out);
	assert_true(getline(&text, &len, out) > 0);
	assert_int_equal(strncmp(text, "50.0% ", 6), 0);
	assert_int_equal(getline(&text, &len, out), -1);
	free(text);
	(void)fclose(out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(plain),
		cmocka_unit_test(says_what_failed),
		cmocka_unit_test(with_bar),
		cmocka_unit_test(any_width),
		cmocka_unit_test(ends),
		cmocka_unit_test(no_terminal),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
