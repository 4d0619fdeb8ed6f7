/*
 * Calls to tiers that a reader waits for. They run on threads of their own (the pool `look`), and
 * after GUARD_NS nobody waits any longer: a disk that hangs keeps the call and its memory, the
 * reader gets its bytes from the origin (docs/decisions/stalled-disks.md).
 *
 * Threads: any that may block for GUARD_NS.
 */
#pragma once

#include "base/clock.h"
#include "cacheworker/worker.h"
#include "tiers/seal.h"

/* Longer than a tier takes to see that it stalls (5.25 s), so that who asks next is turned away at
 * once. */
#define GUARD_NS (6 * CLOCK_SECOND)

/*
 * run(arg), whose result is returned; `arg` is the caller's again. -ETIMEDOUT: it has not returned;
 * `arg` is its own now and release(arg) follows it. -ENOMEM, -ECANCELED, -EAGAIN: it was not called.
 */
int guard_call(struct worker *w, int (*run)(void *arg), void (*release)(void *arg),
	void *arg) __must_check;

/* As chunk_open_fd(), tier_seal_open_fd(), chunk_recheck(); -ETIMEDOUT besides. */
int guard_open_fd(struct worker *w, struct chunk *chunk, int *ret_fd) __must_check;
int guard_open_extent(struct worker *w, struct extent *extent, int *ret_fd) __must_check;
int guard_recheck(struct worker *w, struct chunk *chunk, const struct piece_run *run) __must_check;
/* Is there a chunk that takes the unit, or can one be made? As tier_chunk_admit(). */
int guard_admit(struct worker *w, const struct chunk_id *id) __must_check;
