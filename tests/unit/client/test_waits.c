/*
 * How long a read waits for a hop that stalls, by the tests' clock: what docs/deadlines.md says. The hops behind the worker are in
 * tests/unit/cacheworker/test_waits.c.
 */
#include "tests/unit/client/route_fixture.h"
#include "base/deadline.h"
#include "tests/clock/test_clock.h"
#include "tests/unit/wait_table.h"

/* What the clock adds while a busy machine works. Never less, but for ticks of timers. */
#define SLACK (2 * CLOCK_SECOND)
#define TICKS (CLOCK_SECOND / 10)

static void check_waited(uint64_t began, uint64_t expected)
{
	uint64_t waited = clock_mono_ns() - began;

	assert_in_range(waited, expected - TICKS, expected + expected / 20 + SLACK);
}

/* One worker alone, which says that it is there, and holds every request. */
static void hold_all(struct route_fix *r)
{
	r->slot = (struct placement_slot){ .owner = 0,
		.previous = PLACEMENT_NONE,
		.replicas = { PLACEMENT_NONE, PLACEMENT_NONE } };
	route_tell(r);
	route_set_park(r, 0);
}

/* A request that a worker lost: it is sent again after a fifth of what is left, and after a fifth of the rest; the read ends when
 * nothing is left. */
static void test_request_lost(void **state)
{
	uint64_t all = wait_table_ns("a read, all together");
	struct route_fix *r = *state;
	uint64_t left = all;
	struct fix_read *read;
	uint64_t began;

	assert_true(all == CLIENT_READ_DEADLINE);
	assert_true(wait_table_ns("a request that a worker lost") == all / DEADLINE_ATTEMPTS);
	hold_all(r);
	began = clock_mono_ns();
	read = fix_read_start(r->f, 0, 64 * KiB);
	for (uint32_t i = 1; i <= 3; i++) {
		left -= left / DEADLINE_ATTEMPTS;
		route_wait_for(r, &r->workers[0].cancelled, i);
		check_waited(began, all - left);
	}
	fix_read_end(r->f, read, -EIO);
	check_waited(began, all);
}

/* It answers while the last request is held: there is time for it. */
static void test_answer_at_the_end(void **state)
{
	struct route_fix *r = *state;
	struct fix_read *read;
	uint64_t began;

	hold_all(r);
	began = clock_mono_ns();
	read = fix_read_start(r->f, 0, 64 * KiB);
	test_advance(CLIENT_READ_DEADLINE - 4 * CLOCK_SECOND);
	route_unpark(&r->workers[0]);
	fix_read_end(r->f, read, 0);
	assert_true(clock_mono_ns() - began < CLIENT_READ_DEADLINE);
}

/* The owner names one that took a copy a moment ago, which is asked for what it has, and holds the request: the next one is asked. */
static void test_cached_held(void **state)
{
	struct route_fix *r = *state;
	struct fix_read *read;
	uint64_t began;

	route_set_status(r, 0, -EREMOTE, 2, 0);
	pthread_mutex_lock(&r->f->lock);
	r->workers[2].park_cached = true;
	pthread_mutex_unlock(&r->f->lock);
	began = clock_mono_ns();
	read = fix_read_start(r->f, 0, 64 * KiB);
	route_wait_for(r, &r->workers[2].cached, 1);
	route_set_status(r, 0, 0, 0, 0);
	route_wait_for(r, &r->workers[2].cancelled, 1);
	check_waited(began, wait_table_ns("a worker asked for what it has cached"));
	fix_read_end(r->f, read, 0);
}

struct freeze {
	struct loop_task task;
	pthread_mutex_t lock;
};

static void run_hold(struct loop_task *task)
{
	struct freeze *freeze = container_of(task, struct freeze, task);

	pthread_mutex_lock(&freeze->lock);
	pthread_mutex_unlock(&freeze->lock);
}

static void run_nothing(void *arg)
{
	(void)arg;
}

/* A process that was stopped: its kernel acknowledges. */
static void test_worker_hangs(void **state)
{
	struct route_fix *r = *state;
	struct freeze freeze = { .task.run = run_hold };
	struct fix_read *read;
	uint64_t began;

	for (uint32_t i = 0; i < WORKERS; i++)
		r->workers[i].cold = true; /* no hedge takes the place of an answer */
	fix_read(r->f, 0, 64 * KiB);
	pthread_mutex_init(&freeze.lock, NULL);
	pthread_mutex_lock(&freeze.lock);
	loop_post(r->workers[0].loop, &freeze.task);
	began = clock_mono_ns();
	read = fix_read_start(r->f, 0, 64 * KiB);
	fix_read_end(r->f, read, 0);
	assert_true(clock_mono_ns() - began <= wait_table_ns("a worker that hangs") + SLACK);
	pthread_mutex_unlock(&freeze.lock);
	loop_call(r->workers[0].loop, run_nothing, NULL);
	pthread_mutex_destroy(&freeze.lock);
}

/* Every worker refuses connections. */
static void test_no_worker(void **state)
{
	struct route_fix *r = *state;
	struct fix_read *read;
	uint64_t began;

	for (uint32_t i = 0; i < WORKERS; i++) {
		fake_set_refuse(r->workers[i].name, true);
		fake_cut(r->workers[i].name);
	}
	began = clock_mono_ns();
	read = fix_read_start(r->f, 0, 64 * KiB);
	fix_read_end(r->f, read, -EIO);
	check_waited(began, wait_table_ns("no worker at all, without `direct`"));
	for (uint32_t i = 0; i < WORKERS; i++)
		fake_set_refuse(r->workers[i].name, false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_request_lost, route_setup, route_teardown),
		cmocka_unit_test_setup_teardown(
			test_answer_at_the_end, route_setup, route_teardown),
		cmocka_unit_test_setup_teardown(test_cached_held, route_setup, route_teardown),
		cmocka_unit_test_setup_teardown(test_worker_hangs, route_setup, route_teardown),
		cmocka_unit_test_setup_teardown(test_no_worker, route_setup, route_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
