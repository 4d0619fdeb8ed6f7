/*
 * How much may be asked of an origin: an operator's bounds on bytes and requests a second, as two
 * buckets of tokens of a quarter of a second's worth at most.
 *
 * A request goes when no bucket that concerns it is empty, and takes what it asks for, if need be
 * more than is there: the next ones wait until that is paid. So a bound holds over any few seconds,
 * whatever the sizes are. A GET concerns both, a LIST that of requests.
 *
 * No lock, no clock: `now_ns` is the caller's, and never goes back.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define ALLOWANCE_BURST 0.25 /* seconds */

struct allowance_bucket {
	double rate;   /* a second; 0: no bound */
	double tokens; /* below 0: owed */
};

struct allowance {
	struct allowance_bucket bytes;
	struct allowance_bucket requests;
	uint64_t filled_ns; /* when tokens were last added */
};

/* Without bounds. */
void allowance_init(struct allowance *a, uint64_t now_ns);

/* Other bounds, 0: none. What is owed is paid in the time that it would have taken, or sooner; one
 * that goes takes what is owed with it. */
void allowance_set(
	struct allowance *a, uint64_t now_ns, uint64_t bytes_per_s, uint64_t requests_per_s);

/* Adds what the time until now brought. */
void allowance_fill(struct allowance *a, uint64_t now_ns);

/* As of the last fill. */
bool allowance_has_get(const struct allowance *a);
bool allowance_has_list(const struct allowance *a);
/* After which, from the last fill, they are true. 0: they are. */
uint64_t allowance_get_ns(const struct allowance *a);
uint64_t allowance_list_ns(const struct allowance *a);

/* One request for so many bytes; of a LIST 0. */
void allowance_take(struct allowance *a, uint64_t bytes);
