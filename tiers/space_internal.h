/*
 * What is done for the room of a set behind its callers' back, once a second and when poked: quotas
 * that shrank, watermarks, chunks between fast and slow tiers, into extents and out of them. Each
 * round does a bounded piece of work.
 *
 * Threads: one of its own, from space_start() to space_stop().
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"

struct tier_set;

struct space {
	pthread_mutex_t lock; /* a leaf */
	pthread_cond_t changed;
	pthread_t thread;
	bool running;
	bool stopping;
	bool poked;
};

void space_init(struct space *space);
/* -EAGAIN: no thread. */
int space_start(struct tier_set *set) __must_check;
void space_stop(struct tier_set *set);
void space_release(struct space *space);

/* Soon, then. Any thread, any time. */
void space_wake(struct tier_set *set);

/* One round of it, for the thread and for tests. */
void space_round(struct tier_set *set);
