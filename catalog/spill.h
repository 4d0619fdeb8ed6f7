/*
 * What of a listing does not fit its memory: sorted runs in files without a name, merged when they
 * are read.
 *
 *	objects in memory, sorted ──► run ─┐ SPILL_FAN runs of a level become one of the next,
 *	objects in memory, sorted ──► run ─┤ so that there are never many
 *	                                   └──► spill_next(): by key, one object a key
 *
 * A run is a row of blocks of SPILL_BLOCK_BYTES: hash, length, then objects, front-coded within the
 * block. The files end with the process; none is ever found again.
 *
 * Memory: SPILL_BLOCK_BYTES and the longest object for each run while reading, at most 8 MiB.
 * Threads: one at a time.
 */
#pragma once

#include "catalog/catalog_internal.h"

#define SPILL_FAN         16u
#define SPILL_LEVELS      7u /* 16^7 runs of one object are more than LIMIT_FILES */
#define SPILL_BLOCK_BYTES 65536u

struct spill;

/* `directory` is where the files are made; it is copied. They have `max_bytes` together at most, also while runs are
 * merged. NULL without memory. */
struct spill *spill_new(const char *directory, uint64_t max_bytes);
void spill_free(struct spill *spill); /* NULL is allowed */

/* Writes `n` objects, by key, one a key, as the next run: of equal keys in several runs the newest
 * counts, or the one of the last run. -EOVERFLOW past max_bytes. Not after spill_rewind(). */
int spill_add(struct spill *spill, struct listing_object *const *objects, uint64_t n) __must_check;

/* To the first object. */
int spill_rewind(struct spill *spill) __must_check;
/* The next one by key, valid until the next call; -ENOENT at the end. */
int spill_next(struct spill *spill, const struct listing_object **ret_object) __must_check;

/* The directory of the files, for a line of error. */
const char *spill_directory(const struct spill *spill);
