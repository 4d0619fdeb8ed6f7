/* Calls that may hang. See timed_call.h. */
#include "base/timed_call.h"
#include "base/clock.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

/* Freed by the last of the two: the caller that left, or the call that ended. */
struct running {
	struct pool_job job;
	struct timed_call call;
	void *arg;
	pthread_mutex_t lock;
	pthread_cond_t ended;
	bool done; /* under the lock */
	bool left;
	int result;
};

static void running_free(struct running *running)
{
	pthread_cond_destroy(&running->ended);
	pthread_mutex_destroy(&running->lock);
	free(running);
}

static void run(struct pool_job *job)
{
	struct running *running = container_of(job, struct running, job);
	int r = running->call.run(running->arg);
	bool left;

	pthread_mutex_lock(&running->lock);
	running->done = true;
	running->result = r == -ETIMEDOUT ? -EIO : r;
	left = running->left;
	pthread_cond_signal(&running->ended);
	pthread_mutex_unlock(&running->lock);
	if (left) {
		running->call.release(running->arg);
		running_free(running);
	}
}

static struct running *running_new(const struct timed_call *call, void *arg)
{
	struct running *running = calloc(1, sizeof(*running));
	pthread_condattr_t attr;

	if (!running)
		return NULL;
	running->job.run = run;
	running->call = *call;
	running->arg = arg;
	pthread_mutex_init(&running->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&running->ended, &attr);
	pthread_condattr_destroy(&attr);
	return running;
}

/* True if the call ended in time; otherwise run() frees it when it ends. */
static bool wait_or_leave(struct running *running)
{
	uint64_t until = clock_mono_ns() + running->call.timeout_ns;
	struct timespec deadline = { .tv_sec = (time_t)(until / CLOCK_SECOND),
		.tv_nsec = (long)(until % CLOCK_SECOND) };
	bool done;

	pthread_mutex_lock(&running->lock);
	while (!running->done && clock_mono_ns() < until)
		(void)pthread_cond_timedwait(&running->ended, &running->lock, &deadline);
	done = running->done;
	running->left = !done;
	pthread_mutex_unlock(&running->lock);
	return done;
}

int timed_call(const struct timed_call *call, void *arg)
{
	struct running *running = running_new(call, arg);
	int r;

	if (!running)
		return -ENOMEM;
	r = pool_submit(call->pool, &running->job);
	if (r == 0 && !wait_or_leave(running))
		return -ETIMEDOUT;
	if (r == 0)
		r = running->result;
	running_free(running);
	return r;
}
