/*
 * The payload of FRAME_HELD, in both directions: entries of 8 bytes, little-endian, the number of a
 * hold in the upper 63 bits.
 *
 *	reader -> worker	bit 0 clear: I closed that descriptor; set: I read through it
 *	worker -> reader	bit 0 clear: its chunk is unlinked; close it
 *
 * With the highest bit set it is no hold but a slot of the worker's chunk map, whose chunk the
 * reader found there and read (locate/chunk_map.h): the slot from bit 1 on, from bit 25 on how many
 * blocks of it were read since the last time. The worker's answer has the start of its map
 * in `generation`.
 *
 * A FRAME_LOCAL answer carries its hold's number behind the presence bitmap.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/little.h"
#include "proto/frame.h"

#define HELD_ENTRY_BYTES 8u
#define HELD_ENTRIES_MAX (FRAME_SMALL_BYTES / HELD_ENTRY_BYTES)
#define HELD_SLOT        (1ull << 63)

static inline uint64_t held_entry(uint64_t number, bool used)
{
	return number << 1 | (used ? 1 : 0);
}

#define HELD_SLOT_BITS 24

static inline uint64_t held_slot_entry(uint32_t slot, uint32_t blocks)
{
	return HELD_SLOT | (uint64_t)blocks << (HELD_SLOT_BITS + 1) | (uint64_t)slot << 1 | 1;
}

/* True for a slot of the map. */
static inline bool held_is_slot(uint64_t entry)
{
	return entry & HELD_SLOT;
}

static inline uint32_t held_slot(uint64_t entry)
{
	return (uint32_t)(entry >> 1) & ((1u << HELD_SLOT_BITS) - 1);
}

static inline uint32_t held_blocks(uint64_t entry)
{
	return (uint32_t)((entry & ~HELD_SLOT) >> (HELD_SLOT_BITS + 1));
}

static inline uint64_t held_number(uint64_t entry)
{
	return entry >> 1;
}

static inline bool held_is_used(uint64_t entry)
{
	return entry & 1;
}

static inline void held_put(uint8_t *out, uint32_t i, uint64_t entry)
{
	little_put64(out + (size_t)i * HELD_ENTRY_BYTES, entry);
}

static inline uint64_t held_get(const void *payload, uint32_t i)
{
	return little_get64((const uint8_t *)payload + (size_t)i * HELD_ENTRY_BYTES);
}
