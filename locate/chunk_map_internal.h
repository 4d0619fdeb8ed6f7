/* The chunk map's memory, as chunk_map.h draws it. Does not leave the folder. */
#pragma once

#include <assert.h>
#include <stdatomic.h>
#include "base/hash.h"
#include "locate/chunk_map.h"

struct chunk_map_head {
	uint32_t magic;
	uint32_t version;
	uint64_t start;
	uint32_t slots;
	uint32_t zero;
	uint8_t unused[40];
	_Atomic uint64_t
		away; /* in a cache line that is read at each hit and written hardly ever */
	_Atomic uint64_t capacity;
	uint8_t rest[4016];
};

enum chunk_map_flags {
	CHUNK_MAP_LIVE = 1,     /* else what was there is gone */
	CHUNK_MAP_COMPLETE = 2, /* every block; the bits do not count */
};

/*
 * Every field is atomic, and stored with release and loaded with acquire between the two looks at
 * seq: a reader that saw a store of a change sees at least the odd seq before it. (The usual fences
 * do the same, but thread checkers do not know them.)
 */
struct chunk_map_entry {
	_Atomic uint64_t seq;
	_Atomic uint64_t volume[2];
	_Atomic uint64_t lineage;
	_Atomic uint64_t chunk;
	_Atomic uint64_t file;
	_Atomic uint64_t extent;
	_Atomic uint32_t flags;
	_Atomic uint32_t tier;
};

struct chunk_map_bits {
	_Atomic uint64_t words[CHUNK_MAP_WORDS];
};

static_assert(sizeof(struct chunk_map_head) == 4096, "the head is a page");
static_assert(offsetof(struct chunk_map_head, away) == 64, "fixed for version 2");
static_assert(sizeof(struct chunk_map_entry) == 64, "an entry is a cache line");
static_assert(sizeof(struct chunk_map_bits) == 512, "a bit per block");
static_assert(VOLUME_ID_LEN == 16, "two words of an entry");

/* The three parts of a mapping. */
struct chunk_map_view {
	struct chunk_map_head *head;
	struct chunk_map_entry *entries;
	struct chunk_map_bits *bits;
	uint32_t slots; /* as checked: a process that shares the head cannot change it */
};

struct chunk_map_view chunk_map_view_of(void *memory, uint32_t slots);

/* Where to begin looking. */
static inline uint32_t chunk_map_first(const struct chunk_id *id, uint32_t slots)
{
	return (uint32_t)hash_xxh3(id, sizeof(*id), 0) & (slots - 1);
}

/* What an entry says, with its seq; false: nothing that can be relied on now. */
bool chunk_map_read(const struct chunk_map_entry *entry, struct chunk_map_row *ret_row,
	uint32_t *ret_flags, uint64_t *ret_seq);
