/* Descriptors in readers' hands: an unlinked chunk stays charged until they say that they closed
 * it, or are gone. */
#include "tests/unit/cacheworker/world.h"

#include "cacheworker/holds.h"
#include "locate/chunk_map.h"

#define FILES 4u

static uint64_t held(const struct world *w)
{
	struct tier_status status;

	tier_set_status(w->worker.tiers, 0, &status);
	return status.held;
}

/* Reads the block at `offset` until the answer is a descriptor, which is closed; the hold. */
static uint64_t fetch_local(struct world *w, uint64_t offset)
{
	uint64_t number = 0;

	while (!number) {
		struct rpc_call call =
			world_make_call(w, FRAME_FETCH, offset, BLOCK_BYTES, FRAME_LOCAL_OK);
		struct err e = ERR_INIT;

		assert_int_equal(rpc_call_wait(w->client, &call, &e), 0);
		if (call.reply.flags & FRAME_LOCAL)
			number = held_number(
				held_get((uint8_t *)call.reply_payload + CHUNK_BITMAP_BYTES, 0));
		rpc_call_release(&call);
	}
	return number;
}

/* Tells the worker one entry (0: none); how many chunks it wants closed, the first in
 * *ret_number. */
static uint32_t tell(struct world *w, uint64_t entry, uint64_t *ret_number)
{
	struct rpc_call call = {
		.frame = { .op = FRAME_HELD }, .payload = NET_PAYLOAD_NONE, .reply_fd = -1
	};
	uint8_t bytes[HELD_ENTRY_BYTES];
	struct err e = ERR_INIT;
	uint32_t n;

	held_put(bytes, 0, entry);
	call.payload.parts[0].data = bytes;
	call.payload.parts[0].len = sizeof(bytes);
	call.payload.n = entry ? 1 : 0;
	assert_int_equal(rpc_call_wait(w->client, &call, &e), 0);
	n = call.reply.payload / HELD_ENTRY_BYTES;
	if (n)
		*ret_number = held_number(held_get(call.reply_payload, 0));
	rpc_call_release(&call);
	return n;
}

static uint64_t drop_all(struct world *w)
{
	const struct table_info *info = table_info(w->table);

	return tier_set_drop(w->worker.tiers, &info->id.volume, info->id.lineage, NULL, NULL);
}

static void test_let_go(void **state)
{
	struct world *w = world_new(1 * GiB, FILES);
	uint64_t first;
	uint64_t last;
	uint64_t told = 0;

	(void)state;
	first = fetch_local(w, 0);
	world_wait_written(w);
	last = fetch_local(w, 0);
	assert_true(last > first);
	assert_int_equal(tell(w, 0, &told), 0);
	assert_int_equal(held(w), 0);
	assert_true(drop_all(w) > 0);
	assert_true(held(w) > 0);
	assert_int_equal(tell(w, 0, &told), 1);
	assert_int_equal(told, last);
	assert_int_equal(tell(w, held_entry(last, true), &told), 1);   /* read, not closed */
	assert_int_equal(tell(w, held_entry(first, false), &told), 1); /* an earlier answer */
	assert_true(held(w) > 0);
	assert_int_equal(tell(w, held_entry(last, false), &told), 0);
	assert_int_equal(held(w), 0);
	assert_int_equal(tell(w, held_entry(last, false), &told), 0);
	world_free(w);
}

static void test_gone(void **state)
{
	struct world *w = world_new(1 * GiB, FILES);
	struct err e = ERR_INIT;

	(void)state;
	(void)fetch_local(w, 0);
	world_wait_written(w);
	assert_true(drop_all(w) > 0);
	assert_true(held(w) > 0);
	rpc_client_free(w->client);
	test_wait(held(w) == 0);
	assert_int_equal(rpc_client_new(w->loop, w->address, &w->client, &e), 0);
	world_free(w);
}

/* Asks for the map when `start` is that of the one known; the worker's, and whether it came. */
static uint64_t ask_map(struct world *w, uint64_t start, bool *ret_came)
{
	struct rpc_call call = { .frame = { .op = FRAME_MAP, .generation = start },
		.payload = NET_PAYLOAD_NONE,
		.reply_fd = -1 };
	struct chunk_map *map = NULL;
	struct err e = ERR_INIT;
	uint64_t now;

	assert_int_equal(rpc_call_wait(w->client, &call, &e), 0);
	*ret_came = call.reply_fd >= 0;
	now = call.reply.generation;
	if (*ret_came) {
		assert_int_equal(chunk_map_open(call.reply_fd, &map), 0);
		assert_true(chunk_map_start(map) == now);
		chunk_map_close(map);
	}
	rpc_call_release(&call);
	return now;
}

static int ask_file(struct world *w, uint64_t offset, uint64_t *ret_number)
{
	struct rpc_call call = world_make_call(w, FRAME_FILE, offset, BLOCK_BYTES, FRAME_LOCAL_OK);
	struct err e = ERR_INIT;
	int r = rpc_call_wait(w->client, &call, &e);

	if (r == 0) {
		assert_true(call.reply.flags & FRAME_LOCAL && call.reply_fd >= 0);
		*ret_number = held_number(
			held_get((uint8_t *)call.reply_payload + CHUNK_BITMAP_BYTES, 0));
	}
	rpc_call_release(&call);
	return r;
}

/* The map once, files by it, and what is told of them. */
static void test_map(void **state)
{
	struct world *w = world_new(1 * GiB, FILES);
	struct rpc_call held_call = {
		.frame = { .op = FRAME_HELD }, .payload = NET_PAYLOAD_NONE, .reply_fd = -1
	};
	struct err e = ERR_INIT;
	uint64_t number = 0;
	uint64_t told = 0;
	uint64_t start;
	bool came;

	(void)state;
	start = ask_map(w, 0, &came);
	assert_true(start && came);
	assert_true(ask_map(w, start, &came) == start);
	assert_false(came);
	assert_true(ask_map(w, start + 1, &came) == start);
	assert_true(came);
	assert_int_equal(rpc_call_wait(w->client, &held_call, &e), 0);
	assert_true(held_call.reply.generation == start);
	rpc_call_release(&held_call);

	assert_int_equal(ask_file(w, 0, &number), -ENODATA);
	(void)fetch_local(w, 0);
	world_wait_written(w);
	assert_int_equal(ask_file(w, 0, &number), 0);
	assert_int_equal(tell(w, held_slot_entry(0, 1), &told), 0);
	assert_int_equal(
		tell(w, held_slot_entry((1u << HELD_SLOT_BITS) - 1, UINT32_MAX), &told), 0);
	for (uint32_t slot = 0; slot < CHUNK_MAP_SLOTS_MIN; slot++)
		assert_int_equal(tell(w, held_slot_entry(slot, 4), &told), 0);
	/* It is a hold as any other. */
	assert_true(drop_all(w) > 0);
	assert_true(held(w) > 0);
	assert_int_equal(ask_file(w, 0, &told), -ENODATA);
	assert_int_equal(tell(w, 0, &told), 1);
	assert_true(told == number);
	assert_int_equal(tell(w, held_entry(number, false), &told), 0);
	assert_int_equal(held(w), 0);
	world_free(w);
}

#define CANCELLED 40u
#define BLOCKED   2u /* threads that serve */

struct asking {
	struct rpc_call call;
	_Atomic uint32_t *ended;
};

static void on_end(struct rpc_call *call, int status)
{
	struct asking *asking = call->arg;

	assert_int_equal(status, -ECANCELED);
	rpc_call_release(call);
	atomic_fetch_add(asking->ended, 1);
}

struct blocker {
	struct pool_job job;
	pthread_mutex_t *gate;
	_Atomic uint32_t *ended;
};

static void run_blocker(struct pool_job *job)
{
	struct blocker *blocker = container_of(job, struct blocker, job);

	pthread_mutex_lock(blocker->gate);
	pthread_mutex_unlock(blocker->gate);
	atomic_fetch_add(blocker->ended, 1);
}

/* Readers that want their files no more while these wait for a thread. */
static void test_cancelled_files(void **state)
{
	struct world *w = world_new(1 * GiB, FILES);
	struct asking *all = calloc(CANCELLED, sizeof(*all));
	pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
	struct blocker blockers[BLOCKED];
	_Atomic uint32_t opened = 0;
	_Atomic uint32_t ended = 0;
	uint64_t number;
	bool came;

	(void)state;
	(void)fetch_local(w, 0);
	world_wait_written(w);
	pthread_mutex_lock(&gate);
	for (uint32_t i = 0; i < BLOCKED; i++) {
		blockers[i] =
			(struct blocker){ .job.run = run_blocker, .gate = &gate, .ended = &opened };
		assert_int_equal(pool_submit(w->worker.serve, &blockers[i].job), 0);
	}
	for (uint32_t i = 0; i < CANCELLED; i++) {
		all[i] = (struct asking){ .call = world_make_call(
						  w, FRAME_FILE, 0, BLOCK_BYTES, FRAME_LOCAL_OK),
			.ended = &ended };
		all[i].call.on_done = on_end;
		all[i].call.arg = &all[i];
		rpc_call(w->client, &all[i].call);
	}
	test_wait(counter_get(&w->worker.counters.files) >= CANCELLED);
	for (uint32_t i = 0; i < CANCELLED; i++)
		rpc_cancel(w->client, &all[i].call);
	test_wait(atomic_load(&ended) >= CANCELLED);
	(void)ask_map(w, 0, &came); /* behind the cancels */
	pthread_mutex_unlock(&gate);
	test_wait(atomic_load(&opened) >= BLOCKED);
	assert_int_equal(ask_file(w, 0, &number), 0);
	pthread_mutex_destroy(&gate);
	free(all);
	world_free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_let_go),
		cmocka_unit_test(test_gone),
		cmocka_unit_test(test_map),
		cmocka_unit_test(test_cancelled_files),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
