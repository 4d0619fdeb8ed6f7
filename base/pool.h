/*
 * A bounded pool of threads for blocking work (file I/O, RocksDB, hashing of much). One pool per
 * device class; libuv's shared threads are not used.
 *
 * Background jobs run only when no other job is queued, each class in the order of submission, and never on all threads
 * of a pool with several, so a reader's job never waits for a background job.
 *
 * The first thread is started with the pool, a further one when a job is submitted and no thread is idle. Threads do not end before the
 * pool. When a further one cannot be started, its job waits for another thread, and
 * the next job that is submitted or ends tries again. All have the I/O priority of the thread that made the pool.
 *
 * The caller embeds `struct pool_job`, zeroed except for `run` and `background`; submitting never allocates. pool_free() runs every job
 * already accepted, then joins.
 */
#pragma once

#include <stdbool.h>
#include "base/list.h"

struct pool;

struct pool_job {
	struct list link;                  /* the pool's while queued */
	void (*run)(struct pool_job *job); /* on a pool thread; may free the job */
	bool background;                   /* set before submission: runs after all other jobs */
	bool queued;                       /* owned by the pool */
};

/* At most `threads` threads, 1..256; name at most 15 bytes. NULL without memory or threads. */
struct pool *pool_new(const char *name, unsigned int threads, unsigned int max_queue);
void pool_free(struct pool *pool);

/* 0; -EAGAIN when the queue is full; -ECANCELED while closing. The job is the pool's until run() is
 * called. */
int pool_submit(struct pool *pool, struct pool_job *job) __must_check;

/* Turns a queued background job into an ordinary one, for a reader that waits for it. No effect once it runs. The job
 * must have been submitted and not freed. */
void pool_raise(struct pool *pool, struct pool_job *job);
