/* Points of the past: rates, gaps, what a point of an answer stands for, bounds. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/arena.h"
#include "base/clock.h"
#include "master/history.h"

#define STEP  (30 * CLOCK_SECOND)
#define START (1000 * CLOCK_SECOND)

static uint64_t taken; /* samples of the test */

static void begin(struct history *h, const struct history_cluster *cluster)
{
	history_begin(h, START + taken * STEP, (int64_t)(5000 + taken * 30), cluster);
}

static void dataset(
	struct history *h, const char *name, uint64_t read, uint64_t missed, double cached)
{
	char uuid[40];

	(void)snprintf(uuid, sizeof(uuid), "id-%s", name);
	history_dataset(h, &(struct history_dataset){ .uuid = uuid,
				   .name = name,
				   .counts = { read, missed, missed },
				   .cached = cached });
}

static void end(struct history *h)
{
	history_end(h, true);
	taken++;
}

static int setup(void **state)
{
	taken = 0;
	*state = history_new(STEP);
	return *state ? 0 : -1;
}

static int teardown(void **state)
{
	struct arena_use use;

	history_free(*state);
	arena_use(ARENA_HISTORY, &use);
	return use.used == 0 ? 0 : -1;
}

static json_t *ask(struct history *h, const char *name, uint64_t seconds, uint32_t points)
{
	struct err e = ERR_INIT;
	json_t *json = NULL;

	assert_int_equal(history_json(h, name, seconds, points, &json, &e), 0);
	return json;
}

static const json_t *list(const json_t *json, const char *of, size_t at, const char *name)
{
	const json_t *from = json_object_get(json, of);

	if (json_is_array(from))
		from = json_array_get(from, at);
	from = json_object_get(from, name);
	assert_true(json_is_array(from));
	return from;
}

/* Whole numbers, below 0 for null; `n` of them. */
static void is(const json_t *values, size_t n, ...)
{
	va_list ap;

	assert_int_equal(json_array_size(values), n);
	va_start(ap, n);
	for (size_t i = 0; i < n; i++) {
		const json_t *value = json_array_get(values, i);
		double want = va_arg(ap, double);

		if (want < 0)
			assert_true(json_is_null(value));
		else
			assert_true(fabs(json_number_value(value) - want) < 0.0006);
	}
	va_end(ap);
}

static void test_rates(void **state)
{
	struct history *h = *state;
	const struct history_cluster none = { 0 };
	struct history_cluster some = {
		.counts = { 3000, 300, 600 }, .used = 7, .capacity = 10, .stalls = { 0, 1, 2, 3 }
	};
	json_t *json = ask(h, NULL, 0, 10);

	assert_int_equal(json_array_size(json_object_get(json, "times")), 0); /* nothing yet */
	json_decref(json);
	begin(h, &none);
	dataset(h, "a", 500, 100, -1);
	end(h);
	begin(h, &some);
	dataset(h, "a", 500 + 3000, 100 + 300, 0.25);
	dataset(h, "b", 9000, 9000, 1);
	end(h);
	json = ask(h, NULL, 0, 10);
	is(json_object_get(json, "times"), 2, 5000.0, 5030.0);
	is(list(json, "cluster", 0, "used"), 2, 0.0, 7.0);
	is(list(json, "cluster", 0, "read_bytes_per_s"), 2, -1.0, 100.0);
	is(list(json, "cluster", 0, "origin_bytes_per_s"), 2, -1.0, 20.0);
	is(list(json, "cluster", 0, "hit_ratio"), 2, -1.0, 0.9);
	is(json_object_get(json_object_get(json_object_get(json, "cluster"), "stalls"), "origin"),
		2, 0.0, 3.0);
	is(list(json, "datasets", 0, "cached_ratio"), 2, -1.0, 0.25);
	is(list(json, "datasets", 0, "read_bytes_per_s"), 2, -1.0, 100.0);
	is(list(json, "datasets", 0, "hit_ratio"), 2, -1.0, 0.9);
	/* What is seen for the first time has no rate: it may have been there for long. */
	is(list(json, "datasets", 1, "read_bytes_per_s"), 2, -1.0, -1.0);
	is(list(json, "datasets", 1, "cached_ratio"), 2, -1.0, 1.0);
	json_decref(json);
	/* One of the workers was started again: what the others have counted is not new. */
	some.counts = (struct history_counts){ 2000, 200, 400 };
	begin(h, &some);
	dataset(h, "a", 3530, 460, 0.5); /* missed more than was read: told at different times */
	end(h);
	json = ask(h, "a", 30, 10);
	is(json_object_get(json, "times"), 1, 5060.0);
	is(list(json, "cluster", 0, "read_bytes_per_s"), 1, 0.0);
	is(list(json, "datasets", 0, "hit_ratio"), 1, 0.0);
	json_decref(json);
	some.counts.read += 60;
	begin(h, &some);
	dataset(h, "a", 3530, 460, 0.5);
	end(h);
	json = ask(h, "a", 30, 10);
	is(list(json, "cluster", 0, "read_bytes_per_s"), 1, 2.0);
	json_decref(json);
}

static void test_gaps(void **state)
{
	struct history *h = *state;
	const struct history_cluster none = { 0 };
	struct err e = ERR_INIT;
	json_t *json;

	begin(h, &none);
	dataset(h, "a", 0, 0, 1);
	end(h);
	begin(h, &none);
	history_end(h, false); /* there was no memory to ask for all */
	taken++;
	begin(h, &none);
	dataset(h, "a", 60, 0, 1);
	end(h);
	json = ask(h, "a", 0, 10);
	is(list(json, "datasets", 0, "cached_ratio"), 3, 1.0, -1.0, 1.0);
	json_decref(json);
	begin(h, &none);
	end(h); /* it is gone */
	assert_int_equal(history_json(h, "a", 0, 10, &json, &e), -ENOENT);
	json = ask(h, NULL, 0, 10);
	assert_int_equal(json_array_size(json_object_get(json, "datasets")), 0);
	json_decref(json);
}

/* Ten samples in three points: the newest whole, the oldest of what is left. */
static void test_groups(void **state)
{
	struct history *h = *state;
	struct history_cluster cluster = { 0 };
	json_t *json;

	for (uint64_t i = 0; i < 10; i++) {
		cluster.stalls[0] += i;
		cluster.used = i;
		begin(h, &cluster);
		end(h);
	}
	json = ask(h, NULL, 0, 3);
	assert_true(fabs(json_number_value(json_object_get(json, "step_s")) - 120) < 0.01);
	is(json_object_get(json, "times"), 3, 5000.0 + 30, 5000.0 + 5 * 30, 5000.0 + 9 * 30);
	is(list(json, "cluster", 0, "used"), 3, 1.0, 5.0, 9.0);
	is(json_object_get(json_object_get(json_object_get(json, "cluster"), "stalls"), "master"),
		3, 0.0 + 1, 2.0 + 3 + 4 + 5, 6.0 + 7 + 8 + 9);
	json_decref(json);
	json = ask(h, NULL, 60, 3);
	is(list(json, "cluster", 0, "used"), 2, 8.0, 9.0);
	json_decref(json);
}

static void test_bounds(void **state)
{
	struct history *h = *state;
	const struct history_cluster none = { 0 };
	char name[16];
	json_t *json;

	begin(h, &none);
	for (unsigned int i = 0; i < HISTORY_SERIES + 5; i++) {
		(void)snprintf(name, sizeof(name), "d%u", i);
		dataset(h, name, 0, 0, 0);
	}
	end(h);
	json = ask(h, NULL, 0, 1);
	assert_int_equal(json_array_size(json_object_get(json, "datasets")), HISTORY_SERIES);
	assert_int_equal(json_integer_value(json_object_get(json, "left_out")), 5);
	json_decref(json);
	/* The oldest go. */
	for (unsigned int i = 0; i < HISTORY_POINTS + 10; i++) {
		begin(h, &none);
		dataset(h, "d0", 0, 0, 0.5);
		end(h);
	}
	json = ask(h, "d0", 0, HISTORY_POINTS);
	assert_int_equal(json_array_size(json_object_get(json, "times")), HISTORY_POINTS);
	assert_int_equal(json_integer_value(json_array_get(json_object_get(json, "times"), 0)),
		5000 + 30 * (taken - HISTORY_POINTS));
	assert_int_equal(
		json_array_size(list(json, "datasets", 0, "cached_ratio")), HISTORY_POINTS);
	json_decref(json);
	json = ask(h, "d0", UINT64_MAX, 1);
	is(list(json, "datasets", 0, "cached_ratio"), 1, 0.5);
	json_decref(json);
}

/* What a worker says that is not well. */
static void test_any_number(void **state)
{
	const struct history_cluster cluster = { .used = UINT64_MAX, .capacity = UINT64_MAX };
	json_t *json;

	begin(*state, &cluster);
	end(*state);
	json = ask(*state, NULL, 0, 1);
	assert_true(json_integer_value(json_array_get(list(json, "cluster", 0, "used"), 0)) > 0);
	assert_true(
		json_integer_value(json_array_get(list(json, "cluster", 0, "capacity"), 0)) > 0);
	json_decref(json);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_rates, setup, teardown),
		cmocka_unit_test_setup_teardown(test_gaps, setup, teardown),
		cmocka_unit_test_setup_teardown(test_groups, setup, teardown),
		cmocka_unit_test_setup_teardown(test_bounds, setup, teardown),
		cmocka_unit_test_setup_teardown(test_any_number, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
