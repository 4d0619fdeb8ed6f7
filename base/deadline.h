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
#include "base/clock.h"

/* Nanoseconds until the deadline: 0 once it has passed, UINT64_MAX without one. */
uint64_t deadline_left(uint64_t deadline_ns, uint64_t now_ns);

/* The earlier and the later of two deadlines. */
uint64_t deadline_earlier(uint64_t a_ns, uint64_t b_ns);
uint64_t deadline_later(uint64_t a_ns, uint64_t b_ns);

/* The deadline of a step that may take 1/parts of what is left: of no less than `least_ns`, as far as there is as much, so that
 * the last steps do not become too short to succeed. None without a deadline. parts >= 1. */
uint64_t deadline_share(uint64_t deadline_ns, uint64_t now_ns, uint32_t parts, uint64_t least_ns);

/* How long the answer takes that needs neither an origin nor another host, of a process that is well. Who waits for one has
 * others to ask, and asks them after that. */
#define DEADLINE_PROMPT_NS (2 * CLOCK_SECOND)

/* A request for bytes of a volume waits for its receiver, which may ask the origin for them, for a fifth of what is left, then for
 * a fifth of the rest, and so on: a receiver that lost the request does not cost the read. */
#define DEADLINE_ATTEMPTS 5u

/* The time left in milliseconds, rounded down, as frames have it (proto/frame.h): 0 without a deadline. -ETIMEDOUT: less than
 * a millisecond is left. */
int deadline_to_ms(uint64_t deadline_ns, uint64_t now_ns, uint32_t *ret_ms) __must_check;
uint64_t deadline_from_ms(uint32_t left_ms, uint64_t now_ns);
