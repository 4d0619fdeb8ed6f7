/*
 * The worker whole: a directory as origin, a real tier, real sockets, and a master of this test's that hands out a table.
 *
 * What is checked: the bytes of every range, that each unit is asked from the origin once whatever the number of readers, that a
 * second read is answered with a descriptor, that a full tier is bypassed, and that readers who leave cost nothing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/units.h"
#include "cacheworker/worker.h"
#include "cacheworker/source.h"
#include "proto/granary.pb-c.h"

#define FILES      40u
#define FILES_MANY 240u
#define DEADLINE   (60 * CLOCK_SECOND)
#define READERS    8u
#define READS_EACH 150u

/* One world per test, torn down by its end. */
struct world {
	char dir[64];
	char address[128];
	char master_address[128];
	char admin[128];
	char tier[128];
	struct loop *loop;
	struct rpc_server *master;
	struct rpc_client *client;
	struct table *table;
	char *table_path;
	struct worker_config config;
	struct worker worker;
	uint8_t *model; /* the volume's bytes as they should be */
	uint64_t model_bytes;
};

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

/* ---- a master that knows one table ------------------------------------------------------------------------- */

static void on_master_request(struct rpc_request *request, void *arg)
{
	struct world *w = arg;
	const struct generation_id *id = &table_info(w->table)->id;
	Granary__Generation answer = GRANARY__GENERATION__INIT;
	Granary__Source source = GRANARY__SOURCE__INIT;
	struct net_payload payload = NET_PAYLOAD_NONE;
	char prefix[160];
	uint8_t *packed;

	(void)snprintf(prefix, sizeof(prefix), "%s/data/", w->dir);
	source.has_scheme = true;
	source.scheme = UFS_FILE;
	source.prefix = prefix;
	answer.source = &source;
	answer.has_volume = true;
	answer.volume = (ProtobufCBinaryData){ .data = (uint8_t *)(uintptr_t)id->volume.bytes,
		.len = VOLUME_ID_LEN };
	answer.has_lineage = true;
	answer.lineage = id->lineage;
	answer.has_generation = true;
	answer.generation = id->generation;
	packed = malloc(granary__generation__get_packed_size(&answer));
	assert_non_null(packed);
	payload.parts[0].data = packed;
	payload.parts[0].len = granary__generation__pack(&answer, packed);
	payload.n = 1;
	payload.release = free;
	payload.arg = packed;
	payload.fd = open(w->table_path, O_RDONLY | O_CLOEXEC);
	rpc_reply(request, 0, NULL, payload);
}

static const struct rpc_server_ops master_ops = { .on_request = on_master_request };

/* ---- a source --------------------------------------------------------------------------------------------- */

static uint64_t file_size(unsigned int i)
{
	static const uint64_t sizes[] = { 1, 4095, 4096, 4097, 65536, 65537, 110000, 1 << 20,
		(1 << 20) + 1, 3500000 };

	return sizes[i % ARRAY_SIZE(sizes)];
}

static void write_files(struct world *w, unsigned int files)
{
	_cleanup_free_ uint8_t *data = malloc(4 * MiB);
	char path[160];

	assert_non_null(data);
	(void)snprintf(path, sizeof(path), "%s/data", w->dir);
	assert_int_equal(file_mkdirs(path, 0700), 0);
	for (unsigned int i = 0; i < files; i++) {
		uint64_t size = file_size(i);

		for (uint64_t k = 0; k < size; k++)
			data[k] = (uint8_t)(k * 31 + k / 4096 * 7 + i * 13 + 1);
		(void)snprintf(path, sizeof(path), "%s/data/file-%03u", w->dir, i);
		assert_int_equal(file_write_atomic(path, data, size, 0600), 0);
	}
}

static int take_objects(void *arg, const struct ufs_object *objects, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		const struct ufs_object *o = &objects[i];
		int r = listing_add(
			arg, o->key, o->key_len, o->size, o->mtime_ns, o->tag, o->tag_len);

		if (r < 0)
			return r;
	}
	return 0;
}

static void make_table(struct world *w)
{
	struct ufs_limits limits = UFS_LIMITS_DEFAULT;
	struct listing *listing = listing_new(64 * MiB);
	struct generation_stats stats;
	struct generation_id id;
	struct volume_id volume;
	struct ufs_config config;
	struct err e = ERR_INIT;
	struct ufs *ufs;
	char url[160];

	(void)snprintf(url, sizeof(url), "file://%s/data", w->dir);
	assert_int_equal(ufs_config_parse(url, &config, &e), 0);
	assert_int_equal(ufs_open(&config, &limits, &ufs, &e), 0);
	assert_int_equal(ufs_list(ufs, take_objects, listing, &e), 0);
	ufs_free(ufs);
	ufs_config_release(&config);
	volume_id_of_source(url, &volume);
	assert_true(asprintf(&w->table_path, "%s/table", w->dir) > 0);
	assert_int_equal(
		generation_build(&volume, NULL, listing, w->table_path, &id, &stats, &e), 0);
	listing_free(listing);
	assert_int_equal(table_open(open(w->table_path, O_RDONLY | O_CLOEXEC), &w->table, &e), 0);
}

static void make_model(struct world *w)
{
	struct table_cursor cursor = { 0 };
	struct table_row *row = malloc(sizeof(*row));

	w->model_bytes = align_up(table_info(w->table)->end, CHUNK_BYTES);
	w->model = calloc(1, w->model_bytes);
	assert_non_null(w->model);
	while (table_next(w->table, &cursor, row) == 0) {
		_cleanup_(buf_release) struct buf data = BUF_INIT(8 * MiB);
		char path[128 + LIMIT_KEY_BYTES + 1];

		(void)snprintf(path, sizeof(path), "%s/data/%s", w->dir, row->key);
		assert_int_equal(file_read_all(path, &data), 0);
		assert_int_equal(data.len, row->size);
		memcpy(w->model + row->offset, data.data, data.len);
	}
	table_cursor_release(&cursor);
	free(row);
}

static void start_worker(struct world *w, uint64_t capacity)
{
	struct err e = ERR_INIT;

	w->config = (struct worker_config){
		.tier = w->tier,
		.capacity = capacity,
		.create = true,
		.memory = 64 * MiB,
		.master = w->master_address,
		.listen = w->address,
		.admin = w->admin,
		.origin_requests = 16,
	};
	if (worker_open(&w->worker, &w->config, &e) < 0)
		fail_msg("worker: %s", e.text);
	assert_int_equal(rpc_client_new(w->loop, w->address, &w->client, &e), 0);
}

static struct world *world_new(uint64_t capacity, unsigned int files)
{
	struct world *w = calloc(1, sizeof(*w));
	struct err e = ERR_INIT;

	assert_non_null(w);
	(void)strcpy(w->dir, "/var/tmp/granary-worker.XXXXXX");
	assert_non_null(mkdtemp(w->dir));
	(void)snprintf(w->address, sizeof(w->address), "unix:%s/worker.rpc", w->dir);
	(void)snprintf(w->master_address, sizeof(w->master_address), "unix:%s/master.rpc", w->dir);
	(void)snprintf(w->admin, sizeof(w->admin), "%s/worker.sock", w->dir);
	(void)snprintf(w->tier, sizeof(w->tier), "%s/tier", w->dir);
	write_files(w, files);
	make_table(w);
	make_model(w);
	w->loop = loop_new("test");
	assert_non_null(w->loop);
	assert_int_equal(
		rpc_server_new(w->loop, w->master_address, &master_ops, w, &w->master, &e), 0);
	start_worker(w, capacity);
	return w;
}

static void stop_worker(struct world *w)
{
	rpc_client_free(w->client);
	worker_close(&w->worker);
}

static void world_free(struct world *w)
{
	stop_worker(w);
	rpc_server_free(w->master);
	loop_free(w->loop);
	table_unref(w->table);
	(void)nftw(w->dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
	free(w->table_path);
	free(w->model);
	free(w);
}

/* ---- reading ----------------------------------------------------------------------------------------------- */

static struct rpc_call make_call(
	const struct world *w, enum frame_op op, uint64_t offset, uint32_t length, uint8_t flags)
{
	const struct generation_id *id = &table_info(w->table)->id;

	return (struct rpc_call){
		.frame = { .op = op,
			.flags = flags,
			.volume = id->volume,
			.lineage = id->lineage,
			.generation = id->generation,
			.offset = offset,
			.length = length },
		.payload = NET_PAYLOAD_NONE,
		.deadline_ns = clock_mono_ns() + DEADLINE,
		.reply_fd = -1,
	};
}

/* Reads a range by whatever answer comes and compares it. Returns true when the answer was a descriptor. */
static bool read_range(const struct world *w, uint64_t offset, uint32_t length, uint8_t flags)
{
	struct rpc_call call = make_call(w, FRAME_FETCH, offset, length, flags);
	struct err e = ERR_INIT;
	int r = rpc_call_wait(w->client, &call, &e);
	bool local;

	if (r < 0)
		fail_msg("fetch %llu+%u: %s (%s)", (unsigned long long)offset, length, err_name(r),
			e.text);
	local = call.reply.flags & FRAME_LOCAL;
	if (local) {
		uint8_t *data = aligned_alloc(BLOCK_BYTES, length);

		assert_int_equal(call.reply.payload, CHUNK_BITMAP_BYTES);
		assert_true(call.reply_fd >= 0);
		assert_int_equal(
			file_pread_exact(call.reply_fd, data, length, offset & (CHUNK_BYTES - 1)),
			0);
		assert_memory_equal(data, w->model + offset, length);
		free(data);
		(void)close(call.reply_fd);
	} else {
		assert_true(call.reply.payload >= length);
		assert_memory_equal(call.reply_payload, w->model + offset, length);
	}
	free(call.reply_payload);
	return local;
}

static void read_all(
	const struct world *w, uint8_t flags, uint32_t *ret_local, uint32_t *ret_ranges)
{
	*ret_local = 0;
	*ret_ranges = 0;
	for (uint64_t at = 0; at < w->model_bytes; at += 256 * KiB) {
		*ret_local += read_range(w, at, 256 * KiB, flags);
		(*ret_ranges)++;
	}
}

static uint64_t origin_gets(struct world *w)
{
	uint64_t gets = 0;

	list_for_each (node, &w->worker.sources.all)
		gets += counter_get(
			&ufs_counters(list_entry(node, struct source, link)->ufs)->gets);
	return gets;
}

static uint64_t units_of_table(const struct world *w)
{
	struct table_cursor cursor = { 0 };
	struct table_row *row = malloc(sizeof(*row));
	uint64_t units = 0;

	while (table_next(w->table, &cursor, row) == 0)
		units += row->size <= UNIT_BYTES ? 1 : (row->size + UNIT_BYTES - 1) / UNIT_BYTES;
	table_cursor_release(&cursor);
	free(row);
	return units;
}

static unsigned int fills_in_flight(struct world *w)
{
	unsigned int n;

	pthread_mutex_lock(&w->worker.fills.lock);
	n = w->worker.fills.in_flight;
	pthread_mutex_unlock(&w->worker.fills.lock);
	return n;
}

static void wait_until_written(struct world *w)
{
	uint64_t deadline = clock_mono_ns() + DEADLINE;

	while (counter_get(&w->worker.counters.flights) || fills_in_flight(w)) {
		assert_true(clock_mono_ns() < deadline);
		clock_sleep_ns(5 * CLOCK_MS);
	}
}

/* ---- tests ------------------------------------------------------------------------------------------------- */

static void test_every_unit_once(void **state)
{
	struct world *w = world_new(1 * GiB, FILES);
	uint32_t local;
	uint32_t ranges;

	(void)state;
	read_all(w, FRAME_LOCAL_OK, &local, &ranges);
	wait_until_written(w);
	assert_int_equal(origin_gets(w), units_of_table(w));
	read_all(w, FRAME_LOCAL_OK, &local, &ranges);
	assert_int_equal(
		local + (w->model_bytes - align_down(table_info(w->table)->end, 256 * KiB)) /
					(256 * KiB) >=
			ranges,
		1);
	read_all(w, 0, &local, &ranges); /* a reader elsewhere gets bytes */
	assert_int_equal(local, 0);
	assert_int_equal(origin_gets(w), units_of_table(w));
	world_free(w);
}

static void test_cache_survives_restart(void **state)
{
	struct world *w = world_new(1 * GiB, FILES);
	uint32_t local;
	uint32_t ranges;

	(void)state;
	read_all(w, FRAME_LOCAL_OK, &local, &ranges);
	wait_until_written(w);
	stop_worker(w);
	start_worker(w, 1 * GiB);
	read_all(w, FRAME_LOCAL_OK, &local, &ranges);
	assert_true(local > 0);
	assert_int_equal(origin_gets(w), 0);
	world_free(w);
}

static void test_full_tier_is_bypassed(void **state)
{
	struct world *w = world_new(80 * MiB, FILES_MANY); /* room for about half */
	uint32_t local;
	uint32_t ranges;

	(void)state;
	for (unsigned int pass = 0; pass < 2; pass++)
		read_all(w, FRAME_LOCAL_OK, &local, &ranges);
	assert_true(counter_get(&w->worker.counters.bypass_bytes) > 0);
	assert_true(local > 0);
	assert_true(local < ranges);
	world_free(w);
}

struct reader {
	pthread_t thread;
	const struct world *world;
	uint64_t seed;
};

static void *run_reader(void *arg)
{
	struct reader *reader = arg;
	const struct world *w = reader->world;

	for (unsigned int i = 0; i < READS_EACH; i++) {
		uint64_t blocks = w->model_bytes / BLOCK_BYTES;
		uint64_t block = hash_xxh3(&i, sizeof(i), reader->seed) % blocks;
		uint32_t length =
			(uint32_t)(1 + hash_xxh3(&i, sizeof(i), ~reader->seed) % 256) * BLOCK_BYTES;
		uint64_t offset = block * BLOCK_BYTES;

		length = min(length, (uint32_t)(CHUNK_BYTES - (offset & (CHUNK_BYTES - 1))));
		(void)read_range(w, offset, length, i % 3 ? FRAME_LOCAL_OK : 0);
	}
	return NULL;
}

static void test_readers_together(void **state)
{
	struct world *w = world_new(1 * GiB, FILES);
	struct reader readers[READERS];

	(void)state;
	for (unsigned int i = 0; i < READERS; i++) {
		readers[i] =
			(struct reader){ .world = w, .seed = i / 2 + 1 }; /* pairs read the same */
		assert_int_equal(
			pthread_create(&readers[i].thread, NULL, run_reader, &readers[i]), 0);
	}
	for (unsigned int i = 0; i < READERS; i++)
		pthread_join(readers[i].thread, NULL);
	wait_until_written(w);
	assert_true(origin_gets(w) <= units_of_table(w));
	world_free(w);
}

static void test_bad_ranges_refused(void **state)
{
	static const struct {
		uint64_t offset;
		uint32_t length;
	} bad[] = { { 1, 4096 }, { 0, 0 }, { 0, 100 }, { CHUNK_BYTES - 4096, 8192 },
		{ UINT64_MAX - 4095, 4096 + 4096 } };
	struct world *w = world_new(1 * GiB, FILES);

	(void)state;
	for (unsigned int i = 0; i < ARRAY_SIZE(bad); i++) {
		struct rpc_call call = make_call(w, FRAME_FETCH, bad[i].offset, bad[i].length, 0);
		struct err e = ERR_INIT;

		assert_true(rpc_call_wait(w->client, &call, &e) < 0);
		free(call.reply_payload);
	}
	(void)read_range(w, 0, BLOCK_BYTES, 0);
	world_free(w);
}

static void test_changed_object_is_stale(void **state)
{
	struct world *w = world_new(1 * GiB, FILES);
	struct table_row *row = malloc(sizeof(*row));
	struct rpc_call call;
	struct err e = ERR_INIT;
	char path[160];

	(void)state;
	assert_int_equal(table_find_key(w->table, "file-006", 8, row), 0);
	(void)snprintf(path, sizeof(path), "%s/data/file-006", w->dir);
	assert_int_equal(file_write_atomic(path, "other", 5, 0600), 0);
	call = make_call(w, FRAME_FETCH, row->offset, BLOCK_BYTES, FRAME_LOCAL_OK);
	assert_int_equal(rpc_call_wait(w->client, &call, &e), -ESTALE);
	free(call.reply_payload);
	free(row);
	world_free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_unit_once),
		cmocka_unit_test(test_cache_survives_restart),
		cmocka_unit_test(test_full_tier_is_bypassed),
		cmocka_unit_test(test_readers_together),
		cmocka_unit_test(test_bad_ranges_refused),
		cmocka_unit_test(test_changed_object_is_stale),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
