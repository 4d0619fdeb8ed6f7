/*
 * Keeping to a rate: a bucket that fills with bytes as time passes, and from which each request
 * takes what it will bring. A request may begin while anything is in it, and leaves it in debt when
 * it is large, so that the rate is kept whatever the size of the requests.
 *
 * A value; its owner's lock covers it. Times are monotonic nanoseconds.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct preload_pace {
	uint64_t rate;    /* bytes a second; 0: no bound */
	int64_t bytes;    /* in the bucket; below 0: owed */
	uint64_t seen_ns; /* when it was filled last; 0: never */
};

/* How long until a request may begin; 0: now. */
uint64_t preload_pace_wait(struct preload_pace *pace, uint64_t now_ns);
/* One begins that will bring so many bytes. */
void preload_pace_take(struct preload_pace *pace, uint64_t bytes);
