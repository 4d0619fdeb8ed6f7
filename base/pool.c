/*
 * Pools, and the threads that they share. See pool.h.
 *
 * One lock covers all pools of the process; it is held for the moves between lists and to start a thread. Idle threads
 * are a stack, so few of many are used when few are needed, and those near the bottom have been idle longest.
 *
 * While a thread is idle, the one at the bottom, and no other one, keeps time: it waits until deadline_locked(). It leaves
 * the bottom only as the last idle thread, and whatever makes the deadline earlier signals it: see keep_deadline_locked().
 * When no thread is idle and there are timers, a thread is started, or each one that ends a job queues what is due.
 *
 * Jobs of timers that are due together get one thread, and more after PATIENT_NS. Most take less than a millisecond, and
 * works with one period are due together for ever once one thread woke late for both.
 */
#include "base/pool.h"
#include "base/bounds.h"
#include "base/clock.h"
#include "base/limits.h"

#include <errno.h>
#include <linux/ioprio.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define IDLE_NS    CLOCK_SECOND    /* threads that were not needed for so long end */
#define PATIENT_NS (20 * CLOCK_MS) /* jobs that are due together wait so long for one thread */
#define NEVER      UINT64_MAX

struct pool {
	struct list link; /* in threads.ready while a job may begin */
	struct list queue;
	struct list later; /* background jobs */
	unsigned int n_queue;
	unsigned int n_later;
	unsigned int submitted; /* of the queued ones, by pool_submit() */
	unsigned int max_submitted;
	unsigned int startable; /* queued jobs that may begin */
	unsigned int running;
	unsigned int running_later;
	unsigned int n_threads;
	bool closing;
	pthread_cond_t ended; /* while closing: a job has ended */
	int ioprio;
	char name[16];
};

struct thread {
	struct list link; /* in threads.idle */
	pthread_cond_t call;
	bool called;
	bool ends;
	uint64_t idle_ns; /* in threads.idle: since when */
	uint64_t wake_ns; /* at the bottom of it: waits until then; 0: does not */
	int ioprio;
	char name[16];
};

static struct {
	pthread_mutex_t lock; /* a leaf */
	struct list ready;    /* pools in turn */
	struct list idle;     /* the thread that was busy last comes first */
	struct list timers;   /* by time */
	unsigned int pools;
	unsigned int started;
	unsigned int running; /* jobs, each on a thread */
	unsigned int n_idle;
	unsigned int wanted; /* sum of `startable` */
	uint64_t patient_ns; /* then all of these get threads; 0: they have them */
	unsigned int ending; /* not counted in `started` */
	pthread_cond_t gone; /* none is left */
	bool has_ended;
	pthread_t ended; /* the last one that did, to be joined */
	pid_t pid;       /* whose threads these are */
} threads = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.ready = LIST_INIT(threads.ready),
	.idle = LIST_INIT(threads.idle),
	.timers = LIST_INIT(threads.timers),
	.gone = PTHREAD_COND_INITIALIZER,
};

/* ---- threads --------------------------------------------------------------------------------- */

static struct thread *pop_idle_locked(void)
{
	struct list *node = list_pop_front(&threads.idle);

	ensure(node);
	threads.n_idle--;
	return list_entry(node, struct thread, link);
}

static void end_idle_locked(struct thread *thread)
{
	list_remove(&thread->link);
	threads.n_idle--;
	threads.started--;
	threads.ending++;
	thread->ends = true;
	pthread_cond_signal(&thread->call);
}

static void *pool_main(void *arg);

static bool start_thread_locked(void)
{
	pthread_t thread;
	sigset_t all;
	sigset_t old;
	int r;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old); /* signals belong to the main loop */
	r = pthread_create(&thread, NULL, pool_main, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	threads.started += r == 0;
	return r == 0;
}

/* Threads that are on their way to a job, or to the idle ones. */
static unsigned int coming_locked(void)
{
	return threads.started - threads.running - threads.n_idle;
}

static bool needs_keeper_locked(void)
{
	return threads.patient_ns || !list_empty(&threads.timers);
}

/* So many jobs that may begin get a thread, and an idle one keeps time. */
static void call_some_locked(unsigned int wanted)
{
	while (wanted > coming_locked() && threads.n_idle > 0) {
		struct thread *thread = pop_idle_locked();

		thread->called = true;
		pthread_cond_signal(&thread->call);
	}
	if (threads.n_idle > 0)
		return;
	while (wanted + needs_keeper_locked() > coming_locked())
		if (!start_thread_locked())
			return;
}

/* Each job that may begin gets a thread. */
static void call_threads_locked(void)
{
	threads.patient_ns = 0;
	call_some_locked(threads.wanted);
}

/* As call_threads_locked(), but what waits for one thread goes on to do so. */
static void call_patiently_locked(void)
{
	if (threads.patient_ns && threads.wanted > 0)
		call_some_locked(0);
	else
		call_threads_locked();
}

static struct pool_timer *first_timer_locked(void)
{
	return list_entry(threads.timers.next, struct pool_timer, job.link);
}

static struct thread *bottom_locked(void)
{
	return list_entry(threads.idle.prev, struct thread, link);
}

/* The thread above the bottom, which has been idle longest of those that may end; NULL: there is none. */
static struct thread *next_to_end_locked(void)
{
	return threads.n_idle > 1 ? list_entry(threads.idle.prev->prev, struct thread, link) : NULL;
}

/* When the thread at the bottom has something to do; NEVER. */
static uint64_t deadline_locked(void)
{
	const struct thread *next = next_to_end_locked();
	uint64_t at_ns = next ? next->idle_ns + IDLE_NS : NEVER;

	if (!list_empty(&threads.timers))
		at_ns = min(at_ns, first_timer_locked()->at_ns);
	return threads.patient_ns ? min(at_ns, threads.patient_ns) : at_ns;
}

/* To be called after a timer, or an idle thread, was added: the deadline may be earlier. */
static void keep_deadline_locked(void)
{
	if (threads.n_idle > 0 && bottom_locked()->wake_ns > deadline_locked())
		pthread_cond_signal(&bottom_locked()->call);
}

/* ---- jobs ------------------------------------------------------------------------------------ */

static unsigned int startable(const struct pool *pool)
{
	unsigned int most_later = max(1u, pool->n_threads - 1);
	unsigned int later = min(pool->n_later, most_later - pool->running_later);

	return min(pool->n_queue + later, pool->n_threads - pool->running);
}

static void changed_locked(struct pool *pool)
{
	threads.wanted -= pool->startable;
	pool->startable = startable(pool);
	threads.wanted += pool->startable;
	if (pool->startable == 0)
		list_remove(&pool->link);
	else if (list_empty(&pool->link))
		list_push_back(&threads.ready, &pool->link);
}

static void push_locked(struct pool *pool, struct pool_job *job)
{
	list_push_back(job->background ? &pool->later : &pool->queue, &job->link);
	*(job->background ? &pool->n_later : &pool->n_queue) += 1;
	pool->submitted += !job->of_timer;
	job->queued = true;
	bound_add(BOUND_JOBS, 1);
	changed_locked(pool);
}

static void remove_locked(struct pool *pool, struct pool_job *job)
{
	list_remove(&job->link);
	*(job->background ? &pool->n_later : &pool->n_queue) -= 1;
	pool->submitted -= !job->of_timer;
	job->queued = false;
	bound_sub(BOUND_JOBS, 1);
	changed_locked(pool);
}

/* Queues the jobs of the timers whose time has come, and calls threads for those that waited long enough. */
static void queue_due_locked(uint64_t now)
{
	bool any = false;

	while (!list_empty(&threads.timers) && first_timer_locked()->at_ns <= now) {
		struct pool_timer *timer = first_timer_locked();

		list_remove(&timer->job.link);
		timer->waits = false;
		push_locked(timer->pool, &timer->job);
		any = true;
	}
	if (any && threads.patient_ns == 0 && threads.wanted > max(1u, coming_locked()))
		threads.patient_ns = now + PATIENT_NS;
	if (threads.patient_ns && now >= threads.patient_ns)
		call_threads_locked();
	else if (any)
		call_some_locked(1);
}

static void become(struct thread *self, const struct pool *pool)
{
	if (strcmp(self->name, pool->name) != 0) {
		memcpy(self->name, pool->name, sizeof(self->name));
		pthread_setname_np(pthread_self(), self->name);
	}
	if (pool->ioprio >= 0 && self->ioprio != pool->ioprio) {
		(void)syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, pool->ioprio);
		self->ioprio = pool->ioprio;
	}
}

/* False: no job may begin. Drops the lock while the job runs; run() may free the job. */
static bool run_job_locked(struct thread *self)
{
	struct list *node;
	struct pool *pool;
	struct pool_job *job;
	bool later;

	if (list_empty(&threads.ready))
		return false;
	pool = list_entry(threads.ready.next, struct pool, link);
	node = pool->n_queue > 0 ? pool->queue.next : pool->later.next;
	job = list_entry(node, struct pool_job, link);
	later = job->background;
	pool->running++;
	pool->running_later += later;
	threads.running++;
	list_remove(&pool->link); /* the other pools come first */
	remove_locked(pool, job);
	call_patiently_locked(); /* perhaps none could be started before, or this one was the last idle one */
	pthread_mutex_unlock(&threads.lock);
	become(self, pool);
	job->run(job);
	pthread_mutex_lock(&threads.lock);
	threads.running--;
	pool->running--;
	pool->running_later -= later;
	changed_locked(pool);
	if (pool->running == 0 && pool->startable > 0) { /* as pool_submit() promised */
		list_remove(&pool->link);
		list_push_front(&threads.ready, &pool->link);
	}
	if (pool->closing)
		pthread_cond_signal(&pool->ended);
	return true;
}

/* ---- idle threads ---------------------------------------------------------------------------- */

/* Ends those that were not needed for IDLE_NS, but for the one at the bottom. */
static void end_unneeded_locked(uint64_t now)
{
	struct thread *next;

	while ((next = next_to_end_locked()) != NULL && now >= next->idle_ns + IDLE_NS)
		end_idle_locked(next);
}

/* One wait of the thread at the bottom. */
static void keep_time_locked(struct thread *self)
{
	uint64_t now = clock_mono_ns();

	queue_due_locked(now);
	if (self->called)
		return;
	end_unneeded_locked(now);
	self->wake_ns = deadline_locked();
	if (self->wake_ns == NEVER) {
		pthread_cond_wait(&self->call, &threads.lock);
	} else {
		struct timespec at = { .tv_sec = (time_t)(self->wake_ns / CLOCK_SECOND),
			.tv_nsec = (long)(self->wake_ns % CLOCK_SECOND) };

		(void)pthread_cond_timedwait(&self->call, &threads.lock, &at); /* time or call */
	}
	self->wake_ns = 0;
}

/* False: the thread ends. */
static bool wait_locked(struct thread *self)
{
	if (threads.pools == 0) {
		threads.started--;
		threads.ending++;
		return false;
	}
	self->called = false;
	self->idle_ns = clock_mono_ns();
	list_push_front(&threads.idle, &self->link);
	threads.n_idle++;
	keep_deadline_locked();
	while (!self->called && !self->ends)
		if (self == bottom_locked())
			keep_time_locked(self);
		else
			pthread_cond_wait(&self->call, &threads.lock);
	return !self->ends;
}

/* Each thread that ends joins the one before, so at most one is left to be joined. */
static void leave_locked(void)
{
	pthread_t before = threads.ended;
	bool joins = threads.has_ended;

	threads.ended = pthread_self();
	threads.has_ended = true;
	threads.ending--;
	if (threads.started + threads.ending == 0)
		pthread_cond_broadcast(&threads.gone);
	pthread_mutex_unlock(&threads.lock);
	if (joins)
		pthread_join(before, NULL);
}

static void *pool_main(void *arg)
{
	struct thread self = { .ioprio = (int)syscall(SYS_ioprio_get, IOPRIO_WHO_PROCESS, 0) };
	pthread_condattr_t attr;

	(void)arg;
	list_init(&self.link);
	pthread_condattr_init(&attr);
	(void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC); /* cannot fail */
	pthread_cond_init(&self.call, &attr);
	pthread_condattr_destroy(&attr);
	pthread_mutex_lock(&threads.lock);
	do {
		/* No thread keeps time. */
		if (threads.n_idle == 0 && needs_keeper_locked())
			queue_due_locked(clock_mono_ns());
	} while (run_job_locked(&self) || wait_locked(&self));
	pthread_cond_destroy(&self.call);
	leave_locked();
	return NULL;
}

/* ---- pools ----------------------------------------------------------------------------------- */

struct pool *pool_new(const char *name, unsigned int n_threads, unsigned int max_queue)
{
	struct pool *pool;
	bool runs;

	ensure(n_threads >= 1 && n_threads <= 256);
	if (!bound_take(BOUND_THREADS, n_threads, LIMIT_THREADS))
		return NULL;
	pool = calloc(1, sizeof(*pool));
	if (!pool) {
		bound_sub(BOUND_THREADS, n_threads);
		return NULL;
	}
	pool->n_threads = n_threads;
	bound_raise_max(BOUND_JOBS, max_queue);
	pthread_cond_init(&pool->ended, NULL);
	list_init(&pool->link);
	list_init(&pool->queue);
	list_init(&pool->later);
	pool->max_submitted = max_queue;
	pool->ioprio = (int)syscall(SYS_ioprio_get, IOPRIO_WHO_PROCESS, 0);
	(void)snprintf(pool->name, sizeof(pool->name), "%s", name); /* cut to the kernel's 15 */
	pthread_mutex_lock(&threads.lock);
	ensure(threads.pools == 0 || threads.pid == getpid()); /* no thread survives fork() */
	threads.pid = getpid();
	threads.pools++;
	pthread_cond_broadcast(
		&threads.gone); /* pool_free() of the one before waits no longer: these threads stay */
	runs = threads.started > 0 || start_thread_locked();
	pthread_mutex_unlock(&threads.lock);
	if (runs)
		return pool;
	pool_free(pool);
	return NULL;
}

/* The last pool is gone. */
static void end_threads_locked(void)
{
	pthread_t last;

	while (threads.n_idle > 0)
		end_idle_locked(bottom_locked());
	while (threads.pools == 0 && threads.started + threads.ending > 0)
		pthread_cond_wait(&threads.gone, &threads.lock);
	if (threads.pools > 0 || !threads.has_ended)
		return; /* a pool was made meanwhile: it will end them */
	threads.has_ended = false;
	last = threads.ended;
	pthread_mutex_unlock(&threads.lock);
	pthread_join(last, NULL);
	pthread_mutex_lock(&threads.lock);
}

void pool_free(struct pool *pool)
{
	if (!pool)
		return;
	pthread_mutex_lock(&threads.lock);
	pool->closing = true;
	while (pool->running + pool->n_queue + pool->n_later > 0)
		pthread_cond_wait(&pool->ended, &threads.lock);
	list_for_each (node, &threads.timers)
		ensure(list_entry(node, struct pool_timer, job.link)->pool != pool);
	if (--threads.pools == 0)
		end_threads_locked();
	pthread_mutex_unlock(&threads.lock);
	pthread_cond_destroy(&pool->ended);
	bound_sub(BOUND_THREADS, pool->n_threads);
	bound_raise_max(BOUND_JOBS, -(uint64_t)pool->max_submitted);
	free(pool);
}

void pool_set_idle_io(struct pool *pool)
{
	pool->ioprio = IOPRIO_PRIO_VALUE(IOPRIO_CLASS_IDLE, 0);
}

int pool_submit(struct pool *pool, struct pool_job *job)
{
	int r = 0;

	pthread_mutex_lock(&threads.lock);
	if (pool->closing) {
		r = -ECANCELED;
	} else if (pool->submitted >= pool->max_submitted) {
		r = -EAGAIN;
	} else {
		push_locked(pool, job);
		call_threads_locked();
		/*
		 * None could be started. Of a pool whose jobs are queued a thread always runs a job, and goes on with
		 * these. So threads that wait for this job are not all that there are.
		 */
		if (pool->running == 0 && threads.wanted > coming_locked()) {
			remove_locked(pool, job);
			r = -EAGAIN;
		}
	}
	pthread_mutex_unlock(&threads.lock);
	return r;
}

void pool_raise(struct pool *pool, struct pool_job *job)
{
	pthread_mutex_lock(&threads.lock);
	if (job->queued && job->background) {
		remove_locked(pool, job);
		job->background = false;
		push_locked(pool, job);
		call_threads_locked();
	}
	pthread_mutex_unlock(&threads.lock);
}

/* ---- timers ---------------------------------------------------------------------------------- */

void pool_timer_start(struct pool *pool, struct pool_timer *timer, uint64_t at_ns)
{
	struct list *after;

	pthread_mutex_lock(&threads.lock);
	ensure(!pool->closing && !timer->waits && !timer->job.queued);
	timer->pool = pool;
	timer->at_ns = at_ns;
	timer->job.of_timer = true;
	if (at_ns <= clock_mono_ns()) {
		push_locked(pool, &timer->job);
		call_threads_locked();
	} else {
		after = threads.timers.prev;
		while (after != &threads.timers &&
			list_entry(after, struct pool_timer, job.link)->at_ns > at_ns)
			after = after->prev;
		list_push_front(after, &timer->job.link);
		timer->waits = true;
		keep_deadline_locked();
		call_patiently_locked();
	}
	pthread_mutex_unlock(&threads.lock);
}

void pool_timer_hasten(struct pool_timer *timer)
{
	pthread_mutex_lock(&threads.lock);
	if (timer->waits) {
		list_remove(&timer->job.link);
		timer->waits = false;
		push_locked(timer->pool, &timer->job);
		call_threads_locked();
	}
	pthread_mutex_unlock(&threads.lock);
}

bool pool_timer_cancel(struct pool_timer *timer)
{
	bool cancelled;

	pthread_mutex_lock(&threads.lock);
	cancelled = timer->waits || timer->job.queued;
	if (timer->waits)
		list_remove(&timer->job.link);
	else if (timer->job.queued)
		remove_locked(timer->pool, &timer->job);
	timer->waits = false;
	pthread_mutex_unlock(&threads.lock);
	return cancelled;
}
