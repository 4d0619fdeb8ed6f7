/* Where objects lie in chunks, for the tiers: tier_set_runs() of tiers.h. Threads: any. */
#pragma once

#include "cacheworker/worker.h"

/* `arg` is the worker. -EAGAIN: no table of that volume is open. */
int runs_next(void *arg, const struct chunk_id *id, uint32_t offset,
	struct piece_run *ret_run) __must_check;
