/*
 * Pipes that answers go out through: pages of the page cache are put in (chunk_splice_blocks_now()) and
 * sent from there, without a copy. Each has room for the longest answer. The one used last is used first;
 * LIMIT_PIPES exist at most, as each keeps that many bytes of the page cache while its answer is sent.
 *
 * Threads: any.
 */
#pragma once

#include <pthread.h>
#include <stdint.h>
#include "base/err.h"
#include "base/limits.h"

struct pipe_ends {
	int out; /* to read from; 0: there is none */
	int in;
};

struct pipes {
	pthread_mutex_t lock;
	struct pipe_ends idle[LIMIT_PIPES];
	uint32_t n_idle;
	uint32_t n; /* those in use, too */
};

void pipes_init(struct pipes *pipes);
/* All were given back. */
void pipes_release(struct pipes *pipes);

/* An empty one. -EBUSY: all are in use; -EMFILE, -EPERM and the like: the kernel gives none of that size. */
int pipes_take(struct pipes *pipes, struct pipe_ends *ret_pipe) __must_check;
/* With whatever is left in it. None is allowed. */
void pipes_give(struct pipes *pipes, struct pipe_ends pipe);
