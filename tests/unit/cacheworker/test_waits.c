/*
 * How long a reader's request to a worker waits for a hop behind it that stalls, by the tests' clock: what docs/deadlines.md says.
 * Each worker waits as long as in use.
 */
#include "tests/unit/cacheworker/freeze.h"
#include "base/deadline.h"
#include "cacheworker/herds.h"
#include "cacheworker/tier_call.h"
#include "tests/unit/wait_table.h"

#define FILES     24u
#define ELSEWHERE 20u /* a file of another chunk than the first */
#define CAPACITY  (1 * GiB)
#define ALL       (300 * CLOCK_SECOND)
#define SLACK     (2 * CLOCK_SECOND) /* what the clock adds while a busy machine works */

static void check_waited(uint64_t began, uint64_t expected)
{
	assert_in_range(clock_mono_ns() - began, expected - CLOCK_SECOND / 10,
		expected + expected / 20 + SLACK);
}

/* A reader's request to worker 1, which has `left_ns` left. */
struct reader {
	pthread_t thread;
	struct cluster *cluster;
	struct rpc_call call;
	int status;
	uint64_t ended_ns;
	_Atomic bool ended;
};

static void *run_reader(void *arg)
{
	struct reader *reader = arg;

	reader->status = rpc_call_wait(reader->cluster->nodes[1].client, &reader->call, NULL);
	reader->ended_ns = clock_mono_ns();
	atomic_store(&reader->ended, true);
	return NULL;
}

static void reader_start(
	struct reader *reader, struct cluster *c, uint64_t offset, uint64_t left_ns)
{
	*reader = (struct reader){ .cluster = c };
	reader->call = world_make_call(c->world, FRAME_FETCH, offset, BLOCK_BYTES, FRAME_EXACT);
	reader->call.deadline_ns = clock_mono_ns() + left_ns;
	assert_int_equal(pthread_create(&reader->thread, NULL, run_reader, reader), 0);
}

static void reader_end(struct reader *reader, int status)
{
	pthread_join(reader->thread, NULL);
	assert_int_equal(reader->status, status);
	rpc_call_release(&reader->call);
}

/* All of worker 0's memory: a request that needs some of it waits there, and the worker answers all else. */
static uint64_t take_memory(struct cluster *c)
{
	struct worker *w = &c->nodes[0].worker;
	uint64_t taken = 0;

	test_wait(atomic_load(&w->memory.used) ==
		  0); /* units that have ended give theirs back a moment later */
	while (budget_take(&w->memory, BUDGET_DEMAND, 4 * KiB))
		taken += 4 * KiB;
	return taken;
}

static void give_memory(struct cluster *c, uint64_t taken)
{
	budget_give(&c->nodes[0].worker.memory, taken);
	flight_memory_freed(&c->nodes[0].worker);
}

static uint64_t missed_by(struct cluster *c, uint32_t i)
{
	return counter_get(&c->nodes[i].worker.counters.peer_missed);
}

/* Worker 1 keeps copies and asks the owner, which does not get to it. `left_ns` of the reader decide. */
static void check_owner(uint64_t left_ns, uint64_t expected)
{
	struct cluster *c = cluster_new_copies(FILES, MiB, CAPACITY, COPIES_EVERYWHERE);
	struct reader reader;
	uint64_t began;
	uint64_t taken;

	cluster_patience(c, 1);
	cluster_set_slots(c, 0, NONE, NONE, NONE);
	cluster_publish(c);
	/* It knows the source, and what is near has come. */
	(void)cluster_read_via(c, 1, 0, BLOCK_BYTES, FRAME_EXACT);
	cluster_quiet(c);
	assert_int_equal(missed_by(c, 1), 0);
	taken = take_memory(c);
	began = clock_mono_ns();
	reader_start(&reader, c, world_offset_of(c->world, ELSEWHERE), left_ns);
	test_wait(missed_by(c, 1) > 0 || atomic_load(&reader.ended));
	assert_true(missed_by(c, 1) > 0);
	check_waited(began, expected);
	give_memory(c, taken);
	test_wait(atomic_load(&reader.ended));
	pthread_join(reader.thread, NULL);
	rpc_call_release(&reader.call);
	cluster_quiet(c);
	cluster_free(c);
}

static void test_owner_lost_a_request(void **state)
{
	(void)state;
	check_owner(ALL, wait_table_ns("between workers, a request that the owner lost"));
	check_owner(200 * CLOCK_SECOND, 200 * CLOCK_SECOND / DEADLINE_ATTEMPTS);
}

/* The one that had the chunk before hangs: the new owner asks it, and then the origin. */
static void test_holder_hangs(void **state)
{
	struct cluster *c = cluster_new(FILES, MiB, CAPACITY);
	struct freeze freeze;
	struct reader reader;
	uint64_t began;

	(void)state;
	cluster_patience(c, 1);
	cluster_set_slots(c, 0, NONE, NONE, NONE);
	cluster_publish(c);
	cluster_read_all_via(c, 0, MiB, 0);
	cluster_quiet(c);
	cluster_set_slots(c, 1, 0, NONE, NONE);
	cluster_publish(c);
	freeze_begin(&freeze, c, 0);
	began = clock_mono_ns();
	reader_start(&reader, c, 0, ALL);
	reader_end(&reader, 0);
	assert_int_equal(missed_by(c, 1), 1);
	assert_true(reader.ended_ns - began <=
		    wait_table_ns("between workers, asked for what it has cached") + SLACK);
	freeze_end(&freeze, c, 0);
	cluster_free(c);
}

/* A reader that has hardly any time left says nothing of who has the bytes: the next one gets them from there. */
static void test_short_reader(void **state)
{
	struct cluster *c = cluster_new(FILES, MiB, CAPACITY);
	struct worker *w = &c->nodes[1].worker;
	struct freeze freeze;
	struct reader reader;
	uint64_t gets;

	(void)state;
	cluster_patience(c, 1);
	cluster_set_slots(c, 0, NONE, NONE, NONE);
	cluster_publish(c);
	cluster_read_all_via(c, 0, MiB, 0);
	cluster_quiet(c);
	cluster_set_slots(c, 1, 0, NONE, NONE);
	cluster_publish(c);
	gets = cluster_gets(c);
	freeze_begin(&freeze, c, 0);
	for (uint32_t i = 0; i < 4; i++) {
		reader_start(&reader, c, 0, 50 * CLOCK_MS);
		reader_end(&reader, -ETIMEDOUT);
	}
	test_wait(cluster_flights_of(w) == 0);
	freeze_end(&freeze, c, 0);
	assert_true(view_usable(w->view, view_peer(w->view, 0)));
	assert_int_equal(missed_by(c, 1), 0);
	assert_int_equal(counter_get(&w->counters.failed_units), 0);
	cluster_read_all_via(c, 1, MiB, 0);
	assert_int_equal(cluster_gets(c), gets);
	cluster_quiet(c);
	cluster_free(c);
}

static void count_end(struct rpc_call *call, int status)
{
	_Atomic uint32_t *ended = call->arg;

	(void)status; /* its time is up, or the bytes came */
	rpc_call_release(call);
	(*ended)++;
}

#define MANY 6500u /* of one connection; a level of the stack for each would be too much */

/* Many units have no memory, and their readers' time is up when there is some. */
static void test_many_late(void **state)
{
	struct cluster *c = cluster_new_copies(MANY, BLOCK_BYTES, CAPACITY, COPIES_EVERYWHERE);
	struct rpc_call *calls = calloc(MANY, sizeof(*calls));
	struct worker *w = &c->nodes[1].worker;
	_Atomic uint32_t ended = 0;
	struct rpc_call first;
	uint64_t taken = 0;

	(void)state;
	cluster_patience(c, 1);
	cluster_set_slots(c, 0, NONE, NONE, NONE);
	cluster_publish(c);
	assert_int_equal(node_ask(c, 1, FRAME_FETCH, 0, BLOCK_BYTES, FRAME_EXACT, &first), 0);
	rpc_call_release(&first);
	cluster_quiet(c);
	while (budget_take(&w->memory, BUDGET_DEMAND, KiB))
		taken += KiB;
	for (uint32_t i = 1; i < MANY; i++) {
		calls[i] = world_make_call(c->world, FRAME_FETCH, world_offset_of(c->world, i),
			BLOCK_BYTES, FRAME_EXACT);
		calls[i].deadline_ns = clock_mono_ns() + ALL;
		calls[i].until_ns = clock_mono_ns() + CLOCK_SECOND / 5;
		calls[i].on_done = count_end;
		calls[i].arg = &ended;
		rpc_call(c->nodes[1].client, &calls[i]);
	}
	test_advance(CLOCK_SECOND);
	budget_give(&w->memory, taken);
	flight_memory_freed(w);
	test_wait(ended == MANY - 1);
	free(calls);
	cluster_free(c);
}

/* Places whose time is measured by tests of their own: test_stall, test_peers. */
static void test_constants(void **state)
{
	(void)state;
	assert_true(wait_table_ns("the disk of a worker, read by it") == TIER_CALL_NS);
	assert_true(wait_table_ns("a copy that waits its turn at the owner") == HERDS_PATIENCE_NS);
	assert_true(wait_table_ns("the origin, one request without a byte") ==
		    UFS_LIMITS_DEFAULT.request_timeout_ns);
	assert_true(wait_table_ns("the origin") == UFS_LIMITS_DEFAULT.deadline_ns);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_owner_lost_a_request),
		cmocka_unit_test(test_holder_hangs),
		cmocka_unit_test(test_short_reader),
		cmocka_unit_test(test_many_late),
		cmocka_unit_test(test_constants),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
