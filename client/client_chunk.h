/*
 * Chunks on this node's tiers, each in a file of its own or in an extent's: descriptor, place,
 * presence, what was verified, the piece table as far as it was needed.
 *
 * A chunk comes into the cache by a worker's answer, or by the worker's chunk map
 * (locate/chunk_map.h) when the file that the map names is open here already. While a map has the
 * chunk, client_chunks_get() gives it only as long as nothing of it went there; what came is
 * taken over by client_chunk_refresh().
 *
 * The cache holds at most `max` chunks; the one not used for longest goes. A reference keeps a
 * chunk's descriptor open, so that nothing is closed under a read. A chunk's descriptor never
 * changes: another file of the same chunk (the worker evicted and filled it again, or moved it into
 * an extent) is another struct client_chunk, with no verified bits. The chunks of one extent share
 * one descriptor.
 *
 * Threads: any; no lock is held over I/O. client_chunks_get() of a chunk in the cache and
 * client_chunk_unref() take no lock and allocate nothing. client_chunks_install(), _open() and
 * client_chunk_entry() read from the disk.
 */
#pragma once

#include <stdatomic.h>
#include <sys/types.h>
#include "base/layout.h"
#include "base/list.h"
#include "base/map.h"
#include "client/client_bits.h"
#include "locate/extent_format.h"

#define CLIENT_CHUNK_MAGIC 0x434c4348u

struct chunk_map;
struct client_chunks;
struct client_map;
struct view_peer;

struct client_chunk {
	uint32_t magic;
	_Atomic uint32_t refs;
	/* Set before the first reference can be taken: */
	struct chunk_id id;
	struct client_file *file; /* whose descriptor `fd` is */
	int fd;
	struct chunk_place place;
	struct client_map *map;      /* in which it was looked for; NULL: there was none */
	uint32_t slot;               /* where it is there; CHUNK_MAP_NONE: nowhere */
	uint32_t tier;               /* as the map says */
	_Atomic uint64_t seq;        /* of the slot, when last looked at */
	struct client_bits present;  /* as the worker reported, without what was found damaged */
	struct client_bits verified; /* pieces that this process has checked; a subset of present */
	_Atomic uint64_t verified_ns; /* when the first of them was; clock_mono_ns() */
	struct client_bits damaged;   /* pieces whose check failed, until the worker knows */
	_Atomic(struct client_piece_table *) table; /* NULL until the first entry is asked for */
	_Atomic bool used;                          /* since the hand of the clock passed */
	_Atomic bool touched;                       /* since the last report to the worker */
	_Atomic uint32_t read_blocks;               /* by the map, since then */
	/* The cache's, under its lock: */
	struct list link;
	bool cached;
	bool let_go;             /* the worker asked for its hold */
	uint64_t hold;           /* of the last answer; 0: none */
	struct view_peer *owner; /* whose hold it is */
};

/* NULL without memory. */
struct client_chunks *client_chunks_new(uint32_t max);
/* Every reference must be gone. NULL is allowed. */
void client_chunks_free(struct client_chunks *chunks);

/*
 * The map of this node's worker, in place of one before: what is known of chunks is compared with
 * it as they are used. The map is the cache's on success. -ENOMEM.
 */
int client_chunks_set_map(
	struct client_chunks *chunks, struct chunk_map *map, struct view_peer *owner) __must_check;
/* The start of the worker whose map it is; 0: there is none. */
uint64_t client_chunks_map_start(struct client_chunks *chunks);
/* Bytes that the tiers of its worker may hold; 0: there is no map. */
uint64_t client_chunks_capacity(struct client_chunks *chunks);

/* Referenced, or NULL. */
struct client_chunk *client_chunks_get(struct client_chunks *chunks, const struct chunk_id *id);
/* The same for a chunk that is not in the cache, when the map knows it and its file is open. */
struct client_chunk *client_chunks_open(struct client_chunks *chunks, const struct chunk_id *id);
/* True when the blocks are known to be here, be it only to the map; *ret_file is its file then when
 * that is not open here, else 0. Reads nothing from the disk. */
bool client_chunks_have(struct client_chunks *chunks, const struct chunk_id *id, uint32_t block,
	uint32_t blocks, uint64_t *ret_file);
/* Takes over what came since the map was looked at. */
void client_chunk_refresh(struct client_chunk *chunk);
void client_chunk_unref(struct client_chunk *chunk); /* NULL is allowed */

/*
 * Takes a worker's answer: `fd` is the cache's afterwards, also on failure; the bitmap replaces the
 * one known. `extent_bytes` is 0 for a chunk's own file, else the size of the extent that the file
 * holds. -EBADMSG: the file is not that chunk's, or not as long as such a file is.
 */
int client_chunks_install(struct client_chunks *chunks, const struct chunk_id *id, int fd,
	uint64_t extent_bytes, const uint8_t bitmap[CHUNK_BITMAP_BYTES],
	struct client_chunk **ret_chunk) __must_check;

/* The worker counts the chunk's descriptor as a hold of that number, the latest of several. */
void client_chunk_held(struct client_chunks *chunks, struct client_chunk *chunk,
	struct view_peer *owner, uint64_t number);

/* Throws out what left the map, or is stored elsewhere by it, though it is not read now. */
void client_chunks_sweep(struct client_chunks *chunks);
/*
 * What is to be reported to a worker: HELD_ENTRIES_MAX entries of proto/held.h at most. The worker, even
 * when there is nothing to say but that chunks are open; NULL: nothing is.
 */
struct view_peer *client_chunks_report(struct client_chunks *chunks, uint8_t *out, uint32_t *ret_n);
/* The worker unlinked those. Unknown numbers are released, too. */
void client_chunks_let_go(
	struct client_chunks *chunks, struct view_peer *owner, const uint8_t *entries, uint32_t n);

/* Forgets a chunk whose file cannot be read. */
void client_chunks_drop(struct client_chunks *chunks, struct client_chunk *chunk);

uint32_t client_chunks_count(struct client_chunks *chunks);
/* Descriptors that the chunks, in the cache or referenced, take. */
uint32_t client_chunks_files(struct client_chunks *chunks);

/* The entry of the piece that begins at `block`; reads the piece table up to `last_block` along
 * with it when it is not known. 0 with length 0: the table has no such piece. */
int client_chunk_entry(struct client_chunk *chunk, uint32_t block, uint32_t last_block,
	struct piece_entry *ret_entry) __must_check;

/* Forgets what was verified when that began more than `age_ns` ago. */
void client_chunk_age(struct client_chunk *chunk, uint64_t age_ns);

/* A piece was read and matched, after `seq` was taken of the chunk: verified, unless pieces of it
 * were dropped since, of which it may be one. */
void client_chunk_verified(
	struct client_chunk *chunk, uint64_t seq, uint32_t block, uint32_t blocks);
/* A piece did not match: no longer present or verified, and to be reported to the worker. */
void client_chunk_damage(struct client_chunk *chunk, uint32_t block, uint32_t blocks);
