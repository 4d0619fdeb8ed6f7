/* Periodic and on-demand work. See periodic.h. */
#include "base/periodic.h"
#include "base/clock.h"

#include <pthread.h>

/* Of the states of all works; taken before the pools' lock. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER; /* a run of a work that stops */

static void start_locked(struct periodic_work *work, uint64_t after_ns)
{
	uint64_t now = clock_mono_ns();

	if (after_ns == PERIODIC_IDLE)
		return;
	work->pending = true;
	pool_timer_start(work->pool, &work->timer,
		after_ns < PERIODIC_IDLE - now ? now + after_ns : PERIODIC_IDLE);
}

/* Touches the work under the lock last: periodic_stop() then returns, and the owner frees it. */
static void run_work(struct pool_job *job)
{
	struct periodic_work *work = container_of(job, struct periodic_work, timer.job);
	uint64_t next_ns = PERIODIC_IDLE;

	pthread_mutex_lock(&lock);
	work->pending = false;
	work->running = true;
	pthread_mutex_unlock(&lock);
	if (!periodic_stopping(work))
		next_ns = work->run(work->arg);
	pthread_mutex_lock(&lock);
	work->running = false;
	if (periodic_stopping(work))
		pthread_cond_broadcast(&ended);
	else
		start_locked(work, work->poked ? 0 : next_ns);
	work->poked = false;
	pthread_mutex_unlock(&lock);
}

void periodic_start(struct pool *pool, struct periodic_work *work, uint64_t first_ns)
{
	pthread_mutex_lock(&lock);
	ensure(!work->pending && !work->running);
	work->pool = pool;
	work->timer =
		(struct pool_timer){ .job = { .run = run_work, .background = work->background } };
	work->poked = false;
	atomic_store(&work->stopping, false);
	start_locked(work, first_ns);
	pthread_mutex_unlock(&lock);
}

void periodic_poke(struct periodic_work *work)
{
	pthread_mutex_lock(&lock);
	work->poked = work->running;
	if (work->pending)
		pool_timer_hasten(&work->timer); /* no effect if it is queued or about to run */
	else if (work->pool && !work->running && !periodic_stopping(work))
		start_locked(work, 0);
	pthread_mutex_unlock(&lock);
}

bool periodic_stopping(const struct periodic_work *work)
{
	return atomic_load(&work->stopping);
}

void periodic_stop(struct periodic_work *work)
{
	pthread_mutex_lock(&lock);
	atomic_store(&work->stopping, true);
	if (work->pending && pool_timer_cancel(&work->timer))
		work->pending = false;
	while (work->pending || work->running)
		pthread_cond_wait(&ended, &lock);
	pthread_mutex_unlock(&lock);
}
