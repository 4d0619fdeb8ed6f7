/* Bounds a second, by a clock that the test advances. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/rate.h"

/* Requests of `size` that begin within that time, one after the other, each when it may. */
static uint64_t run(struct rate *r, uint64_t *now_ns, uint64_t for_ns, double size)
{
	uint64_t end = *now_ns + for_ns;
	uint64_t n = 0;

	for (;;) {
		uint64_t wait = rate_wait_ns(r, *now_ns);

		if (wait > end - *now_ns)
			break;
		*now_ns += wait;
		if (wait)
			continue;
		rate_take(r, size);
		assert_true(++n < 20000000); /* nothing stops it */
	}
	*now_ns = end;
	return n;
}

/* Whatever the sizes are, as much as allowed, and a burst and one request more at most. */
static void test_bytes(void **state)
{
	static const double sizes[] = { 1000, 4096, 999983, 1 << 20, 100 << 20 };
	static const double rates[] = { 100 << 10, 1 << 20, 50000000, 500000000 };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		for (size_t j = 0; j < ARRAY_SIZE(rates); j++) {
			struct rate r = RATE_INIT(rates[j], 0.25);
			uint64_t now = 12345;
			double want = rates[j] * 20;
			double got = (double)run(&r, &now, 20 * CLOCK_SECOND, sizes[i]) * sizes[i];

			assert_true(got >= want * 0.999 - sizes[i]);
			assert_true(got <= want * 1.001 + rates[j] * 0.25 + sizes[i]);
		}
	}
}

static void test_requests(void **state)
{
	static const uint64_t rates[] = { 1, 2, 7, 100, 5500 };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rates); i++) {
		struct rate r = { .burst_s = 0.25 };
		uint64_t now = 1;
		uint64_t n;

		rate_set(&r, now, (double)rates[i]);
		n = run(&r, &now, 100 * CLOCK_SECOND, 1);
		assert_in_range(n, rates[i] * 100 - 1, rates[i] * 100 + rates[i] / 4 + 1);
	}
}

/* A time in which nothing was asked for is worth a burst, not more. */
static void test_burst(void **state)
{
	struct rate r = RATE_INIT(100.0, 0.25);
	uint64_t now = CLOCK_SECOND;

	(void)state;
	for (unsigned int round = 0; round < 2; round++) {
		for (unsigned int i = 0; i < 25; i++) {
			assert_int_equal(rate_wait_ns(&r, now), 0);
			rate_take(&r, 1);
		}
		assert_in_range(rate_wait_ns(&r, now), 1, 2);
		rate_take(&r, 1); /* owed: the next one pays for it first */
		assert_in_range(rate_wait_ns(&r, now), 10 * CLOCK_MS, 10 * CLOCK_MS + 2);
		now += 3600 * CLOCK_SECOND;
	}
}

static void test_no_bound(void **state)
{
	struct rate r = { 0 };

	(void)state;
	for (unsigned int i = 0; i < 1000; i++) {
		assert_int_equal(rate_wait_ns(&r, CLOCK_SECOND), 0);
		rate_take(&r, 1 << 30);
	}
	assert_true(rate_left(&r, CLOCK_SECOND) > 1e300);
}

static void test_changes(void **state)
{
	struct rate r = { .burst_s = 0.25 };
	uint64_t now = CLOCK_SECOND;

	(void)state;
	rate_take(&r, 1 << 30); /* without a bound nothing is owed */
	rate_set(&r, now, 1000);
	assert_int_equal(rate_wait_ns(&r, now), 1); /* it begins empty */
	now += CLOCK_SECOND;
	assert_int_equal(rate_wait_ns(&r, now), 0);
	rate_take(&r, 100250);
	assert_in_range(rate_wait_ns(&r, now), 100 * CLOCK_SECOND, 100 * CLOCK_SECOND + 2);
	/* A tenth of the rate: no longer than it would have taken. */
	rate_set(&r, now, 100);
	assert_in_range(rate_wait_ns(&r, now), 100 * CLOCK_SECOND - 2, 100 * CLOCK_SECOND + 2);
	/* A hundred times: sooner. */
	rate_set(&r, now, 10000);
	assert_in_range(rate_wait_ns(&r, now), CLOCK_SECOND - 2, CLOCK_SECOND + 2);
	/* None, and one again: as from the start. */
	rate_set(&r, now, 0);
	assert_int_equal(rate_wait_ns(&r, now), 0);
	rate_set(&r, now, 1000);
	assert_int_equal(rate_wait_ns(&r, now), 1);
	/* A smaller bucket holds less. */
	now += CLOCK_SECOND;
	assert_true(rate_left(&r, now) > 249.9);
	rate_set(&r, now, 100);
	assert_true(rate_left(&r, now) < 25.1);
}

/* Two callers, of which the one that read the clock first comes last. */
static void test_time_that_goes_back(void **state)
{
	struct rate r = RATE_INIT(100.0, 1.0);

	(void)state;
	assert_int_equal(rate_wait_ns(&r, 10 * CLOCK_SECOND), 0);
	rate_take(&r, 200);
	assert_in_range(rate_wait_ns(&r, 9 * CLOCK_SECOND), CLOCK_SECOND, CLOCK_SECOND + 2);
	assert_in_range(rate_wait_ns(&r, 10 * CLOCK_SECOND), CLOCK_SECOND, CLOCK_SECOND + 2);
}

/* The largest debt at the smallest rate. */
static void test_extremes(void **state)
{
	struct rate r = RATE_INIT(1.0, 0.1);

	(void)state;
	assert_int_equal(rate_wait_ns(&r, CLOCK_SECOND), 0);
	rate_take(&r, (double)UINT64_MAX);
	assert_int_equal(rate_wait_ns(&r, CLOCK_SECOND), UINT64_MAX / 2);
	assert_true(rate_wait_ns(&r, UINT64_MAX / 4) > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bytes),
		cmocka_unit_test(test_requests),
		cmocka_unit_test(test_burst),
		cmocka_unit_test(test_no_bound),
		cmocka_unit_test(test_changes),
		cmocka_unit_test(test_time_that_goes_back),
		cmocka_unit_test(test_extremes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
