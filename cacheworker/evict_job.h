/*
 * An order to evict some objects of a volume (evict_paths.h) under way: minutes for a terabyte, in
 * which the worker must go on to ask for retention settings and to tell what it has. One at a time; an order that
 * comes meanwhile is not taken, the master says it again. While it runs nothing else may drop chunks
 * of its volume by order.
 *
 * Threads: what is declared here belongs to the work of retention; the eviction is another work while
 * it lasts, which ends soon once retention stops.
 */
#pragma once

#include "cacheworker/evict_paths.h"

struct Granary__EvictPaths;

/* What became of one. */
struct evict_outcome {
	struct volume_id volume;
	uint64_t serial;
	int status; /* as of evict_paths(); 0: it was followed, and that is remembered */
	struct evicted_paths sum;
};

/* 0: it is in progress, and the retention thread is woken when it is done. -EBUSY: later; -EINVAL: a pattern that is
 * none; -ENOMEM. */
int evict_job_start(struct worker *w, const struct volume_id *volume,
	const struct Granary__EvictPaths *order) __must_check;
/* One of that volume was started, and its outcome not taken yet. */
bool evict_job_is_of(const struct worker *w, const struct volume_id *volume);
/* False: none has ended. */
bool evict_job_take(struct worker *w, struct evict_outcome *ret);
/* Waits for its end; after retention_stop(). */
void evict_job_close(struct worker *w);
