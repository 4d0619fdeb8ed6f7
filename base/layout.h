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

#define LAYOUT_TIER_FILE "granary.tier" /* in every tier: its identity (docs/formats.md) */

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

/*
 * Several volumes in one address space, as a mount of several sources reads them: a place is the
 * number of the source and an offset in its volume, which are never longer than 128 PiB. With one
 * source a place is the offset.
 */
#define PLACE_BITS         57
#define LAYOUT_SOURCES_MAX 16u

static inline uint64_t place_of(uint32_t source, uint64_t offset)
{
	return (uint64_t)source << PLACE_BITS | offset;
}

static inline uint32_t place_source(uint64_t place)
{
	return (uint32_t)(place >> PLACE_BITS);
}

static inline uint64_t place_offset(uint64_t place)
{
	return place & ((1ull << PLACE_BITS) - 1);
}

/* Which devices of an image are whose: those of source i begin with first[i], those of the last one
 * end with the image's. */
struct layout_sources {
	uint32_t n; /* 0: as 1 */
	uint32_t first[LAYOUT_SOURCES_MAX];
};

/* The source that an address of all devices in a row belongs to. */
static inline uint32_t layout_source_of_device(
	const struct layout_sources *sources, uint64_t device)
{
	uint32_t source = 0;

	for (uint32_t i = 1; i < sources->n; i++)
		if (sources->first[i] <= device)
			source = i; /* one without devices begins where the next does */
	return source;
}

/* The place of byte `offset` of a device. */
static inline uint64_t layout_place_of_device(const struct layout_sources *sources,
	uint64_t extent_bytes, uint64_t device, uint64_t offset)
{
	uint32_t source = layout_source_of_device(sources, device);

	return place_of(source, (device - sources->first[source]) * extent_bytes + offset);
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
