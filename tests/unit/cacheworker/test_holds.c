/* Descriptors in readers' hands: an unlinked chunk stays charged until they say that they closed
 * it, or are gone. */
#include "tests/unit/cacheworker/world.h"

#include "cacheworker/holds.h"

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
			make_call(w, FRAME_FETCH, offset, BLOCK_BYTES, FRAME_LOCAL_OK);
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
	wait_until_written(w);
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
	uint64_t deadline = clock_mono_ns() + 30 * CLOCK_SECOND;
	struct err e = ERR_INIT;

	(void)state;
	(void)fetch_local(w, 0);
	wait_until_written(w);
	assert_true(drop_all(w) > 0);
	assert_true(held(w) > 0);
	rpc_client_free(w->client);
	while (held(w) > 0) {
		assert_true(clock_mono_ns() < deadline);
		clock_sleep_ns(CLOCK_MS);
	}
	assert_int_equal(rpc_client_new(w->loop, w->address, &w->client, &e), 0);
	world_free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_let_go),
		cmocka_unit_test(test_gone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
