/*
 * Moving a chunk to another file: from its own into an extent, which may lie in another tier, or
 * out of one. Chunk files move between tiers of different speed by move_internal.h.
 *
 * The copy is another struct chunk, which takes the old one's place in the map at once: find()
 * gives one or the other. Who holds the old one reads on from the old file. Each step leaves a disk
 * from which a start finds the chunk once:
 *
 *	data, entries	the new file is unlinked, or its place forgotten, by the next start
 *	index row	the old file is unlinked by the next start; of a place in an extent the head
 *			is left, which the row overrules
 *	map, then the old file goes
 *
 * Bytes are shared where the filesystem can; else each run is read back and compared before its
 * entries are written. Checksums go along, so that what was damaged before is found damaged
 * afterwards; what was unverified stays so. Bytes that an earlier life of the chunk left at the new
 * place are never written over with other ones: somebody may be reading them.
 *
 * A chunk that is dropped on the way keeps its name until the move has ended: its next life may lie
 * where the move writes, and would be taken for what the move left.
 *
 * Threads: any. Writes to the chunk wait meanwhile.
 */
#pragma once

#include "tiers/chunk_internal.h"

/* Where to. */
struct relocation {
	struct tier *tier;
	struct extent *extent; /* joined, its tier is `tier`; NULL: a file of its own */
};

/*
 * Takes over the join of `to->extent`, also on failure. That is never the extent in which the chunk is stored
 * already: the copy would clear the chunk's own table. -EBUSY: it is written, moved or gone, or another extent's chunks exceed the
 * capacity already;
 * -ENOSPC: no room at the new place; -EBADMSG: the copy did not read back as it was written; -EIO.
 * The chunk is where it was then.
 */
int chunk_relocate(struct chunk *chunk, const struct relocation *to) __must_check;
