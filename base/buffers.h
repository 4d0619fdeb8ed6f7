/*
 * Aligned buffers that requests take and give back, as O_DIRECT wants them. Some are kept for the next request: their pages need
 * not be mapped and cleared again. The others go back to the kernel at once, so nothing remains of a peak.
 *
 * The size of a buffer is a power of two. Only pages that were written take memory.
 *
 * The number in use is bounded by the callers. Threads: any; the lock is a leaf.
 */
#pragma once

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include "base/check.h"

#define BUFFERS_LEAST    4096u /* bytes of the smallest */
#define BUFFERS_KEPT_MAX 256u

struct buffers {
	pthread_mutex_t lock;
	size_t most; /* bytes that are kept */
	size_t bytes;
	uint32_t n;
	/* By the time when they were given back. The last one is taken first: the CPU's cache may have it. */
	struct {
		void *buffer;
		size_t bytes;
	} kept[BUFFERS_KEPT_MAX];
};

void buffers_init(struct buffers *b, size_t most);
void buffers_release(struct buffers *b); /* all were given back */
/* At least `bytes`, aligned to a block. NULL: out of memory. */
void *buffers_take(struct buffers *b, size_t bytes) __must_check;
/* `bytes` as it was taken with. When the bound is reached, the oldest kept buffers are freed. `buffer` may be NULL. */
void buffers_give(struct buffers *b, void *buffer, size_t bytes);
/* Keeps none of those that are not in use. */
void buffers_drop_kept(struct buffers *b);
