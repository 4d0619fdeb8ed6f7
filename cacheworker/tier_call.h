/*
 * Calls to tiers that a reader waits for: timed calls (base/timed_call.h) on the threads of the pool
 * `look`. A disk that hangs keeps the call and its memory; after TIER_CALL_NS the reader gets its bytes
 * from the origin (docs/decisions/stalled-disks.md).
 *
 * Threads: any that may block for TIER_CALL_NS.
 */
#pragma once

#include "base/clock.h"
#include "cacheworker/worker.h"
#include "tiers/seal.h"

/* Longer than a tier takes to see that it stalls (5.25 s), so that the next call is refused at once. */
#define TIER_CALL_NS (6 * CLOCK_SECOND)

/* As timed_call(); -ETIMEDOUT is counted. */
int tier_call(struct worker *w, int (*run)(void *arg), void (*release)(void *arg),
	void *arg) __must_check;

/* As chunk_open_fd(), tier_seal_open_fd(), chunk_recheck(); also -ETIMEDOUT. */
int tier_call_open_fd(struct worker *w, struct chunk *chunk, int *ret_fd) __must_check;
int tier_call_open_extent(struct worker *w, struct extent *extent, int *ret_fd) __must_check;
int tier_call_recheck(
	struct worker *w, struct chunk *chunk, const struct piece_run *run) __must_check;
/* Is there a chunk that takes the unit, or can one be made? As tier_chunk_admit(). */
int tier_call_admit(struct worker *w, const struct chunk_id *id) __must_check;
