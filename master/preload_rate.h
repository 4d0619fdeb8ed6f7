/*
 * How fast a preload goes: what reports of "so many bytes until now" come to, smoothed over a few
 * seconds.
 *
 * A value; its owner's lock covers it. Times are monotonic nanoseconds.
 */
#pragma once

#include <stdint.h>

struct preload_rate {
	uint64_t at_ns; /* of the last report; 0: none */
	uint64_t bytes; /* it named */
	double rate;    /* bytes a second; below 0: not known */
};

#define PRELOAD_RATE_INIT ((struct preload_rate){ .rate = -1 })

/* A report. Fewer bytes than before: somebody began to count anew. */
void preload_rate_add(struct preload_rate *rate, uint64_t now_ns, uint64_t bytes);
/* Bytes a second; 0 when nothing was heard for long. */
uint64_t preload_rate_get(const struct preload_rate *rate, uint64_t now_ns);
/* Seconds for `bytes` more; -1: not to be said. */
int64_t preload_rate_eta(const struct preload_rate *rate, uint64_t now_ns, uint64_t bytes);
