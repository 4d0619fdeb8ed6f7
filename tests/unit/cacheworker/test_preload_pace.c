/* Keeping to a rate: over any while what began is what the rate allows, whatever its size. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/units.h"
#include "cacheworker/preload_pace.h"
#include "proto/preload.h"

/* Bytes that begin within that time, one request after another. */
static uint64_t run(struct preload_pace *pace, uint64_t size, uint64_t ns)
{
	const uint64_t began = CLOCK_SECOND;
	uint64_t now = began;
	uint64_t bytes = 0;

	for (;;) {
		uint64_t wait = preload_pace_wait(pace, now);

		now += wait;
		if (now - began >= ns)
			return bytes;
		if (wait)
			continue;
		preload_pace_take(pace, size);
		bytes += size;
	}
}

static void rate_is_kept(void **state)
{
	static const uint64_t sizes[] = { 1000, 110 * KiB, MiB };
	static const uint64_t rates[] = { 100 * KiB, 50 * MiB };

	(void)state;
	for (unsigned int s = 0; s < ARRAY_SIZE(sizes); s++)
		for (unsigned int r = 0; r < ARRAY_SIZE(rates); r++) {
			struct preload_pace pace = { .rate = rates[r] };
			uint64_t bytes = run(&pace, sizes[s], 60 * CLOCK_SECOND);
			uint64_t should = 60 * rates[r];

			if (bytes > should + rates[r] / 10 + sizes[s] ||
				bytes + sizes[s] < should - should / 50)
				fail_msg("%llu bytes, not %llu", (unsigned long long)bytes,
					(unsigned long long)should);
		}
}

static void no_bound(void **state)
{
	struct preload_pace pace = { 0 };

	(void)state;
	for (unsigned int i = 0; i < 1000; i++) {
		assert_int_equal(preload_pace_wait(&pace, CLOCK_SECOND), 0);
		preload_pace_take(&pace, GiB);
	}
}

/* What was not used for long is not made up for at once. */
static void bursts_are_short(void **state)
{
	struct preload_pace pace = { .rate = 10 * MiB };
	uint64_t bytes = 0;

	(void)state;
	assert_int_equal(preload_pace_wait(&pace, CLOCK_SECOND), 0);
	while (preload_pace_wait(&pace, 3600 * CLOCK_SECOND) == 0) {
		preload_pace_take(&pace, 100 * KiB);
		bytes += 100 * KiB;
	}
	assert_in_range(bytes, MiB - 100 * KiB, MiB + 200 * KiB);
}

static void extremes(void **state)
{
	struct preload_pace fast = { .rate = PRELOAD_RATE_MAX };
	struct preload_pace slow = { .rate = 1 };

	(void)state;
	assert_int_equal(preload_pace_wait(&fast, CLOCK_SECOND), 0);
	preload_pace_take(&fast, TiB);
	assert_in_range(
		preload_pace_wait(&fast, CLOCK_SECOND + CLOCK_SECOND / 2), CLOCK_MS, CLOCK_SECOND);
	assert_int_equal(preload_pace_wait(&slow, CLOCK_SECOND), 0);
	preload_pace_take(&slow, MiB);
	assert_true(preload_pace_wait(&slow, 2 * CLOCK_SECOND) > 1000000 * CLOCK_SECOND);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rate_is_kept),
		cmocka_unit_test(no_bound),
		cmocka_unit_test(bursts_are_short),
		cmocka_unit_test(extremes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
