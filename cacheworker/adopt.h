/*
 * Bytes that are on a tier under another offset or lineage: copied from there instead of being
 * fetched. What an object's bytes are is said by (key, tag, size); the checksums of its pieces are
 * seeded with key and tag, so that whatever lies at the other place is right or is refused.
 *
 *	another row of the newest table, alike	 an object that was cleaned to a new offset, or back
 *	the last table of an older lineage	 the master's state was restored or lost
 *
 * Threads: any that may block on the disk.
 */
#pragma once

#include "cacheworker/source.h"

/* A run of whole pieces of an object, looked for at other places. */
struct adopt_request {
	const struct table_row *row; /* key, tag, size, and its own offset */
	uint64_t object_offset;      /* multiple of PIECE_BYTES */
	uint32_t length;
	uint64_t seed;
};

/* Whether it is worth looking at all; never blocks. */
bool adopt_possible(struct source *source);
/* 0 and the bytes, verified; -ENODATA when they are nowhere else, or on a disk that hangs. */
int adopt_read(struct source *source, const struct adopt_request *request, char *out) __must_check;

/* Saving what lives in chunks that are about to be dropped. */
struct rescue {
	struct worker *worker;
	struct volume_id volume;
	uint64_t from_lineage;
	struct table *from; /* borrowed: says what lies in the old chunks; NULL: nothing is known */
	uint64_t to_lineage;
	struct table *to; /* borrowed: says where it belongs now */
	struct table_row *row;
	struct table_row *live;
	char *piece;
	struct list pending; /* pieces that had no room before the old chunk went */
};

/* volume, lineages and tables are the caller's. -ENOMEM. */
int rescue_init(struct rescue *rescue) __must_check;
/* Copies what lives in that chunk to where it belongs and is not there. What finds no room waits
 * for rescue_flush(), after the chunk was dropped, while there is memory for it. */
void rescue_chunk(struct rescue *rescue, uint64_t chunk);
void rescue_flush(struct rescue *rescue);
void rescue_release(struct rescue *rescue);
