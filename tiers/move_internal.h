/*
 * Chunks between tiers: hot ones go up, cold ones down, and one that finds no more room in its tier
 * goes where there is some.
 *
 *	1. writes to the chunk wait (chunk.moving)
 *	2. a copy in the other tier's move/: data by pieces, each checked where its object is known,
 *	   then the table
 *	3. the copy gets its name in chk/, its row in the other index
 *	4. under the shard's lock the copy takes the chunk's place in the map: find() gives the old one
 *	   or the new one
 *	5. the old row and file go
 *	6. writes go on; the name of one that was dropped meanwhile is free
 *
 * A crash leaves a file in move/, which the next start removes, or both files, of which the next
 * start keeps one: both are whole. Pieces that could not be checked are UNVERIFIED in the copy.
 *
 * Chunks that lie in extents are not moved.
 *
 * Threads: any; move_round() by the one that minds the space.
 */
#pragma once

#include <stdint.h>
#include "tiers/tier_internal.h"

#define MOVE_DIR "move"
/* What one round moves at most: with a round a second, the rate. */
#define MOVE_ROUND_BYTES (64ull << 20)
/* Decayed reads that make a chunk worth moving up, and how many times as hot it must be as one that
 * goes down for it. */
#define MOVE_HOT_READS 2u
#define MOVE_HOTTER    2u

struct chunk;

/* Makes move/ and removes what is left in it. A tier without it takes no moved chunks. */
void move_open(struct tier *tier);

/* Bytes that a tier above the slowest keeps free for moves. */
uint64_t move_reserve(const struct tier_set *set, const struct tier *tier);

/* -EBUSY: it is written, moved, or gone; -ENOSPC; -EIO. */
int move_chunk(struct tier_set *set, struct chunk *chunk, struct tier *to) __must_check;
/* The same after chunk_begin_move() or chunk_begin_spill(). */
int move_begun(struct tier_set *set, struct chunk *chunk, struct tier *to) __must_check;

/*
 * Moves a chunk whose tier had no room for `need` more bytes of it to another tier, a slower one first. Waits until the
 * other writers of the chunk have ended. -EAGAIN: it was moved, by this or another thread, or its tier has room now:
 * the chunk is to be found again; -ENOSPC.
 */
int move_spill(struct chunk *chunk, uint64_t need) __must_check;

/* One round: fast tiers get their reserve back, hot chunks go up. Bytes moved. */
uint64_t move_round(struct tier_set *set);
