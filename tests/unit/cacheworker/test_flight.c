/* Flights: memory used up, readers who leave, origins that fail. */
#include "tests/unit/cacheworker/world.h"

#define FILES  40u
#define MANY   256u
#define PARKED 80u
#define BIG    (3 * MiB)
#define HOLDS  64u /* more than a pool has threads */

/* Many calls in progress; `bad` counts those that ended otherwise than they should. */
struct crowd {
	struct world *world;
	struct rpc_call *calls;
	unsigned int n;
	int want;
	bool again; /* ask again after -EAGAIN, as the client library does */
	_Atomic unsigned int refused;
	pthread_mutex_t lock;
	unsigned int left;
	unsigned int bad;
};

static void on_crowd(struct rpc_call *call, int status)
{
	struct crowd *crowd = call->arg;
	const struct world *w = crowd->world;
	bool bad = status != crowd->want;

	if (status == 0)
		bad |= memcmp(call->reply_payload, w->model + call->frame.offset,
			       call->frame.length) != 0;
	rpc_call_release(call);
	if (status == -EAGAIN && crowd->again) {
		crowd->refused++; /* on the loop only */
		rpc_call(w->client, call);
		return;
	}
	pthread_mutex_lock(&crowd->lock);
	crowd->bad += bad;
	crowd->left--;
	pthread_mutex_unlock(&crowd->lock);
}

static void crowd_init(struct crowd *crowd, struct world *w, unsigned int n, int want)
{
	*crowd = (struct crowd){ .world = w,
		.calls = calloc(n, sizeof(*crowd->calls)),
		.n = n,
		.left = n,
		.want = want };
	assert_non_null(crowd->calls);
	pthread_mutex_init(&crowd->lock, NULL);
}

static void crowd_call(struct crowd *crowd, unsigned int i, uint64_t offset, uint32_t length,
	enum frame_class class)
{
	crowd->calls[i] = world_make_call(crowd->world, FRAME_FETCH, offset, length, 0);
	crowd->calls[i].frame.class = (uint8_t) class;
	crowd->calls[i].on_done = on_crowd;
	crowd->calls[i].arg = crowd;
	rpc_call(crowd->world->client, &crowd->calls[i]);
}

static unsigned int crowd_left(struct crowd *crowd)
{
	unsigned int left;

	pthread_mutex_lock(&crowd->lock);
	left = crowd->left;
	pthread_mutex_unlock(&crowd->lock);
	return left;
}

static void crowd_wait(struct crowd *crowd)
{
	test_wait(crowd_left(crowd) == 0);
	assert_int_equal(crowd->bad, 0);
	pthread_mutex_destroy(&crowd->lock);
	free(crowd->calls);
}

static void wait_flights(struct world *w, uint64_t n)
{
	test_wait(counter_get(&w->worker.counters.flights) == n);
}

/* Far more units than memory, at once, a third of them announced only, through a tier that takes
 * few. */
static void starve(uint64_t capacity)
{
	struct world *w = world_new_sized(capacity, FILES, BIG, 16 * MiB);
	struct crowd crowd;

	(void)world_read_range(w, 0, BLOCK_BYTES, 0); /* the table is there */
	world_wait_written(w);
	world_take_memory(w); /* until some starve, however slowly they come */
	crowd_init(&crowd, w, MANY, 0);
	for (unsigned int i = 0; i < MANY; i++)
		crowd_call(&crowd, i, world_offset_of(w, i / 3 % FILES) + i % 3 * MiB, 64 * KiB,
			i % 3 ? FRAME_DEMAND : FRAME_AHEAD);
	test_wait(counter_get(&w->worker.counters.starved) != 0);
	world_give_memory(w);
	crowd_wait(&crowd);
	assert_true(w->worker.memory.peak <= 16 * MiB);
	world_free(w);
}

static void test_more_units_than_memory(void **state)
{
	(void)state;
	starve(1 * GiB);
}

static void test_more_units_than_memory_when_full(void **state)
{
	(void)state;
	starve(80 * MiB);
}

/*
 * Each range lies in two units: no fetch may sit on one while it waits for the other. What they are
 * gathered in is bounded too: whoever finds no room is told to ask again, and gets its bytes in the
 * end.
 */
static void test_ranges_over_units_do_not_lock_up(void **state)
{
	struct world *w = world_new_sized(1 * GiB, FILES, BIG, 6 * MiB);
	uint64_t taken = 0;
	struct crowd crowd;

	(void)state;
	while (budget_take(&w->worker.gathered, BUDGET_DEMAND, 4 * KiB))
		taken += 4 * KiB;
	crowd_init(&crowd, w, FILES, 0);
	crowd.again = true;
	/* The first units are in memory when the ranges that also need the second come. */
	for (unsigned int i = 0; i < FILES; i++) {
		uint64_t at = world_offset_of(w, i) + MiB - 64 * KiB;

		at -= (at & (CHUNK_BYTES - 1)) > CHUNK_BYTES - 128 * KiB ? 128 * KiB : 0;
		crowd_call(&crowd, i, at, 128 * KiB, FRAME_DEMAND);
	}
	test_wait(crowd.refused != 0);
	budget_give(&w->worker.gathered, taken);
	crowd_wait(&crowd);
	assert_true(w->worker.gathered.peak <= w->worker.gathered.max);
	test_wait(!w->worker.gathered.used); /* given back when the last reply has left */
	world_wait_written(w);
	world_free(w);
}

/* Readers who disconnect while their units starve leave nothing behind; others still get theirs. */
static void test_parked_readers_leave(void **state)
{
	struct world *w = world_new_sized(1 * GiB, FILES, BIG, 64 * MiB);
	struct rpc_client *other;
	struct rpc_client *client = w->client;
	struct crowd gone;
	struct crowd stays;
	struct err e = ERR_INIT;

	(void)state;
	(void)world_read_range(w, 0, BLOCK_BYTES, 0); /* the table is there */
	world_wait_written(w);
	world_take_memory(w);
	assert_int_equal(rpc_client_new(w->loop, w->address, &other, &e), 0);
	w->client = other;
	crowd_init(&gone, w, PARKED, -ECANCELED);
	for (unsigned int i = 0; i < PARKED; i++)
		crowd_call(&gone, i, world_offset_of(w, 10 + i / 3) + i % 3 * MiB, BLOCK_BYTES,
			FRAME_DEMAND);
	wait_flights(w, PARKED);
	w->client = client;
	crowd_init(&stays, w, 1, 0);
	crowd_call(&stays, 0, world_offset_of(w, 10), BLOCK_BYTES, FRAME_DEMAND);
	test_wait(counter_get(&w->worker.counters.joined) != 0);
	rpc_client_free(other);
	crowd_wait(&gone);
	wait_flights(w, 1);
	world_give_memory(w);
	crowd_wait(&stays);
	world_free(w);
}

/* Demand goes before what is only announced, however long that has waited. */
static void test_demand_overtakes(void **state)
{
	struct world *w = world_new_sized(1 * GiB, FILES, BIG, 64 * MiB);
	struct crowd ahead;
	struct crowd demand;

	(void)state;
	(void)world_read_range(w, 0, BLOCK_BYTES, 0);
	world_wait_written(w);
	world_take_memory(w);
	crowd_init(&ahead, w, 8, 0);
	for (unsigned int i = 0; i < 8; i++)
		crowd_call(&ahead, i, world_offset_of(w, 10 + i), BLOCK_BYTES, FRAME_AHEAD);
	wait_flights(w, 8);
	crowd_init(&demand, w, 2, 0);
	crowd_call(&demand, 0, world_offset_of(w, 30), BLOCK_BYTES, FRAME_DEMAND);
	crowd_call(
		&demand, 1, world_offset_of(w, 17), BLOCK_BYTES, FRAME_DEMAND); /* joins the last */
	wait_flights(w, 9);
	test_wait(counter_get(&w->worker.counters.joined) != 0);
	/* Room for demand alone: it is given 100 % of the budget, the others 70 %. */
	w->taken -= 4 * MiB;
	world_give_memory_of(w, 4 * MiB);
	crowd_wait(&demand);
	test_wait(crowd_left(&ahead) <= 7); /* the one that it joined is told, too */
	assert_int_equal(crowd_left(&ahead), 7);
	world_give_memory(w);
	crowd_wait(&ahead);
	world_free(w);
}

/* What the origin says reaches every waiter, and the unit can be asked for again. */
static void test_origin_errors(void **state)
{
	struct world *w = world_new_sized(1 * GiB, FILES, BIG, 0);
	char path[160];
	char aside[160];
	struct crowd crowd;

	(void)state;
	(void)snprintf(path, sizeof(path), "%s/data/file-007", w->dir);
	(void)snprintf(aside, sizeof(aside), "%s/aside", w->dir);
	assert_int_equal(rename(path, aside), 0);
	crowd_init(&crowd, w, 16, -ESTALE);
	for (unsigned int i = 0; i < 16; i++)
		crowd_call(&crowd, i, world_offset_of(w, 7) + i * 64 * KiB, 64 * KiB, FRAME_DEMAND);
	crowd_wait(&crowd);
	world_wait_written(w);
	assert_true(counter_get(&w->worker.counters.failed_units) > 0);
	test_wait(!w->worker.memory.used); /* given back with the last reference */
	(void)world_read_range(w, world_offset_of(w, 8), 64 * KiB, 0);
	world_free(w);
}

/* Holds a thread of a pool until the lock is let go. */
struct hold {
	struct pool_job job;
	pthread_mutex_t *lock;
};

static void run_hold(struct pool_job *job)
{
	struct hold *hold = container_of(job, struct hold, job);

	pthread_mutex_lock(hold->lock);
	pthread_mutex_unlock(hold->lock);
}

static void hold_disk(struct world *w, pthread_mutex_t *lock)
{
	static struct hold holds[HOLDS];

	pthread_mutex_lock(lock);
	for (unsigned int i = 0; i < HOLDS; i++) {
		holds[i] = (struct hold){ .job.run = run_hold, .lock = lock };
		assert_int_equal(pool_submit(w->worker.disk, &holds[i].job), 0);
	}
}

static void flip(struct map_node *node, void *arg)
{
	struct flight *f = container_of(node, struct flight, node);
	unsigned int *n = arg;

	f->data[f->length / 2] ^= 1;
	(*n)++;
}

/* The checksums are those of the bytes that came: what memory does to them before they are on disk is found. */
static void test_a_bit_flips_in_memory(void **state)
{
	struct world *w = world_new_sized(1 * GiB, FILES, BIG, 0);
	pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	uint64_t offset = world_offset_of(w, 3);
	unsigned int flipped = 0;
	struct rpc_call call;

	(void)state;
	hold_disk(w, &lock);
	(void)world_read_range(w, offset, UNIT_BYTES, FRAME_EXACT);
	pthread_mutex_lock(&w->worker.flights.lock);
	map_each(&w->worker.flights.units, flip, &flipped);
	pthread_mutex_unlock(&w->worker.flights.lock);
	assert_int_equal(flipped, 1);
	pthread_mutex_unlock(&lock);
	world_wait_written(w);
	call = world_make_call(
		w, FRAME_RECHECK, offset, UNIT_BYTES, 0); /* as a reader that compares */
	assert_int_equal(rpc_call_wait(w->client, &call, NULL), -EBADMSG);
	rpc_call_release(&call);
	(void)world_read_range(w, offset, UNIT_BYTES, FRAME_EXACT);
	world_wait_written(w);
	assert_int_equal(counter_get(&tier_set_counters(w->worker.tiers)->mismatches), 1);
	assert_int_equal(world_origin_gets(w), 2);
	world_free(w);
}

static void count_landed(struct map_node *node, void *arg)
{
	struct flight *leader = container_of(node, struct flight, leads);
	unsigned int *n = arg;

	list_for_each (unit, &leader->to_write)
		(*n)++;
}

/* Units that are to be written. */
static unsigned int landed_units(struct world *w)
{
	unsigned int n = 0;

	pthread_mutex_lock(&w->worker.flights.lock);
	map_each(&w->worker.flights.leaders, count_landed, &n);
	pthread_mutex_unlock(&w->worker.flights.lock);
	return n;
}

/* Units that land while the disk is busy are written together where they follow one another, in whatever order they came:
 * here two groups. What lands while nothing is written has a write of its own. */
static void check_writes_together(uint64_t size)
{
	static const unsigned int files[] = { 5, 2, 1, 0, 4 };
	struct world *w = world_new_sized(1 * GiB, FILES, size, 0);
	pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	const struct worker_counters *counters = &w->worker.counters;
	uint64_t each = align_up(size, BLOCK_BYTES);

	hold_disk(w, &lock);
	for (size_t i = 0; i < ARRAY_SIZE(files); i++)
		(void)world_read_range(
			w, world_offset_of(w, files[i]), (uint32_t)each, FRAME_EXACT);
	test_wait(landed_units(w) == ARRAY_SIZE(files));
	assert_int_equal(counter_get(&counters->writes), 0);
	pthread_mutex_unlock(&lock);
	world_wait_written(w);
	assert_int_equal(counter_get(&counters->written_units), ARRAY_SIZE(files));
	assert_int_equal(counter_get(&counters->writes), 2);
	for (size_t i = 0; i < ARRAY_SIZE(files); i++)
		(void)world_read_range(
			w, world_offset_of(w, files[i]), (uint32_t)each, FRAME_EXACT);
	assert_int_equal(world_origin_gets(w), ARRAY_SIZE(files));
	for (unsigned int i = 10; i < 14; i += 2) {
		(void)world_read_range(w, world_offset_of(w, i), (uint32_t)each, FRAME_EXACT);
		world_wait_written(w);
	}
	assert_int_equal(counter_get(&counters->writes), 4);
	world_free(w);
}

static void test_writes_together(void **state)
{
	(void)state;
	check_writes_together(110 * KiB);
	check_writes_together(3000); /* in the heap: by a copy */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_writes_together),
		cmocka_unit_test(test_more_units_than_memory),
		cmocka_unit_test(test_more_units_than_memory_when_full),
		cmocka_unit_test(test_ranges_over_units_do_not_lock_up),
		cmocka_unit_test(test_parked_readers_leave),
		cmocka_unit_test(test_demand_overtakes),
		cmocka_unit_test(test_origin_errors),
		cmocka_unit_test(test_a_bit_flips_in_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
