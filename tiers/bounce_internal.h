/*
 * Aligned buffers of CHUNK_IO_BYTES for O_DIRECT from and to callers' memory that is not aligned. A
 * few are kept; more are made when more threads do I/O at once, so their number is bounded by the
 * callers' pools. Threads: any.
 */
#pragma once

#include <pthread.h>
#include <stdint.h>
#include "base/check.h"

#define BOUNCE_KEPT 8 /* buffers kept while nobody uses them */

struct bounce {
	pthread_mutex_t lock;
	uint32_t n;
	void *kept[BOUNCE_KEPT];
};

void bounce_init(struct bounce *b);
void bounce_release(struct bounce *b);
void *bounce_take(struct bounce *b) __must_check; /* NULL without memory */
void bounce_give(struct bounce *b, void *buffer); /* NULL is allowed */
