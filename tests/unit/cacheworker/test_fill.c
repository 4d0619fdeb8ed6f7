/* Fills: what a few reads cost the origin, the 2 % rule, ranges announced ahead, memory. */
#include "tests/unit/cacheworker/world.h"

#include "cacheworker/fill.h"

#define FILES  320u
#define FILE_B (256 * KiB)

static void announce(const struct world *w, uint64_t offset, uint32_t length)
{
	struct rpc_call call = world_make_call(w, FRAME_PREFETCH, offset, length, 0);
	struct err e = ERR_INIT;

	assert_int_equal(rpc_call_wait(w->client, &call, &e), 0);
	rpc_call_release(&call);
}

static uint64_t present_bytes(struct world *w, uint64_t chunk)
{
	const struct generation_id *id = &table_info(w->table)->id;
	struct chunk_id chunk_id = { .volume = id->volume, .lineage = id->lineage, .chunk = chunk };
	struct chunk *c = tier_chunk_find(w->worker.tiers, &chunk_id);
	uint64_t bytes = c ? chunk_present_bytes(c) : 0;

	chunk_unref(c);
	return bytes;
}

struct part {
	struct rpc_call call;
	_Atomic unsigned int *left;
};

static void on_part(struct rpc_call *call, int status)
{
	struct part *part = call->arg;

	assert_int_equal(status, 0);
	rpc_call_release(call);
	atomic_fetch_sub(part->left, 1);
}

/* A unit asked for in many parts at once, as a kernel does, counts once. */
static void test_few_reads_cost_little(void **state)
{
	struct world *w = world_new_sized(1 * GiB, FILES, FILE_B, 0);
	struct part parts[16];
	_Atomic unsigned int left = ARRAY_SIZE(parts);

	(void)state;
	(void)world_read_range(w, world_offset_of(w, 200), BLOCK_BYTES, 0); /* the table is there */
	world_wait_written(w);
	assert_true(world_origin_gets(w) <= 1 + FILL_NEIGHBOURS);
	world_take_memory(w); /* so that all parts wait for one unit */
	for (unsigned int i = 0; i < ARRAY_SIZE(parts); i++) {
		parts[i] = (struct part){ .left = &left };
		parts[i].call = world_make_call(w, FRAME_FETCH,
			world_offset_of(w, 10) + i * (FILE_B / ARRAY_SIZE(parts)),
			FILE_B / ARRAY_SIZE(parts), 0);
		parts[i].call.arg = &parts[i];
		parts[i].call.on_done = on_part;
		rpc_call(w->client, &parts[i].call);
	}
	test_wait(counter_get(&w->worker.counters.joined) >= ARRAY_SIZE(parts) - 1);
	world_give_memory(w);
	test_wait(atomic_load(&left) == 0);
	world_wait_written(w);
	assert_int_equal(world_origin_gets(w), 2 * (1 + FILL_NEIGHBOURS));
	world_free(w);
}

/* A reader has its answer before its miss begins a fill, for which it would wait here. */
static void test_answer_precedes_fill(void **state)
{
	struct world *w = world_new_sized(1 * GiB, FILES, FILE_B, 0);

	(void)state;
	(void)world_read_range(w, 0, FILE_B, 0); /* the table is there */
	world_wait_written(w);
	pthread_mutex_lock(&w->worker.fills.lock);
	(void)world_read_range(w, world_offset_of(w, 200), FILE_B, 0);
	pthread_mutex_unlock(&w->worker.fills.lock);
	world_wait_written(w);
	assert_int_equal(world_origin_gets(w), 2 * (1 + FILL_NEIGHBOURS));
	world_free(w);
}

static void test_whole_chunks_after_2_percent(void **state)
{
	struct world *w = world_new_sized(1 * GiB, FILES, FILE_B, 0);
	uint64_t chunk = world_offset_of(w, 200) / CHUNK_BYTES;

	(void)state;
	/* 7 of 320 files are over 2 %: the seventh fills its chunk, no other is. */
	for (unsigned int i = 0; i < 7; i++)
		(void)world_read_range(w, world_offset_of(w, i < 6 ? i * 10 : 200), BLOCK_BYTES, 0);
	world_wait_written(w);
	assert_int_equal(present_bytes(w, chunk), CHUNK_BYTES);
	assert_true(present_bytes(w, 0) < CHUNK_BYTES);
	world_free(w);
}

/* A table of all objects, which are old enough once the last of the `files` is written again. */
static void make_table(struct world *w, unsigned int files)
{
	world_write_files(w, files - 1, files);
	table_unref(TAKE(w->table)); /* so that the new one is laid out in key order */
	w->table = world_make_table(w, "labels");
	world_make_model(w);
}

/* `labels` small objects after each file in key order, and a table of all. */
static void add_labels(struct world *w, unsigned int files, unsigned int labels)
{
	char path[192];

	for (unsigned int i = 0; i < files; i++)
		for (unsigned int k = 0; k < labels; k++) {
			(void)snprintf(
				path, sizeof(path), "%s/data/file-%03u.%03u.txt", w->dir, i, k);
			assert_int_equal(file_write_atomic(path, "label", 5, 0600), 0);
		}
	make_table(w, files);
}

/* A job reads files that share chunks with many small objects, which it does not read. */
static void test_other_kinds_cost_nothing(void **state)
{
	struct world *w = world_prepare(FILES, FILE_B, 0);
	uint32_t i;

	(void)state;
	add_labels(w, FILES, 4);
	world_start_worker(w, 1 * GiB);
	for (i = 0; i < FILES; i++)
		(void)world_read_range(w, world_offset_of(w, i), FILE_B, 0);
	world_wait_written(w);
	assert_int_equal(world_origin_gets(w), FILES);
	world_free(w);
}

/* Requests for a whole chunk of files with that many small objects after each, of which one file is read. */
static uint64_t gets_of_one_read(unsigned int labels)
{
	enum { FEW = 4 };
	struct world *w = world_prepare(FEW, FILE_B, 0);
	uint64_t gets;

	add_labels(w, FEW, labels);
	world_start_worker(w, 1 * GiB);
	(void)world_read_range(w, world_offset_of(w, 1), FILE_B, 0);
	world_wait_written(w);
	gets = world_origin_gets(w);
	world_free(w);
	return gets;
}

/* A search among many objects that no job reads costs more than the few that it would find are worth. */
static void test_search_is_bounded(void **state)
{
	(void)state;
	assert_int_equal(gets_of_one_read(FILL_PASSED), 4);
	assert_int_equal(
		gets_of_one_read(FILL_PASSED + 1), 2); /* file 0 is the first of the chunk */
}

/* Each of the directories has one object, and none has a number. */
static void test_directories_of_words(void **state)
{
	enum { DIRECTORIES = 26, SIZE = 64 * KiB };
	struct world *w = world_prepare(1, SIZE, 0);
	uint8_t *data = calloc(1, SIZE);
	char path[192];

	(void)state;
	for (unsigned int i = 0; i < DIRECTORIES; i++) {
		(void)snprintf(path, sizeof(path), "%s/data/%c", w->dir, 'a' + i);
		assert_int_equal(file_mkdirs(path, 0700), 0);
		(void)snprintf(path, sizeof(path), "%s/data/%c/image", w->dir, 'a' + i);
		assert_int_equal(file_write_atomic(path, data, SIZE, 0600), 0);
	}
	free(data);
	make_table(w, 1);
	world_start_worker(w, 1 * GiB);
	(void)world_read_range(w, world_offset_of(w, 0), SIZE, 0);
	world_wait_written(w);
	assert_int_equal(world_origin_gets(w), 1 + DIRECTORIES);
	world_free(w);
}

/* The miss that makes 2 % of the source brings some of the many objects of its chunk. */
static void test_requests_are_bounded(void **state)
{
	enum { MANY = 1000, MISSES = 20 };
	struct world *w = world_new_sized(1 * GiB, MANY, BLOCK_BYTES, 0);
	uint64_t gets;

	(void)state;
	for (unsigned int i = 0; i < MISSES; i++) {
		(void)world_read_range(w, world_offset_of(w, MANY - 10 - i * 10), BLOCK_BYTES, 0);
		world_wait_written(w);
	}
	gets = world_origin_gets(w);
	assert_true(gets > FILL_REQUESTS);
	assert_true(gets <= FILL_REQUESTS + MISSES * (1 + FILL_NEIGHBOURS));
	world_free(w);
}

/* Ranges of one chunk, announced in a row while the first is still filled. */
static void test_every_announced_range_comes(void **state)
{
	struct world *w = world_new_sized(1 * GiB, FILES, FILE_B, 0);
	uint64_t chunk = 3;

	(void)state;
	for (uint32_t i = 0; i < 16; i++)
		announce(w, chunk * CHUNK_BYTES + i * MiB, MiB);
	world_wait_written(w);
	assert_int_equal(present_bytes(w, chunk), CHUNK_BYTES);
	assert_int_equal(present_bytes(w, 2), 0);
	assert_int_equal(world_origin_gets(w), CHUNK_BYTES / FILE_B);
	world_free(w);
}

/* Ranges of an order, far from one another in one chunk: these and nothing between them; nor does
 * a read of what was announced bring neighbours. */
static void test_exact(void **state)
{
	static const unsigned int files[] = { 130, 180, 140, 150, 130 };
	struct world *w = world_new_sized(1 * GiB, FILES, FILE_B, 0);
	uint64_t chunk = world_offset_of(w, 130) / CHUNK_BYTES;
	struct err e = ERR_INIT;
	struct rpc_call call;

	(void)state;
	for (unsigned int i = 0; i < ARRAY_SIZE(files); i++) {
		assert_int_equal(world_offset_of(w, files[i]) / CHUNK_BYTES, chunk);
		call = world_make_call(
			w, FRAME_PREFETCH, world_offset_of(w, files[i]), FILE_B, FRAME_EXACT);
		assert_int_equal(rpc_call_wait(w->client, &call, &e), 0);
		rpc_call_release(&call);
	}
	world_wait_written(w);
	assert_int_equal(world_origin_gets(w), 4);
	assert_int_equal(present_bytes(w, chunk), 4 * FILE_B);
	call = world_make_call(w, FRAME_FETCH, world_offset_of(w, 10), FILE_B, FRAME_EXACT);
	assert_int_equal(rpc_call_wait(w->client, &call, &e), 0);
	rpc_call_release(&call);
	world_wait_written(w);
	assert_int_equal(world_origin_gets(w), 5);
	world_free(w);
}

/* A fill that found no memory goes on when some comes free, without another request. */
static void test_fill_wakes_with_memory(void **state)
{
	struct world *w = world_new_sized(1 * GiB, FILES, FILE_B, 0);

	(void)state;
	(void)world_read_range(w, 0, BLOCK_BYTES, 0);
	world_wait_written(w);
	world_take_memory(w);
	announce(w, 4 * CHUNK_BYTES, CHUNK_BYTES);
	test_wait(w->worker.fills.hungry);
	assert_int_equal(present_bytes(w, 4), 0);
	world_give_memory(w);
	test_wait(present_bytes(w, 4) >= CHUNK_BYTES);
	world_free(w);
}

/* Fills that were begun end when the tier is full: what it does not take is fetched for nothing. */
static void test_full_tier_ends_fills(void **state)
{
	const uint64_t capacity = 64 * MiB;
	struct world *w = world_new_sized(capacity, FILES, FILE_B, 0);

	(void)state;
	(void)world_read_range(w, 0, BLOCK_BYTES, 0);
	world_wait_written(w);
	world_take_memory(w); /* so that all are begun before the first byte comes */
	for (uint64_t chunk = 0; chunk < FILES * FILE_B / CHUNK_BYTES; chunk++)
		announce(w, chunk * CHUNK_BYTES, CHUNK_BYTES);
	world_give_memory(w);
	test_wait(!world_fills(w));
	assert_true(world_origin_gets(w) * FILE_B > capacity / 2);
	assert_true(world_origin_gets(w) <= capacity / FILE_B + w->config.origin_requests);
	world_free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_few_reads_cost_little),
		cmocka_unit_test(test_answer_precedes_fill),
		cmocka_unit_test(test_whole_chunks_after_2_percent),
		cmocka_unit_test(test_other_kinds_cost_nothing),
		cmocka_unit_test(test_search_is_bounded),
		cmocka_unit_test(test_directories_of_words),
		cmocka_unit_test(test_requests_are_bounded),
		cmocka_unit_test(test_every_announced_range_comes),
		cmocka_unit_test(test_exact),
		cmocka_unit_test(test_fill_wakes_with_memory),
		cmocka_unit_test(test_full_tier_ends_fills),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
