/*
 * Which generation of each volume was in use last, kept on disk: a process that starts anew tells a
 * master restored from an old copy what it has seen, and the master starts a new lineage instead of
 * giving offsets another meaning.
 *
 * DIR/VOLUME.seen, one line: lineage in hex, generation, its hash and its seal in hex, XXH3 of these in hex.
 * Threads: any; the last writer wins.
 */
#pragma once

#include "catalog/catalog.h"

/* Fills all but prev_hash. -ENOENT when nothing was remembered, -EBADMSG when it cannot be read. */
int generation_seen_load(
	const char *dir, const struct volume_id *volume, struct generation_id *ret_id) __must_check;
/* The directory must be there. */
int generation_seen_save(const char *dir, const struct generation_id *id) __must_check;
