/*
 * Deadlines that travel with a request. A deadline is a time of the monotonic clock in nanoseconds; 0: none. Between hosts goes
 * the time that is left, as their clocks differ: each hop counts it from the arrival of the request, so that what the hop waits
 * and works is subtracted, and nothing is added. A step that is not the last resort gets a share of what is left.
 *
 * Pure functions, of the caller's clock.
 */
#pragma once

#include <stdint.h>
#include "base/check.h"

/* Nanoseconds until the deadline: 0 once it has passed, UINT64_MAX without one. */
uint64_t deadline_left(uint64_t deadline_ns, uint64_t now_ns);

/* The earlier of two deadlines. */
uint64_t deadline_earlier(uint64_t a_ns, uint64_t b_ns);

/* The deadline of a step that may take 1/parts of what is left, and `most_ns` at most, UINT64_MAX: without another bound. Without
 * a deadline it is `most_ns` alone. parts >= 1; most_ns > 0. */
uint64_t deadline_share(uint64_t deadline_ns, uint64_t now_ns, uint32_t parts, uint64_t most_ns);

/* The time left in milliseconds, rounded down, as frames have it (proto/frame.h): 0 without a deadline. -ETIMEDOUT: less than
 * a millisecond is left. */
int deadline_to_ms(uint64_t deadline_ns, uint64_t now_ns, uint32_t *ret_ms) __must_check;
uint64_t deadline_from_ms(uint32_t left_ms, uint64_t now_ns);
