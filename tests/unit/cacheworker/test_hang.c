/*
 * A worker that is stopped: its connections stand, and it answers nothing. Nobody waits for it but what nobody reads,
 * which then keeps neither memory nor the place of what others have. The master never calls it down here.
 */
#include "tests/unit/cacheworker/freeze.h"

#define CAPACITY (1 * GiB)
#define CHUNKS   4u
#define FILES    (CHUNKS * (uint32_t)(CHUNK_BYTES / MiB))

/* Chunks belong to 0 and 2 in turn, who have them; 1 keeps a copy of all, and has the first file only. */
static struct cluster *copying_cluster(void)
{
	struct cluster *c = cluster_new_copies(FILES, MiB, CAPACITY, COPIES_EVERYWHERE);
	uint64_t hash = placement_volume_hash(&table_info(c->world->table)->id.volume);

	cluster_set_slots(c, 2, NONE, 0, 1);
	pthread_mutex_lock(&c->lock);
	for (uint64_t chunk = 0; chunk < CHUNKS; chunk += 2)
		c->table->slots[placement_slot_of(hash, chunk)] =
			(struct placement_slot){ 0, NONE, { 2, 1 } };
	pthread_mutex_unlock(&c->lock);
	cluster_publish(c);
	assert_int_equal(c->world->model_bytes, CHUNKS * CHUNK_BYTES);
	for (uint64_t at = 0; at < c->world->model_bytes; at += MiB)
		(void)cluster_read_via(c, at / CHUNK_BYTES % 2 ? 2 : 0, at, MiB, FRAME_EXACT);
	(void)cluster_read_via(c, 1, 0, BLOCK_BYTES, FRAME_EXACT);
	cluster_quiet(c);
	assert_int_equal(cluster_gets(c), FILES);
	return c;
}

static void announce_chunks(struct cluster *c, uint32_t i)
{
	for (uint64_t at = 0; at < c->world->model_bytes; at += CHUNK_BYTES) {
		struct rpc_call call;

		assert_int_equal(
			node_ask(c, i, FRAME_PREFETCH, at, CHUNK_BYTES, FRAME_EXACT, &call), 0);
		rpc_call_release(&call);
	}
}

/* A reader is sent to the deputy, though the master calls the owner up, and an owner may take a minute. */
static void test_readers_are_not_held_up(void **state)
{
	struct cluster *c = copying_cluster();
	struct freeze freeze;

	(void)state;
	freeze_begin(&freeze, c, 0);
	(void)cluster_read_via(c, 1, 2 * CHUNK_BYTES, BLOCK_BYTES, FRAME_EXACT);
	assert_true(view_hangs(view_peer(c->nodes[1].worker.view, 0)));
	/* The deputy's, or, where the machine made the deputy look as if it hung, too, the copy's own as well. */
	assert_in_range(cluster_gets(c), FILES + 1, FILES + 2);
	freeze_end(&freeze, c, 0);
	cluster_quiet(c);
	assert_in_range(cluster_gets(c), FILES + 1, FILES + 2);
	cluster_free(c);
}

/* There are more units of one that hangs than may be in progress: those of others come all the same. Then they wait
 * without memory, and come from him. */
static void test_the_others_units_come(void **state)
{
	struct cluster *c = copying_cluster();
	struct worker *w = &c->nodes[1].worker;
	const uint32_t his = FILES / 2 - 1; /* one was read */
	struct freeze freeze;

	(void)state;
	assert_true(w->fills.max_in_flight <= his);
	freeze_begin(&freeze, c, 0);
	announce_chunks(c, 1);
	test_wait(counter_get(&w->counters.peer_units) >= 1 + FILES / 2 &&
		  cluster_parked_of(w) >= his && w->memory.used == 0);
	assert_int_equal(counter_get(&w->counters.peer_units), 1 + FILES / 2);
	assert_int_equal(cluster_gets(c), FILES);
	freeze_end(&freeze, c, 0);
	cluster_quiet(c);
	assert_int_equal(counter_get(&w->counters.peer_units), FILES);
	assert_int_equal(cluster_gets(c), FILES);
	assert_int_equal(cluster_parked_of(w), 0);
	cluster_free(c);
}

/* Parked units that find no memory when they go on wait for it, and one that a reader wants by then goes first. */
static void test_parked_units_wait_for_memory(void **state)
{
	struct cluster *c = copying_cluster();
	struct worker *w = &c->nodes[1].worker;
	const uint32_t his = FILES / 2 - 1;
	uint64_t starved = counter_get(&w->counters.starved);
	struct freeze freeze;
	uint64_t taken = 0;

	(void)state;
	freeze_begin(&freeze, c, 0);
	announce_chunks(c, 1);
	test_wait(cluster_parked_of(w) >= his && w->memory.used == 0);
	for (; budget_take(&w->memory, BUDGET_DEMAND, 64 * KiB); taken += 64 * KiB)
		;
	freeze_end(&freeze, c, 0);
	test_wait(counter_get(&w->counters.starved) >= starved + his);
	assert_int_equal(cluster_parked_of(w), 0);
	assert_int_equal(cluster_flights_of(w), his);
	budget_give(&w->memory, taken);
	(void)cluster_read_via(c, 1, 2 * CHUNK_BYTES + MiB, BLOCK_BYTES, FRAME_EXACT);
	cluster_quiet(c);
	assert_int_equal(counter_get(&w->counters.peer_units), FILES);
	assert_int_equal(cluster_gets(c), FILES);
	cluster_free(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_readers_are_not_held_up),
		cmocka_unit_test(test_the_others_units_come),
		cmocka_unit_test(test_parked_units_wait_for_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
