/* Calls that may hang. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/timed_call.h"
#include "tests/clock/test_clock.h"

struct work {
	sem_t go; /* run() waits for it */
	sem_t released;
	int result;
	unsigned int runs;
	unsigned int releases;
};

static struct pool *pool;

static int run(void *arg)
{
	struct work *work = arg;

	ensure(sem_wait(&work->go) == 0);
	work->runs++;
	return work->result;
}

static void release(void *arg)
{
	struct work *work = arg;

	work->releases++;
	ensure(sem_post(&work->released) == 0);
}

static int call(struct work *work, uint64_t timeout_ns)
{
	const struct timed_call timed = {
		.pool = pool, .timeout_ns = timeout_ns, .run = run, .release = release
	};

	return timed_call(&timed, work);
}

static void work_init(struct work *work, int result)
{
	*work = (struct work){ .result = result };
	assert_int_equal(sem_init(&work->go, 0, 0), 0);
	assert_int_equal(sem_init(&work->released, 0, 0), 0);
}

static int setup(void **state)
{
	(void)state;
	pool = pool_new("test", 2, 2);
	return pool ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	pool_free(pool);
	return 0;
}

static void test_in_time(void **state)
{
	static const int results[] = { 0, 7, -ENODATA };
	struct work work;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(results); i++) {
		work_init(&work, results[i]);
		assert_int_equal(sem_post(&work.go), 0);
		assert_int_equal(call(&work, CLOCK_SECOND), results[i]);
		assert_int_equal(work.runs, 1);
		assert_int_equal(work.releases, 0); /* the caller has it again */
	}
	work_init(&work, -ETIMEDOUT); /* its own, which would be taken for the caller's */
	assert_int_equal(sem_post(&work.go), 0);
	assert_int_equal(call(&work, CLOCK_SECOND), -EIO);
	assert_int_equal(work.releases, 0);
}

static void *let_go_later(void *arg)
{
	struct work *work = arg;

	test_advance(CLOCK_SECOND);
	ensure(sem_post(&work->go) == 0);
	return NULL;
}

/* The end of a call wakes its caller, long before the time is over. */
static void test_wakes(void **state)
{
	uint64_t began = test_now();
	struct work work;
	pthread_t other;

	(void)state;
	work_init(&work, 5);
	assert_int_equal(pthread_create(&other, NULL, let_go_later, &work), 0);
	assert_int_equal(call(&work, 3600 * CLOCK_SECOND), 5);
	assert_in_range(test_now() - began, CLOCK_SECOND, 1800 * CLOCK_SECOND);
	assert_int_equal(pthread_join(other, NULL), 0);
}

/* The caller goes on at once when the time is over; the call has the argument until it returns, and others run. */
static void test_timed_out(void **state)
{
	struct work hangs;
	struct work other;

	(void)state;
	work_init(&hangs, 0);
	work_init(&other, 3);
	assert_int_equal(call(&hangs, CLOCK_SECOND), -ETIMEDOUT);
	assert_int_equal(sem_post(&other.go), 0);
	assert_int_equal(call(&other, CLOCK_SECOND), 3);
	assert_int_equal(hangs.runs, 0);
	assert_int_equal(hangs.releases, 0);
	assert_int_equal(sem_post(&hangs.go), 0);
	assert_int_equal(sem_wait(&hangs.released), 0);
	assert_int_equal(hangs.runs, 1);
	assert_int_equal(hangs.releases, 1);
}

/* A call that the pool does not take is the caller's, too. */
static void test_full_pool(void **state)
{
	struct work work[5];
	unsigned int taken = 0;
	int r;

	(void)state;
	do { /* two threads, and a queue of two */
		work_init(&work[taken], 0);
		r = call(&work[taken], CLOCK_SECOND);
		taken += r == -ETIMEDOUT;
	} while (r == -ETIMEDOUT && taken < ARRAY_SIZE(work));
	assert_int_equal(r, -EAGAIN);
	assert_in_range(taken, 2, 4);
	for (unsigned int i = 0; i < taken; i++)
		assert_int_equal(sem_post(&work[i].go), 0);
	for (unsigned int i = 0; i < taken; i++)
		assert_int_equal(sem_wait(&work[i].released), 0);
	assert_int_equal(work[taken].runs, 0);
	assert_int_equal(work[taken].releases, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_in_time, setup, teardown),
		cmocka_unit_test_setup_teardown(test_wakes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_timed_out, setup, teardown),
		cmocka_unit_test_setup_teardown(test_full_pool, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
