/* The admin server when no thread can be started. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "admin/admin.h"
#include "base/clock.h"
#include "base/pool.h"

#define TIMEOUT (60 * CLOCK_SECOND)

/* While it is set no thread can be started. */
static atomic_bool no_threads;

int pthread_create(
	pthread_t *ret_thread, const pthread_attr_t *attr, void *(*main)(void *), void *arg)
{
	__typeof__(pthread_create) *next = (__typeof__(next))dlsym(RTLD_NEXT, "pthread_create");

	return atomic_load(&no_threads) ? EAGAIN : next(ret_thread, attr, main, arg);
}

struct holder {
	struct pool_job job;
	sem_t started;
	sem_t gate;
};

static void hold_thread(struct pool_job *job)
{
	struct holder *holder = container_of(job, struct holder, job);

	sem_post(&holder->started);
	while (sem_wait(&holder->gate) != 0)
		;
}

static int count(void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	unsigned int *calls = arg;

	(void)request;
	(void)ret_json;
	(void)e;
	(*calls)++;
	return 0;
}

static const struct admin_route routes[] = {
	{ "GET", "/v1/count", count, NULL },
	{ 0 },
};

/* The only thread of the pools is busy: the library's handles requests, each once. */
static void the_library_handles_what_no_thread_takes(void **state)
{
	struct holder holder = { .job.run = hold_thread };
	struct pool *pool = pool_new("holder", 1, 1);
	char dir[] = "/tmp/granary-test-XXXXXX";
	struct admin_server *server = NULL;
	struct err e = ERR_INIT;
	unsigned int calls = 0;
	char path[64];

	(void)state;
	assert_non_null(pool);
	assert_non_null(mkdtemp(dir));
	(void)snprintf(path, sizeof(path), "%s/admin", dir);
	assert_int_equal(admin_server_new(path, routes, &calls, &server, &e), 0);
	sem_init(&holder.started, 0, 0);
	sem_init(&holder.gate, 0, 0);
	atomic_store(&no_threads, true);
	assert_int_equal(pool_submit(pool, &holder.job), 0);
	while (sem_wait(&holder.started) != 0)
		;
	for (unsigned int i = 1; i <= 3; i++) {
		assert_int_equal(admin_call(path, NULL, "/v1/count", NULL, TIMEOUT, NULL, &e), 0);
		assert_int_equal(calls, i);
	}
	atomic_store(&no_threads, false);
	sem_post(&holder.gate);
	admin_server_free(server);
	pool_free(pool);
	assert_int_equal(rmdir(dir), 0);
	sem_destroy(&holder.gate);
	sem_destroy(&holder.started);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_library_handles_what_no_thread_takes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
