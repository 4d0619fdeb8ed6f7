/* The store: writes are atomic and there after a reopen; records survive a round trip; newer and
 * damaged ones are refused. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "master/record.h"
#include "master/dataset.h"
#include "master/preload.h"
#include "master/slots.h"
#include "master/source.h"
#include "master/store.h"

static char dir[64];
static struct store *store;

static int setup(void **state)
{
	struct err e = ERR_INIT;

	(void)state;
	(void)snprintf(dir, sizeof(dir), "/var/tmp/granary-st.XXXXXX");
	return mkdtemp(dir) ? store_rocksdb_open(dir, &store, &e) : -1;
}

static int teardown(void **state)
{
	char command[128];

	(void)state;
	store_close(store);
	(void)snprintf(command, sizeof(command), "rm -rf %s", dir);
	return system(command);
}

static void reopen(void)
{
	struct err e = ERR_INIT;

	store_close(store);
	store = NULL;
	assert_int_equal(store_rocksdb_open(dir, &store, &e), 0);
}

static void expect_stored(const char *key, const char *value)
{
	_cleanup_(buf_release) struct buf got = BUF_INIT(1024);
	int r = store->ops->get(store, key, &got);

	if (!value) {
		assert_int_equal(r, -ENOENT);
		return;
	}
	assert_int_equal(r, 0);
	assert_string_equal(buf_str(&got), value);
}

static int collect(void *arg, const char *key, const void *value, size_t len)
{
	return buf_printf(arg, "%s=%.*s;", key, (int)len, (const char *)value);
}

static int refuse(void *arg, const char *key, const void *value, size_t len)
{
	(void)arg;
	(void)key;
	(void)value;
	(void)len;
	return -ECANCELED;
}

static void test_reopen(void **state)
{
	_cleanup_(buf_release) struct buf all = BUF_INIT(1024);
	struct err e = ERR_INIT;
	struct store *second;

	(void)state;
	assert_int_equal(store->ops->write(store,
				 (struct store_change[]){ { "a/2", "two", 3 }, { "a/1", "one", 3 },
					 { "b", "x", 1 } },
				 3),
		0);
	assert_int_equal(
		store->ops->write(store,
			(struct store_change[]){ { "b", NULL, 0 }, { "a/10", "ten", 3 } }, 2),
		0);
	assert_int_equal(store_rocksdb_open(dir, &second, &e), -EBUSY);
	reopen();
	expect_stored("a/1", "one");
	expect_stored("b", NULL);
	expect_stored("never", NULL);
	assert_int_equal(store->ops->scan(store, "a/", collect, &all), 0);
	assert_string_equal(buf_str(&all), "a/1=one;a/10=ten;a/2=two;");
	assert_int_equal(store->ops->scan(store, "a/", refuse, NULL), -ECANCELED);
	assert_int_equal(store->ops->scan(store, "z", refuse, NULL), 0);
}

static void test_value_bound(void **state)
{
	_cleanup_(buf_release) struct buf small = BUF_INIT(2);

	(void)state;
	assert_int_equal(store->ops->write(store, &(struct store_change){ "k", "three", 5 }, 1), 0);
	assert_int_equal(store->ops->get(store, "k", &small), -ENOBUFS);
}

static void test_records(void **state)
{
	_cleanup_(buf_release) struct buf out = BUF_INIT(STORE_VALUE_BYTES);
	struct record_generation g = {
		.id = { .lineage = 0xfedcba9876543210ull, .generation = 7 },
		.serial = 9,
		.rows = 5,
		.files = 4,
		.bytes = 1ull << 40,
		.table_bytes = 77,
		.built_at = 1700000000,
		.kept = true,
	};
	struct record_generation g2;
	struct record_cluster c = { .uuid = "0123456789abcdef0123456789abcdef", .epoch = 3 };
	struct record_cluster c2;
	struct record_source s = { 0 };
	struct record_source s2;
	struct err e = ERR_INIT;

	(void)state;
	memset(g.id.hash, 0xab, SHA256_BYTES);
	memset(g.id.volume.bytes, 0x11, VOLUME_ID_LEN);
	assert_int_equal(record_generation_encode(&g, &out), 0);
	assert_int_equal(record_generation_decode(out.data, out.len, &g2), 0);
	assert_memory_equal(&g.id, &g2.id, sizeof(g.id));
	assert_int_equal(g2.bytes, g.bytes);
	assert_true(g2.kept);
	assert_int_equal(record_generation_decode(out.data, out.len - 1, &g2), -EBADMSG);
	buf_clear(&out);
	assert_int_equal(record_cluster_encode(&c, &out), 0);
	assert_int_equal(record_cluster_decode(out.data, out.len, &c2), 0);
	assert_string_equal(c2.uuid, c.uuid);
	assert_int_equal(c2.epoch, 3);
	assert_int_equal(record_cluster_decode("{\"format\":2}", 12, &c2), -EPROTONOSUPPORT);
	assert_int_equal(record_cluster_decode("[]", 2, &c2), -EBADMSG);
	buf_clear(&out);
	assert_int_equal(ufs_config_parse("s3://bucket/some prefix", &s.config, &e), 0);
	s.text = strdup("s3|x|bucket|some prefix/");
	s.config.path_style = true;
	s.config.anonymous = true;
	assert_int_equal(record_source_encode(&s, &out), 0);
	assert_int_equal(record_source_decode(out.data, out.len, &s2), 0);
	assert_string_equal(s2.config.bucket, "bucket");
	assert_string_equal(s2.config.prefix, s.config.prefix);
	assert_null(s2.config.endpoint);
	assert_true(s2.config.path_style);
	assert_true(s2.config.anonymous);
	assert_string_equal(s2.text, s.text);
	record_source_release(&s);
	record_source_release(&s2);
}

/* As version 0.1 stored it: a sequence, and the slots. */
static void test_slots_of_old(void **state)
{
	char *old = calloc(1, 8 + SLOTS_BYTES);
	const uint64_t sequence = 41;
	struct slots slots;
	struct err e = ERR_INIT;

	(void)state;
	memcpy(old, &sequence, 8); /* every slot is the worker's of number 0 */
	assert_int_equal(store->ops->write(store,
				 (struct store_change[]){ { "slots", old, 8 + SLOTS_BYTES },
					 { "worker/0", "00112233445566aa", 16 } },
				 2),
		0);
	assert_int_equal(slots_open(store, 1, &slots, &e), 0);
	assert_int_equal(slots.sequence, 41);
	assert_memory_equal(slots.table->table.slots, old + 8, SLOTS_BYTES);
	slots_release(&slots);
	assert_int_equal(store->ops->write(
				 store, &(struct store_change){ "slots", old, 7 + SLOTS_BYTES }, 1),
		0);
	assert_int_equal(slots_open(store, 1, &slots, &e), -EBADMSG);
	assert_non_null(strstr(e.text, "restore a backup"));
	free(old);
}

static int open_sources(struct err *e)
{
	const struct source_set_config config = { .store = store, .tables = "/nowhere" };
	struct source_set *set = NULL;
	int r = source_set_new(&config, &set, e);

	if (r == 0)
		source_set_free(set);
	return r;
}

static int open_datasets(struct err *e)
{
	const struct dataset_set_config config = { .store = store };
	struct dataset_set *set = NULL;
	int r = dataset_set_new(&config, &set, e);

	if (r == 0)
		dataset_set_free(set);
	return r;
}

static int open_preloads(struct err *e)
{
	const struct preloads_config config = { .store = store };
	struct preloads *preloads = NULL;
	int r = preloads_new(&config, &preloads, e);

	preloads_free(preloads); /* ours also when it failed */
	return r;
}

static int open_members(struct err *e)
{
	struct members members;
	int r;

	assert_int_equal(
		members_init(&members, &(struct members_config){ .out_after_ns = 1 }, 1), 0);
	r = members_load(&members, store, 1, e);
	members_release(&members);
	return r;
}

static int open_slots(struct err *e)
{
	struct slots slots;
	int r = slots_open(store, 1, &slots, e);

	if (r == 0)
		slots_release(&slots);
	return r;
}

/* What a newer version wrote is not read wrong and not written over. */
static void test_newer(void **state)
{
	static const struct {
		const char *key;
		const char *value;
		int (*open)(struct err *e);
	} cases[] = {
		{ "source/00112233445566778899aabbccddeeff", "{\"format\":99}", open_sources },
		{ "dataset/00112233445566778899aabbccddeeff", "{\"format\":99}", open_datasets },
		{ "preload/00000000000000000007", "{\"format\":99}", open_preloads },
		{ "member/00003", "{\"format\":99}", open_members },
		{ "slots", "SLT1\2\0\0\0and what else there may be", open_slots },
	};
	struct err e = ERR_INIT;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		size_t len = i == 4 ? 30 : strlen(cases[i].value);

		assert_int_equal(cases[i].open(&e), 0);
		assert_int_equal(
			store->ops->write(store,
				&(struct store_change){ cases[i].key, cases[i].value, len }, 1),
			0);
		assert_int_equal(cases[i].open(&e), -EPROTONOSUPPORT);
		if (!strstr(e.text, "newer version: start that version"))
			fail_msg("%s: %s", cases[i].key, e.text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_reopen, setup, teardown),
		cmocka_unit_test_setup_teardown(test_value_bound, setup, teardown),
		cmocka_unit_test(test_records),
		cmocka_unit_test_setup_teardown(test_slots_of_old, setup, teardown),
		cmocka_unit_test_setup_teardown(test_newer, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
