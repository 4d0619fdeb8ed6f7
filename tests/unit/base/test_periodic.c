/* Periodic and on-demand work: its times, and that it does not run twice at the same time or after it was stopped. */
#include "base/periodic.h"
#include "base/clock.h"
#include "tests/clock/test_clock.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>

#define HOUR (3600 * CLOCK_SECOND)

static struct pool *pool; /* of one thread, and room for one job */
static char order[64];    /* the letters of what ran */
static _Atomic unsigned int n_order;
static pthread_mutex_t order_lock = PTHREAD_MUTEX_INITIALIZER;

struct work {
	struct periodic_work periodic;
	char letter;
	uint64_t next_ns; /* what run() returns */
	sem_t *started;
	sem_t *gate;
	uint64_t ran_ns; /* the last time */
	_Atomic unsigned int runs;
	_Atomic unsigned int running;
};

struct job {
	struct pool_job job;
	sem_t *started;
	sem_t *gate;
};

static void pass(sem_t *started, sem_t *gate)
{
	if (started)
		sem_post(started);
	if (gate)
		while (sem_wait(gate) != 0)
			;
}

static void note(char letter)
{
	unsigned int n;

	pthread_mutex_lock(&order_lock);
	n = atomic_load(&n_order);
	ensure(n < sizeof(order) - 1);
	order[n] = letter;
	atomic_store(&n_order, n + 1);
	pthread_mutex_unlock(&order_lock);
}

static uint64_t run(void *arg)
{
	struct work *work = arg;

	ensure(atomic_fetch_add(&work->running, 1) == 0);
	work->ran_ns = clock_mono_ns();
	pass(work->started, work->gate);
	if (work->letter)
		note(work->letter);
	atomic_fetch_sub(&work->running, 1);
	atomic_fetch_add(&work->runs, 1);
	return work->next_ns;
}

static void run_job(struct pool_job *pool_job)
{
	const struct job *job = container_of(pool_job, struct job, job);

	pass(job->started, job->gate);
	note('j');
}

static void init(struct work *work, char letter, uint64_t next_ns)
{
	*work = (struct work){ .letter = letter, .next_ns = next_ns };
	work->periodic = (struct periodic_work){ .name = "test", .run = run, .arg = work };
}

static int setup(void **state)
{
	(void)state;
	pool = pool_new("periodic", 1, 1);
	memset(order, 0, sizeof(order));
	atomic_store(&n_order, 0);
	return pool ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	pool_free(pool);
	return 0;
}

static void works_run_in_the_order_of_their_times(void **state)
{
	uint64_t began = clock_mono_ns();
	struct work works[3];

	(void)state;
	for (unsigned int i = 0; i < 3; i++) {
		init(&works[i], (char)('a' + i), PERIODIC_IDLE);
		periodic_start(pool, &works[i].periodic, (3 - i) * HOUR);
	}
	test_wait(atomic_load(&n_order) == 3);
	assert_string_equal(order, "cba");
	for (unsigned int i = 0; i < 3; i++) {
		periodic_stop(&works[i].periodic);
		assert_in_range(works[i].ran_ns - began, (3 - i) * HOUR, (3 - i) * HOUR + HOUR / 2);
	}
}

/* The first time waits for longer than the second one. */
static void a_later_start_may_be_due_first(void **state)
{
	uint64_t began;
	struct work late;
	struct work early;

	(void)state;
	init(&late, 'l', PERIODIC_IDLE);
	init(&early, 'e', PERIODIC_IDLE);
	periodic_start(pool, &late.periodic, 100 * HOUR);
	test_advance(HOUR); /* a thread waits for it */
	began = clock_mono_ns();
	periodic_start(pool, &early.periodic, HOUR);
	test_wait(atomic_load(&n_order) == 1);
	assert_string_equal(order, "e");
	assert_in_range(early.ran_ns - began, HOUR, HOUR + HOUR / 2);
	periodic_stop(&late.periodic);
	periodic_stop(&early.periodic);
}

static void a_work_runs_again_and_again(void **state)
{
	uint64_t began = clock_mono_ns();
	struct work work;

	(void)state;
	init(&work, 0, HOUR);
	periodic_start(pool, &work.periodic, 0);
	test_wait(atomic_load(&work.runs) == 100);
	periodic_stop(&work.periodic);
	assert_in_range(work.ran_ns - began, 99 * HOUR, 101 * HOUR);
}

static void an_idle_work_runs_when_it_is_poked(void **state)
{
	struct work work;

	(void)state;
	init(&work, 0, PERIODIC_IDLE);
	periodic_poke(&work.periodic); /* not started: no effect */
	periodic_start(pool, &work.periodic, PERIODIC_IDLE);
	test_advance(HOUR);
	assert_int_equal(atomic_load(&work.runs), 0);
	for (unsigned int i = 1; i <= 3; i++) {
		periodic_poke(&work.periodic);
		test_advance(HOUR);
		assert_int_equal(atomic_load(&work.runs), i);
	}
	periodic_stop(&work.periodic);
	periodic_poke(&work.periodic); /* nor afterwards */
	test_advance(HOUR);
	assert_int_equal(atomic_load(&work.runs), 3);
}

static void a_poke_ends_the_wait(void **state)
{
	uint64_t began = clock_mono_ns();
	struct work work;

	(void)state;
	init(&work, 0, 10 * HOUR);
	periodic_start(pool, &work.periodic, 10 * HOUR);
	periodic_poke(&work.periodic);
	test_wait(atomic_load(&work.runs) == 1);
	assert_in_range(work.ran_ns - began, 0, HOUR);
	test_wait(atomic_load(&work.runs) == 2); /* and then as before */
	assert_in_range(work.ran_ns - began, 10 * HOUR, 11 * HOUR);
	periodic_stop(&work.periodic);
}

static void a_work_poked_while_it_runs_runs_once_more(void **state)
{
	struct work work;
	sem_t started;
	sem_t gate;

	(void)state;
	sem_init(&started, 0, 0);
	sem_init(&gate, 0, 0);
	init(&work, 0, PERIODIC_IDLE);
	work.started = &started;
	work.gate = &gate;
	periodic_start(pool, &work.periodic, 0);
	while (sem_wait(&started) != 0)
		;
	for (unsigned int i = 0; i < 3; i++)
		periodic_poke(&work.periodic);
	sem_post(&gate);
	sem_post(&gate);
	sem_post(&gate);
	test_wait(atomic_load(&work.runs) == 2);
	test_advance(HOUR);
	assert_int_equal(atomic_load(&work.runs), 2);
	periodic_stop(&work.periodic);
	sem_destroy(&gate);
	sem_destroy(&started);
}

/* The only thread is busy with a job. */
static void occupy(struct job *job, sem_t *started, sem_t *gate)
{
	sem_init(started, 0, 0);
	sem_init(gate, 0, 0);
	*job = (struct job){ .job.run = run_job, .started = started, .gate = gate };
	assert_int_equal(pool_submit(pool, &job->job), 0);
	while (sem_wait(started) != 0)
		;
}

static void stopping_a_work_that_waits_or_is_queued(void **state)
{
	struct work waiting;
	struct work queued;
	struct job job;
	sem_t started;
	sem_t gate;

	(void)state;
	init(&waiting, 'w', PERIODIC_IDLE);
	init(&queued, 'q', PERIODIC_IDLE);
	occupy(&job, &started, &gate);
	periodic_start(pool, &waiting.periodic, 10 * HOUR);
	periodic_start(pool, &queued.periodic, HOUR);
	test_advance(2 * HOUR);
	periodic_stop(&queued.periodic);
	periodic_stop(&waiting.periodic);
	periodic_stop(&waiting.periodic); /* harmless */
	sem_post(&gate);
	test_advance(20 * HOUR);
	assert_string_equal(order, "j");
	sem_destroy(&gate);
	sem_destroy(&started);
}

static uint64_t run_until_it_is_stopped(void *arg)
{
	struct work *work = arg;

	sem_post(work->started);
	test_wait(periodic_stopping(&work->periodic));
	test_advance(CLOCK_SECOND);
	atomic_fetch_add(&work->runs, 1);
	return 0;
}

static void stopping_waits_for_a_run(void **state)
{
	struct work work;
	sem_t started;

	(void)state;
	sem_init(&started, 0, 0);
	init(&work, 0, 0);
	work.started = &started;
	work.periodic.run = run_until_it_is_stopped;
	for (unsigned int i = 1; i <= 2; i++) { /* it may be started again */
		periodic_start(pool, &work.periodic, 0);
		while (sem_wait(&started) != 0)
			;
		assert_false(periodic_stopping(&work.periodic));
		periodic_stop(&work.periodic);
		assert_int_equal(atomic_load(&work.runs), i);
	}
	sem_destroy(&started);
}

static void a_work_that_was_never_started_is_stopped(void **state)
{
	struct periodic_work work = { 0 };

	(void)state;
	periodic_stop(&work);
	assert_true(periodic_stopping(&work));
}

static uint64_t run_twice(void *arg)
{
	const struct work *work = arg;

	(void)run(arg);
	return atomic_load(&work->runs) < 2 ? 0 : PERIODIC_IDLE;
}

/* It runs again at once, but others come first. */
static void slices_let_other_jobs_go_first(void **state)
{
	struct job job = { .job.run = run_job };
	struct work work;
	sem_t started;
	sem_t gate;

	(void)state;
	sem_init(&started, 0, 0);
	sem_init(&gate, 0, 0);
	init(&work, 'w', 0);
	work.started = &started;
	work.gate = &gate;
	work.periodic.run = run_twice;
	periodic_start(pool, &work.periodic, 0);
	while (sem_wait(&started) != 0)
		;
	assert_int_equal(pool_submit(pool, &job.job), 0);
	sem_post(&gate);
	sem_post(&gate);
	test_wait(atomic_load(&n_order) == 3);
	assert_string_equal(order, "wjw");
	periodic_stop(&work.periodic);
	sem_destroy(&gate);
	sem_destroy(&started);
}

/* The queue has room for one job, and has it. */
static void works_have_places_of_their_own(void **state)
{
	struct job second = { .job.run = run_job };
	struct job third = { .job.run = run_job };
	struct work works[3];
	struct job job;
	sem_t started;
	sem_t gate;

	(void)state;
	occupy(&job, &started, &gate);
	for (unsigned int i = 0; i < 3; i++) {
		init(&works[i], (char)('a' + i), PERIODIC_IDLE);
		periodic_start(pool, &works[i].periodic, i * HOUR);
	}
	test_advance(4 * HOUR);
	assert_int_equal(pool_submit(pool, &second.job), 0); /* they take no place of others */
	assert_int_equal(pool_submit(pool, &third.job), -EAGAIN);
	sem_post(&gate);
	test_wait(atomic_load(&n_order) == 5);
	assert_string_equal(order, "jabcj");
	for (unsigned int i = 0; i < 3; i++)
		periodic_stop(&works[i].periodic);
	sem_destroy(&gate);
	sem_destroy(&started);
}

/* All threads that there are work for another pool when the time comes. */
static void a_work_does_not_wait_for_another_pool(void **state)
{
	struct pool *other = pool_new("other", 1, 1);
	struct work work;
	struct job job;
	sem_t started;
	sem_t gate;

	(void)state;
	assert_non_null(other);
	init(&work, 'w', PERIODIC_IDLE);
	periodic_start(other, &work.periodic, HOUR);
	occupy(&job, &started, &gate);
	test_wait(atomic_load(&work.runs) == 1);
	assert_string_equal(order, "w");
	sem_post(&gate);
	periodic_stop(&work.periodic);
	pool_free(other);
	sem_destroy(&gate);
	sem_destroy(&started);
}

static unsigned int count_threads(void)
{
	DIR *dir = opendir("/proc/self/task");
	unsigned int n = 0;

	assert_non_null(dir);
	while (readdir(dir))
		n++;
	(void)closedir(dir);
	return n;
}

/* Two works of two pools with one period need no thread more than one of them: one runs both, and one keeps time. */
static void works_that_are_due_together_share_a_thread(void **state)
{
	enum { ROUNDS = 200, IN_A_ROW = 10 };
	struct pool *other = pool_new("other", 1, 1);
	unsigned int before = count_threads(); /* has the first thread of the pools */
	unsigned int in_a_row = 0;
	struct work works[2];

	(void)state;
	assert_non_null(other);
	for (unsigned int i = 0; i < 2; i++)
		init(&works[i], 0, HOUR);
	/* At first, and when a thread was slow, there is one more, which ends after a second. */
	for (unsigned int round = 1; round <= ROUNDS && in_a_row < IN_A_ROW; round++) {
		uint64_t at_ns = clock_mono_ns() + CLOCK_SECOND / 4;

		for (unsigned int i = 0; i < 2; i++) {
			periodic_stop(&works[i].periodic);
			periodic_start(
				i ? other : pool, &works[i].periodic, at_ns - clock_mono_ns());
		}
		for (unsigned int i = 0; i < 2; i++)
			test_wait(atomic_load(&works[i].runs) == round);
		in_a_row = count_threads() <= before + 1 ? in_a_row + 1 : 0;
	}
	for (unsigned int i = 0; i < 2; i++)
		periodic_stop(&works[i].periodic);
	pool_free(other);
	assert_int_equal(in_a_row, IN_A_ROW);
}

/* The first lasts long: the second gets a thread of its own. There is no other timer. */
static void check_due_together(uint64_t wait_ns)
{
	struct pool *other = pool_new("other", 1, 1);
	uint64_t began = clock_mono_ns();
	struct work works[2];
	sem_t gate;

	assert_non_null(other);
	sem_init(&gate, 0, 0);
	for (unsigned int i = 0; i < 2; i++) {
		init(&works[i], 0, PERIODIC_IDLE);
		periodic_start(i ? other : pool, &works[i].periodic, wait_ns);
	}
	works[0].gate = &gate;
	test_wait(atomic_load(&works[1].runs) == 1);
	assert_int_equal(atomic_load(&works[0].runs), 0);
	assert_in_range(works[1].ran_ns - began, wait_ns, wait_ns + CLOCK_SECOND / 2);
	sem_post(&gate);
	for (unsigned int i = 0; i < 2; i++)
		periodic_stop(&works[i].periodic);
	pool_free(other);
	sem_destroy(&gate);
}

static void a_work_that_is_due_together_with_a_long_one_runs(void **state)
{
	(void)state;
	check_due_together(HOUR);
}

static void idle_threads(unsigned int n)
{
	struct pool *many = pool_new("many", n, 1);
	struct work works[4];
	sem_t started;
	sem_t gate;

	assert_in_range(n, 1, ARRAY_SIZE(works));
	assert_non_null(many);
	sem_init(&started, 0, 0);
	sem_init(&gate, 0, 0);
	for (unsigned int i = 0; i < n; i++) {
		init(&works[i], 0, PERIODIC_IDLE);
		works[i].started = &started;
		works[i].gate = &gate;
		periodic_start(many, &works[i].periodic, 0);
	}
	for (unsigned int i = 0; i < n; i++)
		while (sem_wait(&started) != 0)
			;
	for (unsigned int i = 0; i < n; i++)
		sem_post(&gate);
	for (unsigned int i = 0; i < n; i++)
		periodic_stop(&works[i].periodic);
	pool_free(many);
	sem_destroy(&gate);
	sem_destroy(&started);
}

/* With idle threads, which end a second later, none is started for the second work. */
static void a_work_that_is_due_together_with_a_long_one_gets_an_idle_thread(void **state)
{
	(void)state;
	idle_threads(4);
	check_due_together(CLOCK_SECOND / 4);
}

/* Works that last long do not fill a pool. */
static void background_works_leave_a_thread(void **state)
{
	enum { WORKS = 8 };
	struct pool *two = pool_new("two", 2, 1);
	struct work works[WORKS];
	struct job job = { .job.run = run_job };
	sem_t started;
	sem_t gate;

	(void)state;
	assert_non_null(two);
	sem_init(&started, 0, 0);
	sem_init(&gate, 0, 0);
	for (unsigned int i = 0; i < WORKS; i++) {
		init(&works[i], 0, PERIODIC_IDLE);
		works[i].periodic.background = true;
		works[i].started = &started;
		works[i].gate = &gate;
		periodic_start(two, &works[i].periodic, 0);
	}
	while (sem_wait(&started) != 0)
		;
	assert_int_equal(pool_submit(two, &job.job), 0);
	test_wait(atomic_load(&n_order) == 1);
	assert_int_equal(sem_trywait(&started), -1);
	for (unsigned int i = 0; i < WORKS; i++)
		sem_post(&gate);
	for (unsigned int i = 0; i < WORKS; i++)
		periodic_stop(&works[i].periodic);
	pool_free(two);
	sem_destroy(&gate);
	sem_destroy(&started);
}

#define POKERS 3u
#define STOPS  200u

static struct work busy[4];
static atomic_bool over;

static void *poke_all(void *arg)
{
	(void)arg;
	while (!atomic_load(&over))
		for (unsigned int i = 0; i < ARRAY_SIZE(busy); i++)
			periodic_poke(&busy[i].periodic);
	return NULL;
}

static void a_stopped_work_does_not_run_however_it_is_poked(void **state)
{
	struct pool *many = pool_new("many", 4, 1);
	pthread_t pokers[POKERS];

	(void)state;
	assert_non_null(many);
	atomic_store(&over, false);
	for (unsigned int i = 0; i < ARRAY_SIZE(busy); i++) {
		init(&busy[i], 0, i % 2 ? 0 : CLOCK_MS);
		busy[i].periodic.background = i > 1;
		periodic_start(many, &busy[i].periodic, PERIODIC_IDLE);
	}
	for (unsigned int i = 0; i < POKERS; i++)
		assert_int_equal(pthread_create(&pokers[i], NULL, poke_all, NULL), 0);
	for (unsigned int i = 0; i < STOPS; i++) {
		struct work *work = &busy[i % ARRAY_SIZE(busy)];
		unsigned int runs = atomic_load(&work->runs);

		test_wait(atomic_load(&work->runs) > runs);
		periodic_stop(&work->periodic);
		runs = atomic_load(&work->runs);
		for (unsigned int k = 0; k < 100; k++)
			assert_int_equal(atomic_load(&work->runs), runs);
		periodic_start(many, &work->periodic, i % 3 ? 0 : PERIODIC_IDLE);
	}
	atomic_store(&over, true);
	for (unsigned int i = 0; i < POKERS; i++)
		pthread_join(pokers[i], NULL);
	for (unsigned int i = 0; i < ARRAY_SIZE(busy); i++)
		periodic_stop(&busy[i].periodic);
	pool_free(many);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(works_run_in_the_order_of_their_times),
		TEST(a_later_start_may_be_due_first),
		TEST(a_work_runs_again_and_again),
		TEST(an_idle_work_runs_when_it_is_poked),
		TEST(a_poke_ends_the_wait),
		TEST(a_work_poked_while_it_runs_runs_once_more),
		TEST(stopping_a_work_that_waits_or_is_queued),
		TEST(stopping_waits_for_a_run),
		TEST(a_work_that_was_never_started_is_stopped),
		TEST(slices_let_other_jobs_go_first),
		TEST(works_have_places_of_their_own),
		TEST(a_work_does_not_wait_for_another_pool),
		TEST(works_that_are_due_together_share_a_thread),
		TEST(a_work_that_is_due_together_with_a_long_one_runs),
		TEST(a_work_that_is_due_together_with_a_long_one_gets_an_idle_thread),
		TEST(background_works_leave_a_thread),
		TEST(a_stopped_work_does_not_run_however_it_is_poked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
