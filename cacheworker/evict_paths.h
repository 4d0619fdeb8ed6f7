/*
 * Dropping some objects of a volume by order of an operator. Files go as a whole (docs/decisions/
 * tier-writes.md): a chunk of which nothing else is cached is unlinked; of one that has other
 * objects too, these are read and checked first, and written again once it is gone. Readers that
 * hold the old file read on.
 *
 * Chunks that need this, and of which less than a sixteenth goes, are only so many in one order: what
 * lies scattered over more stays, and is counted.
 *
 * Threads: any; one at a time of a volume, and nothing else drops chunks of it by order meanwhile.
 */
#pragma once

#include "cacheworker/meant.h"
#include "cacheworker/worker.h"

struct evicted_paths {
	uint64_t bytes; /* gone */
	/* Meant, and still here: scattered, or no memory to move what is not meant; and all of which nobody
	 * knows, for want of its table. */
	uint64_t left;
};

/* -ECANCELED while closing, -ENOMEM: not all was looked at. */
int evict_paths(struct worker *w, const struct volume_id *volume, const struct meant *meant,
	struct evicted_paths *ret) __must_check;
