/* Waits between attempts: how they double, what chance may make of them, what a server asked for. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/backoff.h"
#include "base/clock.h"

static uint64_t number;

static uint64_t fixed(void)
{
	return number;
}

static void test_doubles_up_to_its_maximum(void **state)
{
	static const uint64_t ms[] = { 100, 200, 400, 800, 1500, 1500 };
	struct backoff b = { .min_ns = 100 * CLOCK_MS, .max_ns = 1500 * CLOCK_MS };

	(void)state;
	for (size_t round = 0; round < 2; round++) {
		for (size_t i = 0; i < sizeof(ms) / sizeof(ms[0]); i++) {
			assert_int_equal(backoff_ns(&b), ms[i] * CLOCK_MS);
			assert_int_equal(backoff_next(&b), ms[i] * CLOCK_MS);
		}
		backoff_reset(&b);
	}
	backoff_to_max(&b);
	assert_int_equal(backoff_next(&b), 1500 * CLOCK_MS);
	assert_int_equal(backoff_next(&b), 1500 * CLOCK_MS); /* no overflow of the count */
	backoff_reset(&b);
	assert_int_equal(backoff_next(&b), 100 * CLOCK_MS);
}

/* The least and the most that chance can draw, and what is between them. */
static void test_spread(void **state)
{
	static const struct {
		struct backoff_spread spread;
		uint64_t from, to;
	} cases[] = {
		{ { 0, 0 }, 1000, 1000 },
		{ { 50, 100 }, 500, 1000 },
		{ { 0, 100 }, 0, 1000 },
		{ { 50, 150 }, 500, 1500 },
		{ { 95, 105 }, 950, 1050 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct backoff b = { .min_ns = 500,
			.max_ns = 1000,
			.spread = cases[i].spread,
			.doublings = 7,
			.random = fixed };
		uint64_t range = cases[i].to - cases[i].from;

		number = 0;
		assert_int_equal(backoff_ns(&b), cases[i].from);
		number = range;
		assert_int_equal(backoff_ns(&b), cases[i].to);
		number = range + 1;
		assert_int_equal(backoff_ns(&b), cases[i].from);
		number = range / 2;
		assert_int_equal(backoff_ns(&b), cases[i].from + range / 2);
	}
}

/* The kernel's chance: within the range, and not always the same. */
static void test_kernel_random(void **state)
{
	struct backoff b = {
		.min_ns = CLOCK_SECOND, .max_ns = CLOCK_SECOND, .spread = BACKOFF_HALF
	};
	uint64_t first = backoff_next(&b);
	unsigned int others = 0;

	(void)state;
	for (unsigned int i = 0; i < 1000; i++) {
		uint64_t ns = i % 2 ? backoff_next(&b) : backoff_spread(CLOCK_SECOND, BACKOFF_HALF);

		assert_in_range(ns, CLOCK_SECOND / 2, CLOCK_SECOND);
		others += ns != first;
	}
	assert_true(others > 900);
}

static void test_server_asks(void **state)
{
	struct backoff b = { .min_ns = 100,
		.max_ns = 1000,
		.spread = BACKOFF_FULL,
		.asked_ns = 300,
		.random = fixed };

	(void)state;
	number = 0;
	assert_int_equal(backoff_next(&b), 300);
	b.doublings = 10;
	number = 1000;
	assert_int_equal(backoff_next(&b), 1000); /* its own wait is longer */
	b.asked_ns = 5000;
	assert_int_equal(backoff_next(&b), 5000); /* past the maximum, too */
}

static void test_extremes(void **state)
{
	struct backoff b = { .min_ns = 1, .max_ns = BACKOFF_MAX_NS, .doublings = UINT32_MAX };

	(void)state;
	assert_int_equal(backoff_ns(&b), BACKOFF_MAX_NS);
	b = (struct backoff){ .min_ns = 10, .max_ns = 5 };
	assert_int_equal(backoff_next(&b), 5);
	assert_int_equal(backoff_next(&b), 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_doubles_up_to_its_maximum),
		cmocka_unit_test(test_spread),
		cmocka_unit_test(test_kernel_random),
		cmocka_unit_test(test_server_asks),
		cmocka_unit_test(test_extremes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
