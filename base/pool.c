/* A bounded thread pool. See pool.h. */
#include "base/pool.h"
#include "base/bounds.h"
#include "base/limits.h"

#include <errno.h>
#include <linux/ioprio.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

struct pool {
	pthread_mutex_t lock;
	pthread_cond_t work;
	struct list queue;
	struct list later; /* background jobs */
	unsigned int queued;
	unsigned int running;
	unsigned int running_later;
	unsigned int max_queue;
	bool closing;
	int ioprio; /* of the thread that made the pool */
	char name[16];
	unsigned int n_threads;
	unsigned int started; /* only grows */
	pthread_t threads[];
};

/* Background jobs run when the other queue is empty, and never on the last free thread. */
static struct pool_job *next_job_locked(struct pool *pool)
{
	struct list *node = list_pop_front(&pool->queue);

	if (!node && pool->running_later < max(1u, pool->n_threads - 1))
		node = list_pop_front(&pool->later);
	return node ? list_entry(node, struct pool_job, link) : NULL;
}

static void *pool_main(void *arg);

static int start_thread_locked(struct pool *pool)
{
	sigset_t all;
	sigset_t old;
	int r;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old); /* signals belong to the main loop */
	r = pthread_create(&pool->threads[pool->started], NULL, pool_main, pool);
	if (r == 0)
		pool->started++;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return -r;
}

/* A thread that does not run a job takes one of the queue, also one that has only been started. */
static void start_for_queue_locked(struct pool *pool)
{
	unsigned int idle = pool->started - pool->running;

	if (pool->queued > idle && pool->started < pool->n_threads && !pool->closing)
		(void)start_thread_locked(pool); /* without it the job waits for another thread */
}

/* Drops the lock while the job runs; run() may free the job. */
static void run_job_locked(struct pool *pool, struct pool_job *job)
{
	bool later = job->background;

	job->queued = false;
	pool->queued--;
	pool->running++;
	pool->running_later += later;
	bound_sub(BOUND_JOBS, 1);
	pthread_mutex_unlock(&pool->lock);
	job->run(job);
	pthread_mutex_lock(&pool->lock);
	pool->running--;
	pool->running_later -= later;
	start_for_queue_locked(pool); /* perhaps none could be started when a job was submitted */
	if (later && !list_empty(&pool->later))
		pthread_cond_signal(&pool->work);
}

static void *pool_main(void *arg)
{
	struct pool *pool = arg;

	pthread_setname_np(pthread_self(), pool->name);
	/* A thread inherits it from the one that starts it: one that submits a job, perhaps in the idle class. */
	if (pool->ioprio >= 0)
		(void)syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, pool->ioprio);
	pthread_mutex_lock(&pool->lock);
	for (;;) {
		struct pool_job *job = next_job_locked(pool);

		if (job) {
			run_job_locked(pool, job);
			continue;
		}
		if (pool->closing)
			break;
		pthread_cond_wait(&pool->work, &pool->lock);
	}
	pthread_mutex_unlock(&pool->lock);
	return NULL;
}

struct pool *pool_new(const char *name, unsigned int threads, unsigned int max_queue)
{
	struct pool *pool;
	int r;

	ensure(threads >= 1 && threads <= 256);
	if (!bound_take(BOUND_THREADS, threads, LIMIT_THREADS))
		return NULL;
	pool = calloc(1, sizeof(*pool) + threads * sizeof(pool->threads[0]));
	if (!pool) {
		bound_sub(BOUND_THREADS, threads);
		return NULL;
	}
	pool->n_threads = threads;
	bound_raise_max(BOUND_JOBS, max_queue);
	pthread_mutex_init(&pool->lock, NULL);
	pthread_cond_init(&pool->work, NULL);
	list_init(&pool->queue);
	list_init(&pool->later);
	pool->max_queue = max_queue;
	pool->ioprio = (int)syscall(SYS_ioprio_get, IOPRIO_WHO_PROCESS, 0);
	(void)snprintf(pool->name, sizeof(pool->name), "%s", name); /* cut to the kernel's 15 */
	pthread_mutex_lock(&pool->lock);
	r = start_thread_locked(pool);
	pthread_mutex_unlock(&pool->lock);
	if (r < 0) {
		pool_free(pool);
		return NULL;
	}
	return pool;
}

void pool_free(struct pool *pool)
{
	if (!pool)
		return;
	pthread_mutex_lock(&pool->lock);
	pool->closing = true;
	pthread_cond_broadcast(&pool->work);
	pthread_mutex_unlock(&pool->lock);
	for (unsigned int i = 0; i < pool->started; i++)
		pthread_join(pool->threads[i], NULL);
	pthread_cond_destroy(&pool->work);
	pthread_mutex_destroy(&pool->lock);
	bound_sub(BOUND_THREADS, pool->n_threads);
	bound_raise_max(BOUND_JOBS, -(uint64_t)pool->max_queue);
	free(pool);
}

int pool_submit(struct pool *pool, struct pool_job *job)
{
	int r = 0;

	pthread_mutex_lock(&pool->lock);
	if (pool->closing) {
		r = -ECANCELED;
	} else if (pool->queued >= pool->max_queue) {
		r = -EAGAIN;
	} else {
		list_push_back(job->background ? &pool->later : &pool->queue, &job->link);
		job->queued = true;
		pool->queued++;
		bound_add(BOUND_JOBS, 1);
		start_for_queue_locked(pool);
		pthread_cond_signal(&pool->work);
	}
	pthread_mutex_unlock(&pool->lock);
	return r;
}

void pool_raise(struct pool *pool, struct pool_job *job)
{
	pthread_mutex_lock(&pool->lock);
	if (job->queued && job->background) {
		list_remove(&job->link);
		job->background = false;
		list_push_back(&pool->queue, &job->link);
		start_for_queue_locked(pool);
		pthread_cond_signal(&pool->work);
	}
	pthread_mutex_unlock(&pool->lock);
}
