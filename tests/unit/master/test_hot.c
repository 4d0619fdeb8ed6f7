/* Which slots are hot: thresholds, hysteresis, sums over workers, bounds. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/check.h"
#include "master/hot.h"
#include "placement/placement.h"

static bool look(struct hot *hot, uint32_t slot, uint64_t mib, uint64_t all_mib, uint64_t now)
{
	struct hot_rate rates[] = { { 9, MiB }, { slot, mib * MiB / 2 }, { slot, mib * MiB / 2 } };

	return hot_update(hot, rates, ARRAY_SIZE(rates), all_mib * MiB, now);
}

static void test_heats_and_cools(void **state)
{
	struct hot hot = { 0 };
	uint64_t now = 1;

	(void)state;
	assert_false(look(&hot, 7, 64, 1000, now)); /* not above */
	assert_true(look(&hot, 7, 66, 1000, now));
	assert_true(hot_is(&hot, 7));
	assert_false(hot_is(&hot, 9));
	assert_int_equal(hot.n, 1);
	for (int i = 0; i < 100; i++) { /* half of it keeps it */
		now += CLOCK_SECOND;
		assert_false(look(&hot, 7, 32, 1000, now));
	}
	now += HOT_COOL_NS;
	assert_false(look(&hot, 7, 30, 1000, now));
	now += 1;
	assert_true(look(&hot, 7, 30, 1000, now));
	assert_int_equal(hot.n, 0);
	/* Where everything is read that much nothing is hot. */
	assert_false(look(&hot, 7, 66, 65536ull * 20, now));
	assert_true(look(&hot, 7, 82, 65536ull * 20, now));
}

/* The hottest are taken, and stay in order. */
static void test_bound(void **state)
{
	static struct hot_rate rates[PLACEMENT_SLOTS];
	struct hot hot = { 0 };

	(void)state;
	for (uint32_t i = 0; i < 2 * HOT_MAX; i++)
		rates[i] = (struct hot_rate){ (i * 7919u) % PLACEMENT_SLOTS,
			HOT_BYTES + 1 + (i >= HOT_MAX ? 1000u + i : i) };
	assert_true(hot_update(&hot, rates, 2 * HOT_MAX, 0, 1));
	assert_int_equal(hot.n, HOT_MAX);
	for (uint32_t i = 1; i < hot.n; i++)
		assert_true(hot.slots[i - 1] < hot.slots[i]);
	for (uint32_t i = HOT_MAX; i < 2 * HOT_MAX; i++)
		assert_true(hot_is(&hot, (i * 7919u) % PLACEMENT_SLOTS));
	assert_true(hot_update(&hot, rates, 0, 0, HOT_COOL_NS + 2));
	assert_int_equal(hot.n, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_heats_and_cools),
		cmocka_unit_test(test_bound),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
