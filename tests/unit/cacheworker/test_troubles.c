/* The list of what could not be fetched. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cacheworker/troubles.h"

static struct troubles troubles;
static const struct volume_id volume = { .bytes = { 1 } };
static const struct volume_id other = { .bytes = { 2 } };

static void note(uint64_t start, uint64_t length, const char *text)
{
	struct trouble what = {
		.volume = volume, .lineage = 7, .start = start, .length = length, .status = -EIO
	};

	(void)snprintf(what.text, sizeof(what.text), "%s", text);
	troubles_note(&troubles, &what);
}

static void expect(uint64_t start, uint64_t length, const char *text)
{
	struct trouble found;
	bool any = troubles_find(&troubles, &volume, 7, start, length, &found);

	assert_int_equal(any, text != NULL);
	if (text)
		assert_string_equal(found.text, text);
}

static void test_newest_of_a_range(void **state)
{
	struct trouble found;

	(void)state;
	troubles_init(&troubles);
	expect(0, UINT64_MAX / 2, NULL);
	note(4096, 4096, "first");
	note(16384, 4096, "second");
	expect(0, 4096, NULL);
	expect(0, 4097, "first");
	expect(8191, 1, "first");
	expect(8192, 8192, NULL);
	expect(0, 1 << 20, "second");
	note(4096, 4096, "again");
	expect(0, 1 << 20, "again");
	assert_false(troubles_find(&troubles, &other, 7, 0, 1 << 20, &found));
	assert_false(troubles_find(&troubles, &volume, 8, 0, 1 << 20, &found));
	troubles_release(&troubles);
}

/* A read that failed without a request says less than the one before it. */
static void test_remembered(void **state)
{
	struct trouble what = {
		.volume = volume, .lineage = 7, .start = 4096, .length = 4096, .remembered = true
	};

	(void)state;
	troubles_init(&troubles);
	(void)strcpy(what.text, "remembered");
	note(4096, 4096, "why");
	what.status = -EIO;
	troubles_note(&troubles, &what);
	expect(4096, 1, "why");
	what.status = -ESTALE; /* another failure */
	troubles_note(&troubles, &what);
	expect(4096, 1, "remembered");
	what.start = 8192; /* another range */
	troubles_note(&troubles, &what);
	expect(8192, 1, "remembered");
	troubles_release(&troubles);
}

static void test_bounded(void **state)
{
	(void)state;
	troubles_init(&troubles);
	for (uint64_t i = 0; i < 3ull * TROUBLES_MAX; i++)
		note(i * 4096, 4096, "many");
	expect(0, 4096, NULL);
	expect((3ull * TROUBLES_MAX - 1) * 4096, 4096, "many");
	expect(2ull * TROUBLES_MAX * 4096, 4096, "many");
	expect((2ull * TROUBLES_MAX - 1) * 4096, 4096, NULL);
	troubles_release(&troubles);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_newest_of_a_range),
		cmocka_unit_test(test_remembered),
		cmocka_unit_test(test_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
