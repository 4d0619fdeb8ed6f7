/* Deadlines and what is left of them, by the test's numbers. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include "base/clock.h"
#include "base/deadline.h"

#define NOW (1000 * CLOCK_SECOND)

static void test_left(void **state)
{
	(void)state;
	assert_true(deadline_left(0, NOW) == UINT64_MAX);
	assert_true(deadline_left(NOW + 5, NOW) == 5);
	assert_true(deadline_left(NOW, NOW) == 0);
	assert_true(deadline_left(NOW - 5, NOW) == 0);
	assert_true(deadline_earlier(0, 0) == 0);
	assert_true(deadline_earlier(NOW, 0) == NOW && deadline_earlier(0, NOW) == NOW);
	assert_true(deadline_earlier(NOW, NOW + 1) == NOW);
	assert_true(deadline_later(NOW, 0) == 0 && deadline_later(0, NOW) == 0);
	assert_true(deadline_later(NOW, NOW + 1) == NOW + 1);
}

static void test_share(void **state)
{
	(void)state;
	assert_true(deadline_share(NOW + 80, NOW, 8, 0) == NOW + 10);
	assert_true(deadline_share(NOW + 80, NOW, 8, 20) == NOW + 20);
	assert_true(deadline_share(NOW + 80, NOW, 8, 100) == NOW + 80);
	assert_true(deadline_share(NOW + 80, NOW, 1, 0) == NOW + 80);
	assert_true(deadline_share(NOW - 1, NOW, 8, 20) == NOW);
	assert_true(deadline_share(0, NOW, 8, 20) == 0);
}

/* What goes to another host and comes back is never more, however many hops it takes. */
static void test_hops(void **state)
{
	static const uint64_t left_ns[] = { CLOCK_MS, CLOCK_MS + 1, 2 * CLOCK_MS - 1,
		60 * CLOCK_SECOND, 60 * CLOCK_SECOND - 1, 5000000 * CLOCK_SECOND };
	uint32_t ms = 7;

	(void)state;
	assert_int_equal(deadline_to_ms(0, NOW, &ms), 0);
	assert_int_equal(ms, 0);
	assert_true(deadline_from_ms(0, NOW) == 0);
	for (unsigned int i = 0; i < ARRAY_SIZE(left_ns); i++) {
		uint64_t left = left_ns[i];

		for (unsigned int hop = 0; hop < 5 && left >= CLOCK_MS; hop++) {
			uint64_t now = NOW + hop * 12345; /* each host has its own clock */
			uint64_t back;

			assert_int_equal(deadline_to_ms(now + left, now, &ms), 0);
			back = deadline_left(deadline_from_ms(ms, 3 * now), 3 * now);
			assert_true(back <= left);
			assert_true(left - back < CLOCK_MS || ms == UINT32_MAX);
			left = back - min(back, (uint64_t)3000); /* the hop worked */
		}
	}
	ms = 7;
	assert_int_equal(deadline_to_ms(NOW + CLOCK_MS - 1, NOW, &ms), -ETIMEDOUT);
	assert_int_equal(deadline_to_ms(NOW, NOW, &ms), -ETIMEDOUT);
	assert_int_equal(deadline_to_ms(NOW - 1, NOW, &ms), -ETIMEDOUT);
	assert_int_equal(ms, 7);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_left),
		cmocka_unit_test(test_share),
		cmocka_unit_test(test_hops),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
