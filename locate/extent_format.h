/*
 * The extent file: a run of chunks of a volume as one local file, whose first `extent bytes` are
 * exactly those of the image's device (docs/formats.md, docs/decisions/extent-files.md). Bytes <->
 * structs and arithmetic, no I/O; nothing is allocated; any thread.
 *
 *	0                    E                                E + E / 16 MiB x 52 KiB   + 4 KiB
 *	| data, sparse       | head and table of each chunk   | foot                   |
 *
 * E, the extent's bytes, is a power of two and follows from the file's length. Heads and tables are
 * those of chunk files (chunk_format.h), the head's file id being the foot's.
 *
 * Foot, little-endian, the rest of its block zero:
 *
 *	 0  magic u32      4  version u32
 *	 8  volume 16 bytes
 *	24  lineage u64   32  extent number u64
 *	40  file id u64   48  extent bytes u64
 *	56  features u64 (none yet; an unknown bit refuses the file)
 *	64  XXH3 of bytes 0..63, seed 0
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/check.h"
#include "base/layout.h"
#include "locate/chunk_format.h"

#define CHUNK_META_BYTES    (CHUNK_HEAD_BYTES + CHUNK_TABLE_BYTES)
#define EXTENT_FOOT_BYTES   4096u
#define EXTENT_FOOT_MAGIC   0x31545845u /* "EXT1" */
#define EXTENT_FOOT_VERSION 1u
#define EXTENT_BYTES_MAX    (8ull << 40)

/* Where one chunk is stored in its file. */
struct chunk_place {
	uint64_t data; /* offset of its 16 MiB */
	uint64_t head; /* of its head; the piece table follows */
};

/* In a chunk file. */
#define CHUNK_PLACE_OWN ((struct chunk_place){ .data = 0, .head = CHUNK_HEAD_OFFSET })

static inline uint64_t chunk_place_table(const struct chunk_place *place)
{
	return place->head + CHUNK_HEAD_BYTES;
}

/* A power of two from one chunk to EXTENT_BYTES_MAX. */
bool extent_bytes_valid(uint64_t extent_bytes);

/* Length of the file of an extent, and back: 0 when no extent file has that length. */
uint64_t extent_file_bytes(uint64_t extent_bytes);
uint64_t extent_bytes_of_file(uint64_t file_bytes);
/* Offset of the foot. */
uint64_t extent_foot_offset(uint64_t extent_bytes);

/* The chunk's place in its extent's file. */
struct chunk_place extent_place(uint64_t extent_bytes, uint64_t chunk);

struct extent_foot {
	struct volume_id volume;
	uint64_t lineage;
	uint64_t number; /* of the extent in its volume */
	uint64_t file_id;
	uint64_t extent_bytes;
};

void extent_foot_encode(const struct extent_foot *foot, uint8_t out[EXTENT_FOOT_BYTES]);
/* -EBADMSG: not a foot or damaged; -EPROTONOSUPPORT: newer version or unknown features. */
int extent_foot_decode(
	const uint8_t in[EXTENT_FOOT_BYTES], struct extent_foot *ret_foot) __must_check;
