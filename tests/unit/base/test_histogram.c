/* Histograms: which bucket a duration falls into, and what noting one costs. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include "base/check.h"
#include "base/clock.h"
#include "base/histogram.h"

static void test_buckets(void **state)
{
	static const struct {
		uint64_t ns;
		unsigned int bucket;
	} cases[] = {
		{ 0, 0 },
		{ 1, 0 },
		{ 32000, 0 },
		{ 32001, 1 },
		{ 64000, 1 },
		{ 64001, 2 },
		{ 1000000, 5 },
		{ CLOCK_SECOND, 15 },
		{ 32000ull << (HISTOGRAM_BOUNDS - 1), HISTOGRAM_BOUNDS - 1 },
		{ (32000ull << (HISTOGRAM_BOUNDS - 1)) + 1, HISTOGRAM_BOUNDS },
		{ UINT64_MAX, HISTOGRAM_BOUNDS },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		assert_int_equal(histogram_bucket(cases[i].ns), cases[i].bucket);
	/* Each bound is the last of its bucket. */
	for (unsigned int i = 0; i < HISTOGRAM_BOUNDS; i++) {
		assert_int_equal(histogram_bucket(histogram_bound_ns(i)), i);
		assert_int_equal(histogram_bucket(histogram_bound_ns(i) + 1), i + 1);
	}
}

static void test_note(void **state)
{
	struct histogram h = { 0 };

	(void)state;
	for (uint64_t i = 0; i < 1000; i++)
		histogram_note(&h, i * 1000); /* 0 to 999 us */
	assert_int_equal(counter_get(&h.buckets[0]), 33);
	assert_int_equal(counter_get(&h.buckets[1]), 32);
	assert_int_equal(counter_get(&h.buckets[2]), 64);
	assert_int_equal(counter_get(&h.sum_ns), 999ull * 1000 / 2 * 1000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_buckets),
		cmocka_unit_test(test_note),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
