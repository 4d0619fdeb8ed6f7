/*
 * Tiers: where bytes lie on a worker (DESIGN.md section 6). A tier is a directory with a capacity:
 *
 *	granary.tier	identity: uuid, device, format, feature bits, boot id of the last start
 *	index/		RocksDB: chunk id -> file id, state, class
 *	chk/xx/ID	one chunk: 16 MiB of data (sparse while filling), a head, the piece table
 *
 * Nothing here knows keys or origins: callers name a run of pieces of one object by its offset in the volume, its object
 * seed (catalog.h: piece_object_seed) and the number of its first piece.
 *
 * Chunk file (little-endian):
 *
 *	0          16 MiB     +4 KiB                 +48 KiB
 *	| data     | head     | 4096 entries x 12    |
 *	head: magic, version, volume, lineage, chunk, file id, XXH3 of the head
 *	entry (at a piece's first block): xxh3 u64, length u24 (1..65536), flags u8; all zero = not present
 *
 * An entry is written after its piece's data, so a non-zero entry is a present piece: bitmap, checksums and recovery in one.
 * A published byte never changes; eviction unlinks whole files.
 *
 * States of a piece as callers see it; FILLING belongs to the caller's single flight and is not stored:
 *
 *	ABSENT ──write──► CLEAN ──mismatch──► ABSENT
 *	UNVERIFIED (present in the table, written under another boot) ──read ok──► CLEAN, ──mismatch──► ABSENT
 *
 * Threads: all functions block on the disk unless stated, and may be called from any thread except a loop.
 * tier_chunk_find(), tier_chunk_present() and tier_chunk_bitmap() never block on I/O and may be called on a loop.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/budget.h"
#include "base/counter.h"
#include "base/err.h"
#include "base/layout.h"

#define CHUNK_HEAD_BYTES  4096u
#define CHUNK_ENTRY_BYTES 12u
#define CHUNK_TABLE_BYTES (CHUNK_BLOCKS * CHUNK_ENTRY_BYTES)
#define CHUNK_FILE_BYTES  (CHUNK_BYTES + CHUNK_HEAD_BYTES + CHUNK_TABLE_BYTES)
#define CHUNK_HEAD_OFFSET CHUNK_BYTES
#define CHUNK_TABLE_OFFSET (CHUNK_BYTES + CHUNK_HEAD_BYTES)
#define CHUNK_BITMAP_BYTES (CHUNK_BLOCKS / 8) /* one bit per block, bit 0 of byte 0 first */

struct tier_set; /* all tiers of a worker */
struct chunk;	 /* one cached chunk; reference-counted */

struct tier_config {
	const char *path;
	uint64_t capacity; /* bytes the tier may charge, index included; 0: 90 % of the filesystem's free + own bytes */
	bool create;	   /* make the tier when the directory is missing or empty */
};

/* What one 12-byte entry says; decoded. */
struct piece_entry {
	uint64_t xxh3;
	uint32_t length; /* 0: absent */
	uint8_t flags;
};
void piece_entry_encode(const struct piece_entry *entry, uint8_t out[CHUNK_ENTRY_BYTES]);
void piece_entry_decode(const uint8_t in[CHUNK_ENTRY_BYTES], struct piece_entry *ret_entry);

/*
 * Opens every tier or none. With `create`, a missing or empty directory becomes a tier; a directory with other contents
 * is refused (-ENOTEMPTY), one of a newer format too (-EPROTONOSUPPORT), one in use by another process (-EBUSY), too small
 * a capacity or filesystem (-ENOSPC), not writable (-EACCES/-EROFS): each with its line. Loads the index; a lost or damaged
 * index is rebuilt from the chunk files.
 */
int tier_set_open(const struct tier_config *configs, uint32_t n, struct tier_set **ret_set, struct err *e) __must_check;
/* Publishes what is written (no fsync of data), closes; every chunk reference must be gone. NULL is allowed. */
void tier_set_free(struct tier_set *set);

/* A cached chunk, referenced, or NULL. Never blocks on I/O. */
struct chunk *tier_chunk_find(struct tier_set *set, const struct chunk_id *id);

/*
 * The chunk, created empty if it is not there. Admission: -ENOSPC when the capacity is used up (reserving the whole
 * chunk's size) or the filesystem is short of bytes or inodes; the caller bypasses. -EIO: the tier is out.
 */
int tier_chunk_admit(struct tier_set *set, const struct chunk_id *id, struct chunk **ret_chunk) __must_check;
struct chunk *chunk_ref(struct chunk *chunk);
void chunk_unref(struct chunk *chunk); /* NULL is allowed; may close descriptors */

const struct chunk_id *chunk_id_of(const struct chunk *chunk);

/* A run of whole pieces of one object inside one chunk. */
struct piece_run {
	uint32_t offset;	/* in the chunk, BLOCK_BYTES-aligned */
	uint32_t length;	/* bytes; only the object's end may be no multiple of PIECE_BYTES */
	uint64_t object_seed;	/* piece_object_seed() of the object's (key, tag) */
	uint64_t first_piece;	/* number of the first piece in its object */
};

/*
 * Writes the run's data (`length` bytes; the last block is padded with zeros on disk), then its entries, then marks the blocks
 * present. Computes the checksums. Writing present pieces again is harmless (the same bytes by construction) and skipped.
 * -ENOSPC, -EIO: nothing is marked; the tier's health is told.
 */
int chunk_write(struct chunk *chunk, const struct piece_run *run, const void *data) __must_check;

/*
 * Reads and checks whole pieces: `out` gets run->length bytes. UNVERIFIED pieces become CLEAN. -ENODATA when a piece is
 * absent; -EBADMSG on a mismatch: those pieces are ABSENT afterwards, counted, and the caller fetches them again.
 */
int chunk_read(struct chunk *chunk, const struct piece_run *run, void *out) __must_check;

/* Tells that a reader found these pieces damaged (verified by reading again here): makes them ABSENT. 0 when they are fine. */
int chunk_recheck(struct chunk *chunk, const struct piece_run *run) __must_check;

/* True when every block of [offset, offset + length) is present (CLEAN or UNVERIFIED). Never blocks. */
bool chunk_present(const struct chunk *chunk, uint32_t offset, uint32_t length);
/* Snapshot of the presence bits. Never blocks. */
void chunk_bitmap(const struct chunk *chunk, uint8_t out[CHUNK_BITMAP_BYTES]);
/* Bytes present. Never blocks. */
uint64_t chunk_present_bytes(const struct chunk *chunk);

/*
 * A new descriptor on the chunk file for handing to a reader on this node: read-only, O_DIRECT where the filesystem has
 * it. The caller closes it. Data may be read from it at every offset whose blocks are present; the piece table too.
 */
int chunk_open_fd(struct chunk *chunk, int *ret_fd) __must_check;

struct tier_status {
	const char *path; /* borrowed from the set */
	const char *state; /* "ok", "suspect", "out" */
	uint64_t capacity;
	uint64_t used;	   /* charged */
	uint64_t chunks;
	uint64_t data_bytes; /* bytes present */
};
uint32_t tier_set_count(const struct tier_set *set);
void tier_set_status(struct tier_set *set, uint32_t tier, struct tier_status *ret_status);

/* True when nothing more can be admitted: callers then do not fetch neighbours. Never blocks. */
bool tier_set_full(struct tier_set *set);

/* Unlinks every chunk of a (volume, lineage) that `keep` does not want; for dropped generations. Returns bytes freed. */
uint64_t tier_set_drop(struct tier_set *set, const struct volume_id *volume, uint64_t lineage,
	bool (*keep)(void *arg, uint64_t chunk), void *arg);

/* Present bytes of one volume and lineage over all tiers. */
uint64_t tier_set_volume_bytes(struct tier_set *set, const struct volume_id *volume, uint64_t lineage);

#define TIER_COUNTERS(X)                                                                           \
	X(chunks, "granary_tier_chunks", GAUGE, "chunks", "Chunks cached")                         \
	X(used, "granary_tier_used_bytes", GAUGE, "bytes", "Bytes charged to the tiers")           \
	X(capacity, "granary_tier_capacity_bytes", GAUGE, "bytes", "Bytes the tiers may hold")     \
	X(written, "granary_tier_written_bytes_total", COUNTER, "bytes", "Bytes written")          \
	X(read, "granary_tier_read_bytes_total", COUNTER, "bytes", "Bytes read by the worker")     \
	X(refused, "granary_tier_refused_total", COUNTER, "chunks", "Chunks not admitted: full")   \
	X(mismatches, "granary_tier_mismatches_total", COUNTER, "pieces", "Pieces dropped: checksum")\
	X(io_errors, "granary_tier_io_errors_total", COUNTER, "calls", "Failed disk operations")   \
	X(adopted, "granary_tier_adopted_chunks_total", COUNTER, "chunks", "Chunks found at start")\
	X(rebuilt, "granary_tier_index_rebuilds_total", COUNTER, "rebuilds", "Indexes rebuilt from chunk files")

COUNTER_STRUCT(tier_counters, TIER_COUNTERS);
const struct tier_counters *tier_set_counters(const struct tier_set *set);
const struct counter_info *tier_counter_table(uint32_t *ret_n);
