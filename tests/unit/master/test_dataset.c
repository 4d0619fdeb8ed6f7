/*
 * Datasets over a real store and a directory as the origin: what is made, refused, changed, found
 * again by the next master; bytes given up.
 */
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

/* ---- records --------------------------------------------------------------------------------- */

static void record_comes_back(void **state)
{
	struct dataset d;
	struct dataset back;
	struct buf text = BUF_INIT(STORE_VALUE_BYTES);

	(void)state;
	assert_int_equal(
		df_create("{'name':'one','mounts':[{'url':'s3://bucket/pre','endpoint':"
			  "'http://127.0.0.1:1','credentials':'env:MINE_','path_style':true}],"
			  "'quota':7,'pin':true}"),
		-ENOKEY); /* looked for first */
	assert_int_equal(df_create("{'name':'two'," SOURCE ",'quota':7,'priority':3,'evict':'lru',"
				   "'idle_s':60,'ttl_s':3600,'allow':['uid:alice','gid:7']}"),
		0);
	d = df_find("two");
	d.pins[d.n_pins++] = (struct dataset_generation){ d.mounts[0].volume, 1ull << 63, 5 };
	d.shown[d.n_shown++] = d.pins[0];
	assert_int_equal(dataset_encode(&d, &text), 0);
	assert_int_equal(dataset_decode(text.data, text.len, &back), 0);
	assert_string_equal(back.name, "two");
	assert_string_equal(back.allow, "uid:alice,gid:7");
	assert_string_equal(back.uuid, d.uuid);
	assert_int_equal(back.n_mounts, 1);
	assert_string_equal(back.mounts[0].url, d.mounts[0].url);
	assert_string_equal(back.mounts[0].config.prefix, d.mounts[0].config.prefix);
	assert_true(volume_id_equal(&back.mounts[0].volume, &d.mounts[0].volume));
	assert_int_equal(back.policy.parts, POLICY_QUOTA | POLICY_PRIORITY | POLICY_EVICT);
	assert_int_equal(back.policy.to.quota, 7);
	assert_int_equal(back.policy.to.evict, TIER_EVICT_LRU);
	assert_int_equal(back.idle_s, 60);
	assert_int_equal(back.ttl_s, 3600);
	assert_int_equal(back.n_pins, 1);
	assert_int_equal(back.n_shown, 1);
	assert_true(back.shown[0].lineage == 1ull << 63 && back.shown[0].generation == 5);
	dataset_release(&back);
	dataset_release(&d);
	buf_release(&text);
}

/* Who may use a dataset; to others it is as one that is not there. */
static void allow(void **state)
{
	static const char *const bad[] = { "'uid:alice'", "[1]", "['alice']", "['uid:a,uid:b']",
		"{}" };
	struct dataset d = { 0 };
	struct err absent = ERR_INIT;
	struct err refused = ERR_INIT;

	(void)state;
	assert_int_equal(df_create("{'name':'one'," SOURCE "}"), 0);
	assert_int_equal(df_create("{'name':'two'," SOURCE ",'allow':['uid:alice']}"), 0);
	assert_int_equal(
		dataset_set_find_allowed(df.set, "one", "uid:alice", &d, &refused), -EPERM);
	assert_int_equal(dataset_set_find_allowed(df.set, "six", "uid:alice", &d, &absent), -EPERM);
	assert_true(strlen(refused.text) == strlen(absent.text));
	assert_non_null(strstr(refused.text, "uid:alice"));
	assert_int_equal(
		dataset_set_find_allowed(df.set, "two", "uid:7,uid:bob", &d, &absent), -EPERM);
	assert_int_equal(
		dataset_set_find_allowed(df.set, "two", "uid:7,uid:alice", &d, &refused), 0);
	assert_string_equal(d.name, "two");
	dataset_release(&d);
	assert_int_equal(df_update("two", "{'quota':7}"), 0); /* which says nothing of it */
	assert_int_equal(dataset_set_find_allowed(df.set, "two", "uid:alice", &d, &refused), 0);
	dataset_release(&d);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		char body[80];

		(void)snprintf(body, sizeof(body), "{'allow':%s}", bad[i]); /* fits */
		assert_int_equal(df_update("two", body), -EINVAL);
	}
	assert_int_equal(df_update("two", "{'allow':null}"), 0);
	assert_int_equal(
		dataset_set_find_allowed(df.set, "two", "uid:alice", &d, &refused), -EPERM);
	assert_int_equal(df_update("two", "{'allow':['*']}"), 0);
	assert_int_equal(dataset_set_find_allowed(df.set, "two", "", &d, &refused), 0);
	dataset_release(&d);
}

static int decode(const char *more)
{
	struct buf text = BUF_INIT(STORE_VALUE_BYTES);
	struct dataset d = { 0 };
	char volume[] = "00112233445566778899aabbccddeeff";
	int r = buf_printf(&text,
		"{\"name\":\"n\",\"uuid\":\"%s\",\"mounts\":[{\"path\":\"/\",\"url\":\"file:///x\","
		"\"scheme\":1,\"prefix\":\"/x/\",\"volume\":\"%s\"}]%s}",
		volume, volume, more);

	assert_int_equal(r, 0);
	r = dataset_decode(text.data, text.len, &d);
	dataset_release(&d);
	buf_release(&text);
	return r;
}

static void records_of_other_versions(void **state)
{
	(void)state;
	assert_int_equal(decode(",\"format\":1"), 0);
	assert_int_equal(decode(",\"format\":1,\"of the future\":{\"x\":[1]}"), 0);
	assert_int_equal(decode(",\"format\":3"), -EPROTONOSUPPORT);
	assert_int_equal(decode(",\"format\":1,\"consistency\":\"follow\""), 0);
	assert_int_equal(decode(",\"format\":1,\"consistency\":\"guess\""), -EPROTONOSUPPORT);
	assert_int_equal(decode(""), -EBADMSG);
	assert_int_equal(decode(",\"format\":1,\"quota\":-1"), -EBADMSG);
	assert_int_equal(decode(",\"format\":1,\"pins\":[{\"generation\":1}]"), -EBADMSG);
}

/* ---- what is asked for ----------------------------------------------------------------------- */

static void names(void **state)
{
	static const char *const bad[] = { "", "A", "a_b", "-a", "a-", "a/b", "all", "default" };
	char longest[DATASET_NAME_BYTES + 2];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(dataset_check_name(bad[i], &df.e), -EINVAL);
	memset(longest, 'x', sizeof(longest));
	longest[DATASET_NAME_BYTES + 1] = '\0';
	assert_int_equal(dataset_check_name(longest, &df.e), -EINVAL);
	longest[DATASET_NAME_BYTES] = '\0';
	assert_int_equal(dataset_check_name(longest, &df.e), 0);
}

static void what_is_refused(void **state)
{
	(void)state;
	df_expect(df_create("{'name':'x'}"), -EINVAL, "mounts");
	df_expect(df_create("{" SOURCE "}"), -EINVAL, "name");
	df_expect(df_create("{'name':'x','quotta':1," SOURCE "}"), -EINVAL, "quotta");
	df_expect(df_create("{'name':'x','quota':-1," SOURCE "}"), -EINVAL, "quota");
	df_expect(df_create("{'name':'x','evict':'often'," SOURCE "}"), -EINVAL, "never, lru");
	df_expect(df_create("{'name':'x','mounts':[{'url':'file://@/origin'},{'url':'file://@/"
			    "other'}]}"),
		-EINVAL, "its own path");
	df_expect(df_create("{'name':'x','mounts':[{'url':'file://@/origin','path':'/a'},"
			    "{'url':'file://@/other','path':'//a/'}]}"),
		-EINVAL, "/a:");
	df_expect(df_create("{'name':'x','mounts':[{'url':'file://@/origin','path':'a'}]}"),
		-EINVAL, "start it with '/'");
	df_expect(df_create("{'name':'x','mounts':[{'url':'file://@/origin','path':'/a/../b'}]}"),
		-EINVAL, "'..'");
	df_expect(df_create("{'name':'x','consistency':'guess'," SOURCE "}"), -EINVAL, "follow");
	df_expect(df_create("{'name':'x','mounts':[{'url':'s3://b/','credentials':'mine'}]}"),
		-EINVAL, "mine");
	df_expect(df_create("{'name':'x','mounts':[{'url':'file://@/nothing'}]}"), -ENOENT,
		"nothing");
	assert_int_equal(df_create("{'name':'x'," SOURCE "}"), 0);
	df_expect(df_create("{'name':'x'," SOURCE "}"), -EEXIST, "another name");
	df_expect(df_update("x", "{'mounts':[{'url':'file:///b'}]}"), -EINVAL, "cannot change");
	df_expect(df_update("x", "{'mounts':[{'path':'/a','region':'r'}]}"), -EINVAL, "'path'");
	df_expect(df_update("x", "{'cache_scope':'other'}"), -EINVAL, "another source");
	df_expect(df_update("y", "{'pin':true}"), -ENOENT, "'y'");
}

/* Those who reach a bucket in another way do not share its bytes, unless they say so. */
static void scopes(void **state)
{
	struct dataset d = { 0 };
	struct volume_id volumes[4];
	static const char *const bodies[] = {
		"{'name':'a','mounts':[{'url':'s3://b/p'}]}",
		"{'name':'a','mounts':[{'url':'s3://b/p','credentials':'env:ONE_'}]}",
		"{'name':'a','mounts':[{'url':'s3://b/p','credentials':'env:ONE_'}],"
		"'cache_scope':'team'}",
		"{'name':'a','mounts':[{'url':'s3://b/p','credentials':'env:TWO_'}],"
		"'cache_scope':'team'}",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bodies); i++) {
		json_t *json = df_body(bodies[i]);

		if (dataset_apply(&d, json, true, NULL, &df.e) < 0)
			fail_msg("%s", df.e.text);
		volumes[i] = d.mounts[0].volume;
		dataset_release(&d);
		json_decref(json);
	}
	assert_false(volume_id_equal(&volumes[0], &volumes[1]));
	assert_false(volume_id_equal(&volumes[1], &volumes[2]));
	assert_true(volume_id_equal(&volumes[2], &volumes[3]));
}

/* ---- changes --------------------------------------------------------------------------------- */

static void changes_survive_a_restart(void **state)
{
	struct dataset first;
	struct dataset again;
	struct source_view view;

	(void)state;
	assert_int_equal(df_create("{'name':'old'," SOURCE ",'quota':1000000,'pin':true}"), 0);
	assert_true(df.told > 0);
	first = df_find("old");
	df_list("old");
	assert_int_equal(source_set_view(df.sources, &first.mounts[0].volume, &view), 0);
	assert_true(view.policy.quota == 1000000 && view.policy.pin);
	assert_int_equal(df_update("old", "{'name':'young','quota':null,'priority':5}"), 0);
	assert_int_equal(dataset_set_find(df.set, "old", &again, &df.e), -ENOENT);
	df_reopen();
	again = df_find("young");
	assert_string_equal(again.uuid, first.uuid);
	assert_int_equal(again.policy.parts, POLICY_PIN | POLICY_PRIORITY);
	assert_int_equal(source_set_view(df.sources, &first.mounts[0].volume, &view), 0);
	assert_true(view.policy.quota == 0 && view.policy.pin && view.policy.priority == 5);
	dataset_release(&again);
	dataset_release(&first);
}

static void in_order_of_names(void **state)
{
	struct dataset *all;
	uint32_t n;

	(void)state;
	assert_int_equal(df_create("{'name':'b'," SOURCE "}"), 0);
	assert_int_equal(df_create("{'name':'c'," SOURCE "}"), 0);
	assert_int_equal(df_create("{'name':'a'," SOURCE "}"), 0);
	assert_int_equal(dataset_set_all(df.set, &all, &n), 0);
	assert_int_equal(n, 3);
	for (uint32_t i = 0; i < n; i++) {
		assert_int_equal(all[i].name[0], 'a' + (int)i);
		dataset_release(&all[i]);
	}
	free(all);
}

static void hold(const struct dataset *d, bool end)
{
	struct record_generation g;
	struct source_hold h = { .volume = d->mounts[0].volume, .end = end };

	assert_int_equal(source_set_generation(df.sources, &h.volume, 0, &g), 0);
	h.lineage = g.id.lineage;
	h.generation = g.id.generation;
	assert_int_equal(source_set_hold(df.sources, &h, &df.e), 0);
}

static void deletion(void **state)
{
	struct dataset d;
	struct source_view view;

	(void)state;
	assert_int_equal(df_create("{'name':'x'," SOURCE ",'quota':5}"), 0);
	df_list("x");
	d = df_find("x");
	hold(&d, false);
	df_expect(dataset_delete(df.set, "x", false, &df.e), -EBUSY, "mounted");
	df_expect(dataset_evict(df.set, "x", NULL, NULL, false, &(json_t *){ NULL }, &df.e), -EBUSY,
		"mounted");
	hold(&d, true);
	assert_int_equal(dataset_delete(df.set, "x", false, &df.e), 0);
	assert_int_equal(source_set_view(df.sources, &d.mounts[0].volume, &view), 0);
	assert_int_equal(view.evict, 1); /* its bytes are to go */
	assert_int_equal(view.policy.quota, 0);
	df_reopen();
	df_expect(dataset_delete(df.set, "x", false, &df.e), -ENOENT, "'x'");
	dataset_release(&d);
}

static void bytes_of_another_dataset_stay(void **state)
{
	struct dataset d;
	struct source_view view;

	(void)state;
	assert_int_equal(df_create("{'name':'x'," SOURCE "}"), 0);
	assert_int_equal(df_create("{'name':'y'," SOURCE "}"), 0);
	df_list("x");
	d = df_find("x");
	assert_int_equal(dataset_delete(df.set, "x", true, &df.e), 0);
	assert_int_equal(source_set_view(df.sources, &d.mounts[0].volume, &view), 0);
	assert_int_equal(view.evict, 0);
	dataset_release(&d);
}

/* The number of what is to be dropped of its first source. */
static uint64_t evict(const char *name, const char *paths, const char *member)
{
	json_t *wanted = paths ? df_body(paths) : NULL;
	json_t *json = NULL;
	uint64_t serial;

	if (dataset_evict(df.set, name, NULL, wanted, true, &json, &df.e) < 0)
		fail_msg("%s", df.e.text);
	serial = (uint64_t)json_integer_value(
		json_object_get(json_array_get(json_object_get(json, "sources"), 0), member));
	json_decref(wanted);
	json_decref(json);
	return serial;
}

/* A worker whose tiers are older than this master's state follows only what it has not seen. */
static void orders_to_evict_go_on(void **state)
{
	struct source_report report = { .cached_bytes = 8, .evicted = 5 };
	struct dataset d;
	uint64_t serial;

	(void)state;
	assert_int_equal(df_create("{'name':'x'," SOURCE "}"), 0);
	df_list("x");
	d = df_find("x");
	source_set_report(df.sources, 1, &d.mounts[0].volume, &report);
	serial = evict("x", NULL, "serial");
	assert_int_equal(serial, 6);
	report.evicted = UINT64_MAX; /* nonsense */
	source_set_report(df.sources, 1, &d.mounts[0].volume, &report);
	serial = evict("x", NULL, "serial");
	assert_int_equal(serial, 7);
	dataset_release(&d);
}

struct late {
	const struct dataset *dataset;
	struct source_wait second;
};

static void nothing_said(
	struct source_wait *wait, int status, struct source_answer *a, const struct err *why)
{
	(void)wait;
	(void)status;
	(void)a;
	(void)why;
}

/* In the first flight: somebody asks for another one, and then the policy is set. */
static void set_meanwhile(
	struct source_wait *wait, int status, struct source_answer *a, const struct err *why)
{
	struct late *late = wait->arg;
	const struct tier_policy policy = { .quota = 2 };

	(void)a;
	(void)why;
	assert_int_equal(status, 0);
	source_open(df.sources, &late->second);
	assert_int_equal(
		source_set_policies(df.sources, &late->dataset->mounts[0].volume, 1, &policy, NULL),
		0);
}

static void the_last_word_counts(void **state)
{
	struct dataset d;
	struct late late;
	struct source_wait first;
	struct source_view view;

	(void)state;
	assert_int_equal(df_create("{'name':'x'," SOURCE "}"), 0);
	df_drain();
	d = df_find("x");
	late.dataset = &d;
	late.second = (struct source_wait){ .config = &d.mounts[0].config,
		.policy = { .to = { .quota = 1 }, .parts = POLICY_QUOTA },
		.on_done = nothing_said };
	first = (struct source_wait){
		.config = &d.mounts[0].config, .on_done = set_meanwhile, .arg = &late
	};
	source_open(df.sources, &first); /* both flights */
	assert_int_equal(source_set_view(df.sources, &d.mounts[0].volume, &view), 0);
	assert_int_equal(view.policy.quota, 2);
	dataset_release(&d);
}

/* While the first generation of a source is stored, with its record. */
static struct {
	_Atomic bool stored;
	_Atomic bool go_on;
} first;

static void stay_in_write(const struct store_change *changes)
{
	if (strncmp(changes[0].key, "generation/", 11) != 0)
		return;
	atomic_store(&first.stored, true);
	test_wait(atomic_load(&first.go_on));
}

static void *evict_source(void *arg)
{
	uint64_t serial = 0;

	assert_int_equal(source_set_evict(df.sources, arg, &serial, &df.e), 0);
	assert_int_equal(serial, 1);
	return NULL;
}

/* What is set then is stored, too. */
static void set_while_the_first_is_stored(void **state)
{
	struct source_view view;
	struct volume_id volume;
	struct dataset d;
	pthread_t thread;

	(void)state;
	first.stored = first.go_on = false;
	spy.on_write = stay_in_write;
	assert_int_equal(df_create("{'name':'x'," SOURCE "}"), 0);
	test_wait(atomic_load(&first.stored));
	d = df_find("x");
	volume = d.mounts[0].volume;
	dataset_release(&d);
	assert_int_equal(pthread_create(&thread, NULL, evict_source, &volume), 0);
	test_advance(CLOCK_SECOND); /* it waits, or has ended */
	pthread_mutex_lock(&df.sources->lock);
	atomic_store(&first.go_on, true);
	test_advance(CLOCK_SECOND);
	/* Nobody finds the source with a record, and without a generation. */
	assert_int_equal(pthread_mutex_trylock(&df.sources->write_lock), EBUSY);
	pthread_mutex_unlock(&df.sources->lock);
	assert_int_equal(pthread_join(thread, NULL), 0);
	df_drain();
	df_reopen();
	assert_int_equal(source_set_view(df.sources, &volume, &view), 0);
	assert_int_equal(view.evict, 1);
}

/* Of an object and a directory of one name the directory stays; such keys a directory cannot
 * have: the table is made by hand. */
static void keys_that_are_left_out(void **state)
{
	static const char *const keys[] = { "a", "a-b", "a/b", "a/b/c", "a/c", "a/d/e", "d//e",
		"f/../g", "h/i", "h/j" };
	struct listing *listing = listing_new(MiB);
	struct table *table = NULL;
	struct generation_id id;
	struct dataset d;
	json_t *json = NULL;
	const json_t *left;
	char path[256];

	(void)state;
	assert_int_equal(df_create("{'name':'x'," SOURCE "}"), 0);
	df_drain();
	d = df_find("x");
	assert_int_equal(dataset_left_out_json(df.sources, &d, &json, &df.e), 0);
	assert_int_equal(json_integer_value(json_object_get(json, "count")), 0);
	json_decref(json);
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
		assert_int_equal(
			listing_add(listing, keys[i], (uint32_t)strlen(keys[i]), 1, 0, "t", 1), 0);
	assert_int_equal(source_set_open_table(df.sources, &d.mounts[0].volume,
				 &(struct source_pin){ 0 }, &table, &df.e),
		0);
	id = table_info(table)->id;
	(void)snprintf(path, sizeof(path), "%s/state/tables/", fixture_dir);
	for (size_t i = 0; i < VOLUME_ID_LEN; i++)
		(void)snprintf(path + strlen(path), 3, "%02x", id.volume.bytes[i]);
	(void)snprintf(path + strlen(path), 64, ".%016llx.1", (unsigned long long)id.lineage);
	assert_int_equal(generation_build(&id.volume, table, listing, path, NULL, NULL, &df.e), 0);
	assert_int_equal(dataset_left_out_json(df.sources, &d, &json, &df.e), 0);
	assert_int_equal(json_integer_value(json_object_get(json, "count")), 4);
	left = json_object_get(json, "keys");
	assert_string_equal(
		json_string_value(json_object_get(json_array_get(left, 0), "key")), "a");
	assert_string_equal(
		json_string_value(json_object_get(json_array_get(left, 1), "key")), "a/b");
	assert_string_equal(
		json_string_value(json_object_get(json_array_get(left, 2), "key")), "d//e");
	assert_string_equal(
		json_string_value(json_object_get(json_array_get(left, 3), "key")), "f/../g");
	json_decref(json);
	table_unref(table);
	listing_free(listing);
	dataset_release(&d);
}

/* ---- time ------------------------------------------------------------------------------------ */

static void unused_ones_go(void **state)
{
	struct source_report report = { .cached_bytes = 8 };
	struct source_view view;
	struct dataset d;

	(void)state;
	assert_int_equal(df_create("{'name':'x'," SOURCE ",'idle_s':1,'ttl_s':1}"), 0);
	df_list("x");
	d = df_find("x");
	source_set_report(df.sources, 1, &d.mounts[0].volume, &report);
	hold(&d, false);
	test_advance(2100 * CLOCK_MS);
	dataset_age(df.set); /* mounted */
	assert_int_equal(source_set_view(df.sources, &d.mounts[0].volume, &view), 0);
	assert_true(view.evict == 0 && !view.idle && view.mounts == 1 && view.used > 0);
	hold(&d, true);
	assert_int_equal(df_update("x", "{'idle_s':3600,'ttl_s':3600}"), 0);
	dataset_age(df.set); /* a moment ago */
	assert_int_equal(source_set_view(df.sources, &d.mounts[0].volume, &view), 0);
	assert_true(view.evict == 0 && !view.idle);
	assert_int_equal(df_update("x", "{'idle_s':1,'ttl_s':1}"), 0);
	test_advance(2100 * CLOCK_MS);
	dataset_age(df.set);
	dataset_age(df.set); /* once */
	assert_int_equal(source_set_view(df.sources, &d.mounts[0].volume, &view), 0);
	assert_true(view.evict == 1 && view.idle);
	assert_int_equal(df_update("x", "{'idle_s':null,'ttl_s':null}"), 0);
	dataset_age(df.set); /* it is not to be idle any more */
	assert_int_equal(source_set_view(df.sources, &d.mounts[0].volume, &view), 0);
	assert_false(view.idle);
	source_set_idle(df.sources, &d.mounts[0].volume, true);
	hold(&d, false);
	assert_int_equal(source_set_view(df.sources, &d.mounts[0].volume, &view), 0);
	assert_false(view.idle);
	dataset_release(&d);
}

/* Another dataset of the same source wants its bytes for longer. */
static void the_most_patient_decides(void **state)
{
	struct source_report report = { .cached_bytes = 8 };
	struct source_view view;
	struct dataset d;

	(void)state;
	assert_int_equal(df_create("{'name':'x'," SOURCE ",'ttl_s':1}"), 0);
	assert_int_equal(df_create("{'name':'y'," SOURCE ",'ttl_s':3600}"), 0);
	df_list("x");
	d = df_find("x");
	source_set_report(df.sources, 1, &d.mounts[0].volume, &report);
	test_advance(2100 * CLOCK_MS);
	dataset_age(df.set);
	assert_int_equal(source_set_view(df.sources, &d.mounts[0].volume, &view), 0);
	assert_int_equal(view.evict, 0);
	assert_int_equal(dataset_delete(df.set, "y", true, &df.e), 0);
	dataset_age(df.set);
	assert_int_equal(source_set_view(df.sources, &d.mounts[0].volume, &view), 0);
	assert_int_equal(view.evict, 1);
	dataset_release(&d);
}
int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(record_comes_back, df_setup, df_teardown),
		cmocka_unit_test_setup_teardown(allow, df_setup, df_teardown),
		cmocka_unit_test(records_of_other_versions),
		cmocka_unit_test(names),
		cmocka_unit_test_setup_teardown(what_is_refused, df_setup, df_teardown),
		cmocka_unit_test(scopes),
		cmocka_unit_test_setup_teardown(changes_survive_a_restart, df_setup, df_teardown),
		cmocka_unit_test_setup_teardown(in_order_of_names, df_setup, df_teardown),
		cmocka_unit_test_setup_teardown(deletion, df_setup, df_teardown),
		cmocka_unit_test_setup_teardown(
			bytes_of_another_dataset_stay, df_setup, df_teardown),
		cmocka_unit_test_setup_teardown(orders_to_evict_go_on, df_setup, df_teardown),
		cmocka_unit_test_setup_teardown(the_last_word_counts, df_setup, df_teardown),
		cmocka_unit_test_setup_teardown(
			set_while_the_first_is_stored, df_setup, df_teardown),
		cmocka_unit_test_setup_teardown(keys_that_are_left_out, df_setup, df_teardown),
		cmocka_unit_test_setup_teardown(unused_ones_go, df_setup, df_teardown),
		cmocka_unit_test_setup_teardown(the_most_patient_decides, df_setup, df_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
