/*
 * The worker whole (world.h). What is checked: the bytes and checksums of every range, that each
 * unit is asked from the origin once whatever the number of readers, that a second read is answered
 * with a descriptor, that a full tier is bypassed, and what is refused.
 */
#include "tests/unit/cacheworker/damage.h"
#include "tests/unit/cacheworker/world.h"

#define FILES      40u
#define FILES_MANY 240u
#define READERS    8u
#define READS_EACH 150u

/* ---- tests ----------------------------------------------------------------------------------- */

static void test_every_unit_once(void **state)
{
	struct world *w = world_new(1 * GiB, FILES);
	uint32_t local;
	uint32_t ranges;

	(void)state;
	world_read_all(w, FRAME_LOCAL_OK, &local, &ranges);
	world_wait_written(w);
	assert_int_equal(world_origin_gets(w), world_units(w));
	world_read_all(w, FRAME_LOCAL_OK, &local, &ranges);
	assert_int_equal(
		local + (w->model_bytes - align_down(table_info(w->table)->end, 256 * KiB)) /
					(256 * KiB) >=
			ranges,
		1);
	world_read_all(w, 0, &local, &ranges); /* a reader elsewhere gets bytes */
	assert_int_equal(local, 0);
	assert_int_equal(world_origin_gets(w), world_units(w));
	world_free(w);
}

/* Who looked before a unit was written, and asks for it afterwards, is told: nothing is fetched. */
static void test_unit_that_came_meanwhile(void **state)
{
	struct world *w = world_new(1 * GiB, FILES);
	struct source *source;
	struct table_row *row = malloc(sizeof(*row));
	uint32_t local;
	uint32_t ranges;

	(void)state;
	world_read_all(w, 0, &local, &ranges);
	world_wait_written(w);
	source = list_entry(w->worker.sources.all.next, struct source, link);
	assert_int_equal(table_next_offset(w->table, 0, row), 0);
	assert_int_equal(flight_want(source, row, row->offset, UFS_PREFETCH, false, NULL), -EEXIST);
	assert_int_equal(world_origin_gets(w), world_units(w));
	free(row);
	world_free(w);
}

/* Reads the range `n` times, until none of them was copied: the kernel may drop any page at any moment. */
static void read_zero_copy(struct world *w, uint64_t offset, uint32_t length, uint32_t n)
{
	const counter_t *zero_copy = &w->worker.counters.lent_bytes;
	uint64_t before;

	do {
		before = counter_get(zero_copy);
		for (uint32_t i = 0; i < n; i++)
			(void)world_read_range(w, offset, length, 0);
	} while (counter_get(zero_copy) - before != (uint64_t)n * length);
}

/* Ranges of whole objects that lie in the page cache go out of it as they lie there; all others are copied. */
static void test_zero_copy(void **state)
{
	struct world *w = world_new_sized(1 * GiB, 4, 2 * MiB, 0);
	const struct worker_counters *counters = &w->worker.counters;
	uint32_t local;
	uint32_t ranges;
	uint64_t zero_copy;

	(void)state;
	world_read_all(w, 0, &local, &ranges);
	world_wait_written(w);
	for (uint32_t i = 0; i < 8; i++)
		read_zero_copy(w, i * MiB, MiB, 1);
	zero_copy = counter_get(&counters->lent_bytes);
	world_read_range(w, BLOCK_BYTES, 256 * KiB, 0);       /* from the middle of a piece */
	world_read_range(w, 0, 60 * KiB, 0);                  /* little */
	world_read_range(w, 4 * 2 * MiB - 512 * KiB, MiB, 0); /* past the last object */
	assert_int_equal(counter_get(&counters->lent_bytes), zero_copy);
	read_zero_copy(w, 0, MiB, 3 * LIMIT_PIPES);
	assert_true(w->worker.pipes.n <= 2); /* the same ones again and again */
	world_free(w);
}

/* Reads the range until it was answered without another thread: the kernel may drop any page at any moment. */
static void read_at_once(struct world *w, uint64_t offset, uint32_t length)
{
	const counter_t *at_once = &w->worker.counters.at_once;
	uint64_t before;

	do {
		before = counter_get(at_once);
		(void)world_read_range(w, offset, length, 0);
	} while (counter_get(at_once) == before);
}

/* Small ranges of whole pieces in the page cache are answered where they were asked for; all others take the long way. */
static void test_at_once(void **state)
{
	struct world *w = world_new_sized(1 * GiB, 8, 100 * KiB + 100, 0);
	const struct worker_counters *counters = &w->worker.counters;
	uint64_t hits;
	uint64_t before;
	uint32_t local;
	uint32_t ranges;

	(void)state;
	world_read_all(w, 0, &local, &ranges);
	world_wait_written(w);
	for (unsigned int i = 0; i < 8; i++) {
		read_at_once(
			w, world_offset_of(w, i), 104 * KiB); /* with the rest of its last block */
		read_at_once(w, world_offset_of(w, i), 64 * KiB);
		read_at_once(w, world_offset_of(w, i) + 64 * KiB, 40 * KiB);
	}
	hits = counter_get(&counters->hits);
	before = counter_get(&counters->at_once);
	(void)world_read_range(
		w, world_offset_of(w, 0) + BLOCK_BYTES, 64 * KiB, 0);   /* from within a piece */
	(void)world_read_range(w, world_offset_of(w, 0), 32 * KiB, 0);  /* to within one */
	(void)world_read_range(w, world_offset_of(w, 0), 256 * KiB, 0); /* much */
	assert_int_equal(counter_get(&counters->at_once), before);
	assert_int_equal(counter_get(&counters->hits), hits + 3);
	assert_int_equal(world_origin_gets(w), world_units(w));
	test_wait(atomic_load(&w->worker.answers) == 0); /* the last one is being let go of */
	world_free(w);
}

static int recheck(const struct world *w, uint64_t offset, uint32_t length)
{
	struct rpc_call call = world_make_call(w, FRAME_RECHECK, offset, length, 0);
	int r = rpc_call_wait(w->client, &call, NULL);

	rpc_call_release(&call);
	return r;
}

/* What lies in the page cache goes out as it lies there: readers compare, and tell. */
static void test_told_of_damage(void **state)
{
	struct world *w = world_new_sized(1 * GiB, 8, 100 * KiB, 0);
	uint64_t at = world_offset_of(w, 6);
	struct rpc_call call;
	uint64_t gets;
	uint32_t local;
	uint32_t ranges;

	(void)state;
	world_read_all(w, 0, &local, &ranges);
	world_wait_written(w);
	read_at_once(w, at, 100 * KiB);
	assert_int_equal(recheck(w, at, 100 * KiB), 0);
	damage(w, 1, (off_t)at + 100);
	call = world_make_call(w, FRAME_FETCH, at, 100 * KiB, 0);
	assert_int_equal(rpc_call_wait(w->client, &call, NULL), 0);
	assert_memory_not_equal(call.reply_payload, w->model + at, 64 * KiB);
	rpc_call_release(&call);
	gets = world_origin_gets(w);
	assert_int_equal(recheck(w, at, 100 * KiB), -EBADMSG);
	(void)world_read_range(w, at, 100 * KiB, 0);
	assert_int_equal(world_origin_gets(w), gets + 1);
	world_free(w);
}

static void test_cache_survives_restart(void **state)
{
	struct world *w = world_new(1 * GiB, FILES);
	uint32_t local;
	uint32_t ranges;

	(void)state;
	world_read_all(w, FRAME_LOCAL_OK, &local, &ranges);
	world_wait_written(w);
	world_stop_worker(w);
	world_start_worker(w, 1 * GiB);
	world_read_all(w, FRAME_LOCAL_OK, &local, &ranges);
	assert_true(local > 0);
	assert_int_equal(world_origin_gets(w), 0);
	world_free(w);
}

static void test_full_tier_is_bypassed(void **state)
{
	struct world *w = world_new(80 * MiB, FILES_MANY); /* room for about half */
	uint32_t local;
	uint32_t ranges;

	(void)state;
	for (unsigned int pass = 0; pass < 2; pass++)
		world_read_all(w, FRAME_LOCAL_OK, &local, &ranges);
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
		(void)world_read_range(w, offset, length, i % 3 ? FRAME_LOCAL_OK : 0);
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
	world_wait_written(w);
	assert_true(world_origin_gets(w) <= world_units(w));
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
		struct rpc_call call =
			world_make_call(w, FRAME_FETCH, bad[i].offset, bad[i].length, 0);
		struct err e = ERR_INIT;

		assert_true(rpc_call_wait(w->client, &call, &e) < 0);
		free(call.reply_payload);
	}
	(void)world_read_range(w, 0, BLOCK_BYTES, 0);
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
	call = world_make_call(w, FRAME_FETCH, row->offset, BLOCK_BYTES, FRAME_LOCAL_OK);
	assert_int_equal(rpc_call_wait(w->client, &call, &e), -ESTALE);
	free(call.reply_payload);
	free(row);
	world_free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_unit_once),
		cmocka_unit_test(test_unit_that_came_meanwhile),
		cmocka_unit_test(test_zero_copy),
		cmocka_unit_test(test_at_once),
		cmocka_unit_test(test_told_of_damage),
		cmocka_unit_test(test_cache_survives_restart),
		cmocka_unit_test(test_full_tier_is_bypassed),
		cmocka_unit_test(test_readers_together),
		cmocka_unit_test(test_bad_ranges_refused),
		cmocka_unit_test(test_changed_object_is_stale),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
