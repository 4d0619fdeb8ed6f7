/*
 * The scrub in a whole worker: damage in chunk files is found by an order, by a pass and after
 * another boot, dropped, counted and fetched again; a sample tells rot from change; where a pass was
 * outlives the worker.
 */
#include "tests/unit/cacheworker/damage.h"
#include "cacheworker/scrub_internal.h"

#define FILES 24u

static json_t *ask(struct world *w, const char *method, const json_t *body)
{
	struct err e = ERR_INIT;
	json_t *json = NULL;

	if (admin_call(w->admin, method, "/v1/scrub", body, DEADLINE, &json, &e) < 0)
		fail_msg("%s", e.text);
	return json;
}

static uint64_t number(const json_t *tally, const char *name)
{
	const json_t *value = json_object_get(tally, name);

	assert_true(json_is_integer(value));
	return (uint64_t)json_integer_value(value);
}

/* The tally of the order, which is the caller's, or NULL while it goes on. */
static json_t *order_done(struct world *w)
{
	json_t *json = ask(w, NULL, NULL);
	bool done = json_is_true(json_object_get(json, "order_done"));
	json_t *tally = done ? json_incref(json_object_get(json, "ordered")) : NULL;

	json_decref(json);
	return tally;
}

static json_t *scrub_all(struct world *w, json_t *body)
{
	json_t *tally;

	json_decref(ask(w, "POST", body));
	json_decref(body);
	while ((tally = order_done(w)) == NULL)
		test_advance(5 * CLOCK_MS); /* one that is asked all the time is never idle */
	return tally;
}

static struct world *filled(void)
{
	struct world *w = world_new(1 * GiB, FILES);
	uint32_t local;
	uint32_t ranges;

	world_read_all(w, 0, &local, &ranges);
	world_wait_written(w);
	return w;
}

static void test_ordered(void **state)
{
	struct world *w = filled();
	uint64_t gets = world_origin_gets(w);
	json_t *tally = scrub_all(w, json_object());
	uint64_t pieces = number(tally, "pieces");
	uint32_t local;
	uint32_t ranges;

	(void)state;
	assert_true(pieces >= FILES);
	assert_int_equal(number(tally, "bad_pieces"), 0);
	assert_true(number(tally, "bytes") >= table_info(w->table)->live_bytes);
	assert_int_equal(number(tally, "unknown_chunks"), 0);
	assert_int_equal(world_origin_gets(w), gets); /* it reads disks, not the bucket */
	json_decref(tally);

	damage(w, 1, (off_t)world_offset_of(w, 6) + 100);
	tally = scrub_all(w, json_pack("{s:I}", "rate", (json_int_t)GiB));
	assert_int_equal(number(tally, "bad_pieces"), 1);
	assert_int_equal(number(tally, "repaired_places"), number(tally, "places"));
	assert_int_equal(json_array_size(json_object_get(tally, "findings")), 1);
	assert_string_equal(json_string_value(json_object_get(
				    json_array_get(json_object_get(tally, "findings"), 0), "key")),
		"file-006");
	assert_true(world_origin_gets(w) > gets);
	json_decref(tally);
	assert_int_equal(counter_get(&w->worker.counters.scrub_bad), 1);

	gets = world_origin_gets(w);
	tally = scrub_all(w, json_object());
	assert_int_equal(number(tally, "bad_pieces"), 0);
	assert_int_equal(number(tally, "pieces"), pieces);
	json_decref(tally);
	world_read_all(w, 0, &local, &ranges);
	assert_int_equal(world_origin_gets(w), gets);
	world_free(w);
}

/* Nobody reads: after another boot all is checked by itself, and damage is gone. */
static void test_other_boot(void **state)
{
	struct world *w = filled();
	uint32_t local;
	uint32_t ranges;

	(void)state;
	world_stop_worker(w);
	damage(w, 1, (off_t)world_offset_of(w, 6) + 100);
	damage_another_boot(w);
	world_start_worker(w, 1 * GiB);
	test_wait(tier_set_unverified(w->worker.tiers) == 0);
	assert_true(counter_get(&w->worker.counters.scrub_bad) == 1);
	assert_true(counter_get(&w->worker.counters.scrubbed_bytes) > 0);
	world_read_all(w, 0, &local, &ranges);
	world_stop_worker(w);
	world_start_worker(w, 1 * GiB); /* the same boot: nothing to check */
	assert_int_equal(tier_set_unverified(w->worker.tiers), 0);
	world_read_all(w, 0, &local, &ranges);
	assert_int_equal(counter_get(&tier_set_counters(w->worker.tiers)->mismatches), 0);
	world_free(w);
}

/* Passes come by themselves, and one goes on where the worker was stopped. */
static void test_pass(void **state)
{
	struct world *w = filled();
	json_t *json;

	(void)state;
	json = ask(w, NULL, NULL);
	assert_false(json_is_true(json_object_get(json, "in_pass"))); /* all is new */
	json_decref(json);
	world_stop_worker(w);
	w->scrub_rate = GiB;
	w->scrub_max_age = CLOCK_SECOND;
	damage(w, 1, (off_t)world_offset_of(w, 6) + 100);
	world_start_worker(w, 1 * GiB);
	test_wait(counter_get(&w->worker.counters.scrub_bad) != 0);
	world_free(w);
}

/* A pass that would take for ever goes on at another rate, and one that is off begins. */
static void test_rates_change(void **state)
{
	struct world *w = filled();
	struct worker_config faster = { .scrub_rate = GiB, .scrub_max_age = CLOCK_SECOND };
	struct worker_config off = { .scrub_max_age = CLOCK_SECOND };

	(void)state;
	world_stop_worker(w);
	w->scrub_rate = 1;
	w->scrub_max_age = 1;
	damage(w, 1, (off_t)world_offset_of(w, 6) + 100);
	world_start_worker(w, 1 * GiB);
	test_wait(counter_get(&w->worker.counters.scrubbed_bytes) != 0);
	worker_set_rates(&w->worker, &off);
	worker_set_rates(&w->worker, &faster);
	test_wait(counter_get(&w->worker.counters.scrub_bad) != 0);
	world_free(w);
}

static void test_state_outlives(void **state)
{
	struct world *w = filled();
	struct scrub *s = w->worker.scrub;
	const struct chunk_id cursor = { .volume = table_info(w->table)->id.volume,
		.lineage = 0x123456789abcdef0ull,
		.chunk = 77 };
	struct scrub loaded = { .worker = &w->worker };

	(void)state;
	pthread_mutex_init(&loaded.lock, NULL);
	scrub_load_state(&loaded);
	assert_int_equal(loaded.pass_started, s->pass_started);
	assert_false(loaded.in_pass);
	loaded.in_pass = true;
	loaded.has_cursor = true;
	loaded.cursor = cursor;
	loaded.pass_started = 1234567;
	scrub_save_state(&loaded);
	loaded = (struct scrub){ .worker = &w->worker };
	pthread_mutex_init(&loaded.lock, NULL);
	scrub_load_state(&loaded);
	assert_int_equal(loaded.pass_started, 1234567);
	assert_true(loaded.in_pass && loaded.has_cursor);
	assert_int_equal(chunk_id_compare(&loaded.cursor, &cursor), 0);
	pthread_mutex_destroy(&loaded.lock);
	world_free(w);
}

/* ---- samples --------------------------------------------------------------------------------- */

static json_t *sample(struct world *w, int n)
{
	return scrub_all(w, json_pack("{s:i, s:b}", "sample", n, "sample_only", 1));
}

static json_t *sample_part(struct world *w, double ratio)
{
	return scrub_all(w, json_pack("{s:f, s:b}", "sample_ratio", ratio, "sample_only", 1));
}

static void test_sample(void **state)
{
	struct world *w = filled();
	uint64_t units = world_units(w);
	uint64_t gets = world_origin_gets(w);
	char path[160];
	json_t *tally = sample(w, 5);

	(void)state;
	assert_int_equal(number(tally, "sampled_units"), 5);
	assert_int_equal(number(tally, "changed_units"), 0);
	assert_int_equal(number(tally, "differing_units"), 0);
	assert_int_equal(world_origin_gets(w), gets + 5);
	json_decref(tally);
	tally = sample_part(w, 1);
	assert_int_equal(number(tally, "sampled_units"), units);
	json_decref(tally);
	tally = sample_part(w, 0.5);
	assert_int_equal(number(tally, "sampled_units"), (units + 1) / 2);
	json_decref(tally);
	/* as an older cachectl sends it */
	tally = scrub_all(
		w, json_pack("{s:i, s:b, s:b}", "sample", 50, "percent", 1, "sample_only", 1));
	assert_int_equal(number(tally, "sampled_units"), (units + 1) / 2);
	json_decref(tally);

	/* Rot is told from a change at the origin. */
	damage(w, 1, (off_t)world_offset_of(w, 6) + 100);
	(void)snprintf(path, sizeof(path), "%s/data/file-003", w->dir);
	assert_int_equal(unlink(path), 0);
	tally = sample_part(w, 1);
	assert_int_equal(number(tally, "sampled_units"), units);
	assert_int_equal(number(tally, "bad_pieces"), 1);
	assert_int_equal(number(tally, "changed_units"), 1);
	assert_int_equal(number(tally, "differing_units"), 0);
	assert_int_equal(number(tally, "repaired_places"), 1);
	json_decref(tally);
	world_write_files(w, 3, 4);
	world_free(w);
}

static void test_bad_orders(void **state)
{
	struct world *w = world_new(1 * GiB, 1);
	json_t *bad[] = { json_pack("{s:s}", "volume", "xyz"), json_pack("{s:i}", "rate", -1),
		json_pack("{s:f}", "sample_ratio", 1.01) };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct err e = ERR_INIT;
		json_t *json = NULL;

		assert_int_equal(
			admin_call(w->admin, "POST", "/v1/scrub", bad[i], DEADLINE, &json, &e),
			-EINVAL);
		json_decref(bad[i]);
	}
	world_free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ordered),
		cmocka_unit_test(test_other_boot),
		cmocka_unit_test(test_pass),
		cmocka_unit_test(test_rates_change),
		cmocka_unit_test(test_state_outlives),
		cmocka_unit_test(test_sample),
		cmocka_unit_test(test_bad_orders),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
