/* How many requests that nobody waits for: against a model of an origin behind a way of its own. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/units.h"
#include "ufs/background.h"

#define MAX 96u

/* Answers begin after begin_ns; bodies share `total` bytes a second and get at most `each`. */
struct way {
	double begin_ns;
	double total;
	double each;
	double unit; /* bytes of a body */
};

/* Time of a body with `n` in flight; in a steady state n x unit / (begin + body) bytes a second. */
static double body_seconds(const struct way *way, double n)
{
	double alone = way->unit / way->each;
	double begin = way->begin_ns / 1e9;

	return n * way->unit / (begin + alone) > way->total ? n * way->unit / way->total - begin
							    : alone;
}

/* Seconds with as many in flight as are allowed, and one more: a reader's. The rate of the last
 * one. */
static double run(struct background *b, const struct way *way, unsigned int seconds, uint64_t *now)
{
	uint64_t end = *now + seconds * CLOCK_SECOND;
	double bytes = 0;

	while (*now < end) {
		unsigned int low = background_places(b);
		double body = body_seconds(way, low + 1);

		*now += (uint64_t)((way->begin_ns + body * 1e9) / (low + 1));
		if (*now + CLOCK_SECOND >= end)
			bytes += way->unit;
		background_answered(b, *now, (uint64_t)way->begin_ns, (uint64_t)(body * 1e9),
			(uint64_t)way->unit, low);
	}
	return bytes;
}

/* The first requests are a reader's own. */
static void run_alone(struct background *b, const struct way *way, uint64_t *now)
{
	double body = body_seconds(way, 1);

	for (unsigned int i = 0; i < 2 * BACKGROUND_FIRST; i++) {
		*now += (uint64_t)(way->begin_ns + body * 1e9);
		background_answered(b, *now, (uint64_t)way->begin_ns, (uint64_t)(body * 1e9),
			(uint64_t)way->unit, 0);
	}
}

static void test_shared_way_without_latency(void **state)
{
	const struct way way = { 500e3, 300e6, 300e6, 110 * KiB };
	struct background b;
	uint64_t now = CLOCK_SECOND;
	unsigned int most = 0;
	double rate;

	(void)state;
	background_init(&b, MAX);
	run_alone(&b, &way, &now);
	for (int i = 0; i < 10; i++) { /* a reader's request never waits behind many */
		(void)run(&b, &way, 1, &now);
		most = max(most, background_places(&b));
	}
	rate = run(&b, &way, 5, &now);
	assert_true(most <= BACKGROUND_FIRST);
	assert_true(background_places(&b) <= BACKGROUND_FIRST / 2);
	assert_true(rate > 0.95 * way.total);
}

static void test_shared_way_with_latency(void **state)
{
	const struct way way = { 20e6, 300e6, 90e6, MiB };
	struct background b;
	uint64_t now = CLOCK_SECOND;
	double rate;

	(void)state;
	background_init(&b, MAX);
	run_alone(&b, &way, &now);
	rate = run(&b, &way, 5, &now);
	assert_true(background_places(&b) < MAX / 4);
	assert_true(rate > 0.95 * way.total);
}

static void test_latency_asks_for_more(void **state)
{
	const struct way near = { 20e6, 1e12, 90e6, 110 * KiB };
	const struct way far = { 100e6, 1e12, 90e6, 110 * KiB };
	struct background b;
	uint64_t now = CLOCK_SECOND;

	(void)state;
	background_init(&b, 2 * MAX);
	assert_int_equal(background_places(&b), BACKGROUND_FIRST);
	run_alone(&b, &near, &now);
	(void)run(&b, &near, 1, &now);
	assert_int_equal(background_places(&b), 2 * MAX);
	background_init(&b, 2 * MAX);
	run_alone(&b, &far, &now);
	(void)run(&b, &far, 2, &now);
	assert_int_equal(background_places(&b), 2 * MAX);
}

static void test_slow_connections_keep_it_open(void **state)
{
	const struct way way = { 20e6, 1e12, 2e6, MiB };
	struct background b;
	uint64_t now = CLOCK_SECOND;
	double rate;

	(void)state;
	background_init(&b, MAX);
	(void)run(&b, &way, 60, &now);
	rate = run(&b, &way, 60, &now);
	assert_int_equal(background_places(&b), MAX);
	assert_true(rate > 0.9 * MAX * way.each);
}

/* The first answers came out of the server's memory, say. */
static void test_longer_answers_are_no_queue(void **state)
{
	const struct way first = { 500e3, 1e12, 300e6, 110 * KiB };
	const struct way later = { 20e6, 1e12, 300e6, 110 * KiB };
	struct background b;
	uint64_t now = CLOCK_SECOND;

	(void)state;
	background_init(&b, MAX);
	run_alone(&b, &first, &now);
	(void)run(&b, &later, 5, &now);
	assert_int_equal(background_places(&b), MAX);
}

static void test_opens_again(void **state)
{
	const struct way narrow = { 500e3, 100e6, 100e6, 110 * KiB };
	const struct way wide = { 20e6, 1e12, 100e6, 110 * KiB };
	struct background b;
	uint64_t now = CLOCK_SECOND;

	(void)state;
	background_init(&b, MAX);
	run_alone(&b, &narrow, &now);
	(void)run(&b, &narrow, 5, &now);
	assert_true(background_places(&b) <= BACKGROUND_FIRST / 2);
	(void)run(&b, &wide, 15, &now);
	assert_int_equal(background_places(&b), MAX);
}

static void test_too_few_teach_nothing(void **state)
{
	struct background b;

	(void)state;
	background_init(&b, MAX);
	for (uint64_t i = 1; i < 5000; i++)
		background_answered(&b, i * CLOCK_MS, 1, CLOCK_MS, MiB, 3);
	assert_int_equal(background_places(&b), BACKGROUND_FIRST);
}

static void test_small_maximum(void **state)
{
	const struct way way = { 20e6, 1e12, 90e6, 110 * KiB };
	struct background b;
	uint64_t now = CLOCK_SECOND;

	(void)state;
	for (unsigned int most = 1; most <= 3; most += 2) {
		background_init(&b, most);
		(void)run(&b, &way, 5, &now);
		assert_int_equal(background_places(&b), most);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_shared_way_without_latency),
		cmocka_unit_test(test_shared_way_with_latency),
		cmocka_unit_test(test_longer_answers_are_no_queue),
		cmocka_unit_test(test_latency_asks_for_more),
		cmocka_unit_test(test_slow_connections_keep_it_open),
		cmocka_unit_test(test_opens_again),
		cmocka_unit_test(test_too_few_teach_nothing),
		cmocka_unit_test(test_small_maximum),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
