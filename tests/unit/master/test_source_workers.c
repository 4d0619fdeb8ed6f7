/* What several workers have of a source, together. */
#include "tests/unit/master/source_fixture.h"
#include "placement/placement.h"
#include "proto/granary.pb-c.h"
#include "tests/clock/test_clock.h"

static struct volume_id volume;

static int setup_volume(void **state)
{
	struct got got;

	if (sf_setup(state) < 0)
		return -1;
	got = sf_ask(false, NULL);
	volume = got.generation.id.volume;
	table_unref(got.table);
	return 0;
}

static struct source_view look(void)
{
	struct source_view view;

	assert_int_equal(source_set_view(sf.set, &volume, &view), 0);
	return view;
}

static void say(uint64_t worker, struct source_report report)
{
	source_set_report(sf.set, worker, &volume, &report);
}

static void sums(void **state)
{
	struct source_report r;
	json_t *json;

	(void)state;
	assert_false(look().heard);
	say(1, (struct source_report){ .cached_bytes = 10, .origin_bytes = 7, .hit_bytes = 1 });
	say(2, (struct source_report){ .cached_bytes = 20, .copy_bytes = 5, .whole = true });
	say(3, (struct source_report){ 0 });
	say(1, (struct source_report){ .cached_bytes = 11, .origin_bytes = 8, .miss_bytes = 2 });
	r = look().reported;
	assert_true(look().heard);
	assert_int_equal(r.cached_bytes, 31);
	assert_int_equal(r.copy_bytes, 5);
	assert_int_equal(r.origin_bytes, 8);
	assert_int_equal(r.hit_bytes, 0);
	assert_int_equal(r.miss_bytes, 2);
	json = source_set_workers_json(sf.set, &volume);
	assert_int_equal(json_array_size(json), 2); /* the third has nothing */
	assert_string_equal(json_string_value(json_object_get(json_array_get(json, 1), "id")),
		"0000000000000002");
	assert_true(json_is_true(json_object_get(json_array_get(json, 1), "whole")));
	json_decref(json);
}

static void capacities(void **state)
{
	(void)state;
	assert_int_equal(look().capacity, 0);
	source_set_capacity(sf.set, 1, 100);
	source_set_capacity(sf.set, 2, 50);
	source_set_capacity(sf.set, 1, 70);
	assert_int_equal(look().capacity, 120);
	source_set_forget_worker(sf.set, 1);
	assert_int_equal(look().capacity, 50);
}

/* An order is followed once all have done so; what each dropped for it is added up. */
static void orders_wait_for_all(void **state)
{
	struct source_report r;

	(void)state;
	say(1, (struct source_report){ .cached_bytes = 1, .evicted = 3, .evicted_bytes = 100 });
	say(2, (struct source_report){ .cached_bytes = 1,
		       .evicted = 4,
		       .evicted_bytes = 20,
		       .evicted_paths = 9,
		       .evicted_paths_bytes = 5 });
	r = look().reported;
	assert_int_equal(r.evicted, 3);
	assert_int_equal(r.evicted_paths, 0);
	say(1, (struct source_report){ .evicted = 4,
		       .evicted_bytes = 7,
		       .evicted_paths = 9,
		       .evicted_paths_bytes = 6 });
	r = look().reported;
	assert_int_equal(r.evicted, 4);
	assert_int_equal(r.evicted_bytes, 27);
	assert_int_equal(r.evicted_paths, 9);
	assert_int_equal(r.evicted_paths_bytes, 11);
}

/* One that is out has nothing, and nobody waits for it. */
static void who_is_out_counts_no_more(void **state)
{
	struct source_report r;

	(void)state;
	say(1, (struct source_report){ .cached_bytes = 1, .evicted = 1 });
	say(2, (struct source_report){ .cached_bytes = 8, .evicted = 2 });
	assert_int_equal(look().reported.evicted, 1);
	source_set_forget_worker(sf.set, 1);
	r = look().reported;
	assert_int_equal(r.evicted, 2);
	assert_int_equal(r.cached_bytes, 8);
	source_set_forget_worker(sf.set, 7); /* nobody */
	assert_int_equal(look().reported.cached_bytes, 8);
	say(1, (struct source_report){ .cached_bytes = 1, .evicted = 2 }); /* back */
	assert_int_equal(look().reported.cached_bytes, 9);
}

/* What readers got of it they got; and it is not waited for. */
static void sums_do_not_fall(void **state)
{
	struct source_report r;

	(void)state;
	say(1, (struct source_report){ .cached_bytes = 4,
		       .hit_bytes = 7,
		       .miss_bytes = 2,
		       .origin_bytes = 3,
		       .evicted = 1 });
	say(2, (struct source_report){ .cached_bytes = 8, .hit_bytes = 1, .evicted = 2 });
	source_set_forget_worker(sf.set, 1);
	r = look().reported;
	assert_int_equal(r.cached_bytes, 8);
	assert_int_equal(r.hit_bytes, 8);
	assert_int_equal(r.miss_bytes, 2);
	assert_int_equal(r.origin_bytes, 3);
	assert_int_equal(r.evicted, 2);
	source_set_forget_worker(sf.set, 2);
	assert_int_equal(look().reported.evicted, 0); /* nobody */
	say(1, (struct source_report){ .cached_bytes = 4, .hit_bytes = 9, .evicted = 2 });
	r = look().reported;
	assert_int_equal(r.hit_bytes, 10);
	assert_int_equal(r.evicted, 2);
}

/* The keepers that workers are told of. They are looked for once a second. */
static void expect_keepers(const uint32_t *numbers, size_t n)
{
	_cleanup_free_ uint8_t *packed = NULL;
	const Granary__Keepers *keepers;
	Granary__Retention *retention;
	uint64_t next;
	size_t len;

	test_advance(CLOCK_SECOND);
	packed = source_set_retention(sf.set, 0, &next, &len);
	retention = granary__retention__unpack(NULL, len, packed);
	keepers = retention->sources[0]->keepers;
	assert_non_null(keepers);
	assert_int_equal(keepers->n_workers, n);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(keepers->workers[i], numbers[i]);
	granary__retention__free_unpacked(retention, NULL);
}

/* Most bytes first; who has just begun, has no number, is gone, or keeps only its share, is none. */
static void keepers_are_told(void **state)
{
	static const uint32_t all[] = { 13, 11, 12 };
	static const uint32_t left[] = { 11, 12 };

	(void)state;
	say(1, (struct source_report){ .copy_bytes = 1000, .whole = true, .number = 11 });
	say(2, (struct source_report){ .copy_bytes = 999, .whole = true, .number = 12 });
	say(3, (struct source_report){
		       .cached_bytes = 900, .copy_bytes = 101, .whole = true, .number = 13 });
	say(4, (struct source_report){ .copy_bytes = 800, .whole = true, .number = 14 });
	say(5, (struct source_report){ .cached_bytes = 5000, .number = 15 });
	say(6, (struct source_report){
		       .copy_bytes = 1001, .whole = true, .number = PLACEMENT_NONE });
	expect_keepers(all, ARRAY_SIZE(all));
	source_set_forget_worker(sf.set, 3);
	expect_keepers(left, ARRAY_SIZE(left));
}

/* As many as are told, the best of more. */
static void keepers_are_bounded(void **state)
{
	uint32_t best[16];

	(void)state;
	for (uint32_t i = 0; i < 1000; i++)
		say(i + 1, (struct source_report){ .copy_bytes = 100000 + i * 7 % 1000,
				   .whole = true,
				   .number = (uint16_t)(i * 7 % 1000) });
	for (uint32_t i = 0; i < ARRAY_SIZE(best); i++)
		best[i] = 999 - i;
	expect_keepers(best, ARRAY_SIZE(best));
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup_volume, sf_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(sums),
		CASE(capacities),
		CASE(orders_wait_for_all),
		CASE(who_is_out_counts_no_more),
		CASE(sums_do_not_fall),
		CASE(keepers_are_told),
		CASE(keepers_are_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
