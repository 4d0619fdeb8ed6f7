/* The arena: leasts that nobody takes away, classes, the refusal at start, and what is counted. */
#include "base/arena.h"
#include "base/units.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

static void open_arena(uint64_t max)
{
	struct err e = ERR_INIT;

	arena_open(max, NULL);
	assert_int_equal(arena_start_done("--memory", &e), 0);
}

static void before_it_is_opened_nothing_is_refused(void **state)
{
	struct arena_use use;

	(void)state;
	assert_true(arena_take(ARENA_UNITS, BUDGET_FILL, 1ull << 40));
	arena_use(ARENA_UNITS, &use);
	assert_int_equal(use.used, 1ull << 40);
	assert_string_equal(use.name, "units");
	arena_give(ARENA_UNITS, 1ull << 40);
}

static void a_least_is_nobody_elses(void **state)
{
	(void)state;
	arena_open(1000, NULL);
	arena_share(ARENA_REPLIES, 300, 0);
	assert_int_equal(arena_start_done("--memory", NULL), 0);
	assert_false(arena_take(ARENA_UNITS, BUDGET_DEMAND, 701));
	assert_true(arena_take(ARENA_UNITS, BUDGET_DEMAND, 700));
	assert_false(arena_take(ARENA_TABLES, BUDGET_DEMAND, 1));
	assert_true(arena_take(ARENA_REPLIES, BUDGET_DEMAND, 300));
	assert_false(arena_take(ARENA_REPLIES, BUDGET_DEMAND, 1));
	arena_give(ARENA_UNITS, 700);
	assert_true(arena_take(ARENA_REPLIES, BUDGET_DEMAND, 700));
	arena_give(ARENA_REPLIES, 1000);
}

static void a_least_holds_past_what_must_be(void **state)
{
	(void)state;
	arena_open(1000, NULL);
	arena_share(ARENA_UNITS, 200, 0);
	assert_int_equal(arena_start_done("--memory", NULL), 0);
	arena_must(ARENA_CHUNKS, 5000);
	assert_false(arena_take(ARENA_TABLES, BUDGET_DEMAND, 1));
	assert_true(arena_take(ARENA_UNITS, BUDGET_DEMAND, 200));
	assert_false(arena_take(ARENA_UNITS, BUDGET_DEMAND, 1));
	arena_give(ARENA_UNITS, 200);
	arena_give(ARENA_CHUNKS, 5000);
}

static void a_most_bounds(void **state)
{
	(void)state;
	arena_open(1000, NULL);
	arena_share(ARENA_PIECES, 0, 100);
	assert_int_equal(arena_start_done("--memory", NULL), 0);
	assert_false(arena_take(ARENA_PIECES, BUDGET_DEMAND, 101));
	assert_true(arena_take(ARENA_PIECES, BUDGET_DEMAND, 99));
	assert_false(arena_full(ARENA_PIECES));
	assert_true(arena_take(ARENA_PIECES, BUDGET_DEMAND, 1));
	assert_true(arena_full(ARENA_PIECES));
	arena_give(ARENA_PIECES, 100);
}

static void demand_before_prefetch_before_fill(void **state)
{
	(void)state;
	open_arena(1000);
	arena_must(ARENA_FIXED, 200); /* the classes share what is left */
	assert_false(arena_take(ARENA_UNITS, BUDGET_FILL, 561));
	assert_true(arena_take(ARENA_UNITS, BUDGET_FILL, 560));
	assert_false(arena_take(ARENA_UNITS, BUDGET_FILL, 1));
	assert_true(arena_take(ARENA_UNITS, BUDGET_PREFETCH, 120));
	assert_false(arena_take(ARENA_UNITS, BUDGET_PREFETCH, 1));
	assert_true(arena_take(ARENA_UNITS, BUDGET_DEMAND, 120));
	assert_false(arena_take(ARENA_UNITS, BUDGET_DEMAND, 1));
	assert_false(arena_take(ARENA_UNITS, BUDGET_DEMAND, UINT64_MAX));
	arena_give(ARENA_UNITS, 800);
	arena_give(ARENA_FIXED, 200);
}

static void an_eighth_for_units(uint64_t max)
{
	arena_share(ARENA_UNITS, max / 8, 0);
}

static void too_little_at_start_says_how_much(void **state)
{
	struct err e = ERR_INIT;

	(void)state;
	arena_open(64 * MiB, an_eighth_for_units);
	assert_true(
		arena_take(ARENA_CHUNKS, BUDGET_DEMAND, 60 * MiB)); /* past the rest: at start */
	arena_must(ARENA_FIXED, 1);
	assert_int_equal(arena_start_check("--memory", &e), -ENOMEM);
	assert_true(arena_take(ARENA_CHUNKS, BUDGET_DEMAND, 9 * MiB));
	assert_int_equal(arena_start_done("--memory", &e), -ENOMEM);
	assert_non_null(strstr(e.text, "--memory 64MiB"));
	assert_non_null(strstr(e.text, "at least 79MiB")); /* 69 are an eighth less than 78.9 */
	assert_false(arena_take(ARENA_CHUNKS, BUDGET_DEMAND, 1)); /* from now on it is enforced */
	assert_true(arena_take(ARENA_UNITS, BUDGET_DEMAND, 8 * MiB)); /* as before the question */
	assert_false(arena_take(ARENA_UNITS, BUDGET_DEMAND, 1));
	arena_give(ARENA_UNITS, 8 * MiB);
	arena_give(ARENA_CHUNKS, 69 * MiB);
	arena_give(ARENA_FIXED, 1);
	for (uint64_t mib = 78; mib <= 79; mib++) {
		arena_open(mib * MiB, an_eighth_for_units);
		arena_must(ARENA_CHUNKS, 69 * MiB + 1);
		assert_int_equal(arena_start_done("--memory", &e), mib == 78 ? -ENOMEM : 0);
		arena_give(ARENA_CHUNKS, 69 * MiB + 1);
	}
}

static void sums_and_peaks(void **state)
{
	struct arena_use use;
	void *p;

	(void)state;
	open_arena(1000);
	p = arena_calloc(ARENA_TABLES, 10, 40);
	assert_non_null(p);
	assert_null(arena_calloc(ARENA_TABLES, 10, 61));
	assert_null(arena_calloc(ARENA_TABLES, UINT64_MAX, 2));
	arena_must(ARENA_INDEX, 100);
	arena_total(&use);
	assert_int_equal(use.used, 500);
	assert_int_equal(use.most, 1000);
	assert_int_equal(use.refused, 1);
	arena_free(ARENA_TABLES, p, 400);
	arena_free(ARENA_TABLES, NULL, 400);
	arena_give(ARENA_INDEX, 100);
	arena_total(&use);
	assert_int_equal(use.used, 0);
	assert_int_equal(use.peak, 500);
	arena_use(ARENA_TABLES, &use);
	assert_int_equal(use.peak, 400);
	assert_int_equal(use.refused, 1);
}

static void a_budget_takes_from_both(void **state)
{
	struct budget b;
	struct arena_use use;

	(void)state;
	open_arena(1000);
	budget_init_user(&b, 800, ARENA_ANSWERS);
	assert_true(budget_take(&b, BUDGET_DEMAND, 800));
	assert_false(budget_take(&b, BUDGET_DEMAND, 1)); /* its own maximum */
	budget_give(&b, 800);
	arena_must(ARENA_IMAGE, 900);
	assert_false(budget_take(&b, BUDGET_DEMAND, 101)); /* the arena's */
	assert_int_equal(atomic_load(&b.used), 0);
	assert_true(budget_take(&b, BUDGET_DEMAND, 100));
	arena_use(ARENA_ANSWERS, &use);
	assert_int_equal(use.used, 100);
	budget_give(&b, 100);
	arena_give(ARENA_IMAGE, 900);
	arena_use(ARENA_ANSWERS, &use);
	assert_int_equal(use.used, 0);
}

#define THREADS 4u
#define TURNS   20000u

static void *take_and_give(void *arg)
{
	enum arena_user user = (enum arena_user)(uintptr_t)arg;

	for (unsigned int i = 0; i < TURNS; i++)
		if (arena_take(user, BUDGET_DEMAND, 1 + i % 400))
			arena_give(user, 1 + i % 400);
	return NULL;
}

static void many_threads_stay_below_the_maximum(void **state)
{
	pthread_t threads[THREADS];
	struct arena_use use;

	(void)state;
	open_arena(1000);
	for (uintptr_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, take_and_give, (void *)i), 0);
	for (unsigned int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	arena_total(&use);
	assert_int_equal(use.used, 0);
	assert_in_range(use.peak, 1, 1000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(before_it_is_opened_nothing_is_refused),
		cmocka_unit_test(a_least_is_nobody_elses),
		cmocka_unit_test(a_least_holds_past_what_must_be),
		cmocka_unit_test(a_most_bounds),
		cmocka_unit_test(demand_before_prefetch_before_fill),
		cmocka_unit_test(too_little_at_start_says_how_much),
		cmocka_unit_test(sums_and_peaks),
		cmocka_unit_test(a_budget_takes_from_both),
		cmocka_unit_test(many_threads_stay_below_the_maximum),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
