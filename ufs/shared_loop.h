/*
 * The loop that the decorators of all origins of a process share: for their timers, and for what ends by itself. It exists while one of
 * them uses it. Each origin's sockets have a loop of their own (s3.c).
 *
 * Threads: any but the loop's own.
 */
#pragma once

#include "base/loop.h"

/* To be given back; NULL without memory, descriptors or threads. */
struct loop *shared_loop_get(void);
/* The caller has no timer on it any more, and posts nothing; what it posted has run when this returns. NULL is allowed. */
void shared_loop_put(struct loop *loop);
