/*
 * Objects of which the origin no longer has the version that was listed: how often it is asked for them, by reads, fills and
 * pulls, and that what is stored next to them is not harmed.
 */
#include "tests/unit/cacheworker/cluster_world.h"

#include "cacheworker/duty.h"
#include "cacheworker/fill.h"

#define FILES  320u
#define FILE_B (256 * KiB)
#define LARGE  (3 * MiB)
#define WIDE \
	50u /* files over nine borders of chunks, of which one is between chunks of two owners */
#define READS 20u

static void take_away(const struct world *w, unsigned int file)
{
	char path[160];

	(void)snprintf(path, sizeof(path), "%s/data/file-%03u", w->dir, file);
	assert_int_equal(unlink(path), 0);
}

static void read_refused(const struct world *w, uint64_t offset)
{
	struct rpc_call call = world_make_call(w, FRAME_FETCH, offset, BLOCK_BYTES, 0);
	struct err e = ERR_INIT;

	assert_int_equal(rpc_call_wait(w->client, &call, &e), -ESTALE);
	assert_true(e.text[0]);
	rpc_call_release(&call);
}

static void announce(const struct world *w, uint64_t offset, uint32_t length)
{
	struct rpc_call call = world_make_call(w, FRAME_PREFETCH, offset, length, 0);
	struct err e = ERR_INIT;

	assert_int_equal(rpc_call_wait(w->client, &call, &e), 0);
	rpc_call_release(&call);
}

/* Reads that fail bring no neighbours, and count for nothing: a chunk is not filled for them. */
static void reads_that_fail(void **state)
{
	struct world *w = world_new_sized(1 * GiB, FILES, FILE_B, 0);

	(void)state;
	take_away(w, 10);
	for (unsigned int i = 0; i < READS; i++)
		read_refused(w, world_offset_of(w, 10));
	world_wait_written(w);
	assert_int_equal(world_origin_gets(w), 2);
	assert_int_equal(counter_get(&w->worker.counters.neighbours), 0);
	(void)world_read_range(w, world_offset_of(w, 200), BLOCK_BYTES, 0);
	world_wait_written(w);
	assert_int_equal(counter_get(&w->worker.counters.neighbours), FILL_NEIGHBOURS);
	world_free(w);
}

/* One request for each that nobody reads, however often its chunk is filled; a reader makes up for the second. */
static void fills_pass_them_by(void **state)
{
	struct world *w = world_new_sized(1 * GiB, FILES, FILE_B, 0);
	uint64_t chunk = world_offset_of(w, 130) / CHUNK_BYTES;
	uint32_t stale = 0;

	(void)state;
	for (unsigned int i = 0; i < FILES; i += 2)
		if (world_offset_of(w, i) / CHUNK_BYTES == chunk) {
			take_away(w, i);
			stale++;
		}
	assert_int_equal(stale, CHUNK_BYTES / FILE_B / 2);
	for (unsigned int i = 0; i < 3; i++) {
		announce(w, chunk * CHUNK_BYTES, CHUNK_BYTES);
		world_wait_written(w);
		assert_int_equal(world_origin_gets(w), CHUNK_BYTES / FILE_B);
		assert_int_equal(counter_get(&w->worker.counters.failed_units), stale);
	}
	for (unsigned int i = 0; i < FILES; i++) {
		if (world_offset_of(w, i) / CHUNK_BYTES != chunk)
			continue;
		if (i % 2 == 0)
			read_refused(w, world_offset_of(w, i));
		else
			(void)world_read_range(w, world_offset_of(w, i), FILE_B, 0);
	}
	world_wait_written(w);
	assert_int_equal(world_origin_gets(w), CHUNK_BYTES / FILE_B + stale);
	world_free(w);
}

/* Whoever reads which of its units. */
static void large_ones(void **state)
{
	struct world *w = world_new_sized(1 * GiB, 20, LARGE, 0);
	uint64_t offset = world_offset_of(w, 7);

	(void)state;
	take_away(w, 7);
	announce(w, offset, (uint32_t)min((uint64_t)LARGE, CHUNK_BYTES - offset % CHUNK_BYTES));
	for (uint64_t at = 0; at < LARGE; at += MiB / 2)
		read_refused(w, offset + at);
	world_wait_written(w);
	assert_int_equal(world_origin_gets(w), 2);
	world_free(w);
}

/* Another generation: the bucket was listed since, and is asked again for what older mounts show. */
static void new_generations(void **state)
{
	struct world *w = world_new_sized(1 * GiB, FILES, FILE_B, 0);
	struct table *first = w->table;
	uint64_t offset = world_offset_of(w, 10);
	uint64_t gets;

	(void)state;
	take_away(w, 10);
	read_refused(w, offset);
	read_refused(w, offset);
	assert_int_equal(world_origin_gets(w), 2);
	world_write_files(w, FILES, FILES + 1);
	w->table = world_make_table(w, "table2");
	for (unsigned int i = 0; i < READS; i++)
		read_refused(w, offset); /* which names the new generation */
	gets = world_origin_gets(w);
	assert_int_equal(gets, 4);
	world_free(w);
	table_unref(first);
}

/* A copy pulls several units with one request: the answer about one of them is not about the others. */
static void beside_them(void **state)
{
	struct cluster *c = cluster_new(40, 64 * KiB, 1 * GiB);
	struct world *w = c->world;
	struct rpc_call call;
	struct duty duty;

	(void)state;
	cluster_set_slots(c, 0, NONE, 1, NONE);
	cluster_set_hot(c);
	cluster_publish(c);
	worker_duty(&c->nodes[1].worker, &table_info(w->table)->id.volume, 0, 0, &duty);
	assert_int_equal(duty.kind, DUTY_COPY);
	take_away(w, 3);
	assert_int_equal(node_ask(c, 1, FRAME_PREFETCH, 0, 10 * 64 * KiB, 0, &call), 0);
	rpc_call_release(&call);
	cluster_quiet(c);
	for (unsigned int i = 0; i < 10; i++) {
		uint64_t offset = world_offset_of(w, i);
		int r = node_ask(c, 1, FRAME_FETCH_CACHED, offset, 64 * KiB, 0, &call);

		assert_int_equal(r, i == 3 ? -ENODATA : 0);
		if (r == 0)
			cluster_check_bytes(c, &call, offset, 64 * KiB);
		rpc_call_release(&call);
	}
	assert_int_equal(
		node_ask(c, 1, FRAME_FETCH, world_offset_of(w, 3), 64 * KiB, 0, &call), -ESTALE);
	rpc_call_release(&call);
	cluster_quiet(c);
	assert_int_equal(cluster_gets(c), 40 - 1 + 2); /* the owner fills its chunk */
	cluster_free(c);
}

/* Has that node heard of it? */
static bool knows(struct cluster *c, uint32_t i, const struct table_row *row)
{
	struct worker *w = &c->nodes[i].worker;
	bool is = false;

	pthread_mutex_lock(&w->sources.lock);
	list_for_each (node, &w->sources.all) {
		struct source *source = list_entry(node, struct source, link);

		is |= source->table && ufs_refused(source_ufs(source), row->key, row->key_len,
					       row->tag, row->tag_len);
	}
	pthread_mutex_unlock(&w->sources.lock);
	return is;
}

/* By the table, as node 0 has it. */
static uint32_t owner_of(struct cluster *c, uint64_t offset)
{
	struct duty duty;

	worker_duty(&c->nodes[0].worker, &table_info(c->world->table)->id.volume,
		offset / CHUNK_BYTES, 0, &duty);
	return duty.kind == DUTY_NONE ? duty.serves : 0;
}

/* An object in chunks of two owners: the one that is refused tells the other. */
static void several_owners(void **state)
{
	struct cluster *c = cluster_new(WIDE, LARGE, 1 * GiB);
	struct table_row *row = malloc(sizeof(*row));
	unsigned int file = 0;
	struct rpc_call call;
	uint64_t offset;
	uint64_t last;

	(void)state;
	cluster_deal_slots(c);
	cluster_publish(c);
	do {
		assert_true(++file < WIDE);
		offset = world_offset_of(c->world, file);
		last = offset + LARGE - BLOCK_BYTES;
	} while (owner_of(c, offset) == owner_of(c, last));
	assert_int_equal(table_find_offset(c->world->table, offset, row), 0);
	take_away(c->world, file);
	assert_int_equal(
		node_ask(c, owner_of(c, last), FRAME_FETCH, last, BLOCK_BYTES, 0, &call), -ESTALE);
	rpc_call_release(&call);
	test_wait(knows(c, owner_of(c, offset), row));
	assert_int_equal(
		node_ask(c, owner_of(c, offset), FRAME_FETCH, offset, BLOCK_BYTES, 0, &call),
		-ESTALE);
	rpc_call_release(&call);
	cluster_quiet(c);
	assert_int_equal(cluster_gets(c), 2);
	free(row);
	cluster_free(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reads_that_fail),
		cmocka_unit_test(fills_pass_them_by),
		cmocka_unit_test(large_ones),
		cmocka_unit_test(new_generations),
		cmocka_unit_test(beside_them),
		cmocka_unit_test(several_owners),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
