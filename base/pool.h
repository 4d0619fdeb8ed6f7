/*
 * Bounded pools for blocking work (file I/O, RocksDB, hashing of much). One pool per device class; libuv's shared
 * threads are not used.
 *
 * All pools of a process share their threads: a thread runs a job of any pool, and each pool bounds how many of its
 * jobs run at the same time. A thread is started when a job may run and no thread is idle, and ends after it was not
 * needed for 1 s; one remains. Of the idle threads the one that was busy last gets the next job. When no thread can be
 * started, a job waits for another thread; each job that is submitted or begins tries again.
 *
 * Background jobs run only when no other job of their pool is queued, each class in the order of submission, and never
 * on all threads of a pool with several, so a reader's job never waits for a background job.
 *
 * While it runs a job, a thread has the name of the pool, and the I/O priority of the thread that made the pool, or the
 * idle class after pool_set_idle_io().
 *
 * The caller embeds `struct pool_job`, zeroed except for `run` and `background`; submitting never allocates.
 * pool_free() runs every job already accepted. The threads end with the last pool. A process that was forked and did
 * not call exec() has pools of its own only if its parent had none at that time.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/list.h"

struct pool;

struct pool_job {
	struct list link;                  /* the pool's while queued */
	void (*run)(struct pool_job *job); /* on a pool thread; may free the job */
	bool background;                   /* set before submission: runs after all other jobs */
	bool queued;                       /* owned by the pool */
	bool of_timer;                     /* likewise: embedded in a struct pool_timer */
};

/* At most `threads` jobs at the same time, 1..256; name at most 15 bytes. NULL without memory or threads. */
struct pool *pool_new(const char *name, unsigned int threads, unsigned int max_queue);
/* Its timers must have been cancelled. */
void pool_free(struct pool *pool);

/* Its jobs read and write when no other process does. Before the first job. */
void pool_set_idle_io(struct pool *pool);

/* 0; -EAGAIN when the queue is full or there is no thread; -ECANCELED while closing. The job is the pool's until run()
 * is called. */
int pool_submit(struct pool *pool, struct pool_job *job) __must_check;

/* Turns a queued background job into an ordinary one, for a reader that waits for it. No effect once it runs. The job
 * must have been submitted and not freed. */
void pool_raise(struct pool *pool, struct pool_job *job);

/*
 * A job that is submitted at a given time. Timers of all pools are kept by one idle thread. Jobs whose times come together are
 * run by one thread, in turn; when one lasts longer than 20 ms the others get threads. See base/periodic.h.
 */
struct pool_timer {
	struct pool_job job;
	struct pool *pool;
	uint64_t at_ns;
	bool waits; /* for at_ns; owned by the pool, as all that is above but run() and background */
};

/* Queues the job at that time of clock_mono_ns(), without regard to max_queue. Not while it waits or is queued. */
void pool_timer_start(struct pool *pool, struct pool_timer *timer, uint64_t at_ns);
/* Queues the job now if it waits for its time. */
void pool_timer_hasten(struct pool_timer *timer);
/* False: the job runs, or is about to, or was not started. */
bool pool_timer_cancel(struct pool_timer *timer) __must_check;
