/* The memory budget: shares of the classes, to the byte, the peak, and many threads at once. */
#include "base/budget.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

static void each_class_has_its_share(void **state)
{
	struct budget b;

	(void)state;
	budget_init(&b, 1000);
	assert_false(budget_take(&b, BUDGET_FILL, 701));
	assert_true(budget_take(&b, BUDGET_FILL, 700));
	assert_false(budget_take(&b, BUDGET_FILL, 1));
	assert_true(budget_take(&b, BUDGET_PREFETCH, 150));
	assert_false(budget_take(&b, BUDGET_PREFETCH, 1));
	assert_true(budget_take(&b, BUDGET_DEMAND, 150));
	assert_false(budget_take(&b, BUDGET_DEMAND, 1));
	assert_true(budget_take(&b, BUDGET_DEMAND, 0));
	budget_give(&b, 301);
	assert_true(budget_take(&b, BUDGET_FILL, 1));
	assert_false(budget_take(&b, BUDGET_FILL, 1));
}

static void what_is_there_would_be_taken(void **state)
{
	struct budget b;

	(void)state;
	budget_init(&b, 1000);
	assert_true(budget_has(&b, BUDGET_FILL, 700));
	assert_false(budget_has(&b, BUDGET_FILL, 701));
	assert_true(budget_take(&b, BUDGET_DEMAND, 300)); /* nothing was taken before */
	assert_true(budget_has(&b, BUDGET_FILL, 400));
	assert_false(budget_has(&b, BUDGET_FILL, 401));
	assert_false(budget_has(&b, BUDGET_FILL, UINT64_MAX));
}

static void demand_has_the_last_byte(void **state)
{
	static const uint64_t maxima[] = { 0, 1, 99, 101, 199, 1048576, UINT64_MAX };

	(void)state;
	for (unsigned int i = 0; i < ARRAY_SIZE(maxima); i++) {
		struct budget b;

		budget_init(&b, maxima[i]);
		assert_true(budget_take(&b, BUDGET_DEMAND, maxima[i]));
		assert_false(budget_take(&b, BUDGET_DEMAND, 1));
		budget_give(&b, maxima[i]);
		if (maxima[i] < UINT64_MAX)
			assert_false(budget_take(&b, BUDGET_DEMAND, maxima[i] + 1));
	}
}

static void shares_are_rounded_down(void **state)
{
	struct budget b;

	(void)state;
	budget_init(&b, 199); /* 139.3 and 169.15 */
	assert_false(budget_take(&b, BUDGET_FILL, 140));
	assert_true(budget_take(&b, BUDGET_FILL, 139));
	budget_give(&b, 139);
	assert_false(budget_take(&b, BUDGET_PREFETCH, 170));
	assert_true(budget_take(&b, BUDGET_PREFETCH, 169));
}

static void huge_requests_do_not_wrap(void **state)
{
	struct budget b;

	(void)state;
	budget_init(&b, 1000);
	assert_true(budget_take(&b, BUDGET_DEMAND, 500));
	assert_false(budget_take(&b, BUDGET_DEMAND, UINT64_MAX));
	assert_false(budget_take(&b, BUDGET_DEMAND, UINT64_MAX - 499));
	assert_int_equal(atomic_load(&b.used), 500);
}

static void the_peak_stays(void **state)
{
	struct budget b;

	(void)state;
	budget_init(&b, 1000);
	assert_true(budget_take(&b, BUDGET_DEMAND, 300));
	assert_true(budget_take(&b, BUDGET_DEMAND, 400));
	budget_give(&b, 600);
	assert_true(budget_take(&b, BUDGET_DEMAND, 500));
	assert_false(budget_take(&b, BUDGET_DEMAND, 401)); /* refused: no peak */
	assert_int_equal(atomic_load(&b.peak), 700);
	assert_int_equal(atomic_load(&b.used), 600);
	budget_init(&b, 10);
	assert_int_equal(atomic_load(&b.peak), 0);
	assert_int_equal(atomic_load(&b.used), 0);
}

#define THREADS 4u
#define TURNS   20000u

struct taker {
	pthread_t thread;
	struct budget *budget;
	_Atomic uint64_t *held; /* what all hold: never more than the maximum */
	uint64_t bytes;
	unsigned int taken;
	bool over;
};

static void *take_and_give(void *arg)
{
	struct taker *t = arg;

	while (t->taken < TURNS) {
		if (!budget_take(t->budget, BUDGET_DEMAND, t->bytes)) {
			sched_yield(); /* who holds it may be waiting for this processor */
			continue;
		}
		if (atomic_fetch_add(t->held, t->bytes) + t->bytes > t->budget->max)
			t->over = true;
		t->taken++;
		atomic_fetch_sub(t->held, t->bytes);
		budget_give(t->budget, t->bytes);
	}
	return NULL;
}

static void many_threads_stay_below_the_maximum(void **state)
{
	struct taker takers[THREADS] = { 0 };
	_Atomic uint64_t held = 0;
	struct budget b;

	(void)state;
	budget_init(&b, 100);
	for (unsigned int i = 0; i < THREADS; i++) {
		takers[i] = (struct taker){ .budget = &b, .held = &held, .bytes = 35 + 5 * i };
		assert_int_equal(
			pthread_create(&takers[i].thread, NULL, take_and_give, &takers[i]), 0);
	}
	for (unsigned int i = 0; i < THREADS; i++)
		pthread_join(takers[i].thread, NULL);
	for (unsigned int i = 0; i < THREADS; i++)
		assert_false(takers[i].over);
	assert_int_equal(atomic_load(&b.used), 0);
	assert_in_range(atomic_load(&b.peak), 50, 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_class_has_its_share),
		cmocka_unit_test(what_is_there_would_be_taken),
		cmocka_unit_test(demand_has_the_last_byte),
		cmocka_unit_test(shares_are_rounded_down),
		cmocka_unit_test(huge_requests_do_not_wrap),
		cmocka_unit_test(the_peak_stays),
		cmocka_unit_test(many_threads_stay_below_the_maximum),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
