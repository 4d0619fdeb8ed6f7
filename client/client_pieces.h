/*
 * Which pieces of which objects, and which gaps, a range of a volume consists of.
 *
 * A walk is the caller's, on its stack (1.3 KiB: it keeps one row so that an object is looked up
 * once). Walks of one table may run on any number of threads. A lookup may decode a block of the
 * table: microseconds when it is hot.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/check.h"
#include "catalog/catalog.h"

/* One piece of an object, or a gap that belongs to none. */
struct piece_span {
	uint64_t offset; /* in the volume, BLOCK_BYTES-aligned */
	uint32_t length; /* bytes of the piece; 0: a gap */
	uint32_t padded; /* bytes up to the next span: whole blocks; of a gap all of it */
	uint64_t seed;   /* of the piece's checksum */
};

struct piece_walk {
	struct table *table; /* borrowed */
	uint64_t pos;
	uint64_t end;
	bool inside; /* `row` covers pos */
	uint64_t object_seed;
	struct table_row row;
};

/* Over [offset, offset + length), both multiples of BLOCK_BYTES. */
void piece_walk_init(
	struct piece_walk *walk, struct table *table, uint64_t offset, uint64_t length);

/*
 * The next span: 1, or 0 at the end, or -EBADMSG from a damaged table. The first and the last piece
 * come whole, also where they reach out of the range; gaps are cut to it. A piece never crosses a
 * chunk.
 */
int piece_walk_next(struct piece_walk *walk, struct piece_span *ret_span) __must_check;

/*
 * Widens the range to whole pieces: *offset goes down to the start of its piece, *end up
 * to the end of its own. False in *ret_any when the range holds nothing but gaps.
 */
int piece_range_widen(
	struct table *table, uint64_t *offset, uint64_t *end, bool *ret_any) __must_check;
