/* Bounds on bytes and requests a second, by a clock that the test turns. */
#include "ufs/allowance.h"
#include "base/check.h"
#include "base/clock.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

/* Asks for GETs of `size` one after the other for so long, each when it may go; returns how many went. */
static uint64_t run(struct allowance *a, uint64_t *now_ns, uint64_t for_ns, uint64_t size)
{
	uint64_t end = *now_ns + for_ns;
	uint64_t n = 0;

	for (;;) {
		allowance_fill(a, *now_ns);
		if (allowance_has_get(a)) {
			assert_int_equal(allowance_get_ns(a), 0);
			allowance_take(a, size);
			n++;
			continue;
		}
		assert_true(allowance_get_ns(a) > 0);
		if (allowance_get_ns(a) > end - *now_ns)
			break;
		*now_ns += allowance_get_ns(a);
	}
	*now_ns = end;
	return n;
}

/* Whatever the sizes are, as much as allowed, and a burst and one request more at most. */
static void bytes(void **state)
{
	static const uint64_t sizes[] = { 1000, 4096, 999983, 1 << 20, 100 << 20 };
	static const uint64_t rates[] = { 1 << 20, 50000000, 500000000 };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		for (size_t j = 0; j < ARRAY_SIZE(rates); j++) {
			struct allowance a;
			uint64_t now = 12345;
			double got, want = (double)rates[j] * 20;

			allowance_init(&a, now);
			allowance_set(&a, now, rates[j], 0);
			got = (double)(run(&a, &now, 20 * CLOCK_SECOND, sizes[i]) * sizes[i]);
			assert_true(got >= want * 0.999 - (double)sizes[i]);
			assert_true(got <= want * 1.001 + (double)rates[j] * ALLOWANCE_BURST +
						   (double)sizes[i]);
		}
	}
}

static void requests(void **state)
{
	static const uint64_t rates[] = { 1, 2, 7, 100, 5500 };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rates); i++) {
		struct allowance a;
		uint64_t now = 0;
		uint64_t n;

		allowance_init(&a, now);
		allowance_set(&a, now, 0, rates[i]);
		n = run(&a, &now, 100 * CLOCK_SECOND, 1 << 30);
		assert_in_range(n, rates[i] * 100 - 1, rates[i] * 100 + rates[i] / 4 + 1);
	}
}

/* A time in which nothing was asked for is worth a quarter of a second, not more. */
static void burst(void **state)
{
	struct allowance a;

	(void)state;
	allowance_init(&a, 0);
	allowance_set(&a, 0, 0, 100);
	allowance_fill(&a, 3600 * CLOCK_SECOND);
	for (unsigned int i = 0; i < 25; i++) {
		assert_true(allowance_has_list(&a));
		allowance_take(&a, 0);
	}
	assert_false(allowance_has_list(&a));
}

/* Bytes that are owed are nothing to a LIST. */
static void lists(void **state)
{
	struct allowance a;

	(void)state;
	allowance_init(&a, 0);
	allowance_set(&a, 0, 1, 1000);
	allowance_fill(&a, CLOCK_SECOND);
	allowance_take(&a, 1000000);
	assert_false(allowance_has_get(&a));
	assert_true(allowance_has_list(&a));
	assert_int_equal(allowance_list_ns(&a), 0);
	assert_true(allowance_get_ns(&a) > 900000 * CLOCK_SECOND);
}

static void changes(void **state)
{
	struct allowance a;
	uint64_t now = CLOCK_SECOND;

	(void)state;
	allowance_init(&a, now);
	assert_true(allowance_has_get(&a) && allowance_has_list(&a));
	allowance_take(&a, 1 << 30); /* without a bound nothing is owed */
	allowance_set(&a, now, 1000, 0);
	now += CLOCK_SECOND;
	allowance_fill(&a, now);
	assert_true(allowance_has_get(&a));
	allowance_take(&a, 100250);
	assert_in_range(allowance_get_ns(&a), 100 * CLOCK_SECOND, 100 * CLOCK_SECOND + 2);
	/* A tenth of the rate: no longer than it would have taken. */
	allowance_set(&a, now, 100, 0);
	assert_in_range(allowance_get_ns(&a), 100 * CLOCK_SECOND - 2, 100 * CLOCK_SECOND + 2);
	/* A hundred times: sooner. */
	allowance_set(&a, now, 10000, 0);
	assert_in_range(allowance_get_ns(&a), CLOCK_SECOND - 2, CLOCK_SECOND + 2);
	/* None, and one again: as from the start. */
	allowance_set(&a, now, 0, 0);
	assert_true(allowance_has_get(&a));
	allowance_set(&a, now, 1000, 0);
	assert_true(allowance_get_ns(&a) <= 1);
}

/* The largest debt at the smallest rate. */
static void extremes(void **state)
{
	struct allowance a;

	(void)state;
	allowance_init(&a, 0);
	allowance_set(&a, 0, 1, UINT64_MAX);
	allowance_fill(&a, CLOCK_SECOND);
	allowance_take(&a, UINT64_MAX);
	assert_int_equal(allowance_get_ns(&a), UINT64_MAX / 2);
	allowance_fill(&a, UINT64_MAX / 4);
	assert_false(allowance_has_get(&a));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes),
		cmocka_unit_test(requests),
		cmocka_unit_test(burst),
		cmocka_unit_test(lists),
		cmocka_unit_test(changes),
		cmocka_unit_test(extremes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
