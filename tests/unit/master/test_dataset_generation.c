/* Generations of datasets: which a number means, pins, rollback, differences, preloads of an older lineage. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <inttypes.h>
#include "tests/unit/master/dataset_fixture.h"
#include "master/preload_internal.h"
#include "master/source_internal.h"
#include "proto/granary.pb-c.h"
#include "tests/clock/test_clock.h"

static bool keeps(const struct dataset *d, uint64_t generation)
{
	struct record_generation g;

	return source_set_generation(df.sources, &d->mounts[0].volume, generation, &g) == 0;
}

static void more_generations(const char *name, unsigned int n)
{
	static unsigned int number;

	while (n-- > 0) {
		char file[32];

		(void)snprintf(file, sizeof(file), "more-%u", number++);
		fixture_put(file, "x");
		df_list(name);
	}
}

static int pin(uint64_t generation, bool on, struct dataset *out)
{
	const struct dataset_which which = { .generation = generation };

	return dataset_pin(df.set, "x", &which, 1, on, out, &df.e);
}

static int roll_back(uint64_t generation, struct dataset *out)
{
	const struct dataset_which which = { .generation = generation };

	return dataset_rollback(df.set, "x", &which, 1, out, &df.e);
}

static void seen_done(
	struct source_wait *wait, int status, struct source_answer *answer, const struct err *why)
{
	(void)wait;
	(void)answer;
	(void)why;
	assert_int_equal(status, 0);
}

static void pins_and_rollback(void **state)
{
	struct dataset d;
	struct dataset out;
	json_t *json;

	(void)state;
	assert_int_equal(df_create("{'name':'x'," SOURCE "}"), 0);
	df_drain();
	d = df_find("x");
	more_generations("x", 2); /* 1 by the creation, 2, 3 */
	assert_false(keeps(&d, 1));
	df_expect(pin(1, true, &out), -ENOENT, "generation 1");
	assert_int_equal(pin(2, true, &out), 0);
	dataset_release(&out);
	assert_int_equal(roll_back(3, &out), 0);
	dataset_release(&out);
	more_generations("x", 12);
	assert_true(keeps(&d, 2) && keeps(&d, 3) && keeps(&d, 15) && !keeps(&d, 4));
	json = df_shown("x");
	assert_int_equal(json_integer_value(json_object_get(json, "generation")), 3);
	assert_int_equal(json_integer_value(json_object_get(json, "newest_generation")), 15);
	assert_true(json_is_true(json_object_get(json, "rolled_back")));
	assert_int_equal(json_integer_value(json_object_get(json, "total_files")), 4);
	json_decref(json);
	df_reopen();
	assert_int_equal(pin(2, false, &out), 0);
	dataset_release(&out);
	assert_int_equal(roll_back(0, &out), 0);
	dataset_release(&out);
	more_generations("x", 1);
	assert_true(!keeps(&d, 2) && !keeps(&d, 3) && keeps(&d, 16));
	df_expect(pin(16, false, &out), -ENOENT, "not pinned");
	dataset_release(&d);
}

/* The source has a new lineage, with a generation 1 of the files that are there. */
static void new_lineage(const struct dataset_generation *seen)
{
	struct source_wait wait = { .on_done = seen_done };

	wait.seen = (struct source_seen){ .lineage = seen->lineage, .generation = 99 };
	source_set_seal(df.sources, &seen->volume, &wait.seen, wait.seen.seal);
	source_table(df.sources, &seen->volume, &wait);
}

/* A new lineage counts from 1 again; what was pinned before stays what its number means. */
static void pins_outlive_their_lineage(void **state)
{
	struct dataset_generation shown;
	struct source_view view;
	struct dataset out;
	struct dataset d;
	json_t *json;

	(void)state;
	assert_int_equal(df_create("{'name':'x'," SOURCE "}"), 0);
	df_drain();
	d = df_find("x");
	assert_int_equal(pin(1, true, &out), 0);
	shown = out.pins[0];
	dataset_release(&out);
	more_generations("x", 2);
	assert_int_equal(source_set_view(df.sources, &shown.volume, &view), 0);
	new_lineage(&shown);
	assert_int_equal(source_set_view(df.sources, &shown.volume, &view), 0);
	assert_int_not_equal(view.newest.id.lineage, shown.lineage);
	assert_int_equal(view.newest.id.generation, 1);
	assert_int_equal(roll_back(1, &out), 0);
	assert_int_equal(out.shown[0].lineage, shown.lineage);
	dataset_release(&out);
	more_generations("x", 12);
	json = df_shown("x");
	assert_int_equal(json_integer_value(json_object_get(json, "generation")), 1);
	assert_true(json_is_true(json_object_get(json, "rolled_back")));
	assert_int_equal(json_integer_value(json_object_get(json, "total_files")), 2);
	json_decref(json);
	dataset_release(&d);
}

/* What a part shows is counted in the generation that it shows, though a newer lineage has one of the same number. */
static void a_part_counts_its_own_lineage(void **state)
{
	struct dataset_generation shown;
	struct dataset out;
	json_t *json;

	(void)state;
	assert_int_equal(file_mkdirs(fixture_in("origin/dir"), 0755), 0);
	fixture_put("dir/one", "1");
	assert_int_equal(df_create("{'name':'whole'," SOURCE "}"), 0);
	assert_int_equal(df_create("{'name':'x','mounts':[{'url':'file://@/origin/dir'}]}"), 0);
	df_drain();
	assert_int_equal(pin(1, true, &out), 0);
	shown = out.pins[0];
	dataset_release(&out);
	fixture_put("dir/two", "22");
	df_list("x");
	new_lineage(&shown);
	json = df_shown("x");
	assert_int_equal(json_integer_value(json_object_get(json, "total_files")), 2);
	assert_int_equal(json_integer_value(json_object_get(json, "generation")), 1);
	json_decref(json);
	assert_int_equal(roll_back(1, &out), 0);
	assert_int_equal(out.shown[0].lineage, shown.lineage);
	dataset_release(&out);
	json = df_shown("x");
	assert_int_equal(json_integer_value(json_object_get(json, "total_files")), 1);
	json_decref(json);
}

/* A preload is a use of its source; what it loads may go from the master. */
static void preloads_are_looked_after(void **state)
{
	struct preloads_config config = {
		.store = df.store, .sources = df.sources, .pool = df.pool
	};
	struct preloads *preloads = NULL;
	struct source_view view;
	json_t *answer = NULL;
	char volume[2 * VOLUME_ID_LEN + 1];
	bool joined;
	json_t *body;
	struct dataset d;

	(void)state;
	assert_int_equal(df_create("{'name':'x'," SOURCE "}"), 0);
	df_drain();
	d = df_find("x");
	more_generations("x", 1); /* 2 */
	assert_int_equal(preloads_new(&config, &preloads, &df.e), 0);
	hash_hex(d.mounts[0].volume.bytes, VOLUME_ID_LEN, volume);
	body = json_pack("{s:s, s:i}", "volume", volume, "generation", 1);
	assert_int_equal(preloads_create(preloads, &(struct preload_request){ .body = body },
				 &answer, &joined, &df.e),
		0);
	json_decref(answer);
	json_decref(body);
	source_set_idle(df.sources, &d.mounts[0].volume, true);
	preload_look_after(preloads);
	assert_int_equal(source_set_view(df.sources, &d.mounts[0].volume, &view), 0);
	assert_true(!view.idle && view.used > 0 && view.mounts == 0);
	assert_int_equal(preloads_json(preloads, 1, &answer, &df.e), 0);
	assert_string_equal(json_string_value(json_object_get(answer, "state")), "waiting");
	json_decref(answer);
	more_generations("x", 2);
	assert_false(keeps(&d, 1));
	preload_look_after(preloads);
	assert_int_equal(preloads_json(preloads, 1, &answer, &df.e), 0);
	assert_string_equal(json_string_value(json_object_get(answer, "state")), "failed");
	json_decref(answer);
	preloads_free(preloads);
	dataset_release(&d);
}

/* After a restart of the master. */
static struct preloads *reopen_preloads(void)
{
	struct preloads_config config = { 0 };
	struct preloads *preloads = NULL;

	df_reopen();
	config.store = df.store;
	config.sources = df.sources;
	config.datasets = df.set;
	config.pool = df.pool;
	assert_int_equal(preloads_new(&config, &preloads, &df.e), 0);
	return preloads;
}

/* What the one preload asks of workers. */
static void check_told(struct preloads *p, const struct dataset_generation *g, uint64_t end)
{
	Granary__PreloadJobs *m;
	uint8_t *packed;
	size_t len;

	pthread_mutex_lock(&p->lock);
	packed = preload_pack_jobs_locked(p, &len);
	pthread_mutex_unlock(&p->lock);
	assert_non_null(packed);
	m = granary__preload_jobs__unpack(NULL, len, packed);
	assert_non_null(m);
	assert_int_equal(m->n_jobs, 1);
	assert_true(m->jobs[0]->exact);
	assert_int_equal(m->jobs[0]->lineage, g->lineage);
	assert_int_equal(m->jobs[0]->generation, g->generation);
	assert_int_equal(m->jobs[0]->end, end);
	granary__preload_jobs__free_unpacked(m, NULL);
	free(packed);
}

static void check_shown(
	struct preloads *p, uint64_t id, const struct dataset_generation *g, const char *state)
{
	char lineage[17];
	json_t *json;

	(void)snprintf(lineage, sizeof(lineage), "%016" PRIx64, g->lineage);
	assert_int_equal(preloads_json(p, id, &json, &df.e), 0);
	assert_string_equal(json_string_value(json_object_get(json, "lineage")), lineage);
	assert_int_equal(json_integer_value(json_object_get(json, "generation")), g->generation);
	assert_string_equal(json_string_value(json_object_get(json, "state")), state);
	json_decref(json);
}

static uint64_t preload(struct preloads *p, json_t *body)
{
	json_t *answer = NULL;
	uint64_t id;
	bool joined;

	assert_non_null(body);
	if (preloads_create(p, &(struct preload_request){ .body = body }, &answer, &joined, &df.e) <
		0)
		fail_msg("%s", df.e.text);
	id = (uint64_t)json_integer_value(json_object_get(answer, "id"));
	json_decref(answer);
	json_decref(body);
	return id;
}

static json_t *body_of(const struct dataset_generation *g)
{
	char volume[2 * VOLUME_ID_LEN + 1];

	hash_hex(g->volume.bytes, VOLUME_ID_LEN, volume);
	return json_pack("{s:s, s:o, s:I}", "volume", volume, "lineage",
		json_sprintf("%016" PRIx64, g->lineage), "generation", (json_int_t)g->generation);
}

/* It loads what its dataset, or mount, shows, though a newer lineage has a generation of that number; also after a
 * restart of the master. */
static void preloads_of_an_older_lineage(void **state)
{
	struct dataset_generation newest;
	struct dataset_generation shown;
	struct preloads *preloads;
	json_t *json = NULL;
	struct record_generation g;
	struct source_view view;
	struct dataset out;
	uint64_t end;

	(void)state;
	assert_int_equal(df_create("{'name':'x'," SOURCE "}"), 0);
	df_drain();
	assert_int_equal(pin(1, true, &out), 0);
	shown = out.pins[0];
	dataset_release(&out);
	more_generations("x", 1);
	new_lineage(&shown);
	assert_int_equal(source_set_find(df.sources, &shown.volume,
				 &(struct source_pin){ shown.lineage, 1 }, &g),
		0);
	end = g.end;
	assert_int_equal(source_set_view(df.sources, &shown.volume, &view), 0);
	newest = (struct dataset_generation){ shown.volume, view.newest.id.lineage, 1 };
	assert_true(newest.lineage != shown.lineage && view.newest.end != end);
	assert_int_equal(roll_back(1, &out), 0);
	dataset_release(&out);

	preloads = reopen_preloads();
	assert_int_equal(preload(preloads, json_pack("{s:s}", "dataset", "x")), 1);
	df_drain();
	check_shown(preloads, 1, &shown, "waiting");
	check_told(preloads, &shown, end);
	preloads_free(preloads);

	preloads = reopen_preloads();
	preload_look_after(preloads);
	check_shown(preloads, 1, &shown, "waiting");
	check_told(preloads, &shown, end);
	assert_int_equal(preloads_cancel(preloads, 1, &json, &df.e), 0);
	json_decref(json);

	more_generations("x", 1); /* the newest lineage's first one is not the newest either */
	assert_int_equal(preload(preloads, body_of(&shown)), 2);
	check_told(preloads, &shown, end);
	assert_int_equal(preload(preloads, body_of(&newest)), 3);
	check_shown(preloads, 3, &newest, "waiting");
	check_shown(preloads, 2, &shown, "waiting");
	assert_int_equal(pin(1, false, &out), 0);
	dataset_release(&out);
	assert_int_equal(roll_back(0, &out), 0);
	dataset_release(&out);
	more_generations("x", 1); /* both go */
	preload_look_after(preloads);
	check_shown(preloads, 2, &shown, "failed");
	check_shown(preloads, 3, &newest, "failed");
	preloads_free(preloads);
}

static void report(
	struct preloads *p, uint64_t worker, uint64_t lineage, uint64_t generation, uint64_t files)
{
	Granary__PreloadReport m;

	granary__preload_report__init(&m);
	m.state = PRELOAD_RUNNING;
	m.lineage = lineage;
	m.generation = generation;
	m.files = files;
	pthread_mutex_lock(&p->lock);
	preload_take_part_locked(p, preload_find_locked(p, 1), worker, &m);
	pthread_mutex_unlock(&p->lock);
}

static void check_files(struct preloads *p, int files)
{
	json_t *json;

	assert_int_equal(preloads_json(p, 1, &json, &df.e), 0);
	assert_int_equal(json_integer_value(json_object_get(json, "files")), files);
	json_decref(json);
}

/* A new lineage counts from 1 again, and some workers still load a generation of the one before. */
static void workers_of_two_lineages(void **state)
{
	struct dataset_generation older;
	struct dataset_generation newer;
	struct preloads *preloads;
	struct source_view view;
	struct dataset d;

	(void)state;
	assert_int_equal(df_create("{'name':'x'," SOURCE "}"), 0);
	df_drain();
	d = df_find("x");
	more_generations("x", 2);
	assert_int_equal(source_set_view(df.sources, &d.mounts[0].volume, &view), 0);
	older = (struct dataset_generation){ d.mounts[0].volume, view.newest.id.lineage, 3 };
	preloads = reopen_preloads();
	assert_int_equal(preload(preloads, json_pack("{s:s}", "dataset", "x")), 1);
	df_drain();
	report(preloads, 7, older.lineage, 2, 0); /* it has not heard of the newest */
	check_shown(preloads, 1, &older, "waiting");
	new_lineage(&older);
	assert_int_equal(source_set_view(df.sources, &d.mounts[0].volume, &view), 0);
	newer = (struct dataset_generation){ d.mounts[0].volume, view.newest.id.lineage, 1 };
	assert_true(newer.lineage != older.lineage);
	report(preloads, 8, newer.lineage, newer.generation, 5);
	check_shown(preloads, 1, &newer, "waiting");
	report(preloads, 7, older.lineage, older.generation, 4);
	check_shown(preloads, 1, &newer, "waiting");
	check_files(preloads, 5);
	more_generations("x", 1);
	report(preloads, 8, newer.lineage, 2, 6);
	newer.generation = 2;
	check_shown(preloads, 1, &newer, "waiting");
	check_files(preloads, 6);
	preloads_free(preloads);
	dataset_release(&d);
}

static void as_many_pins_as_there_may_be(void **state)
{
	struct dataset out;

	(void)state;
	assert_int_equal(df_create("{'name':'x'," SOURCE "}"), 0);
	df_drain();
	for (uint64_t i = 1; i <= GENERATIONS_PINNED; i++) {
		assert_int_equal(pin(i, true, &out), 0);
		dataset_release(&out);
		more_generations("x", 1);
	}
	df_expect(pin(GENERATIONS_PINNED + 1, true, &out), -ENOSPC, "unpin");
	df_expect(roll_back(GENERATIONS_PINNED + 1, &out), -ENOSPC, "unpin");
}

static const char *key_of(const json_t *diff, const char *part, size_t i)
{
	return json_string_value(
		json_object_get(json_array_get(json_object_get(diff, part), i), "key"));
}

static void check_added(const char *name, uint64_t from, uint64_t to, const char *keys)
{
	struct dataset d = df_find(name);
	struct buf all = BUF_INIT(256);
	json_t *json = NULL;

	if (dataset_diff_json(df.set, &d, &d.mounts[0], from, to, NULL, 100, &json, &df.e) < 0)
		fail_msg("%s", df.e.text);
	for (size_t i = 0; key_of(json, "added", i); i++)
		assert_int_equal(
			buf_printf(&all, "%s%s", i ? " " : "", key_of(json, "added", i)), 0);
	assert_string_equal(buf_str(&all), keys);
	assert_int_equal(json_array_size(json_object_get(json, "changed")), 0);
	assert_int_equal(json_array_size(json_object_get(json, "removed")), 0);
	json_decref(json);
	buf_release(&all);
	dataset_release(&d);
}

static void differences(void **state)
{
	struct dataset d;
	json_t *json = NULL;

	(void)state;
	fixture_put("odd-\xff", "1");
	assert_int_equal(df_create("{'name':'x'," SOURCE "}"), 0);
	df_drain();
	d = df_find("x");
	fixture_put("a", "aaaa");
	fixture_put("c", "c");
	fixture_put("d", "d");
	assert_int_equal(unlink(fixture_in("origin/b")), 0);
	assert_int_equal(unlink(fixture_in("origin/odd-\xff")), 0);
	df_list("x");
	assert_int_equal(
		dataset_diff_json(df.set, &d, &d.mounts[0], 1, 2, NULL, 100, &json, &df.e), 0);
	assert_null(json_object_get(json, "next"));
	assert_int_equal(json_array_size(json_object_get(json, "added")), 2);
	assert_string_equal(key_of(json, "added", 0), "c");
	assert_string_equal(key_of(json, "added", 1), "d");
	assert_int_equal(json_array_size(json_object_get(json, "changed")), 1);
	assert_string_equal(key_of(json, "changed", 0), "a");
	assert_int_equal(json_array_size(json_object_get(json, "removed")), 2);
	assert_string_equal(key_of(json, "removed", 0), "b");
	assert_null(key_of(json, "removed", 1)); /* no UTF-8 */
	assert_string_equal(
		json_string_value(json_object_get(
			json_array_get(json_object_get(json, "removed"), 1), "key_hex")),
		"6f64642dff");
	json_decref(json);
	df_expect(dataset_diff_json(df.set, &d, &d.mounts[0], 1, 9, NULL, 100, &json, &df.e),
		-ENOENT, "generation 9");
	df_expect(dataset_diff_json(df.set, &d, &d.mounts[0], 1, 2, "99999.1", 100, &json, &df.e),
		-EINVAL, "after");
	dataset_release(&d);
}

/* By which of several lineages a number is compared: as a rollback to it. */
static void differences_of_lineages(void **state)
{
	struct dataset_generation pinned;
	struct dataset out;
	struct dataset d;

	(void)state;
	assert_int_equal(df_create("{'name':'x'," SOURCE "}"), 0);
	df_drain();
	assert_int_equal(pin(1, true, &out), 0);
	pinned = out.pins[0];
	dataset_release(&out);
	fixture_put("later", "1");
	df_list("x");
	new_lineage(&pinned); /* its first has that, too */
	fixture_put("last", "1");
	df_list("x");
	check_added("x", 1, 2, "last later");
	check_added("x", 1, 0, "last later");
	assert_int_equal(roll_back(1, &out), 0);
	dataset_release(&out);
	assert_int_equal(pin(1, false, &out), 0);
	dataset_release(&out);
	check_added("x", 1, 2, "last later"); /* it is shown */
	assert_int_equal(roll_back(1, &out), 0);
	assert_int_equal(out.shown[0].lineage, pinned.lineage);
	dataset_release(&out);
	assert_int_equal(roll_back(0, &out), 0);
	dataset_release(&out);
	check_added("x", 1, 2, "last"); /* of the newest lineage */
	d = df_find("x");
	assert_int_equal(d.n_shown, 0);
	dataset_release(&d);
}

static void differences_in_pages(void **state)
{
	struct dataset d;
	char next[64] = "";
	unsigned int seen = 0;

	(void)state;
	assert_int_equal(df_create("{'name':'x'," SOURCE "}"), 0);
	df_drain();
	d = df_find("x");
	for (unsigned int i = 0; i < 7; i++) {
		char name[16];

		(void)snprintf(name, sizeof(name), "n%u", i);
		fixture_put(name, "1");
	}
	df_list("x");
	do {
		json_t *json = NULL;
		const char *more;

		assert_int_equal(dataset_diff_json(df.set, &d, &d.mounts[0], 1, 2,
					 next[0] ? next : NULL, 2, &json, &df.e),
			0);
		for (size_t i = 0; i < json_array_size(json_object_get(json, "added")); i++)
			assert_int_equal(key_of(json, "added", i)[1], '0' + (int)seen++);
		more = json_string_value(json_object_get(json, "next"));
		(void)snprintf(next, sizeof(next), "%s", more ? more : "");
		json_decref(json);
	} while (next[0]);
	assert_int_equal(seen, 7);
	dataset_release(&d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(preloads_are_looked_after, df_setup, df_teardown),
		cmocka_unit_test_setup_teardown(
			preloads_of_an_older_lineage, df_setup, df_teardown),
		cmocka_unit_test_setup_teardown(workers_of_two_lineages, df_setup, df_teardown),
		cmocka_unit_test_setup_teardown(pins_and_rollback, df_setup, df_teardown),
		cmocka_unit_test_setup_teardown(pins_outlive_their_lineage, df_setup, df_teardown),
		cmocka_unit_test_setup_teardown(
			a_part_counts_its_own_lineage, df_setup, df_teardown),
		cmocka_unit_test_setup_teardown(
			as_many_pins_as_there_may_be, df_setup, df_teardown),
		cmocka_unit_test_setup_teardown(differences, df_setup, df_teardown),
		cmocka_unit_test_setup_teardown(differences_of_lineages, df_setup, df_teardown),
		cmocka_unit_test_setup_teardown(differences_in_pages, df_setup, df_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
