/*
 * Workers that have each other (cluster_world.h). What is checked: each unit is asked from the origin
 * once, whoever is asked for it; what has moved is pulled from who had it, over several moves; copies
 * come from who serves the chunk; damaged bytes of a peer are never served; what is answered without
 * waiting is answered when all memory for waiting is taken; tables that contradict each other hold
 * nobody up.
 */
#include "tests/unit/cacheworker/cluster_world.h"

#include "cacheworker/duty.h"
#include "tiers/chunk_internal.h"
#include "tiers/tier_set_internal.h"
#include "tests/unit/cacheworker/damage.h"

#define FILES       40u
#define STEP        (256u * 1024u)
#define CAPACITY    (1 * GiB)
#define READERS     6u
#define LARGE_UNITS 12u /* in one chunk */
/* More than one tier of SMALL holds, and less than two do. */
#define FILES_MANY 150u
#define SMALL      (64 * MiB)

static uint64_t sum_of(struct cluster *c, size_t offset)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < NODES; i++)
		if (c->nodes[i].runs)
			sum += counter_get(
				(counter_t *)(void *)((char *)&c->nodes[i].worker.counters +
						      offset));
	return sum;
}
#define SUM(c, name) sum_of(c, offsetof(struct worker_counters, name))

/* ---- tests ----------------------------------------------------------------------------------- */

struct reader {
	pthread_t thread;
	struct cluster *cluster;
	uint32_t node;
};

static void *run_reader(void *arg)
{
	struct reader *reader = arg;

	cluster_read_all_via(reader->cluster, reader->node, STEP, 0);
	return NULL;
}

/* Readers of all, who ask whom they like. */
static void test_once_for_all(void **state)
{
	struct cluster *c = cluster_new(FILES, 0, CAPACITY);
	struct reader readers[READERS];

	(void)state;
	cluster_deal_slots(c);
	cluster_publish(c);
	for (uint32_t i = 0; i < READERS; i++) {
		readers[i] = (struct reader){ .cluster = c, .node = i % NODES };
		assert_int_equal(
			pthread_create(&readers[i].thread, NULL, run_reader, &readers[i]), 0);
	}
	for (uint32_t i = 0; i < READERS; i++)
		pthread_join(readers[i].thread, NULL);
	cluster_quiet(c);
	assert_int_equal(cluster_gets(c), world_units(c->world));
	assert_true(SUM(c, redirected) > 0);
	assert_true(c->beats > 0);
	cluster_free(c);
}

static void ahead(struct cluster *c, uint32_t i, uint32_t length)
{
	struct rpc_call call;

	assert_int_equal(node_ask(c, i, FRAME_PREFETCH, 0, length, 0, &call), 0);
	rpc_call_release(&call);
	cluster_quiet(c);
}

/* Of a large object one question to each worker that may have some of it is enough if it has none. What it has is
 * pulled, and nothing else. */
static void test_large_object(void **state)
{
	struct cluster *c = cluster_new(1, LARGE_UNITS * MiB, CAPACITY);

	(void)state;
	cluster_set_slots(c, 0, NONE, 1, 2);
	cluster_publish(c);
	ahead(c, 0, LARGE_UNITS / 2 * MiB);
	assert_int_equal(SUM(c, peer_asked), 2);
	assert_int_equal(cluster_gets(c), LARGE_UNITS / 2);
	cluster_set_slots(c, 1, 0, NONE, NONE);
	cluster_publish(c);
	ahead(c, 1, LARGE_UNITS * MiB);
	assert_int_equal(SUM(c, peer_units), LARGE_UNITS / 2);
	assert_int_equal(cluster_gets(c), LARGE_UNITS);
	cluster_read_all_via(c, 1, STEP, 0);
	assert_int_equal(cluster_gets(c), LARGE_UNITS);
	cluster_free(c);
}

/* From 0 to 1 to 2, who is read last: nothing is fetched again, though 1 never had it. */
static void test_moved_twice(void **state)
{
	struct cluster *c = cluster_new(FILES, 0, CAPACITY);
	uint64_t gets;

	(void)state;
	cluster_set_slots(c, 0, NONE, 1, 2);
	cluster_publish(c);
	cluster_read_all_via(c, 0, STEP, 0);
	cluster_quiet(c);
	gets = cluster_gets(c);
	assert_int_equal(gets, world_units(c->world));
	cluster_set_slots(c, 1, 0, 2, NONE);
	cluster_publish(c);
	cluster_set_slots(c, 2, 1, NONE, NONE);
	cluster_publish(c);
	cluster_read_all_via(c, 2, STEP, 0);
	cluster_quiet(c);
	assert_int_equal(cluster_gets(c), gets);
	assert_true(SUM(c, peer_units) >= gets);
	/* And it is all here: who had it may go. */
	node_stop(c, 0);
	node_stop(c, 1);
	gets = cluster_gets(c);
	cluster_read_all_via(c, 2, STEP, 0);
	assert_int_equal(cluster_gets(c), gets);
	cluster_free(c);
}

/* What its table was is remembered over a restart. */
static void test_former_owners_are_kept(void **state)
{
	struct cluster *c = cluster_new(4, 100000, 1 * GiB);
	uint16_t former[FORMER_EACH];
	char path[160];
	struct stat st;

	(void)state;
	cluster_set_slots(c, 0, NONE, NONE, NONE);
	cluster_publish(c);
	cluster_set_slots(c, 1, 0, NONE, NONE);
	cluster_publish(c);
	cluster_set_slots(c, 2, 1, NONE, NONE);
	cluster_publish(c);
	test_wait(former_of(&c->nodes[2].worker, 7, former) >= 2);
	assert_int_equal(former[0], 1);
	assert_int_equal(former[1], 0);
	node_stop(c, 2);
	(void)snprintf(path, sizeof(path), "%s/seen/former", c->nodes[2].tier);
	assert_int_equal(stat(path, &st), 0);
	node_start(c, 2);
	assert_int_equal(former_of(&c->nodes[2].worker, 65535, former), 2);
	assert_int_equal(former[0], 1);
	assert_int_equal(former[1], 0);
	node_stop(c, 2);
	assert_int_equal(truncate(path, 1000), 0); /* damaged: as if absent */
	node_start(c, 2);
	assert_true(former_of(&c->nodes[2].worker, 65535, former) < 2);
	cluster_free(c);
}

/* Replicas of hot slots keep copies, which come from the owner. */
static void test_copies_come_from_the_owner(void **state)
{
	struct cluster *c = cluster_new(FILES, 0, CAPACITY);
	struct rpc_call call;
	struct duty duty;
	uint64_t gets;

	(void)state;
	cluster_set_slots(c, 0, NONE, 1, NONE);
	cluster_set_hot(c);
	cluster_publish(c);
	worker_duty(&c->nodes[1].worker, &table_info(c->world->table)->id.volume, 0, 0, &duty);
	assert_int_equal(duty.kind, DUTY_COPY);
	/* A worker that keeps a copy is not sent to another one that has not got it. */
	assert_int_equal(node_ask(c, 1, FRAME_FETCH, 0, STEP, FRAME_PEER, &call), -EREMOTE);
	assert_int_equal(call.reply.extent, 0);
	rpc_call_release(&call);
	cluster_read_all_via(c, 1, STEP, 0);
	cluster_quiet(c);
	gets = cluster_gets(c);
	assert_int_equal(gets, world_units(c->world));
	assert_int_equal(counter_get(&c->nodes[1].worker.counters.peer_units), gets);
	/* Small files that lie beside each other come with one request. */
	assert_true(counter_get(&c->nodes[1].worker.counters.peer_asked) < gets * 3 / 4);
	node_stop(c, 0);
	cluster_read_all_via(c, 1, STEP, 0); /* it is all here */
	cluster_free(c);
}

/* The owner is gone, and the master has not seen it yet: who keeps a copy ends it. */
static void test_owner_is_gone(void **state)
{
	struct cluster *c = cluster_new(FILES, 0, CAPACITY);

	(void)state;
	cluster_set_slots(c, 0, NONE, 1, 2);
	cluster_set_hot(c);
	cluster_publish(c);
	node_stop(c, 0);
	cluster_read_all_via(c, 1, STEP, 0);
	cluster_read_all_via(c, 2, STEP, FRAME_LAST); /* from worker 1 */
	cluster_quiet(c);
	assert_int_equal(cluster_gets(c), world_units(c->world));
	cluster_free(c);
}

/* The owner ends while others pull from it: whoever waits gets right bytes, and what it had not is fetched by one. */
static void test_owner_ends_midway(void **state)
{
	struct cluster *c = cluster_new(FILES, 0, CAPACITY);
	struct reader readers[2];

	(void)state;
	cluster_set_slots(c, 0, NONE, 1, 2);
	cluster_set_hot(c);
	cluster_publish(c);
	for (uint32_t i = 0; i < 2; i++) {
		readers[i] = (struct reader){ .cluster = c, .node = 1 + i };
		assert_int_equal(
			pthread_create(&readers[i].thread, NULL, run_reader, &readers[i]), 0);
	}
	test_wait(counter_get(&c->nodes[0].worker.counters.fetches) >= 5);
	node_stop(c, 0);
	for (uint32_t i = 0; i < 2; i++)
		pthread_join(readers[i].thread, NULL);
	cluster_quiet(c);
	assert_true(cluster_gets(c) <= world_units(c->world));
	cluster_free(c);
}

/* The deputy of a worker that is down ends what it is asked for, and others are sent to it. */
static void test_deputy(void **state)
{
	struct cluster *c = cluster_new(FILES, 0, CAPACITY);

	(void)state;
	cluster_set_slots(c, 0, NONE, 1, 2);
	cluster_set_state(c, 0, CLUSTER_DOWN);
	node_stop(c, 0);
	cluster_publish(c);
	cluster_read_all_via(c, 2, STEP, 0);
	cluster_quiet(c);
	assert_int_equal(cluster_gets(c), world_units(c->world));
	assert_int_equal(counter_get(&c->nodes[2].worker.counters.units), 0);
	assert_true(counter_get(&c->nodes[1].worker.counters.units) > 0);
	cluster_free(c);
}

/* CACHED_ONLY says what is there, and how much of the chunk, and causes nothing. */
static void test_cached_only(void **state)
{
	struct cluster *c = cluster_new(FILES, 0, CAPACITY);
	uint64_t at = world_offset_of(c->world, 9); /* 3.5 MB */
	struct rpc_call call;

	(void)state;
	cluster_set_slots(c, 0, NONE, NONE, NONE);
	cluster_publish(c);
	assert_int_equal(node_ask(c, 0, FRAME_FETCH_CACHED, at, 65536, 0, &call), -ENODATA);
	assert_int_equal(call.reply.extent, 0);
	rpc_call_release(&call);
	assert_int_equal(cluster_gets(c), 0);
	(void)cluster_read_via(c, 0, at, 65536, FRAME_EXACT);
	cluster_quiet(c);
	assert_int_equal(node_ask(c, 0, FRAME_FETCH_CACHED, at, 65536, 0, &call), 0);
	cluster_check_bytes(c, &call, at, 65536);
	rpc_call_release(&call);
	assert_int_equal(
		node_ask(c, 0, FRAME_FETCH_CACHED, at + 2 * MiB, 65536, 0, &call), -ENODATA);
	assert_int_equal(call.reply.extent, UNIT_BYTES);
	rpc_call_release(&call);
	assert_int_equal(cluster_gets(c), 1);
	cluster_free(c);
}

/* All memory for what waits is taken: what is there is answered all the same. */
static void test_cached_only_waits_for_nothing(void **state)
{
	struct cluster *c = cluster_new(FILES, 0, CAPACITY);
	struct worker *w = &c->nodes[0].worker;
	uint64_t units = 0;
	uint64_t gathered = 0;
	struct rpc_call call;

	(void)state;
	cluster_set_slots(c, 0, NONE, NONE, NONE);
	cluster_publish(c);
	cluster_read_all_via(c, 0, STEP, 0);
	cluster_quiet(c);
	while (budget_take(&w->memory, BUDGET_DEMAND, 64 * KiB))
		units += 64 * KiB;
	while (budget_take(&w->gathered, BUDGET_FILL, 64 * KiB))
		gathered += 64 * KiB;
	for (uint64_t at = 0; at < c->world->model_bytes; at += STEP) {
		assert_int_equal(node_ask(c, 0, FRAME_FETCH_CACHED, at, STEP, 0, &call), 0);
		cluster_check_bytes(c, &call, at, STEP);
		rpc_call_release(&call);
	}
	budget_give(&w->gathered, gathered);
	budget_give(&w->memory, units);
	cluster_free(c);
}

/* Bytes that rotted on the previous owner's disk are not taken, and are repaired there or dropped. */
static void test_damaged_peer(void **state)
{
	struct cluster *c = cluster_new(FILES, 0, CAPACITY);

	(void)state;
	cluster_set_slots(c, 0, NONE, NONE, NONE);
	cluster_publish(c);
	cluster_read_all_via(c, 0, STEP, 0);
	cluster_quiet(c);
	node_stop(c, 0);
	assert_true(damage_files(c->nodes[0].tier, 100, MiB) > 0);
	node_start(c, 0);
	cluster_set_slots(c, 1, 0, NONE, NONE);
	cluster_publish(c);
	cluster_read_all_via(c, 1, STEP, 0);
	cluster_quiet(c);
	assert_true(SUM(c, peer_bad) > 0);
	assert_true(SUM(c, peer_units) > 0);
	assert_true(cluster_gets(c) > 0);
	assert_true(cluster_gets(c) < world_units(c->world));
	cluster_free(c);
}

/* 0 takes 1 for the owner and 1 takes 0; both keep copies. Nobody waits for the other for ever. */
static void test_tables_that_disagree(void **state)
{
	struct cluster *c = cluster_new_copies(FILES, 0, CAPACITY, COPIES_EVERYWHERE);
	const struct volume_id *volume = &table_info(c->world->table)->id.volume;
	struct reader readers[2];
	struct duty duty;

	(void)state;
	cluster_set_slots(c, 0, NONE, 1, NONE);
	cluster_publish(c);
	(void)cluster_read_via(
		c, 0, 0, BLOCK_BYTES, FRAME_EXACT); /* the policy comes with the table */
	node_stop(c, 1);
	cluster_set_slots(c, 1, NONE, 0, NONE);
	cluster_publish(c);
	pthread_mutex_lock(&c->lock);
	c->mute = true;
	pthread_mutex_unlock(&c->lock);
	node_start(c, 1);
	(void)cluster_read_via(c, 1, 0, BLOCK_BYTES, FRAME_EXACT);
	worker_duty(&c->nodes[0].worker, volume, 1, 0, &duty);
	assert_int_equal(duty.kind, DUTY_COPY);
	assert_int_equal(duty.serves, 1);
	worker_duty(&c->nodes[1].worker, volume, 1, 0, &duty);
	assert_int_equal(duty.kind, DUTY_COPY);
	assert_int_equal(duty.serves, 0);
	for (uint32_t i = 0; i < 2; i++) {
		readers[i] = (struct reader){ .cluster = c, .node = i };
		assert_int_equal(
			pthread_create(&readers[i].thread, NULL, run_reader, &readers[i]), 0);
	}
	for (uint32_t i = 0; i < 2; i++)
		pthread_join(readers[i].thread, NULL);
	cluster_quiet(c);
	/* Each may have ended some of them. */
	assert_true(cluster_gets(c) <= 2 * world_units(c->world));
	cluster_free(c);
}

/* One block, EXACT. */
struct asker {
	pthread_t thread;
	struct cluster *cluster;
	uint32_t node;
	uint64_t offset;
	int status;
	struct rpc_call call;
};

static void *run_asker(void *arg)
{
	struct asker *asker = arg;

	asker->status = node_ask(asker->cluster, asker->node, FRAME_FETCH, asker->offset,
		BLOCK_BYTES, FRAME_EXACT, &asker->call);
	return NULL;
}

static void asker_start(struct asker *asker, struct cluster *c, uint32_t node, uint64_t offset)
{
	*asker = (struct asker){ .cluster = c, .node = node, .offset = offset };
	assert_int_equal(pthread_create(&asker->thread, NULL, run_asker, asker), 0);
}

static void asker_end(struct asker *asker)
{
	pthread_join(asker->thread, NULL);
	assert_int_equal(asker->status, 0);
	cluster_check_bytes(asker->cluster, &asker->call, asker->offset, BLOCK_BYTES);
	rpc_call_release(&asker->call);
}

static uint64_t take_all(struct worker *w)
{
	uint64_t taken = 0;

	while (budget_take(&w->memory, BUDGET_DEMAND, 4 * KiB))
		taken += 4 * KiB;
	return taken;
}

static void give(struct worker *w, uint64_t bytes)
{
	budget_give(&w->memory, bytes);
	flight_memory_freed(w);
}

/* Until something waits for memory there. */
static void wait_flights(struct worker *w, uint32_t n)
{
	test_wait(cluster_flights_of(w) == n);
}

/* Worker 1 keeps copies of all that worker 0 owns: files of one unit each, of which only those of the first chunk
 * are there. */
static struct cluster *copying_cluster(void)
{
	struct cluster *c = cluster_new_copies(FILES, MiB, CAPACITY, COPIES_EVERYWHERE);
	struct duty duty;

	cluster_set_slots(c, 0, NONE, 1, NONE);
	cluster_publish(c);
	(void)cluster_read_via(c, 1, world_offset_of(c->world, 0), BLOCK_BYTES, FRAME_EXACT);
	cluster_quiet(c);
	worker_duty(&c->nodes[1].worker, &table_info(c->world->table)->id.volume, 0, 0, &duty);
	assert_int_equal(duty.kind, DUTY_COPY);
	return c;
}

/* What waits for another worker leaves memory to what others wait for: else two such workers wait for ever. */
static void test_far_leaves_memory(void **state)
{
	struct cluster *c = copying_cluster();
	struct worker *owner = &c->nodes[0].worker;
	struct worker *w = &c->nodes[1].worker;
	uint64_t owners = take_all(owner);
	uint64_t taken = take_all(w);
	struct asker asker;

	(void)state;
	cluster_patience(c, 1);
	give(w, MiB + MiB / 2); /* for one unit */
	taken -= MiB + MiB / 2;
	asker_start(&asker, c, 1, world_offset_of(c->world, 20));
	wait_flights(w, 1);
	(void)cluster_read_via(
		c, 1, world_offset_of(c->world, 21), BLOCK_BYTES, FRAME_EXACT | FRAME_LAST);
	/* So does one that others come to wait for. */
	(void)cluster_read_via(
		c, 1, world_offset_of(c->world, 20), BLOCK_BYTES, FRAME_EXACT | FRAME_LAST);
	asker_end(&asker);
	give(owner, owners);
	give(w, taken);
	cluster_quiet(c);
	cluster_free(c);
}

struct announced {
	_Atomic int status;
};

static void on_announced(struct rpc_call *call, int status)
{
	struct announced *asked = call->arg;

	rpc_call_release(call);
	asked->status = status;
}

static void set_window(struct worker *w, uint64_t bytes)
{
	pthread_mutex_lock(&w->flights.lock);
	w->flights.window = bytes;
	pthread_mutex_unlock(&w->flights.lock);
}

/* What is announced and held up by the window holds up no reader of what is far. */
static void test_far_passes_window(void **state)
{
	struct cluster *c = copying_cluster();
	struct worker *w = &c->nodes[1].worker;
	uint64_t taken = take_all(w);
	uint64_t window = w->flights.window;
	struct rpc_call ahead = world_make_call(c->world, FRAME_FETCH,
		world_offset_of(c->world, 21), BLOCK_BYTES, FRAME_EXACT | FRAME_LAST);
	struct announced asked = { .status = 1 };
	struct asker asker;

	(void)state;
	ahead.frame.class = FRAME_AHEAD;
	ahead.on_done = on_announced;
	ahead.arg = &asked;
	set_window(w, 0);
	rpc_call(c->nodes[1].client, &ahead);
	wait_flights(w, 1);
	asker_start(&asker, c, 1, world_offset_of(c->world, 20));
	wait_flights(w, 2);
	give(w, taken);
	asker_end(&asker);
	wait_flights(w, 1);
	assert_int_equal(asked.status, 1);
	set_window(w, window);
	flight_memory_freed(w);
	test_wait(asked.status == 0);
	cluster_quiet(c);
	cluster_free(c);
}

/* The owner does not answer, but its connection stands: once the master calls it down nobody waits for it. */
static void test_owner_hangs(void **state)
{
	struct cluster *c = copying_cluster();
	struct worker *owner = &c->nodes[0].worker;
	uint64_t taken = take_all(owner);
	struct asker asker;

	(void)state;
	asker_start(&asker, c, 1, world_offset_of(c->world, 20));
	wait_flights(owner, 1);
	cluster_set_state(c, 0, CLUSTER_DOWN);
	cluster_publish(c);
	asker_end(&asker);
	give(owner, taken);
	cluster_quiet(c);
	cluster_free(c);
}

/* Holds a loop up until the lock is let go. */
struct freeze {
	struct loop_task task;
	pthread_mutex_t lock;
};

static void run_freeze(struct loop_task *task)
{
	struct freeze *freeze = container_of(task, struct freeze, task);

	pthread_mutex_lock(&freeze->lock);
	pthread_mutex_unlock(&freeze->lock);
}

static void run_nothing(void *arg)
{
	(void)arg;
}

/* Who is asked in the owner's place does not wait for him as if nothing was known: less than for anybody else (8 s here). */
static void test_the_deputy_of_one_that_hangs(void **state)
{
	struct cluster *c = cluster_new(FILES, 0, CAPACITY);
	struct worker *owner = &c->nodes[0].worker;
	struct freeze freeze = { .task.run = run_freeze };
	struct rpc_call call;

	(void)state;
	cluster_patience(c, 4);
	cluster_set_slots(c, 0, NONE, 1, 2);
	cluster_publish(c);
	pthread_mutex_init(&freeze.lock, NULL);
	pthread_mutex_lock(&freeze.lock);
	loop_post(owner->loop, &freeze.task);
	call = world_make_call(c->world, FRAME_FETCH, 0, STEP, FRAME_LAST);
	call.deadline_ns = clock_mono_ns() + 7600 * CLOCK_MS;
	assert_int_equal(rpc_call_wait(c->nodes[1].client, &call, NULL), 0);
	cluster_check_bytes(c, &call, 0, STEP);
	rpc_call_release(&call);
	pthread_mutex_unlock(&freeze.lock);
	loop_call(owner->loop, run_nothing, NULL);
	pthread_mutex_destroy(&freeze.lock);
	cluster_quiet(c);
	cluster_free(c);
}

struct copier {
	pthread_t thread;
	struct cluster *cluster;
	uint16_t flags;
	int status;
	struct rpc_call call;
	_Atomic bool done;
};

/* As worker 1, which keeps a copy. */
static void *run_copier(void *arg)
{
	struct copier *copier = arg;
	struct cluster *c = copier->cluster;

	copier->call = world_make_call(c->world, FRAME_FETCH, 0, STEP, copier->flags);
	copier->call.frame.extent = 1;
	copier->status = rpc_call_wait(c->nodes[0].client, &copier->call, NULL);
	atomic_store(&copier->done, true);
	return NULL;
}

static void copier_start(struct copier *copier, struct cluster *c, uint16_t flags)
{
	*copier = (struct copier){ .cluster = c, .flags = flags };
	assert_int_equal(pthread_create(&copier->thread, NULL, run_copier, copier), 0);
}

static void copier_end(struct copier *copier, int status)
{
	pthread_join(copier->thread, NULL);
	assert_int_equal(copier->status, status);
	if (status == 0)
		cluster_check_bytes(copier->cluster, &copier->call, 0, STEP);
	rpc_call_release(&copier->call);
}

/* Does a request wait at worker 0? */
static bool is_parked(struct cluster *c)
{
	struct herds *herds = &c->nodes[0].worker.herds;
	bool parked;

	pthread_mutex_lock(&herds->lock);
	parked = !list_empty(&herds->waiting);
	pthread_mutex_unlock(&herds->lock);
	return parked;
}

static _Atomic bool told;

static void on_told(struct herds_wait *wait)
{
	(void)wait;
	atomic_store(&told, true);
}

/* A place among those that are served, as soon as there is one. */
static struct herd_ticket *take_place(
	struct worker *w, const struct chunk_id *id, const struct herd_request *request)
{
	struct herds_wait wait = { .go = on_told };
	struct herd_ticket *ticket;
	uint16_t worker;

	atomic_store(&told, false);
	if (herds_ask(w, id, request, &wait, &ticket, &worker) == HERD_SERVE)
		return ticket;
	test_wait(atomic_load(&told));
	assert_int_equal(wait.answer, HERD_SERVE);
	return wait.ticket;
}

/* As many copies are being sent as may be: another one waits, or is sent to one that has it. */
static void test_herd(void **state)
{
	struct cluster *c = cluster_new(FILES, 0, CAPACITY);
	const struct generation_id *table = &table_info(c->world->table)->id;
	const struct chunk_id id = { table->volume, table->lineage, 0 };
	const struct herd_request first = {
		.worker = 2, .offset = 0, .length = UNIT_BYTES, .last = true
	};
	const struct herd_request request = {
		.worker = NONE, .offset = 0, .length = UNIT_BYTES, .last = true
	};
	struct worker *w = &c->nodes[0].worker;
	struct herd_ticket *tickets[HERD_SERVES];
	struct copier copier;
	struct copier other;

	(void)state;
	cluster_set_slots(c, 0, NONE, 1, 2);
	cluster_publish(c);
	for (uint32_t i = 0; i < HERD_SERVES; i++)
		tickets[i] = take_place(w, &id, i ? &request : &first);
	copier_start(&copier, c, FRAME_PEER);
	test_wait(is_parked(c));
	assert_false(atomic_load(&copier.done));
	herds_leave(tickets[0], true); /* worker 2 has it now */
	copier_end(&copier, 0);
	/* It is named to worker 1, who asks again, as if it had been sent in vain. */
	tickets[0] = take_place(w, &id, &request);
	copier_start(&copier, c, FRAME_PEER);
	copier_end(&copier, -EREMOTE);
	assert_int_equal(copier.call.reply.extent, 2);
	assert_int_equal(copier.call.reply.flags & FRAME_MOVED, 0);
	/* Nobody is sent to one that is down. */
	cluster_set_state(c, 2, CLUSTER_DOWN);
	cluster_publish(c);
	copier_start(&other, c, FRAME_PEER);
	test_wait(is_parked(c));
	/* Readers are no herd; and nobody is sent away twice. */
	(void)cluster_read_via(c, 0, 0, STEP, 0);
	copier_start(&copier, c, FRAME_PEER | FRAME_LAST);
	test_wait(is_parked(c));
	for (uint32_t i = 0; i < HERD_SERVES; i++)
		herds_leave(tickets[i], i % 2);
	copier_end(&copier, 0);
	copier_end(&other, 0);
	cluster_free(c);
}

/* Who hangs while he is served holds up nobody for ever, and what it was does not matter any more. */
static void test_herd_hangs(void **state)
{
	struct cluster *c = cluster_new(FILES, 0, CAPACITY);
	const struct generation_id *table = &table_info(c->world->table)->id;
	const struct chunk_id id = { table->volume, table->lineage, 0 };
	const struct herd_request request = {
		.worker = 2, .offset = 0, .length = UNIT_BYTES, .last = true
	};
	struct worker *w = &c->nodes[0].worker;
	struct herd_ticket *tickets[HERD_SERVES];
	struct copier copier;

	(void)state;
	cluster_set_slots(c, 0, NONE, 1, 2);
	cluster_publish(c);
	for (uint32_t i = 0; i < HERD_SERVES; i++)
		tickets[i] = take_place(w, &id, &request);
	copier_start(&copier, c, FRAME_PEER);
	test_wait(is_parked(c));
	pthread_mutex_lock(&w->herds.lock);
	w->herds.patience_ns = CLOCK_MS;
	pthread_mutex_unlock(&w->herds.lock);
	copier_end(&copier, 0);
	for (uint32_t i = 0; i < HERD_SERVES; i++)
		herds_leave(tickets[i], true);
	cluster_free(c);
}

static uint32_t giving(struct worker *w)
{
	uint32_t n;

	pthread_mutex_lock(&w->herds.lock);
	n = w->herds.giving;
	pthread_mutex_unlock(&w->herds.lock);
	return n;
}

/* What worker 0 says to an op that causes nothing. "Nothing" is never said of a whole chunk. */
static int ask_cached(struct cluster *c, enum frame_op op, uint16_t flags)
{
	struct rpc_call call = world_make_call(c->world, op, 0, STEP, flags);
	int status = rpc_call_wait(c->nodes[0].client, &call, NULL);

	if (status == 0)
		cluster_check_bytes(c, &call, 0, STEP);
	else
		assert_int_not_equal(call.reply.extent, 0);
	rpc_call_release(&call);
	return status;
}

static uint64_t read_at(struct cluster *c)
{
	const struct frame frame = world_make_call(c->world, FRAME_FETCH, 0, STEP, 0).frame;
	const struct chunk_id id = { .volume = frame.volume, .lineage = frame.lineage };
	struct chunk *chunk = tier_chunk_find(c->nodes[0].worker.tiers, &id);
	uint64_t at;

	assert_non_null(chunk);
	pthread_mutex_lock(&chunk->set->volumes.lock);
	at = chunk->read_at;
	pthread_mutex_unlock(&chunk->set->volumes.lock);
	chunk_unref(chunk);
	return at;
}

/* What a mount brings ahead of its readers is read, and stays longer; a worker that takes it reads nothing. */
static void test_what_is_cached_is_read(void **state)
{
	struct cluster *c = cluster_new(FILES, 0, CAPACITY);
	uint64_t before;

	(void)state;
	cluster_set_slots(c, 0, NONE, NONE, NONE);
	cluster_publish(c);
	(void)cluster_read_via(c, 0, 0, STEP, 0);
	cluster_quiet(c); /* it is in its tier */
	before = read_at(c);
	assert_int_equal(ask_cached(c, FRAME_FETCH_CACHED, FRAME_PEER), 0);
	assert_int_equal(read_at(c), before);
	assert_int_equal(ask_cached(c, FRAME_FETCH_CACHED, 0), 0);
	assert_true(read_at(c) > before);
	cluster_free(c);
}

/* A worker that others are sent to answers a few at a time; the others come back. An owner that seeks what may
 * be nowhere else is never refused. */
static void test_herd_gives(void **state)
{
	struct cluster *c = cluster_new(FILES, 0, CAPACITY);
	struct worker *w = &c->nodes[0].worker;
	struct herd_ticket *tickets[HERD_GIVES];
	struct herd_ticket *none;

	(void)state;
	cluster_set_slots(c, 0, NONE, 1, 2);
	cluster_publish(c);
	(void)cluster_read_via(c, 0, 0, STEP, 0);
	cluster_quiet(c); /* it is in its tier */
	for (uint32_t i = 0; i < HERD_GIVES; i++)
		assert_true(herds_give(w, &tickets[i]));
	assert_false(herds_give(w, &none));
	assert_null(none);
	assert_int_equal(ask_cached(c, FRAME_FETCH_CACHED, 0), 0);
	assert_int_equal(ask_cached(c, FRAME_SEEK, 0), 0);
	assert_int_equal(ask_cached(c, FRAME_FETCH_CACHED, FRAME_PEER), -ENODATA);
	assert_int_equal(ask_cached(c, FRAME_FETCH_CACHED, FRAME_PEER | FRAME_EXACT), -ENODATA);
	assert_int_equal(counter_get(&w->counters.herd_refused), 2);
	for (uint32_t i = 0; i < HERD_GIVES; i++)
		herds_leave(tickets[i], true);
	/* As many as ever, again and again: each answer that was sent gives its place back. */
	for (uint32_t i = 0; i < 3 * HERD_GIVES; i++) {
		assert_int_equal(ask_cached(c, FRAME_FETCH_CACHED, FRAME_PEER), 0);
		test_wait(giving(w) == 0);
	}
	assert_int_equal(counter_get(&w->counters.herd_refused), 2);
	cluster_free(c);
}

/* What its owner has no room for is kept by the next in the slot's list, and found there. */
static void test_spill(void **state)
{
	struct cluster *c = cluster_new(FILES_MANY, 0, SMALL);
	uint64_t gets;

	(void)state;
	cluster_set_slots(c, 0, NONE, 1, 2);
	cluster_publish(c);
	for (unsigned int pass = 0; pass < 2; pass++) { /* on the brink a unit may be let go */
		cluster_read_all_via(c, 0, STEP, 0);
		cluster_quiet(c);
	}
	assert_true(counter_get(&c->nodes[0].worker.counters.spilled) > 0);
	assert_true(counter_get(&c->nodes[1].worker.counters.units) > 0);
	gets = cluster_gets(c);
	assert_in_range(gets, world_units(c->world), world_units(c->world) * 11 / 10);
	cluster_read_all_via(c, 0, STEP, 0);
	cluster_quiet(c);
	assert_int_equal(cluster_gets(c), gets);
	cluster_free(c);
}

static bool has_id(struct cluster *c, uint32_t i)
{
	bool has;

	pthread_mutex_lock(&c->lock);
	has = c->nodes[i].id != 0;
	pthread_mutex_unlock(&c->lock);
	return has;
}

/* One that ends stops listening first, and may join once more: what it joins with is its own. */
static void test_joins_without_its_servers(void **state)
{
	struct cluster *c = cluster_new(FILES, 0, CAPACITY);
	struct node *node = &c->nodes[0];

	(void)state;
	rpc_servers_close(&node->worker.servers);
	pthread_mutex_lock(&c->lock);
	node->id = 0; /* its next beat is nobody's */
	pthread_mutex_unlock(&c->lock);
	test_wait(has_id(c, 0));
	cluster_free(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_once_for_all),
		cmocka_unit_test(test_large_object),
		cmocka_unit_test(test_moved_twice),
		cmocka_unit_test(test_former_owners_are_kept),
		cmocka_unit_test(test_copies_come_from_the_owner),
		cmocka_unit_test(test_owner_is_gone),
		cmocka_unit_test(test_owner_ends_midway),
		cmocka_unit_test(test_deputy),
		cmocka_unit_test(test_cached_only),
		cmocka_unit_test(test_cached_only_waits_for_nothing),
		cmocka_unit_test(test_damaged_peer),
		cmocka_unit_test(test_far_leaves_memory),
		cmocka_unit_test(test_far_passes_window),
		cmocka_unit_test(test_owner_hangs),
		cmocka_unit_test(test_the_deputy_of_one_that_hangs),
		cmocka_unit_test(test_herd),
		cmocka_unit_test(test_herd_hangs),
		cmocka_unit_test(test_what_is_cached_is_read),
		cmocka_unit_test(test_herd_gives),
		cmocka_unit_test(test_spill),
		cmocka_unit_test(test_joins_without_its_servers),
		cmocka_unit_test(test_tables_that_disagree),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
