/*
 * A bounded pool of threads for blocking work (file I/O, RocksDB, hashing of much). One pool per
 * device class; libuv's shared threads are not used.
 *
 * Background jobs run while no other job waits, each class in the order of submission, and never on all threads of a
 * pool that has several: a reader's job waits for no background job.
 *
 * The caller embeds `struct pool_job`, which is 0 but for what it sets; submitting never allocates. pool_free() runs every job
 * already accepted, then joins.
 */
#pragma once

#include <stdbool.h>
#include "base/list.h"

struct pool;

struct pool_job {
	struct list link;                  /* the pool's while queued */
	void (*run)(struct pool_job *job); /* on a pool thread; may free the job */
	bool background; /* set before it is submitted: no reader waits for it, and it runs after the others */
	bool queued; /* the pool's */
};

/* threads 1..256; name at most 15 bytes. NULL without memory or threads. */
struct pool *pool_new(const char *name, unsigned int threads, unsigned int max_queue);
void pool_free(struct pool *pool);

/* 0; -EAGAIN when the queue is full; -ECANCELED while closing. The job is the pool's until run() is
 * called. */
int pool_submit(struct pool *pool, struct pool_job *job) __must_check;

/* A reader waits for the job, which was submitted and has not been freed: if it is queued still, it is a background job
 * no longer. */
void pool_raise(struct pool *pool, struct pool_job *job);
