/* Preloads of the master: records come back, requests are checked, rates are told. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/units.h"
#include "master/preload.h"

/* ---- records --------------------------------------------------------------------------------- */

static struct preload_record sample(enum preload_state state)
{
	struct preload_record record = {
		.id = 17,
		.state = state,
		.target = strdup("s3://b/p"),
		.volume = { { 1, 2, 3, 0xff } },
		.lineage = 0xfedcba9876543210ull,
		.generation = 4,
		.n_paths = 2,
		.bandwidth = 500000000,
		.user = 4000000000u,
		.created = 1790000000,
		.files = 1000,
		.files_done = 998,
		.files_failed = 2,
		.bytes = 7ull << 40,
		.bytes_done = 6ull << 40,
		.bytes_fetched = 5,
		.parts = calloc(2, sizeof(*record.parts)),
		.n_parts = 2,
		.failures = json_pack("[{s:s, s:s}]", "key", "a/b", "reason", "gone"),
	};

	record.parts[0] = (struct preload_part){ .worker = 0xff00000000000001ull,
		.run = 7,
		.run_fetched = 3,
		.fetched_before = 2,
		.state = PRELOAD_COMPLETE,
		.files_done = 998,
		.bytes_done = 11,
		.bytes_copied = 12,
		.reason = "none" };
	record.parts[1] = (struct preload_part){ .state = PRELOAD_FAILED, .files_failed = 2 };
	record.paths[0] = strdup("a/*");
	record.paths[1] = strdup("**/b");
	record.config = (struct ufs_config){
		.scheme = UFS_S3, .bucket = strdup("b"), .prefix = strdup("p/")
	};
	(void)strcpy(record.reason, "2 of 1000 objects could not be fetched");
	return record;
}

static void comes_back(void **state)
{
	(void)state;
	for (int i = 0; i < PRELOAD_STATES; i++) {
		struct preload_record record = sample((enum preload_state)i);
		struct preload_record back;
		struct buf text = BUF_INIT(65536);

		record.refresh = true;
		record.exact = i % 2 == 0;
		record.part = i % 3 == 0;
		assert_int_equal(preload_record_encode(&record, &text), 0);
		assert_int_equal(preload_record_decode(text.data, text.len, &back), 0);
		assert_int_equal(back.state, i);
		assert_int_equal(back.id, 17);
		assert_true(back.lineage == record.lineage && back.bytes == record.bytes);
		assert_true(volume_id_equal(&back.volume, &record.volume));
		assert_int_equal(back.user, 4000000000u);
		assert_int_equal(back.n_paths, 2);
		assert_string_equal(back.paths[1], "**/b");
		assert_string_equal(back.reason, record.reason);
		assert_true(json_equal(back.failures, record.failures));
		assert_int_equal(back.files_failed, 2);
		assert_int_equal(back.n_parts, 2);
		assert_true(
			back.parts[0].worker == 0xff00000000000001ull && back.parts[0].run == 7);
		assert_int_equal(back.parts[0].run_fetched, 3);
		assert_int_equal(back.parts[0].fetched_before, 2);
		assert_int_equal(back.parts[0].state, PRELOAD_COMPLETE);
		assert_int_equal(back.parts[0].files_done, 998);
		assert_int_equal(back.parts[0].bytes_done, 11);
		assert_int_equal(back.parts[0].bytes_copied, 12);
		assert_string_equal(back.parts[0].reason, "none");
		assert_int_equal(back.parts[1].state, PRELOAD_FAILED);
		assert_int_equal(back.parts[1].files_failed, 2);
		assert_int_equal(back.exact, i % 2 == 0);
		assert_int_equal(back.part, i % 3 == 0);
		/* How its source is reached is kept while it is needed. */
		assert_int_equal(back.refresh, i == PRELOAD_LISTING);
		assert_int_equal(back.config.bucket != NULL, i == PRELOAD_LISTING);
		preload_record_release(&back);
		preload_record_release(&record);
		buf_release(&text);
	}
}

/* Whatever a worker counts and an origin says, the record is one that the next master reads. */
static void of_any_worker(void **state)
{
	struct preload_record record = sample(PRELOAD_FAILED);
	struct preload_record back;
	struct buf text = BUF_INIT(65536);

	(void)state;
	record.bytes_fetched = record.bytes_done = record.files = UINT64_MAX;
	record.generation = 1ull << 63;
	(void)strcpy(record.reason, "the origin says \xe3\x83"); /* cut in a letter */
	assert_int_equal(preload_record_encode(&record, &text), 0);
	assert_int_equal(preload_record_decode(text.data, text.len, &back), 0);
	assert_true(back.files == INT64_MAX && back.bytes_fetched == INT64_MAX);
	assert_string_equal(back.reason, "the origin says ??");
	preload_record_release(&back);
	preload_record_release(&record);
	buf_release(&text);
}

/* As versions had it that knew one worker. */
static void of_one_worker(void **state)
{
	struct preload_record record = sample(PRELOAD_RUNNING);
	struct preload_record back;
	struct buf text = BUF_INIT(65536);
	json_t *json;
	char *old;

	(void)state;
	assert_int_equal(preload_record_encode(&record, &text), 0);
	json = json_loadb(text.data, text.len, 0, NULL);
	assert_non_null(json);
	assert_int_equal(json_object_del(json, "workers"), 0);
	old = json_dumps(json, 0);
	assert_int_equal(preload_record_decode(old, strlen(old), &back), 0);
	assert_int_equal(back.n_parts, 0);
	preload_record_release(&back);
	free(old);
	assert_int_equal(json_object_set_new(json, "run", json_string("0000000000000009")), 0);
	assert_int_equal(json_object_set_new(json, "run_fetched", json_integer(3)), 0);
	old = json_dumps(json, 0);
	assert_int_equal(preload_record_decode(old, strlen(old), &back), 0);
	assert_int_equal(back.n_parts, 1);
	assert_int_equal(back.parts[0].run, 9);
	assert_int_equal(back.parts[0].run_fetched, 3);
	assert_int_equal(back.parts[0].fetched_before, 2);
	preload_record_release(&back);
	free(old);
	json_decref(json);
	preload_record_release(&record);
	buf_release(&text);
}

static void other_versions(void **state)
{
	struct preload_record record = sample(PRELOAD_RUNNING);
	struct buf text = BUF_INIT(65536);
	struct preload_record back;
	json_t *json;
	char *changed;

	(void)state;
	assert_int_equal(preload_record_encode(&record, &text), 0);
	json = json_loadb(text.data, text.len, 0, NULL);
	assert_non_null(json);
	assert_int_equal(json_object_set_new(json, "later", json_true()), 0);
	changed = json_dumps(json, 0);
	assert_int_equal(preload_record_decode(changed, strlen(changed), &back), 0);
	preload_record_release(&back);
	free(changed);
	assert_int_equal(json_object_set_new(json, "format", json_integer(2)), 0);
	changed = json_dumps(json, 0);
	assert_int_equal(preload_record_decode(changed, strlen(changed), &back), -EPROTONOSUPPORT);
	free(changed);
	assert_int_equal(json_object_set_new(json, "format", json_integer(1)), 0);
	assert_int_equal(json_object_set_new(json, "state", json_string("asleep")), 0);
	changed = json_dumps(json, 0);
	assert_int_equal(preload_record_decode(changed, strlen(changed), &back), -EBADMSG);
	free(changed);
	assert_int_equal(json_object_set_new(json, "state", json_string("running")), 0);
	assert_int_equal(json_object_del(json, "lineage"), 0);
	changed = json_dumps(json, 0);
	assert_int_equal(preload_record_decode(changed, strlen(changed), &back), -EBADMSG);
	free(changed);
	json_decref(json);
	preload_record_release(&record);
	buf_release(&text);
}

/* Cut anywhere, it is refused. */
static void damaged(void **state)
{
	struct preload_record record = sample(PRELOAD_LISTING);
	struct buf text = BUF_INIT(65536);
	struct preload_record back;

	(void)state;
	assert_int_equal(preload_record_encode(&record, &text), 0);
	for (size_t len = 0; len < text.len; len++)
		assert_true(preload_record_decode(text.data, len, &back) < 0);
	preload_record_release(&record);
	buf_release(&text);
}

/* ---- requests -------------------------------------------------------------------------------- */

static int apply(const char *body, struct preload_record *record, struct err *e)
{
	json_t *json = json_loads(body, JSON_DECODE_ANY, NULL);
	int r;

	assert_non_null(json);
	*record = (struct preload_record){ 0 };
	*e = ERR_INIT;
	r = preload_apply(record, json, 0, NULL, NULL, e);
	json_decref(json);
	return r;
}

static void taken(void **state)
{
	struct preload_record record;
	struct err e;

	(void)state;
	assert_int_equal(apply("{\"url\":\"s3://b/p\",\"endpoint\":\"http://h:1\","
			       "\"path_style\":true,\"paths\":[\"a/*\"],\"bandwidth\":5}",
				 &record, &e),
		0);
	assert_int_equal(record.state, PRELOAD_LISTING);
	assert_true(record.refresh && record.config.path_style);
	assert_string_equal(record.config.endpoint, "http://h:1");
	assert_string_equal(record.config.prefix, "p/");
	assert_string_equal(record.paths[0], "a/*");
	assert_int_equal(record.bandwidth, 5);
	preload_record_release(&record);
	assert_int_equal(apply("{\"volume\":\"00112233445566778899aabbccddeeff\","
			       "\"label\":\"s3://x\",\"generation\":7,"
			       "\"lineage\":\"fedcba9876543210\"}",
				 &record, &e),
		0);
	assert_int_equal(record.state, PRELOAD_WAITING);
	assert_int_equal(record.volume.bytes[1], 0x11);
	assert_int_equal(record.generation, 7);
	assert_int_equal(record.lineage, 0xfedcba9876543210ull);
	assert_string_equal(record.target, "s3://x");
	preload_record_release(&record);
}

static void refused(void **state)
{
	static const struct {
		const char *body;
		const char *line;
	} bad[] = {
		{ "[]", "JSON object" },
		{ "{}", "exactly one" },
		{ "{\"url\":\"s3://b\",\"volume\":\"00\"}", "exactly one" },
		{ "{\"url\":\"nothing\"}", "nothing" },
		{ "{\"url\":\"s3://b\",\"speed\":1}", "'speed'" },
		{ "{\"url\":\"s3://b\",\"bandwidth\":-1}", "'bandwidth'" },
		{ "{\"url\":\"s3://b\",\"bandwidth\":\"5\"}", "'bandwidth'" },
		{ "{\"url\":\"s3://b\",\"paths\":\"a\"}", "'paths'" },
		{ "{\"url\":\"s3://b\",\"paths\":[1]}", "'paths'" },
		{ "{\"url\":\"s3://b\",\"paths\":[\"a[\"]}", "a[" },
		{ "{\"url\":\"s3://b\",\"credentials\":\"what:ever\"}", "what:" },
		{ "{\"volume\":\"0011\"}", "32 hexadecimal" },
		{ "{\"volume\":\"00112233445566778899aabbccddeeff\",\"lineage\":7}", "'lineage'" },
		{ "{\"dataset\":\"none\"}", "no dataset" },
	};
	struct preload_record record;
	struct err e;

	(void)state;
	for (unsigned int i = 0; i < ARRAY_SIZE(bad); i++) {
		assert_true(apply(bad[i].body, &record, &e) < 0);
		if (!strstr(e.text, bad[i].line))
			fail_msg("%s: %s", bad[i].body, e.text);
		preload_record_release(&record);
	}
}

/* ---- rates ----------------------------------------------------------------------------------- */

static void steady(void **state)
{
	struct preload_rate rate = PRELOAD_RATE_INIT;
	uint64_t now = 7 * CLOCK_SECOND;

	(void)state;
	assert_int_equal(preload_rate_get(&rate, now), 0);
	assert_int_equal(preload_rate_eta(&rate, now, 100), -1);
	for (uint64_t i = 0; i <= 20; i++, now += CLOCK_SECOND / 4)
		preload_rate_add(&rate, now, i * 25 * MiB);
	assert_int_equal(preload_rate_get(&rate, now), 100 * MiB);
	assert_int_equal(preload_rate_eta(&rate, now, 0), 0);
	assert_int_equal(preload_rate_eta(&rate, now, 1000 * MiB), 10);
	assert_int_equal(preload_rate_eta(&rate, now, 1001 * MiB), 11);
	assert_int_equal(preload_rate_get(&rate, now + 60 * CLOCK_SECOND), 0);
	assert_int_equal(preload_rate_eta(&rate, now + 60 * CLOCK_SECOND, MiB), -1);
}

static void smoothed(void **state)
{
	struct preload_rate rate = PRELOAD_RATE_INIT;
	uint64_t now = CLOCK_SECOND;
	uint64_t before;

	(void)state;
	for (uint64_t i = 0; i <= 20; i++, now += CLOCK_SECOND / 4)
		preload_rate_add(&rate, now, i * 25 * MiB);
	before = preload_rate_get(&rate, now);
	preload_rate_add(&rate, now, 500 * MiB); /* a quarter of a second without a byte */
	assert_true(preload_rate_get(&rate, now) < before);
	assert_true(preload_rate_get(&rate, now) > before * 8 / 10);
	/* Counted again: no jump, and no negative rate. */
	preload_rate_add(&rate, now + CLOCK_SECOND, 0);
	assert_in_range(preload_rate_get(&rate, now + CLOCK_SECOND), 1, before);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(comes_back),
		cmocka_unit_test(of_any_worker),
		cmocka_unit_test(of_one_worker),
		cmocka_unit_test(other_versions),
		cmocka_unit_test(damaged),
		cmocka_unit_test(taken),
		cmocka_unit_test(refused),
		cmocka_unit_test(steady),
		cmocka_unit_test(smoothed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
