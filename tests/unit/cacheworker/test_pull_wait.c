/*
 * Workers that do not answer for a while, and have what others want (pull_wait.c). What is checked, by counting
 * GETs: what nobody waits for is asked of them again until they answer, and comes from them; a reader who joins
 * it is not held up; whoever is called down is waited for only when what he has moved away from him.
 */
#include "tests/unit/cacheworker/cluster_world.h"

#define FILES         14u
#define CAPACITY      (1 * GiB)
#define FILE_AT(c, i) world_offset_of((c)->world, i)

static uint64_t waits_of(struct cluster *c, uint32_t i)
{
	return counter_get(&c->nodes[i].worker.counters.peer_waits);
}

/* Until its pulls have paused so often. */
static void wait_pauses(struct cluster *c, uint32_t i, uint64_t n)
{
	test_wait(waits_of(c, i) >= n);
}

/* Until all files are on their way, and have paused as often as there are files: some may have paused twice before others
 * began. */
static void wait_all_pause(struct cluster *c, uint32_t i)
{
	test_wait(cluster_flights_of(&c->nodes[i].worker) >= FILES);
	wait_pauses(c, i, FILES);
}

/* Nobody waits for it. The files lie in one chunk. */
static void announce(struct cluster *c, uint32_t i)
{
	struct rpc_call call;

	assert_true(c->world->model_bytes <= CHUNK_BYTES);
	assert_int_equal(node_ask(c, i, FRAME_PREFETCH, 0, (uint32_t)c->world->model_bytes,
				 FRAME_EXACT | FRAME_LAST, &call),
		0);
	rpc_call_release(&call);
}

static uint64_t gets_of(struct cluster *c, uint32_t i)
{
	uint64_t gets = 0;

	list_for_each (node, &c->nodes[i].worker.sources.all)
		gets += counter_get(
			&ufs_counters(list_entry(node, struct source, link)->ufs)->gets);
	return gets;
}

/* All is at worker 0, which is started again on demand; worker 1 owns it now. */
static struct cluster *moved_cluster(enum cluster_state state)
{
	struct cluster *c = cluster_new(FILES, MiB, CAPACITY);

	cluster_set_slots(c, 0, NONE, NONE, NONE);
	cluster_publish(c);
	cluster_read_all_via(c, 0, MiB, 0);
	cluster_quiet(c);
	assert_int_equal(gets_of(c, 0), FILES);
	node_stop(c, 0);
	c->nodes[0].state = state;
	cluster_set_slots(c, 1, 0, NONE, NONE);
	cluster_publish(c);
	return c;
}

/* Who had it is away for a moment, and the master has not seen it, or has. */
static void check_former_owner(enum cluster_state state)
{
	struct cluster *c = moved_cluster(state);

	announce(c, 1);
	wait_all_pause(c, 1);
	node_start(c, 0);
	cluster_quiet(c);
	assert_int_equal(gets_of(c, 1), 0);
	assert_int_equal(counter_get(&c->nodes[1].worker.counters.peer_units), FILES);
	cluster_read_all_via(c, 1, MiB, 0);
	assert_int_equal(cluster_gets(c), 0); /* of 0 since it is back, too */
	cluster_free(c);
}

static void test_former_owner_is_away(void **state)
{
	(void)state;
	check_former_owner(CLUSTER_UP);
}

static void test_former_owner_is_down(void **state)
{
	(void)state;
	check_former_owner(CLUSTER_DOWN);
}

/* A reader who comes to wait for one of the units gets it from the origin, while the others wait on. */
static void test_reader_is_not_held_up(void **state)
{
	struct cluster *c = moved_cluster(CLUSTER_UP);

	(void)state;
	announce(c, 1);
	wait_all_pause(c, 1);
	(void)cluster_read_via(c, 1, FILE_AT(c, 3), BLOCK_BYTES, FRAME_EXACT);
	assert_int_equal(gets_of(c, 1), 1);
	assert_true(cluster_flights_of(&c->nodes[1].worker) >= FILES - 2);
	node_start(c, 0);
	cluster_quiet(c);
	assert_int_equal(gets_of(c, 1), 1);
	cluster_free(c);
}

/* Who owns it is away: a copy waits, and does not end here. */
static void test_copy_waits_for_its_owner(void **state)
{
	struct cluster *c = cluster_new_copies(FILES, MiB, CAPACITY, COPIES_EVERYWHERE);
	struct rpc_call call;

	(void)state;
	cluster_set_slots(c, 0, NONE, 1, 2);
	cluster_publish(c);
	cluster_read_all_via(c, 0, MiB, 0);
	(void)cluster_read_via(c, 1, FILE_AT(c, 0), BLOCK_BYTES, FRAME_EXACT);
	cluster_quiet(c);
	node_stop(c, 0);
	assert_int_equal(node_ask(c, 1, FRAME_PREFETCH, 0, (uint32_t)c->world->model_bytes,
				 FRAME_EXACT, &call),
		0);
	rpc_call_release(&call);
	wait_pauses(c, 1, 1);
	node_start(c, 0);
	cluster_quiet(c);
	assert_int_equal(cluster_gets(c), 0);
	assert_int_equal(counter_get(&c->nodes[1].worker.counters.peer_units), FILES);
	cluster_free(c);
}

/* It has no memory for an answer, and needs some for what does not lie in the page cache. */
static void test_busy_is_asked_again(void **state)
{
	struct cluster *c = cluster_new(FILES, MiB, CAPACITY);
	struct worker *w = &c->nodes[0].worker;
	uint64_t taken = 0;

	(void)state;
	cluster_set_slots(c, 0, NONE, NONE, NONE);
	cluster_publish(c);
	cluster_read_all_via(c, 0, MiB, 0);
	cluster_quiet(c);
	while (budget_take(&w->gathered, BUDGET_DEMAND, 4 * KiB))
		taken += 4 * KiB;
	cluster_set_slots(c, 1, 0, NONE, NONE);
	cluster_publish(c);
	announce(c, 1);
	test_wait(waits_of(c, 1) >= FILES ||
		  counter_get(&c->nodes[1].worker.counters.peer_units) >= FILES);
	budget_give(&w->gathered, taken);
	cluster_quiet(c);
	assert_int_equal(gets_of(c, 1), 0);
	assert_int_equal(counter_get(&c->nodes[1].worker.counters.peer_units), FILES);
	cluster_free(c);
}

/* All the memory that is free for what nobody waits for; how much that was. */
static uint64_t take_rest(struct worker *w)
{
	uint64_t taken = 0;

	while (budget_take(&w->memory, BUDGET_PREFETCH, 64 * KiB))
		taken += 64 * KiB;
	return taken;
}

/* Those that find no memory when they go on wait for it; one that somebody's reader wants by then has what is left for
 * readers, and waits for nothing. */
static void test_wanted_without_memory(void **state)
{
	struct cluster *c = moved_cluster(CLUSTER_UP);
	struct worker *w = &c->nodes[1].worker;
	struct rpc_call call;
	uint64_t taken = 0;

	(void)state;
	announce(c, 1);
	wait_all_pause(c, 1);
	test_wait((taken += take_rest(w), counter_get(&w->counters.starved) >= FILES));
	assert_int_equal(gets_of(c, 1), 0);
	assert_int_equal(node_ask(c, 1, FRAME_PREFETCH, FILE_AT(c, 3), BLOCK_BYTES,
				 FRAME_EXACT | FRAME_LAST, &call),
		0);
	rpc_call_release(&call);
	test_wait(gets_of(c, 1) >= 1);
	node_start(c, 0);
	budget_give(&w->memory, taken);
	flight_memory_freed(w);
	cluster_quiet(c);
	assert_int_equal(gets_of(c, 1), 1);
	assert_int_equal(counter_get(&w->counters.peer_units), FILES - 1);
	cluster_free(c);
}

/* ---- on its way ----------------------------------------------------------------------------- */

struct asker {
	pthread_t thread;
	struct cluster *cluster;
	uint32_t node;
	uint64_t offset;
	_Atomic bool answered;
};

static void *run_asker(void *arg)
{
	struct asker *asker = arg;

	(void)cluster_read_via(
		asker->cluster, asker->node, asker->offset, BLOCK_BYTES, FRAME_EXACT);
	atomic_store(&asker->answered, true);
	return NULL;
}

static struct source *source_of(struct cluster *c, uint32_t i)
{
	return list_entry(c->nodes[i].worker.sources.all.next, struct source, link);
}

/* Its origin has to wait, or not any longer. */
static void hold_origin(struct cluster *c, uint32_t i, bool hold)
{
	source_set_rates(
		&c->nodes[i].worker, &table_info(c->world->table)->id.volume, hold ? 1 : 0, 0);
}

/* What worker 0 says of it to whoever asks for what is there alone. */
static int ask_coming(struct cluster *c, enum frame_op op, uint16_t flags)
{
	struct rpc_call call;
	int r = node_ask(c, 0, op, FILE_AT(c, 3), BLOCK_BYTES, flags, &call);

	rpc_call_release(&call);
	return r;
}

/* A reader waits for file 3 at worker 0, whose origin has to wait; 1 owns it now. */
static struct cluster *coming_cluster(struct asker *first)
{
	struct cluster *c = cluster_new(FILES, MiB, CAPACITY);
	bool awaited;

	*first = (struct asker){ .cluster = c, .node = 0, .offset = FILE_AT(c, 3) };
	cluster_set_slots(c, 0, NONE, NONE, NONE);
	cluster_publish(c);
	(void)cluster_read_via(c, 0, FILE_AT(c, 0), BLOCK_BYTES, FRAME_EXACT);
	hold_origin(c, 0, true);
	(void)cluster_read_via(
		c, 0, FILE_AT(c, 1), BLOCK_BYTES, FRAME_EXACT); /* the next one waits */
	pthread_create(&first->thread, NULL, run_asker, first);
	test_wait(flight_is_coming(source_of(c, 0), FILE_AT(c, 3), &awaited));
	assert_false(awaited);
	assert_int_equal(ask_coming(c, FRAME_FETCH_CACHED, FRAME_EXACT), -ENODATA);
	assert_int_equal(ask_coming(c, FRAME_FETCH_CACHED, FRAME_PEER | FRAME_EXACT), -ENODATA);
	assert_int_equal(ask_coming(c, FRAME_SEEK, 0), -EALREADY);
	cluster_set_slots(c, 1, 0, NONE, NONE);
	cluster_publish(c);
	return c;
}

static void coming_end(struct cluster *c)
{
	cluster_quiet(c);
	assert_int_equal(gets_of(c, 0), 3);
	assert_int_equal(gets_of(c, 1), 0);
	cluster_free(c);
}

/* What the former owner's origin is about to bring is not asked for once more, by readers neither. These
 * hear of nothing but that it is not there. */
static void test_on_its_way(void **state)
{
	struct asker first;
	struct cluster *c = coming_cluster(&first);
	struct asker second = { .cluster = c, .node = 1, .offset = FILE_AT(c, 3) };

	(void)state;
	pthread_create(&second.thread, NULL, run_asker, &second);
	wait_pauses(c, 1, 2);
	hold_origin(c, 0, false);
	pthread_join(first.thread, NULL);
	pthread_join(second.thread, NULL);
	coming_end(c);
}

/* All slots move to 2 while 1, where they moved before, waits for what 0 fetches. */
static void moved_on(bool knows_first_owner)
{
	struct asker first;
	struct cluster *c = coming_cluster(&first);
	struct former *former = &c->nodes[2].worker.former;
	struct asker second = { .cluster = c, .node = 1, .offset = FILE_AT(c, 3) };
	struct asker third = { .cluster = c, .node = 2, .offset = FILE_AT(c, 3) };

	pthread_create(&second.thread, NULL, run_asker, &second);
	wait_pauses(c, 1, 2);
	if (!knows_first_owner) { /* as one that has joined since */
		pthread_mutex_lock(&former->lock);
		memset(former->slots, 0xff, PLACEMENT_SLOTS * sizeof(*former->slots));
		pthread_mutex_unlock(&former->lock);
	}
	cluster_set_slots(c, 2, 1, NONE, NONE);
	cluster_publish(c);
	pthread_create(&third.thread, NULL, run_asker, &third);
	test_wait(waits_of(c, 2) >= 2 || atomic_load(&third.answered));
	hold_origin(c, 0, false);
	pthread_join(first.thread, NULL);
	pthread_join(second.thread, NULL);
	pthread_join(third.thread, NULL);
	assert_int_equal(gets_of(c, 2), 0);
	coming_end(c);
}

static void test_moved_twice_meanwhile(void **state)
{
	(void)state;
	moved_on(true);
}

static void test_joined_after_the_first_move(void **state)
{
	(void)state;
	moved_on(false);
}

/* Nobody waits for it: it is asked for less and less often, after a half of 0.1, 0.2 and 0.4 s at least. */
static void test_on_its_way_unread(void **state)
{
	struct asker first;
	struct cluster *c = coming_cluster(&first);
	uint64_t began = clock_mono_ns();
	struct rpc_call call;

	(void)state;
	assert_int_equal(
		node_ask(c, 1, FRAME_PREFETCH, FILE_AT(c, 3), BLOCK_BYTES, FRAME_EXACT, &call), 0);
	rpc_call_release(&call);
	wait_pauses(c, 1, 4);
	assert_true(clock_mono_ns() - began >= 350 * CLOCK_MS);
	hold_origin(c, 0, false);
	pthread_join(first.thread, NULL);
	coming_end(c);
}

/* ---- one that is stopped --------------------------------------------------------------------- */

struct plug {
	struct pool_job job;
	pthread_mutex_t *lock;
	_Atomic bool there;
};

static void run_plug(struct pool_job *job)
{
	struct plug *plug = container_of(job, struct plug, job);

	atomic_store(&plug->there, true);
	pthread_mutex_lock(plug->lock);
	pthread_mutex_unlock(plug->lock);
}

/* Its connection stands, and nothing comes: what is announced waits long for that. A reader who joins it waits
 * for as long as if he had asked first. */
static void test_reader_joins_a_call(void **state)
{
	struct cluster *c = cluster_new(FILES, MiB, CAPACITY);
	struct worker *w = &c->nodes[0].worker;
	pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	struct plug plugs[2] = { { .job.run = run_plug, .lock = &lock },
		{ .job.run = run_plug, .lock = &lock } };
	uint64_t began;

	(void)state;
	cluster_patience(c, 2);
	cluster_set_slots(c, 0, NONE, NONE, NONE);
	cluster_publish(c);
	cluster_read_all_via(c, 0, MiB, 0);
	cluster_quiet(c);
	pthread_mutex_lock(&lock);
	for (uint32_t i = 0; i < ARRAY_SIZE(plugs); i++) {
		assert_int_equal(pool_submit(w->serve, &plugs[i].job), 0);
		test_wait(atomic_load(&plugs[i].there));
	}
	/* From here on the new owner may bring what is his by himself (handover.c). */
	cluster_set_slots(c, 1, 0, NONE, NONE);
	cluster_publish(c);
	announce(c, 1);
	test_wait(cluster_flights_of(&c->nodes[1].worker) >= FILES);
	began = clock_mono_ns();
	(void)cluster_read_via(c, 1, FILE_AT(c, 3), BLOCK_BYTES, FRAME_EXACT);
	/* What was announced waits for 30 s, he for 4. */
	assert_true(clock_mono_ns() - began < 25 * CLOCK_SECOND);
	assert_int_equal(gets_of(c, 1), 1);
	pthread_mutex_unlock(&lock);
	cluster_quiet(c);
	assert_int_equal(gets_of(c, 1), 1);
	cluster_free(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_former_owner_is_away),
		cmocka_unit_test(test_former_owner_is_down),
		cmocka_unit_test(test_reader_is_not_held_up),
		cmocka_unit_test(test_copy_waits_for_its_owner),
		cmocka_unit_test(test_busy_is_asked_again),
		cmocka_unit_test(test_wanted_without_memory),
		cmocka_unit_test(test_on_its_way),
		cmocka_unit_test(test_moved_twice_meanwhile),
		cmocka_unit_test(test_joined_after_the_first_move),
		cmocka_unit_test(test_on_its_way_unread),
		cmocka_unit_test(test_reader_joins_a_call),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
