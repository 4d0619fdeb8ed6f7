/*
 * A backoff: how long to wait before the next attempt. The wait doubles from `min_ns` up to `max_ns` with each attempt that
 * failed, and starts again at `min_ns` after a reset. A random spread separates concurrent retries.
 *
 * A value: the owner's lock covers it. It has no clock, since a wait is a duration; the owner adds it to its own time.
 */
#pragma once

#include <stdint.h>

/* The range that a wait is drawn from, in percent of the doubled wait. All zero: the wait itself. */
struct backoff_spread {
	uint8_t from;
	uint8_t to;
};

#define BACKOFF_HALF ((struct backoff_spread){ 50, 100 })
#define BACKOFF_FULL ((struct backoff_spread){ 0, 100 })

#define BACKOFF_MAX_NS (UINT64_MAX / 4)

struct backoff {
	uint64_t min_ns; /* above 0 */
	uint64_t max_ns; /* of the doubled wait; up to BACKOFF_MAX_NS */
	struct backoff_spread spread;
	uint32_t doublings;       /* since the start or the last reset */
	uint64_t asked_ns;        /* the server's Retry-After: no wait is shorter; 0: none */
	uint64_t (*random)(void); /* uniform over 64 bits; NULL: the kernel's. For tests */
};

/* Draws the wait of the current attempt. */
uint64_t backoff_ns(const struct backoff *b);
/* The same; the wait after it is twice as long. */
uint64_t backoff_next(struct backoff *b);
static inline void backoff_reset(struct backoff *b)
{
	b->doublings = 0;
}
/* All waits until the next reset are the longest. */
static inline void backoff_to_max(struct backoff *b)
{
	b->doublings = UINT32_MAX;
}

/* Draws from the range around `ns`, for a wait that never doubles. */
uint64_t backoff_spread(uint64_t ns, struct backoff_spread spread);
