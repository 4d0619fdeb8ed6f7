/*
 * Datasets of several sources, views of a source, what is asked of workers for them, and that a record
 * and the policy of its sources are one.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include "tests/unit/master/dataset_fixture.h"
#include "master/preload_internal.h"
#include "proto/granary.pb-c.h"

#define TWO                                                                                      \
	"'mounts':[{'path':'/labels/','url':'file://@/other'},{'path':'//imgs','url':'file://@/" \
	"origin'}]"

static int setup_two(void **state)
{
	int r = df_setup(state);

	if (r == 0)
		fixture_put("../other/first", "1234");
	return r;
}

/* ---- what its sources are told --------------------------------------------------------------- */

static Granary__Retention *retention(void)
{
	uint64_t next;
	size_t len = 0;
	uint8_t *packed = source_set_retention(df.sources, 0, &next, &len);
	Granary__Retention *m;

	assert_non_null(packed);
	m = granary__retention__unpack(NULL, len, packed);
	assert_non_null(m);
	free(packed);
	return m;
}

static const Granary__SourceRetention *retention_of(
	const Granary__Retention *m, const struct volume_id *volume)
{
	for (size_t i = 0; i < m->n_sources; i++)
		if (memcmp(m->sources[i]->volume.data, volume->bytes, VOLUME_ID_LEN) == 0)
			return m->sources[i];
	fail_msg("no retention of a volume");
	return NULL;
}

static json_int_t number(const json_t *json, const char *name)
{
	const json_t *value = json_object_get(json, name);

	if (!json_is_integer(value))
		fail_msg("%s is no number", name);
	return json_integer_value(value);
}

static const char *text(const json_t *json, const char *name)
{
	return json_string_value(json_object_get(json, name));
}

static const json_t *mount_json(const json_t *json, size_t i)
{
	return json_array_get(json_object_get(json, "mounts"), i);
}

/* ---- several sources ------------------------------------------------------------------------- */

static void several_come_back(void **state)
{
	struct dataset d;

	(void)state;
	assert_int_equal(df_create("{'name':'x'," TWO ",'origin_requests':7}"), 0);
	df_reopen();
	d = df_find("x");
	assert_int_equal(d.n_mounts, 2);
	assert_string_equal(d.mounts[0].path, "/imgs");
	assert_string_equal(d.mounts[1].path, "/labels");
	assert_int_equal(dataset_sources_of(&d), 2);
	assert_int_equal(d.policy.parts, POLICY_REQUESTS);
	assert_int_equal(d.policy.to.origin_requests, 7);
	assert_ptr_equal(dataset_mount_at(&d, "labels"), NULL);
	assert_ptr_equal(dataset_mount_at(&d, "/labels//"), &d.mounts[1]);
	dataset_release(&d);
}

/* No older version shows them: it must not take the first for all. */
static void several_are_of_a_newer_format(void **state)
{
	struct buf value = BUF_INIT(STORE_VALUE_BYTES);
	struct dataset d;

	(void)state;
	assert_int_equal(df_create("{'name':'x'," TWO "}"), 0);
	d = df_find("x");
	assert_int_equal(dataset_encode(&d, &value), 0);
	assert_non_null(strstr(buf_str(&value), "\"format\":2"));
	buf_release(&value);
	dataset_release(&d);
	assert_int_equal(df_create("{'name':'y'," SOURCE "}"), 0);
	d = df_find("y");
	assert_int_equal(dataset_encode(&d, &value), 0);
	assert_non_null(strstr(buf_str(&value), "\"format\":1"));
	buf_release(&value);
	dataset_release(&d);
}

static void sums(void **state)
{
	const struct source_report reports[] = {
		{ .cached_bytes = 8, .origin_bytes = 10, .hit_bytes = 3, .miss_bytes = 10 },
		{ .cached_bytes = 2, .origin_bytes = 5, .hit_bytes = 4, .miss_bytes = 5 },
	};
	struct dataset d;
	json_t *json;

	(void)state;
	assert_int_equal(df_create("{'name':'x'," TWO "}"), 0);
	df_drain();
	json = df_shown("x");
	assert_string_equal(text(json, "phase"), "Ready");
	assert_int_equal(number(json, "total_files"), 3);
	assert_int_equal(number(json, "total_bytes"), 12);
	assert_null(json_object_get(json, "generation")); /* each has its own */
	assert_int_equal(number(mount_json(json, 0), "total_bytes"), 8);
	assert_int_equal(number(mount_json(json, 1), "generation"), 1);
	json_decref(json);
	d = df_find("x");
	for (uint32_t i = 0; i < 2; i++)
		source_set_report(df.sources, 1, &d.mounts[i].volume, &reports[i]);
	json = df_shown("x");
	assert_int_equal(number(json, "cached_bytes"), 10);
	assert_int_equal(number(json, "origin_bytes"), 15);
	assert_int_equal(number(json, "hit_bytes"), 7);
	assert_int_equal(number(json, "miss_bytes"), 15);
	assert_true(json_real_value(json_object_get(json, "cached_ratio")) > 0.83);
	json_decref(json);
	dataset_release(&d);
}

/* What the first cannot show tells of all. */
static void the_worst_phase_is_told(void **state)
{
	struct dataset d = { 0 };
	json_t *json;

	(void)state;
	assert_int_equal(df_create("{'name':'x'," TWO "}"), 0);
	df_create_unlisted("{'name':'y','mounts':[{'path':'/a','url':'file://@/origin'},{'path':'/"
			   "b','url':'file://@/state'}]}",
		&d);
	json = df_shown("y");
	assert_string_equal(text(json, "phase"), "Pending");
	assert_null(json_object_get(json, "total_bytes"));
	assert_string_equal(text(mount_json(json, 0), "phase"), "Ready");
	json_decref(json);
	dataset_release(&d);
}

static void generations_of_each(void **state)
{
	struct dataset_which which[2] = { { "/labels", 1 }, { "/imgs", 1 } };
	struct dataset d;
	struct dataset out;
	json_t *json;

	(void)state;
	assert_int_equal(df_create("{'name':'x'," TWO "}"), 0);
	df_drain();
	fixture_put("../other/two", "2");
	df_list_mount("x", 1);
	df_expect(dataset_rollback(df.set, "x", &(struct dataset_which){ NULL, 1 }, 1, &out, &df.e),
		-EINVAL, "choose one");
	df_expect(dataset_rollback(
			  df.set, "x", &(struct dataset_which){ "/none", 1 }, 1, &out, &df.e),
		-EINVAL, "/none");
	df_expect(dataset_rollback(
			  df.set, "x", &(struct dataset_which){ "/imgs", 2 }, 1, &out, &df.e),
		-ENOENT, "not found");
	assert_int_equal(dataset_rollback(df.set, "x", which, 1, &out, &df.e), 0);
	dataset_release(&out);
	df_reopen();
	d = df_find("x");
	assert_int_equal(d.n_shown, 1);
	assert_null(dataset_shown(&d, &d.mounts[0].volume));
	assert_int_equal(dataset_shown(&d, &d.mounts[1].volume)->generation, 1);
	json = df_shown("x");
	assert_true(json_is_true(json_object_get(json, "rolled_back")));
	assert_int_equal(number(mount_json(json, 1), "generation"), 1);
	assert_int_equal(number(mount_json(json, 1), "newest_generation"), 2);
	json_decref(json);
	assert_int_equal(dataset_pin(df.set, "x", which, 2, true, &out, &df.e), 0);
	assert_int_equal(out.n_pins, 2);
	dataset_release(&out);
	which[0].generation = 0;
	assert_int_equal(dataset_rollback(df.set, "x", which, 1, &out, &df.e), 0);
	assert_int_equal(out.n_shown, 0);
	dataset_release(&out);
	assert_int_equal(dataset_pin(df.set, "x", &which[1], 1, false, &out, &df.e), 0);
	assert_int_equal(out.n_pins, 1);
	assert_true(volume_id_equal(&out.pins[0].volume, &d.mounts[1].volume));
	dataset_release(&out);
	dataset_release(&d);
}

static void all_sources_are_dropped(void **state)
{
	struct dataset d;
	struct source_view view;
	json_t *json = NULL;

	(void)state;
	assert_int_equal(df_create("{'name':'x'," TWO "}"), 0);
	df_drain();
	d = df_find("x");
	assert_int_equal(dataset_evict(df.set, "x", NULL, NULL, true, &json, &df.e), 0);
	assert_int_equal(json_array_size(json_object_get(json, "sources")), 2);
	json_decref(json);
	for (uint32_t i = 0; i < 2; i++) {
		assert_int_equal(source_set_view(df.sources, &d.mounts[i].volume, &view), 0);
		assert_int_equal(view.evict, 1);
	}
	assert_int_equal(dataset_evict(df.set, "x", "/imgs", NULL, true, &json, &df.e), 0);
	json_decref(json);
	assert_int_equal(source_set_view(df.sources, &d.mounts[0].volume, &view), 0);
	assert_int_equal(view.evict, 2);
	assert_int_equal(dataset_delete(df.set, "x", true, &df.e), 0);
	for (uint32_t i = 0; i < 2; i++) {
		assert_int_equal(source_set_view(df.sources, &d.mounts[i].volume, &view), 0);
		assert_int_equal(view.evict, 3 - i);
	}
	dataset_release(&d);
}

static void one_preload_for_each(void **state)
{
	struct preloads *preloads;
	const struct preloads_config config = {
		.store = df.store, .sources = df.sources, .datasets = df.set, .pool = df.pool
	};
	json_t *body = df_body("{'dataset':'x'}");
	json_t *answer = NULL;
	bool joined;

	(void)state;
	assert_int_equal(df_create("{'name':'x'," TWO "}"), 0);
	assert_int_equal(preloads_new(&config, &preloads, &df.e), 0);
	assert_int_equal(preloads_create(preloads, &(struct preload_request){ .body = body },
				 &answer, &joined, &df.e),
		0);
	assert_false(joined);
	assert_int_equal(json_array_size(json_object_get(answer, "jobs")), 2);
	json_decref(answer);
	assert_int_equal(preloads_create(preloads, &(struct preload_request){ .body = body },
				 &answer, &joined, &df.e),
		0);
	assert_true(joined);
	assert_int_equal(number(answer, "id"), 1);
	json_decref(answer);
	json_decref(body);
	df_drain();
	preloads_free(preloads);
}

static uint64_t preload(struct preloads *p, const char *text, bool *ret_joined)
{
	json_t *body = df_body(text);
	json_t *answer = NULL;
	uint64_t id;

	if (preloads_create(
		    p, &(struct preload_request){ .body = body }, &answer, ret_joined, &df.e) < 0)
		fail_msg("%s", df.e.text);
	id = (uint64_t)number(answer, "id");
	json_decref(answer);
	json_decref(body);
	return id;
}

/* -EBUSY with that line, or begun. */
static void preload_of(
	struct preloads *p, uint32_t user, const char *dataset, uint32_t path, const char *line)
{
	json_auto_t *body = json_pack(
		"{s:s, s:[o]}", "dataset", dataset, "paths", json_sprintf("part-%u/*", path));
	const struct preload_request request = { .body = body, .user = user };
	json_t *answer = NULL;
	bool joined;
	int r;

	df.e = ERR_INIT;
	r = preloads_create(p, &request, &answer, &joined, &df.e);
	json_decref(answer);
	if (r != (line ? -EBUSY : 0) || (line && !strstr(df.e.text, line)))
		fail_msg("user %u, part %u: %s", user, path, df.e.text);
}

/* No user takes all places of preloads, nor do all users. */
static void preloads_of_users(void **state)
{
	struct preloads *p;
	const struct preloads_config config = {
		.store = df.store, .sources = df.sources, .datasets = df.set, .pool = df.pool
	};

	(void)state;
	assert_int_equal(preloads_new(&config, &p, &df.e), 0);
	assert_int_equal(df_create("{'name':'two'," TWO "}"), 0);
	assert_int_equal(df_create("{'name':'x','mounts':[{'url':'file://@/origin'}]}"), 0);
	preload_of(p, 1000, "two", 1, NULL); /* one request, two jobs */
	preload_of(p, 1000, "two", 1, NULL); /* joined */
	preload_of(p, 1000, "x", 1, "user 1000 has 2 preloads");
	for (uint32_t i = 2; i < 10; i++) {
		preload_of(p, 1000 + i / 2, "x", i, NULL);
		preload_of(p, 1000, "x", i, NULL); /* joined */
	}
	preload_of(p, 1001, "x", 2, NULL);
	preload_of(p, 1001, "x", 20, "user 1001 has 2 preloads");
	preload_of(p, 1005, "two", 5, NULL);
	preload_of(p, 1006, "x", 20, "users have 12 preloads");
	for (uint32_t i = 30; i < 34; i++)
		preload_of(p, 0, "x", i, NULL);
	preload_of(p, 0, "x", 40, "16 preloads are in progress");
	df_drain();
	preloads_free(p);
}

/* A preload joins none of another source, nor one that reaches its source in another way. */
static void preloads_that_are_alike(void **state)
{
	struct preloads *preloads;
	const struct preloads_config config = {
		.store = df.store, .sources = df.sources, .datasets = df.set, .pool = df.pool
	};
	bool joined;

	(void)state;
	assert_int_equal(preloads_new(&config, &preloads, &df.e), 0);
	assert_int_equal(df_create("{'name':'x','mounts':[{'url':'file://@/origin'}]}"), 0);
	assert_int_equal(preload(preloads, "{'dataset':'x'}", &joined), 1);
	assert_int_equal(preload(preloads, "{'dataset':'x'}", &joined), 1);
	assert_true(joined);
	assert_int_equal(df_update("x", "{'name':'y'}"), 0);
	assert_int_equal(df_create("{'name':'x','mounts':[{'url':'file://@/other'}]}"), 0);
	assert_int_equal(preload(preloads, "{'dataset':'x'}", &joined), 2);
	assert_false(joined);
	assert_int_equal(preload(preloads, "{'url':'file://@/origin'}", &joined), 3);
	assert_int_equal(preload(preloads, "{'url':'file://@/origin','region':'r'}", &joined), 4);
	assert_false(joined);
	assert_int_equal(preload(preloads, "{'url':'file://@/origin'}", &joined), 3);
	assert_true(joined);
	df_drain();
	preloads_free(preloads);
	/* After a restart of the master a job that was listed has its volume, and no settings to compare. */
	assert_int_equal(preloads_new(&config, &preloads, &df.e), 0);
	assert_int_equal(df_update("x", "{'name':'z'}"), 0);
	assert_int_equal(df_update("y", "{'name':'x'}"), 0);
	assert_int_equal(preload(preloads, "{'dataset':'x'}", &joined), 1);
	assert_true(joined);
	df_drain();
	preloads_free(preloads);
}

/* ---- views ----------------------------------------------------------------------------------- */

static void make_tree(void)
{
	assert_int_equal(file_mkdirs(fixture_in("origin/dir/deep"), 0755), 0);
	fixture_put("dir/one", "1");
	fixture_put("dir/two", "22");
	fixture_put("dir/deep/three", "333");
}

static void a_part_is_a_view(void **state)
{
	struct dataset whole;
	struct dataset d;
	struct source_view view;
	json_t *json;

	(void)state;
	make_tree();
	assert_int_equal(df_create("{'name':'early','mounts':[{'url':'file://@/origin/dir'}]}"), 0);
	assert_int_equal(df_create("{'name':'whole'," SOURCE "}"), 0);
	assert_int_equal(
		df_create("{'name':'deep','mounts':[{'url':'file://@/origin/dir/deep'}]}"), 0);
	whole = df_find("whole");
	d = df_find("early"); /* it was there before, with bytes of its own */
	assert_null(d.mounts[0].subtree);
	assert_false(volume_id_equal(&d.mounts[0].volume, &whole.mounts[0].volume));
	dataset_release(&d);
	d = df_find("deep"); /* the nearest */
	assert_string_equal(d.mounts[0].subtree, "deep/");
	dataset_release(&d);
	assert_int_equal(dataset_delete(df.set, "early", true, &df.e), 0);
	assert_int_equal(dataset_delete(df.set, "deep", true, &df.e), 0);
	assert_int_equal(
		df_create("{'name':'part','mounts':[{'path':'/p','url':'file://@/origin/dir'}]}"),
		0);
	df_reopen();
	df_list("part");
	d = df_find("part");
	assert_string_equal(d.mounts[0].subtree, "dir/");
	assert_true(volume_id_equal(&d.mounts[0].volume, &whole.mounts[0].volume));
	json = df_shown("part");
	assert_int_equal(number(json, "total_files"), 3);
	assert_int_equal(number(json, "total_bytes"), 6);
	assert_string_equal(text(mount_json(json, 0), "subtree"), "dir/");
	json_decref(json);
	assert_int_equal(dataset_delete(df.set, "whole", true, &df.e), 0);
	assert_int_equal(source_set_view(df.sources, &d.mounts[0].volume, &view), 0);
	assert_int_equal(view.evict, 0); /* a part of it is needed */
	dataset_release(&whole);
	dataset_release(&d);
}

/* It names the source that would be shared, and changes nothing: no dataset, no quota. */
static void a_preview_stores_nothing(void **state)
{
	struct source_view view;
	struct dataset whole;
	struct dataset d = { 0 };
	json_t *json;

	(void)state;
	make_tree();
	assert_int_equal(df_create("{'name':'whole'," SOURCE "}"), 0);
	df_list("whole");
	whole = df_find("whole");
	json = df_body("{'name':'deep','mounts':[{'url':'file://@/origin/dir/deep'}],'quota':7}");
	assert_int_equal(dataset_preview(df.set, json, true, NULL, &d, &df.e), 0);
	json_decref(json);
	assert_true(volume_id_equal(&d.mounts[0].volume, &whole.mounts[0].volume));
	assert_string_equal(d.mounts[0].subtree, "dir/deep/");
	dataset_release(&d);
	assert_int_equal(dataset_set_find(df.set, "deep", &d, &df.e), -ENOENT);
	assert_int_equal(source_set_view(df.sources, &whole.mounts[0].volume, &view), 0);
	assert_int_equal(view.policy.quota, 0);
	dataset_release(&whole);
}

static void parts_of_one_dataset(void **state)
{
	struct dataset d;

	(void)state;
	make_tree();
	assert_int_equal(
		df_create("{'name':'x','mounts':[{'path':'/a','url':'file://@/origin/dir/"
			  "deep'},{'path':'/b','url':'file://@/origin'},{'path':'/c','url':"
			  "'file://@/origin/dir'}]}"),
		0);
	d = df_find("x");
	assert_int_equal(dataset_sources_of(&d), 1);
	assert_string_equal(d.mounts[0].subtree, "dir/deep/");
	assert_null(d.mounts[1].subtree);
	assert_string_equal(d.mounts[2].subtree, "dir/");
	dataset_release(&d);
}

/* A parent does not show what lies behind a link. */
static void no_view_through_a_link(void **state)
{
	struct dataset d;

	(void)state;
	assert_int_equal(symlink("../other", fixture_in("origin/link")), 0);
	assert_int_equal(df_create("{'name':'whole'," SOURCE "}"), 0);
	assert_int_equal(df_create("{'name':'x','mounts':[{'url':'file://@/origin/link'}]}"), 0);
	d = df_find("x");
	assert_null(d.mounts[0].subtree);
	dataset_release(&d);
}

/* A source that nobody uses any more would be listed whole. */
static void no_view_of_what_is_not_used(void **state)
{
	struct source_report report = { .cached_bytes = 1 };
	struct dataset d;
	struct volume_id volume;

	(void)state;
	make_tree();
	assert_int_equal(df_create("{'name':'whole'," SOURCE "}"), 0);
	df_list("whole");
	d = df_find("whole");
	volume = d.mounts[0].volume;
	dataset_release(&d);
	assert_int_equal(dataset_delete(df.set, "whole", true, &df.e), 0);
	assert_int_equal(df_create("{'name':'x','mounts':[{'url':'file://@/origin/dir'}]}"), 0);
	d = df_find("x");
	assert_null(d.mounts[0].subtree);
	dataset_release(&d);
	assert_int_equal(dataset_delete(df.set, "x", true, &df.e), 0);
	source_set_report(df.sources, 1, &volume, &report);
	assert_int_equal(df_create("{'name':'x','mounts':[{'url':'file://@/origin/dir'}]}"), 0);
	d = df_find("x");
	assert_string_equal(d.mounts[0].subtree, "dir/");
	dataset_release(&d);
}

static void differences_of_a_part(void **state)
{
	struct dataset d;
	json_t *json = NULL;

	(void)state;
	make_tree();
	assert_int_equal(df_create("{'name':'whole'," SOURCE "}"), 0);
	assert_int_equal(df_create("{'name':'x','mounts':[{'url':'file://@/origin/dir'}]}"), 0);
	df_drain();
	fixture_put("c", "c");
	fixture_put("dir/four", "4444");
	fixture_put("dirty", "d");
	assert_int_equal(unlink(fixture_in("origin/dir/one")), 0);
	df_list("x");
	d = df_find("x");
	assert_int_equal(
		dataset_diff_json(df.set, &d, &d.mounts[0], 1, 2, NULL, 100, &json, &df.e), 0);
	assert_int_equal(json_array_size(json_object_get(json, "added")), 1);
	assert_string_equal(text(json_array_get(json_object_get(json, "added"), 0), "key"), "four");
	assert_string_equal(
		text(json_array_get(json_object_get(json, "removed"), 0), "key"), "one");
	assert_null(json_object_get(json, "next"));
	json_decref(json);
	dataset_release(&d);
}

/* ---- eviction by path, bounds ---------------------------------------------------------------- */

static void some_paths_are_dropped(void **state)
{
	struct source_report report = { 0 };
	json_t *paths = df_body("['*.jpg','a/**']");
	json_t *bad = df_body("['[']");
	json_t *json = NULL;
	const Granary__EvictPaths *drop;
	Granary__Retention *m;
	struct dataset d;

	(void)state;
	make_tree();
	assert_int_equal(df_create("{'name':'whole'," SOURCE "}"), 0);
	assert_int_equal(
		df_create("{'name':'x','mounts':[{'path':'/p','url':'file://@/origin/dir'}]}"), 0);
	df_list("whole");
	df_expect(dataset_evict(df.set, "x", NULL, bad, true, &json, &df.e), -EINVAL, "[");
	assert_int_equal(dataset_evict(df.set, "x", NULL, paths, true, &json, &df.e), 0);
	assert_int_equal(
		number(json_array_get(json_object_get(json, "sources"), 0), "paths_serial"), 1);
	json_decref(json);
	df_reopen();
	d = df_find("x");
	m = retention();
	drop = retention_of(m, &d.mounts[0].volume)->evict_paths;
	assert_non_null(drop);
	assert_int_equal(drop->serial, 1);
	assert_int_equal(drop->n_paths, 2);
	assert_string_equal(drop->paths[1], "a/**");
	assert_string_equal(drop->subtree, "dir/");
	assert_string_equal(drop->at, "p/");
	granary__retention__free_unpacked(m, NULL);
	source_set_report(df.sources, 1, &d.mounts[0].volume, &report); /* there, and not ready */
	df_expect(dataset_evict(df.set, "whole", NULL, paths, true, &json, &df.e), -EBUSY,
		"in progress");
	report.evicted_paths = 1;
	source_set_report(df.sources, 1, &d.mounts[0].volume, &report);
	m = retention();
	assert_null(retention_of(m, &d.mounts[0].volume)->evict_paths);
	granary__retention__free_unpacked(m, NULL);
	/* All of what a part shows is some of its source. */
	assert_int_equal(dataset_evict(df.set, "x", NULL, NULL, true, &json, &df.e), 0);
	assert_int_equal(
		number(json_array_get(json_object_get(json, "sources"), 0), "paths_serial"), 2);
	json_decref(json);
	json_decref(paths);
	json_decref(bad);
	dataset_release(&d);
}

/* A source takes one order at a time: what cannot be in one is refused before any is given. */
static void views_of_one_source_are_dropped(void **state)
{
	struct source_report report = { 0 };
	json_t *paths = df_body("['a/*']");
	const Granary__SourceRetention *its;
	json_t *json = NULL;
	Granary__Retention *m;
	struct dataset d;

	(void)state;
	make_tree();
	assert_int_equal(file_mkdirs(fixture_in("origin/a*b"), 0755), 0);
	fixture_put("a*b/five", "55555");
	fixture_put("../other/first", "1234");
	assert_int_equal(df_create("{'name':'whole'," SOURCE "}"), 0);
	assert_int_equal(
		df_create("{'name':'x','mounts':[{'path':'/a','url':'file://@/origin/dir'},"
			  "{'path':'/b','url':'file://@/other'},"
			  "{'path':'/c','url':'file://@/origin/a*b'}]}"),
		0);
	df_list("whole");
	df_list_mount("x", 1);
	d = df_find("x");
	df_expect(dataset_evict(df.set, "x", NULL, paths, true, &json, &df.e), -EINVAL,
		"one 'mount'");
	m = retention();
	assert_null(retention_of(m, &d.mounts[0].volume)->evict_paths);
	assert_null(retention_of(m, &d.mounts[1].volume)->evict_paths);
	granary__retention__free_unpacked(m, NULL);
	/* All that they show is one order over keys. */
	assert_int_equal(dataset_evict(df.set, "x", NULL, NULL, true, &json, &df.e), 0);
	assert_int_equal(json_array_size(json_object_get(json, "sources")), 2);
	json_decref(json);
	m = retention();
	its = retention_of(m, &d.mounts[0].volume);
	assert_int_equal(its->evict, 0);
	assert_non_null(its->evict_paths);
	assert_int_equal(its->evict_paths->n_paths, 2);
	assert_string_equal(its->evict_paths->paths[0], "dir/**");
	assert_string_equal(its->evict_paths->paths[1], "a\\*b/**");
	assert_string_equal(its->evict_paths->subtree, "");
	assert_string_equal(its->evict_paths->at, "");
	assert_int_equal(retention_of(m, &d.mounts[1].volume)->evict, 1);
	granary__retention__free_unpacked(m, NULL);
	/* That one is in progress: the other sources get no message. */
	source_set_report(df.sources, 1, &d.mounts[0].volume, &report);
	df_expect(
		dataset_evict(df.set, "x", NULL, NULL, true, &json, &df.e), -EBUSY, "in progress");
	m = retention();
	assert_int_equal(retention_of(m, &d.mounts[1].volume)->evict, 1);
	granary__retention__free_unpacked(m, NULL);
	report.evicted_paths = 1;
	source_set_report(df.sources, 1, &d.mounts[0].volume, &report);
	assert_int_equal(dataset_evict(df.set, "x", "/c", paths, true, &json, &df.e), 0);
	json_decref(json);
	json_decref(paths);
	dataset_release(&d);
}

static void bounds_reach_workers(void **state)
{
	const Granary__Policy *policy;
	Granary__Retention *m;
	struct dataset d;

	(void)state;
	assert_int_equal(df_create("{'name':'x'," SOURCE ",'origin_bandwidth':1000}"), 0);
	df_list("x");
	assert_int_equal(df_update("x", "{'origin_requests':5}"), 0);
	df_reopen();
	d = df_find("x");
	m = retention();
	policy = retention_of(m, &d.mounts[0].volume)->policy;
	assert_int_equal(policy->origin_bandwidth, 1000);
	assert_int_equal(policy->origin_requests, 5);
	granary__retention__free_unpacked(m, NULL);
	assert_int_equal(df_update("x", "{'origin_bandwidth':null}"), 0);
	m = retention();
	assert_int_equal(retention_of(m, &d.mounts[0].volume)->policy->origin_bandwidth, 0);
	granary__retention__free_unpacked(m, NULL);
	df_expect(df_update("x", "{'origin_requests':-1}"), -EINVAL, "origin_requests");
	dataset_release(&d);
}

static void copies_reach_workers(void **state)
{
	const Granary__Policy *policy;
	Granary__Retention *m;
	struct dataset d;

	(void)state;
	assert_int_equal(df_create("{'name':'x'," SOURCE ",'copies':2,'direct':true}"), 0);
	df_list("x");
	df_reopen();
	d = df_find("x");
	assert_int_equal(d.policy.parts, POLICY_COPIES | POLICY_DIRECT);
	m = retention();
	policy = retention_of(m, &d.mounts[0].volume)->policy;
	assert_int_equal(policy->copies, 2);
	assert_true(policy->direct);
	granary__retention__free_unpacked(m, NULL);
	assert_int_equal(df_update("x", "{'copies':'everywhere','direct':null}"), 0);
	m = retention();
	policy = retention_of(m, &d.mounts[0].volume)->policy;
	assert_int_equal(policy->copies, COPIES_EVERYWHERE);
	assert_false(policy->direct);
	granary__retention__free_unpacked(m, NULL);
	df_expect(df_update("x", "{'copies':4}"), -EINVAL, "copies");
	df_expect(df_update("x", "{'copies':'many'}"), -EINVAL, "everywhere");
	df_expect(df_update("x", "{'copies':[]}"), -EINVAL, "copies");
	df_expect(df_update("x", "{'direct':'yes'}"), -EINVAL, "direct");
	dataset_release(&d);
}

/* Each byte that a mount read is counted once, in whatever order it says so. */
static void what_mounts_read_is_a_hit(void **state)
{
	static const struct source_report report;
	struct source_hold hold = { .mount = { 1 } };
	struct record_generation g;
	struct dataset d;
	json_t *json;

	(void)state;
	assert_int_equal(df_create("{'name':'x'," SOURCE "}"), 0);
	df_list("x");
	d = df_find("x");
	hold.volume = d.mounts[0].volume;
	source_set_report(df.sources, 1, &hold.volume, &report);
	assert_int_equal(source_set_generation(df.sources, &hold.volume, 0, &g), 0);
	hold.lineage = g.id.lineage;
	hold.generation = g.id.generation;
	for (uint64_t bytes = 100; bytes <= 300; bytes += 100) {
		hold.local_bytes = bytes;
		assert_int_equal(source_set_hold(df.sources, &hold, &df.e), 0);
	}
	hold.mount[0] = 2;
	hold.local_bytes = 1000;
	assert_int_equal(source_set_hold(df.sources, &hold, &df.e), 0);
	hold.end = true;
	hold.local_bytes = 1500;
	assert_int_equal(source_set_hold(df.sources, &hold, &df.e), 0);
	json = df_shown("x");
	assert_int_equal(number(json, "hit_bytes"), 1800);
	json_decref(json);
	dataset_release(&d);
}

/* ---- one write ------------------------------------------------------------------------------- */

static void record_and_policy_are_one(void **state)
{
	struct dataset d;
	struct source_view view;

	(void)state;
	assert_int_equal(df_create("{'name':'x'," TWO ",'quota':5}"), 0);
	df_drain();
	d = df_find("x");
	spy.writes = 0;
	assert_int_equal(df_update("x", "{'quota':6}"), 0);
	assert_int_equal(spy.writes, 1);
	assert_int_equal(spy.changes, 3); /* the record, and two sources */
	spy.refuses = true;
	df_expect(df_update("x", "{'quota':7}"), -ENOSPC, "check its disk");
	spy.refuses = false;
	for (uint32_t i = 0; i < 2; i++) {
		assert_int_equal(source_set_view(df.sources, &d.mounts[i].volume, &view), 0);
		assert_int_equal(view.policy.quota, 6);
	}
	df_reopen();
	for (uint32_t i = 0; i < 2; i++) {
		assert_int_equal(source_set_view(df.sources, &d.mounts[i].volume, &view), 0);
		assert_int_equal(view.policy.quota, 6);
	}
	dataset_release(&d);
}

/* A master that is killed right after it must not keep for ever what nobody has. */
static void end_of_record_and_policy_are_one(void **state)
{
	struct source_hold hold = { .mount = { 1 } };
	struct record_generation g;
	struct source_view view;
	struct dataset d;

	(void)state;
	assert_int_equal(df_create("{'name':'x'," TWO ",'quota':5,'pin':true}"), 0);
	assert_int_equal(df_create("{'name':'y'," SOURCE ",'quota':6}"), 0);
	df_drain();
	d = df_find("x");
	for (uint32_t i = 0; i < 2; i++) { /* mounted: it is not evicted, which is another write */
		hold.volume = d.mounts[i].volume;
		assert_int_equal(source_set_generation(df.sources, &hold.volume, 0, &g), 0);
		hold.lineage = g.id.lineage;
		hold.generation = g.id.generation;
		assert_int_equal(source_set_hold(df.sources, &hold, &df.e), 0);
	}
	spy.refuses = true;
	df_expect(dataset_delete(df.set, "x", true, &df.e), -ENOSPC, "check its disk");
	spy.refuses = false;
	assert_int_equal(source_set_view(df.sources, &d.mounts[1].volume, &view), 0);
	assert_int_equal(view.policy.quota, 5);
	spy.writes = 0;
	assert_int_equal(dataset_delete(df.set, "x", true, &df.e), 0);
	assert_int_equal(spy.writes, 1);
	assert_int_equal(spy.changes, 2); /* the record, and the source that y does not have */
	df_reopen();
	assert_int_equal(source_set_view(df.sources, &d.mounts[0].volume, &view), 0);
	assert_int_equal(view.policy.quota, 6);
	assert_int_equal(source_set_view(df.sources, &d.mounts[1].volume, &view), 0);
	assert_int_equal(view.policy.quota, 0);
	assert_false(view.policy.pin);
	dataset_release(&d);
}

static void silent_one_leaves_policy(void **state)
{
	struct source_view view;
	struct dataset d;

	(void)state;
	assert_int_equal(df_create("{'name':'x'," SOURCE ",'quota':5,'pin':true}"), 0);
	assert_int_equal(df_create("{'name':'y'," SOURCE "}"), 0);
	df_drain();
	d = df_find("y");
	assert_int_equal(source_set_view(df.sources, &d.mounts[0].volume, &view), 0);
	assert_int_equal(view.policy.quota, 5);
	assert_true(view.policy.pin);
	assert_int_equal(df_update("y", "{'quota':7}"), 0);
	assert_int_equal(source_set_view(df.sources, &d.mounts[0].volume, &view), 0);
	assert_int_equal(view.policy.quota, 7);
	assert_int_equal(df_update("y", "{'quota':null}"), 0);
	assert_int_equal(source_set_view(df.sources, &d.mounts[0].volume, &view), 0);
	assert_int_equal(view.policy.quota, 0); /* it did say something, once */
	dataset_release(&d);
}

struct waiting {
	struct source_wait wait;
	bool later; /* somebody sets it after that */
	_Atomic bool done;
};

static void say_policy(struct source_wait *wait)
{
	const struct waiting *w = container_of(wait, struct waiting, wait);
	struct dataset d = df_find("x");

	wait->policy = d.policy;
	dataset_release(&d);
	if (w->later)
		assert_int_equal(df_update("x", "{'quota':9}"), 0);
}

static void served(
	struct source_wait *wait, int status, struct source_answer *a, const struct err *why)
{
	struct waiting *w = container_of(wait, struct waiting, wait);

	(void)a;
	(void)why;
	assert_int_equal(status, 0);
	atomic_store(&w->done, true);
}

/* A mount by name waits for a listing: what is set meanwhile counts, also when there was no source to
 * be told of it. */
static void policy_of_one_that_waits(void **state)
{
	struct waiting w = { .wait = { .policy_now = say_policy, .on_done = served } };
	struct source_view view;
	struct dataset d = { 0 };

	(void)state;
	df_create_unlisted("{'name':'x'," SOURCE ",'quota':5}", &d);
	w.wait.config = &d.mounts[0].config;
	w.wait.policy = d.policy; /* as it was when he came */
	assert_int_equal(df_update("x", "{'quota':6}"), 0);
	source_open(df.sources, &w.wait);
	assert_true(atomic_load(&w.done));
	assert_int_equal(source_set_view(df.sources, &d.mounts[0].volume, &view), 0);
	assert_int_equal(view.policy.quota, 6);
	w.later = true;
	w.done = false;
	w.wait.refresh = true;
	source_open(df.sources, &w.wait);
	assert_true(atomic_load(&w.done));
	assert_int_equal(source_set_view(df.sources, &d.mounts[0].volume, &view), 0);
	assert_int_equal(view.policy.quota, 9);
	dataset_release(&d);
}

/* ---- another way ----------------------------------------------------------------------------- */

static int update_unseen(const char *name, const char *what)
{
	json_t *json = df_body(what);
	struct dataset d = { 0 };
	int r = dataset_update(df.set, name, json, false, NULL, &d, &df.e);

	json_decref(json);
	dataset_release(&d);
	return r;
}

static void other_ways(void **state)
{
	json_t *json =
		df_body("{'name':'x','mounts':[{'path':'/a','url':'s3://b/p','endpoint':"
			"'http://127.0.0.1:1','credentials':'env:ONE_'},{'path':'/b','url':"
			"'s3://c/q','endpoint':'http://127.0.0.1:1','credentials':'env:ONE_'}]}");
	struct dataset before = { 0 };
	struct dataset d;

	(void)state;
	assert_int_equal(dataset_create(df.set, json, false, NULL, &before, &df.e), 0);
	json_decref(json);
	df_expect(update_unseen("x", "{'mounts':[{'region':'r'}]}"), -EINVAL, "'path'");
	df_expect(update_unseen("x", "{'mounts':[{'path':'/a','credentials':'env:TWO_'}]}"),
		-EINVAL, "another source");
	df_expect(update_unseen("x", "{'mounts':[{'path':'/a','endpoint':'http://127.0.0.1:2'}]}"),
		-EINVAL, "another source");
	df_expect(update_unseen("x", "{'mounts':[{'path':'/a','credentials':'mine'}]}"), -EINVAL,
		"mine");
	assert_int_equal(update_unseen("x", "{'cache_scope':'env:ONE_','mounts':[{'path':'/a',"
					    "'credentials':'env:TWO_'}]}"),
		0);
	assert_int_equal(update_unseen("x", "{'mounts':[{'path':'/b','region':'far','versions':"
					    "'off'}]}"),
		0);
	df_reopen();
	d = df_find("x");
	assert_string_equal(d.mounts[0].config.credentials, "env:TWO_");
	assert_string_equal(d.mounts[1].config.credentials, "env:ONE_");
	assert_string_equal(d.mounts[1].config.region, "far");
	for (uint32_t i = 0; i < 2; i++)
		assert_true(volume_id_equal(&d.mounts[i].volume, &before.mounts[i].volume));
	/* Asked first: there is no such key. */
	assert_int_equal(
		df_update("x", "{'mounts':[{'path':'/a','credentials':'env:THREE_'}]}"), -ENOKEY);
	dataset_release(&d);
	dataset_release(&before);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup_two, df_teardown)
	const struct CMUnitTest tests[] = {
		CASE(several_come_back),
		CASE(several_are_of_a_newer_format),
		CASE(sums),
		CASE(the_worst_phase_is_told),
		CASE(generations_of_each),
		CASE(all_sources_are_dropped),
		CASE(one_preload_for_each),
		CASE(preloads_of_users),
		CASE(preloads_that_are_alike),
		CASE(a_part_is_a_view),
		CASE(a_preview_stores_nothing),
		CASE(parts_of_one_dataset),
		CASE(no_view_through_a_link),
		CASE(no_view_of_what_is_not_used),
		CASE(differences_of_a_part),
		CASE(some_paths_are_dropped),
		CASE(views_of_one_source_are_dropped),
		CASE(bounds_reach_workers),
		CASE(copies_reach_workers),
		CASE(what_mounts_read_is_a_hit),
		CASE(record_and_policy_are_one),
		CASE(end_of_record_and_policy_are_one),
		CASE(silent_one_leaves_policy),
		CASE(policy_of_one_that_waits),
		CASE(other_ways),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
