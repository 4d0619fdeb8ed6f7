/*
 * What is missing of volumes that are kept whole (copies.h): once half of an extent is here, the rest of what
 * others own of it is pulled from them in the background, so that it can be sealed though some of its objects
 * were read past this worker, or never. Only what its owner has: nothing is fetched from an origin for it.
 *
 * Threads: one at a time.
 */
#pragma once

#include "base/layout.h"
#include "cacheworker/worker.h"

/* One extent of the volume, the one after that of the last call; *at is which, 0 at first. Blocks for some
 * seconds at most, and ends early once *stop is set. Returns the bytes that were asked for. */
uint64_t promote_step(struct worker *w, const struct volume_id *volume, uint64_t lineage,
	uint64_t *at, const _Atomic bool *stop);
