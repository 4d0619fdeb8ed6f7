/*
 * The chunk map: which chunks this node's worker has, in which file and how much of them, in
 * memory that it shares with readers on the node (docs/formats.md, docs/decisions/chunk-map.md). A
 * reader with the map, and a descriptor of the file, finds cached bytes without asking.
 *
 * A sealed memfd, which each start of a worker creates again: one process writes, others map it read-only.
 * Only pieces that are CLEAN have their bits.
 *
 *	0		4 KiB		  + slots x 64	    + slots x 512
 *	| head		| entries	  | bits of blocks  |
 *
 *	head	0 magic "CMP1" u32   4 version u32   8 start u64   16 slots u32   20 zero u32
 *		64 away u64: bit n set: tier n is not in service, nothing of it is to be read
 *		72 capacity u64: bytes that the tiers in service may hold
 *	entry	0 seq u64   8 volume[16]   24 lineage u64   32 chunk u64   40 file id u64
 *		48 extent bytes u64 (0: a file of its own)   56 flags u32   60 tier u32
 *
 * Native byte order; it never leaves the machine. Open addressing: a chunk is within CHUNK_MAP_PROBE
 * slots from its hash on; a slot whose seq is 0 was never used and ends the search.
 *
 * An entry's seq is odd while the entry changes, and higher by two afterwards. Bits are added
 * without that; bits that go, another file or another chunk change it. So whoever finds the seq
 * that he saw before knows that everything he saw then still holds. A writer that was killed leaves
 * the old entry, the new one, or an odd seq for ever, which readers pass over.
 *
 * Threads: readers any, without a lock. One thread writes at a time.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/check.h"
#include "base/layout.h"

#define CHUNK_MAP_MAGIC     0x31504d43u /* "CMP1" */
#define CHUNK_MAP_VERSION   2u
#define CHUNK_MAP_PROBE     16u
#define CHUNK_MAP_SLOTS_MIN 1024u
#define CHUNK_MAP_SLOTS_MAX (1u << 24)
#define CHUNK_MAP_NONE      UINT32_MAX /* no slot */
#define CHUNK_MAP_WORDS     (CHUNK_BLOCKS / 64)
#define CHUNK_MAP_TIERS     64u

/* Bytes of a map; what it takes of memory at most. */
uint64_t chunk_map_bytes(uint32_t slots);
/* The largest power of two of slots that fits, at least CHUNK_MAP_SLOTS_MIN. */
uint32_t chunk_map_slots(uint64_t bytes);

/* What an entry says, without its bits. */
struct chunk_map_row {
	struct chunk_id id;
	uint64_t file;   /* id, as in the head of chunk and extent */
	uint64_t extent; /* bytes; 0: a file of its own */
	uint32_t tier;   /* below CHUNK_MAP_TIERS */
};

/* ---- readers --------------------------------------------------------------------------------- */

struct chunk_map;

/*
 * Maps it; `fd` stays the caller's. Its maker is not trusted: -EBADMSG: not a map, not as long as it
 * says, or not sealed against being cut; -EPROTONOSUPPORT: another version.
 */
int chunk_map_open(int fd, struct chunk_map **ret_map) __must_check;
void chunk_map_close(struct chunk_map *map); /* NULL is allowed */

/* Of the worker that writes it. Never 0. */
uint64_t chunk_map_start(const struct chunk_map *map);

/* CHUNK_MAP_NONE: it is not known. Else the slot, the seq under which ret_row holds. */
uint32_t chunk_map_find(const struct chunk_map *map, const struct chunk_id *id,
	struct chunk_map_row *ret_row, uint64_t *ret_seq);
/* True while what was found under that seq holds. */
bool chunk_map_holds(const struct chunk_map *map, uint32_t slot, uint64_t seq);
/* The bits of all blocks, bit 0 of word 0 first; false: the entry is another by now. */
bool chunk_map_load(const struct chunk_map *map, uint32_t slot, uint64_t seq,
	uint64_t ret_bits[CHUNK_MAP_WORDS]);
/* The tier is not in service. */
bool chunk_map_away(const struct chunk_map *map, uint32_t tier);
/* Bytes that the tiers in service may hold. */
uint64_t chunk_map_capacity(const struct chunk_map *map);

/* ---- the writer ------------------------------------------------------------------------------ */

struct chunk_map_writer;

/* `slots` is a power of two within the bounds above. -ENOMEM, or why there is no memfd. */
int chunk_map_writer_new(uint32_t slots, struct chunk_map_writer **ret_writer) __must_check;
void chunk_map_writer_free(struct chunk_map_writer *writer); /* NULL is allowed */

uint64_t chunk_map_writer_start(const struct chunk_map_writer *writer);
/* A new read-only descriptor for a reader; the caller closes it. */
int chunk_map_writer_fd(const struct chunk_map_writer *writer, int *ret_fd) __must_check;

/*
 * The chunk lies there and these blocks of it are clean: a new entry, or in place of the chunk's
 * former one. False: there is no room, and the chunk is not in the map.
 */
bool chunk_map_put(struct chunk_map_writer *writer, const struct chunk_map_row *row,
	const uint64_t bits[CHUNK_MAP_WORDS]);
void chunk_map_remove(struct chunk_map_writer *writer, const struct chunk_id *id);
void chunk_map_set_away(struct chunk_map_writer *writer, uint64_t tiers);
void chunk_map_set_capacity(struct chunk_map_writer *writer, uint64_t bytes);

/* The chunk of a slot that a reader named; false: none. Also while another thread writes. */
bool chunk_map_chunk_at(
	const struct chunk_map_writer *writer, uint32_t slot, struct chunk_id *ret_id);

struct chunk_map_use {
	uint32_t used; /* entries */
	uint32_t max;
	uint64_t refused; /* times that there was no room */
};
/* Also while another thread writes. */
void chunk_map_writer_use(const struct chunk_map_writer *writer, struct chunk_map_use *ret_use);

/* Called before each store, for tests that end the writer there; NULL: no call. */
void chunk_map_writer_on_store(struct chunk_map_writer *writer, void (*fn)(void *arg), void *arg);
