/* Slots that go to another worker: their chunks are handed over, and nothing is fetched for it. */
#include "tests/unit/cacheworker/cluster_world.h"

#include "cacheworker/copies.h"
#include "cacheworker/handover.h"

#define FILES    40u
#define STEP     (256u * 1024u)
#define CAPACITY (1 * GiB)

static uint64_t copies_on(struct cluster *c, uint32_t i)
{
	const struct generation_id *id = &table_info(c->world->table)->id;

	return tier_set_copy_bytes(c->nodes[i].worker.tiers, &id->volume, id->lineage);
}

static uint64_t bytes_on(struct cluster *c, uint32_t i)
{
	const struct generation_id *id = &table_info(c->world->table)->id;

	return tier_set_volume_bytes(c->nodes[i].worker.tiers, &id->volume, id->lineage);
}

static uint64_t only_copies(struct cluster *c, uint32_t i)
{
	uint64_t bytes;

	pthread_mutex_lock(&c->lock);
	bytes = c->nodes[i].only_copies;
	pthread_mutex_unlock(&c->lock);
	return bytes;
}

static void drain(struct cluster *c, uint32_t i, bool is)
{
	pthread_mutex_lock(&c->lock);
	c->nodes[i].drain = is;
	pthread_mutex_unlock(&c->lock);
}

/* Everything is on worker 0; how many GETs that took. */
static uint64_t fill_first(struct cluster *c)
{
	cluster_set_slots(c, 0, NONE, 1, 2);
	cluster_publish(c);
	cluster_read_all_via(c, 0, STEP, 0);
	cluster_quiet(c);
	assert_int_equal(copies_on(c, 0), 0);
	return cluster_gets(c);
}

/* Drained, then gone: not a byte is fetched again. */
static void drained_and_removed(void **state)
{
	struct cluster *c = cluster_new(FILES, 0, CAPACITY);
	uint64_t gets = fill_first(c);
	uint64_t pulled;

	(void)state;
	drain(c, 0, true);
	/* Before its slots are another's everything is on it alone. */
	test_wait(only_copies(c, 0) == bytes_on(c, 0));
	pthread_mutex_lock(&c->lock);
	for (uint32_t i = 0; i < PLACEMENT_SLOTS; i++)
		c->table->slots[i] =
			(struct placement_slot){ (uint16_t)(1 + i % 2), 0, { NONE, NONE } };
	c->nodes[0].state = CLUSTER_DRAINING;
	pthread_mutex_unlock(&c->lock);
	cluster_publish(c);
	test_wait(only_copies(c, 0) == 0);
	assert_int_equal(cluster_gets(c), gets);
	assert_true(bytes_on(c, 1) > 0 && bytes_on(c, 2) > 0);
	assert_true(bytes_on(c, 1) + bytes_on(c, 2) >= bytes_on(c, 0));
	assert_int_equal(copies_on(c, 0), bytes_on(c, 0)); /* they may go */
	assert_int_equal(copies_on(c, 1) + copies_on(c, 2), 0);
	node_stop(c, 0);
	pulled = cluster_gets(c);
	cluster_set_state(c, 0, CLUSTER_OUT);
	cluster_publish(c);
	cluster_read_all_via(c, 1, STEP, 0);
	assert_int_equal(cluster_gets(c), pulled);
	cluster_free(c);
}

/* Slots that only moved: what went is a copy once the new owner has it, what came is owned. */
static void moved_to_and_fro(void **state)
{
	struct cluster *c = cluster_new(FILES, 0, CAPACITY);
	uint64_t gets = fill_first(c);
	struct handover_status status;

	(void)state;
	cluster_set_slots(c, 1, 0, 2, NONE);
	cluster_publish(c);
	test_wait(copies_on(c, 0) == bytes_on(c, 0));
	assert_true(bytes_on(c, 1) >= bytes_on(c, 0));
	assert_int_equal(cluster_gets(c), gets);
	handover_status(&c->nodes[0].worker, &status);
	assert_true(status.offered > 0);
	cluster_set_slots(c, 0, 1, 2, NONE);
	cluster_publish(c);
	test_wait(copies_on(c, 0) == 0);
	test_wait(copies_on(c, 1) == bytes_on(c, 1)); /* the first has it all */
	assert_int_equal(cluster_gets(c), gets);
	cluster_free(c);
}

/* Nobody takes it: it stays what it was, and is told to be on this one alone. */
static void owner_is_away(void **state)
{
	struct cluster *c = cluster_new(FILES, 0, CAPACITY);
	struct handover_status status;

	(void)state;
	(void)fill_first(c);
	node_stop(c, 1);
	drain(c, 0, true);
	cluster_set_slots(c, 1, 0, NONE, NONE);
	cluster_publish(c);
	test_wait(only_copies(c, 0) != UINT64_MAX);
	test_wait((handover_status(&c->nodes[0].worker, &status), status.chunks > 0));
	assert_true(only_copies(c, 0) > 0);
	assert_int_equal(copies_on(c, 0), 0);
	node_start(c, 1); /* and goes on when he is there */
	test_wait(only_copies(c, 0) == 0);
	drain(c, 0, false);
	test_wait(only_copies(c, 0) == UINT64_MAX);
	cluster_free(c);
}

/* Most of it was read on a node that keeps it whole: the rest comes from its owner, but for what he has not. */
static void rest_of_an_extent(void **state)
{
	struct cluster *c = cluster_new_copies(FILES, 0, CAPACITY, COPIES_EVERYWHERE);
	const struct volume_id *volume = &table_info(c->world->table)->id.volume;
	uint64_t most = align_down(c->world->model_bytes * 3 / 4, STEP);
	uint64_t gets;

	(void)state;
	cluster_set_slots(c, 0, NONE, 1, 2);
	cluster_publish(c);
	for (uint64_t at = 0; at < most; at += STEP)
		(void)cluster_read_via(c, 0, at, STEP, FRAME_EXACT);
	cluster_quiet(c);
	gets = cluster_gets(c);
	for (uint64_t at = STEP; at < most; at += STEP) /* but the first ones */
		(void)cluster_read_via(c, 1, at, STEP, FRAME_EXACT);
	cluster_quiet(c);
	assert_true(worker_keeps_whole(&c->nodes[1].worker, volume));
	assert_true(bytes_on(c, 1) < bytes_on(c, 0));
	atomic_store(&c->nodes[1].worker.promote_ns, 0);
	copies_wake(&c->nodes[1].worker);
	test_wait(bytes_on(c, 1) >= bytes_on(c, 0));
	assert_int_equal(cluster_gets(c), gets);
	assert_int_equal(copies_on(c, 1), bytes_on(c, 1));
	cluster_free(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(drained_and_removed),
		cmocka_unit_test(moved_to_and_fro),
		cmocka_unit_test(owner_is_away),
		cmocka_unit_test(rest_of_an_extent),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
