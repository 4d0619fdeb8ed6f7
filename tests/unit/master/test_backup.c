/*
 * Backups: what was remembered is there after a restore, with a higher epoch; a file that was cut or
 * changed anywhere is refused and makes nothing; so is one that names other places, and a state that
 * is not empty.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "master/backup.h"
#include "master/backups.h"
#include "master/service.h"

#define EPOCH 41u
#define TABLE "table of generation 3"

/* Bytes that look like a line of a backup. */
static const char odd[] = "\0\n\1bytes\n{\"sha256\": \"x\"}\n";

static char dir[64];
static struct store *store;

static const char *at(const char *name)
{
	static char paths[8][128];
	static unsigned int next;
	char *path = paths[next++ % 8];

	(void)snprintf(path, sizeof(paths[0]), "%s/%s", dir, name);
	return path;
}

static void put(const char *key, const void *value, size_t len)
{
	assert_int_equal(store->ops->write(store, &(struct store_change){ key, value, len }, 1), 0);
}

static void put_generation(uint64_t serial, bool kept)
{
	_cleanup_(buf_release) struct buf value = BUF_INIT(4096);
	struct record_generation g = { .serial = serial, .kept = kept, .rows = 9 };
	char key[RECORD_KEY_BYTES];

	memset(g.id.volume.bytes, 0xab, VOLUME_ID_LEN);
	g.id.lineage = 0x1234;
	g.id.generation = serial;
	record_generation_key(&g.id.volume, serial, key);
	assert_int_equal(record_generation_encode(&g, &value), 0);
	put(key, value.data, value.len);
}

static const char *table_name(uint64_t generation)
{
	static char name[128];
	char volume[2 * VOLUME_ID_LEN + 1];

	memset(volume, 0, sizeof(volume));
	for (size_t i = 0; i < VOLUME_ID_LEN; i++)
		memcpy(volume + 2 * i, "ab", 2);
	(void)snprintf(
		name, sizeof(name), "tables/%s.%016x.%u", volume, 0x1234, (unsigned int)generation);
	return name;
}

static void put_file(const char *path, const char *text)
{
	assert_int_equal(file_write_atomic(path, text, strlen(text), 0600), 0);
}

static int setup(void **state)
{
	_cleanup_(buf_release) struct buf value = BUF_INIT(4096);
	struct record_cluster cluster = { .epoch = EPOCH };
	struct err e = ERR_INIT;

	(void)state;
	memset(cluster.uuid, '7', sizeof(cluster.uuid) - 1);
	(void)snprintf(dir, sizeof(dir), "/var/tmp/granary-bk.XXXXXX");
	if (!mkdtemp(dir) || mkdir(at("tables"), 0700) != 0 ||
		store_rocksdb_open(at("store"), &store, &e) < 0 ||
		record_cluster_encode(&cluster, &value) < 0)
		return -1;
	put("cluster", value.data, value.len);
	put("slots", odd, sizeof(odd) - 1);
	put_generation(2, false);
	put_generation(3, true);
	put_file(at(table_name(3)), TABLE);
	put_file(at("tables/ffff.1.1"), "");
	return 0;
}

static int teardown(void **state)
{
	char command[128];

	(void)state;
	store_close(store);
	(void)snprintf(command, sizeof(command), "rm -rf %s", dir);
	return system(command);
}

static void make(const char *file, struct backup_stats *ret_stats)
{
	struct err e = ERR_INIT;

	assert_int_equal(backup_write(store, at("tables"), file, ret_stats, &e), 0);
}

static bool is_there(const char *path)
{
	return access(path, F_OK) == 0;
}

static int same_value(void *arg, const char *key, const void *value, size_t len)
{
	_cleanup_(buf_release) struct buf was = BUF_INIT(STORE_VALUE_BYTES);

	(*(unsigned int *)arg)++;
	assert_int_equal(store->ops->get(store, key, &was), 0);
	if (strcmp(key, "cluster") == 0)
		return 0;
	assert_int_equal(was.len, len);
	assert_memory_equal(was.data, value, len);
	return 0;
}

static void test_round_trip(void **state)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(4096);
	struct backup_stats made;
	struct backup_stats got;
	struct record_cluster cluster;
	struct store *again;
	struct stat st;
	struct err e = ERR_INIT;
	unsigned int records = 0;

	(void)state;
	make(at("one"), &made);
	assert_int_equal(made.records, 4);
	assert_int_equal(made.tables, 2);
	assert_int_equal(stat(at("one"), &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(st.st_size, made.bytes);
	assert_false(is_there(at("one.new")));

	assert_int_equal(mkdir(at("state"), 0700), 0); /* an empty one is allowed */
	assert_int_equal(backup_restore(at("one"), at("state"), &got, &e), 0);
	assert_int_equal(got.records, 4);
	assert_int_equal(got.cluster.epoch, EPOCH);
	assert_false(is_there(at("state.restoring")));
	{
		char path[192];

		(void)snprintf(path, sizeof(path), "%s/state/%s", dir, table_name(3));
		assert_int_equal(file_read_all(path, &text), 0);
	}
	assert_string_equal(buf_str(&text), TABLE);
	buf_clear(&text);

	assert_int_equal(store_rocksdb_open(at("state/store"), &again, &e), 0);
	assert_int_equal(again->ops->scan(again, "", same_value, &records), 0);
	assert_int_equal(records, 4);
	assert_int_equal(again->ops->get(again, "cluster", &text), 0);
	assert_int_equal(record_cluster_decode(text.data, text.len, &cluster), 0);
	assert_string_equal(cluster.uuid, made.cluster.uuid);
	assert_true(cluster.epoch > EPOCH);
	assert_true(cluster.epoch >= 1700000000u); /* of a clock: past what any run before had */
	store_close(again);

	assert_int_equal(backup_restore(at("one"), at("state"), &got, &e), -EEXIST);
	assert_non_null(strstr(e.text, "empty"));
}

/* The epoch of a cluster whose clock was ahead is passed all the same. */
static void test_epoch_ahead(void **state)
{
	_cleanup_(buf_release) struct buf value = BUF_INIT(4096);
	struct record_cluster cluster = { .epoch = 1ull << 60 };
	struct backup_stats stats;
	struct store *again;
	struct err e = ERR_INIT;

	(void)state;
	memset(cluster.uuid, '7', sizeof(cluster.uuid) - 1);
	assert_int_equal(record_cluster_encode(&cluster, &value), 0);
	put("cluster", value.data, value.len);
	make(at("one"), &stats);
	assert_int_equal(backup_restore(at("one"), at("state"), &stats, &e), 0);
	assert_int_equal(store_rocksdb_open(at("state/store"), &again, &e), 0);
	buf_clear(&value);
	assert_int_equal(again->ops->get(again, "cluster", &value), 0);
	assert_int_equal(record_cluster_decode(value.data, value.len, &cluster), 0);
	assert_int_equal(cluster.epoch, (1ull << 60) + 1);
	store_close(again);
}

static void expect_refused(const char *data, size_t len)
{
	struct backup_stats stats;
	struct err e = ERR_INIT;

	assert_int_equal(file_write_atomic(at("bad"), data, len, 0600), 0);
	assert_true(backup_check(at("bad"), &stats, &e) < 0);
	assert_non_null(strstr(e.text, "bad"));
}

static void test_damage(void **state)
{
	_cleanup_(buf_release) struct buf whole = BUF_INIT(1u << 20);
	_cleanup_free_ char *copy = NULL;
	struct backup_stats stats;
	struct err e = ERR_INIT;

	(void)state;
	make(at("one"), &stats);
	assert_int_equal(file_read_all(at("one"), &whole), 0);
	assert_int_equal(backup_check(at("one"), &stats, &e), 0);
	copy = malloc(whole.len + 1);
	assert_non_null(copy);
	for (size_t i = 0; i < whole.len; i++) {
		memcpy(copy, whole.data, whole.len);
		copy[i] ^= 1;
		expect_refused(copy, whole.len);
		expect_refused(whole.data, i);
	}
	memcpy(copy, whole.data, whole.len);
	copy[whole.len] = '\n';
	expect_refused(copy, whole.len + 1);
	assert_int_equal(backup_restore(at("bad"), at("state"), &stats, &e), -EBADMSG);
	assert_false(is_there(at("state")));
	assert_false(is_there(at("state.restoring")));
}

/* A backup whose one table has that name, and whose hash is right. */
static void forge(const char *table)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(4096);
	uint8_t sum[SHA256_BYTES];
	char hex[2 * SHA256_BYTES + 1];

	assert_int_equal(buf_printf(&text,
				 "{\"granary_backup\":1,\"cluster\":\"%032d\",\"epoch\":1,"
				 "\"time\":\"\"}\n{\"table\":\"%s\",\"bytes\":1}\nx\n",
				 7, table),
		0);
	hash_sha256(text.data, text.len, sum);
	hash_hex(sum, sizeof(sum), hex);
	assert_int_equal(
		buf_printf(&text, "{\"records\":0,\"tables\":1,\"sha256\":\"%s\"}\n", hex), 0);
	assert_int_equal(file_write_atomic(at("forged"), text.data, text.len, 0600), 0);
}

static void test_names(void **state)
{
	static const char *const bad[] = { "../evil", "a/b", "..", "", ".hidden" };
	struct backup_stats stats;
	struct err e = ERR_INIT;

	(void)state;
	forge("good.1.1");
	assert_int_equal(backup_check(at("forged"), &stats, &e), 0);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		forge(bad[i]);
		assert_int_equal(backup_restore(at("forged"), at("state"), &stats, &e), -EBADMSG);
		assert_false(is_there(at("evil")));
	}
}

/* A record that names a table which is not there makes no backup, rather than a bad one. */
static void test_table_missing(void **state)
{
	struct backup_stats stats;
	struct err e = ERR_INIT;

	(void)state;
	make(at("one"), &stats);
	put_generation(4, true);
	assert_int_equal(backup_write(store, at("tables"), at("one"), &stats, &e), -ENOENT);
	assert_false(is_there(at("one.new")));
	assert_int_equal(backup_check(at("one"), &stats, &e), 0); /* that of before */
	assert_int_equal(stats.records, 4);
}

/* A store whose generation 4 came and went between the records and its table, as often as `gone`. */
static unsigned int gone;
static const struct store_ops *real_ops;

static int scan_gone(struct store *s, const char *prefix, store_visit visit, void *arg)
{
	char key[RECORD_KEY_BYTES];
	struct volume_id volume;
	int r;

	memset(volume.bytes, 0xab, VOLUME_ID_LEN);
	record_generation_key(&volume, 4, key);
	if (gone > 0)
		put_generation(4, true);
	r = real_ops->scan(s, prefix, visit, arg);
	if (gone > 0) {
		gone--;
		put(key, NULL, 0);
	}
	return r;
}

static void test_table_goes(void **state)
{
	struct store_ops ops = *store->ops;
	struct backup_stats stats;
	struct err e = ERR_INIT;

	(void)state;
	real_ops = store->ops;
	ops.scan = scan_gone;
	store->ops = &ops;
	gone = 3;
	make(at("one"), &stats);
	assert_int_equal(gone, 0);
	assert_int_equal(stats.tables, 2);
	assert_int_equal(backup_check(at("one"), &stats, &e), 0);
	gone = 1000;
	assert_int_equal(backup_write(store, at("tables"), at("one"), &stats, &e), -ENOENT);
	assert_non_null(strstr(e.text, "try again"));
	assert_true(gone > 900); /* it gives up */
	store->ops = real_ops;
}

static void test_newer(void **state)
{
	static const char text[] = "{\"granary_backup\":2}\n";
	struct backup_stats stats;
	struct err e = ERR_INIT;

	(void)state;
	put_file(at("newer"), text);
	assert_int_equal(backup_check(at("newer"), &stats, &e), -EPROTONOSUPPORT);
	assert_non_null(strstr(e.text, "newer"));
	assert_int_equal(backup_check(at("none"), &stats, &e), -ENOENT);
}

static void test_asked(void **state)
{
	const struct backups_config config = {
		.store = store, .state = dir, .tables = at("tables"), .keep = 0
	};
	struct service service = { 0 };
	struct backup_stats stats;
	struct err e = ERR_INIT;
	const char *file;
	json_t *json = NULL;

	(void)state;
	assert_int_equal(backups_new(&config, &service.backups, &e), 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(backups_api_create(&service, NULL, &json, &e), 0);
		file = json_string_value(json_object_get(json, "file"));
		assert_string_equal(file, at("backups/asked.granary"));
		assert_int_equal(backup_check(file, &stats, &e), 0);
		json_decref(json);
	}
	assert_int_equal(backups_api_list(&service, NULL, &json, &e), 0);
	assert_int_equal(json_array_size(json_object_get(json, "backups")), 1);
	json_decref(json);
	backups_free(service.backups);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_round_trip, setup, teardown),
		cmocka_unit_test_setup_teardown(test_epoch_ahead, setup, teardown),
		cmocka_unit_test_setup_teardown(test_damage, setup, teardown),
		cmocka_unit_test_setup_teardown(test_names, setup, teardown),
		cmocka_unit_test_setup_teardown(test_table_missing, setup, teardown),
		cmocka_unit_test_setup_teardown(test_table_goes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_newer, setup, teardown),
		cmocka_unit_test_setup_teardown(test_asked, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
