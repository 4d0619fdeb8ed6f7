/*
 * Units of a volume (docs/architecture.md), shared by every part that speaks of (volume, offset).
 *
 *	volume  |<------------ chunk 16 MiB ------------>|<---- chunk ---- ...
 *	        | piece <= 64 KiB of one object | piece ...
 *	        | block 4 KiB |
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include "base/limits.h"

#define BLOCK_BITS  12
#define BLOCK_BYTES (1u << BLOCK_BITS)
#define PIECE_BITS  16
#define PIECE_BYTES (1u << PIECE_BITS)
#define UNIT_BYTES \
	(1u << 20) /* an object of at most this is fetched whole, a larger one in such units */
#define CHUNK_BITS    24
#define CHUNK_BYTES   (1u << CHUNK_BITS)
#define CHUNK_BLOCKS  (CHUNK_BYTES / BLOCK_BYTES) /* 4096 */
#define EXTENT_MIN    (1ull << 30)
#define VOLUME_ID_LEN 16

/* First 128 bits of SHA-256 over the source. */
struct volume_id {
	uint8_t bytes[VOLUME_ID_LEN];
};

/* One chunk of one volume under one lineage: what a tier stores and a slot owns. */
struct chunk_id {
	struct volume_id volume;
	uint64_t lineage;
	uint64_t chunk; /* offset / CHUNK_BYTES */
};

static inline bool volume_id_equal(const struct volume_id *a, const struct volume_id *b)
{
	return memcmp(a, b, sizeof(*a)) == 0;
}

static inline bool chunk_id_equal(const struct chunk_id *a, const struct chunk_id *b)
{
	return a->chunk == b->chunk && a->lineage == b->lineage &&
	       volume_id_equal(&a->volume, &b->volume);
}

/* Bytes of one extent of a volume that ends at `end`: a power of two such that at most
 * LIMIT_DEVICES cover it. The image's devices and the extent files of a tier are these. */
static inline uint64_t layout_extent_bytes(uint64_t end)
{
	uint64_t bytes = EXTENT_MIN;

	while (end / bytes + (end % bytes != 0) > LIMIT_DEVICES)
		bytes *= 2;
	return bytes;
}
