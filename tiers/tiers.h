/*
 * Tiers: where bytes lie on a worker (docs/formats.md). A tier is a directory with a capacity:
 *
 *	granary.tier	identity: uuid, device, format, feature bits, boot id of the last start
 *	index/		RocksDB: chunk id -> file id, place, state, class
 *	chk/xx/ID	one chunk: 16 MiB of data (sparse while filling), a head, the piece table
 *	move/xx/ID	one on its way from another tier
 *	ext/VOL.LIN/N	an extent of a volume that is to be here whole: its chunks in one file
 *
 * Nothing here knows keys or origins: callers name a run of pieces of one object by its offset in
 * the volume, its object seed (catalog.h: piece_object_seed) and the number of its first piece.
 *
 * The files' formats are locate/chunk_format.h and locate/extent_format.h.
 *
 * An entry is written after its piece's data, so a non-zero entry is a present piece: bitmap,
 * checksums and recovery in one. A published byte never changes; eviction unlinks whole files.
 *
 * States of a piece as callers see it; FILLING belongs to the caller's single flight and is not
 * stored:
 *
 *	ABSENT ──write──► CLEAN ──mismatch──► ABSENT
 *	UNVERIFIED ──read ok──► CLEAN
 *	UNVERIFIED ──mismatch──► ABSENT
 *
 * UNVERIFIED is what is present in the table and was written under another boot.
 *
 * Threads: all functions block on the disk unless stated, and may be called from any thread except
 * a loop. tier_chunk_find(), tier_chunk_present() and tier_chunk_bitmap() never block on I/O and
 * may be called on a loop.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/budget.h"
#include "base/counter.h"
#include "base/histogram.h"
#include "base/err.h"
#include "base/layout.h"
#include "base/policy.h"
#include "locate/chunk_format.h"

/* Reading calls, and as many writing ones, that a tier lets through at a time: the threads that a
 * disk which hangs may hold. Others wait, and are turned away with -EIO once it is seen. */
#define TIER_CALLS 4u

struct tier_set; /* all tiers of a worker */
struct chunk;    /* one cached chunk; reference-counted */

/* What a tier lies on, the fastest first. */
enum tier_kind {
	TIER_KIND_ASK, /* the kernel is asked */
	TIER_RAM,      /* tmpfs: empty after a reboot, which is as it should be */
	TIER_NVME,
	TIER_SSD,
	TIER_HDD,
};
const char *tier_kind_name(enum tier_kind kind); /* "auto", "ram", ... */
int tier_kind_parse(const char *name, enum tier_kind *ret_kind) __must_check;

struct tier_config {
	const char *path;
	enum tier_kind kind;
	/* Bytes the tier may charge, index included; 0: of the filesystem's free and own bytes all but
	 * a tenth, and but 2 GiB or a quarter. */
	uint64_t capacity;
	bool create; /* make the tier when the directory is missing or empty */
	/* Directory outside of the tier's disk where tiers are remembered, so that none is made in
	 * the bare mount point of a disk that is not mounted; NULL: they are not. */
	const char *remembered;
};

/*
 * Makes a tier in a missing or empty directory, whatever was there before; `config->capacity` is
 * what it will hold when a later open does not say. With `adopt` takes over one that was made on
 * another device instead: all its bytes are checked before they are used. -EEXIST: there is one
 * already; -EFBIG: its filesystem is smaller than the capacity; else as tier_set_open().
 */
int tier_init(const struct tier_config *config, bool adopt, struct err *e) __must_check;

/*
 * Opens every tier or none; of 0 tiers nothing is ever admitted. With `create`, a missing or empty
 * directory becomes a tier; a directory with other contents is refused (-ENOTEMPTY), one of a newer
 * format too (-EPROTONOSUPPORT), one in use by another process (-EBUSY), too small a capacity or
 * filesystem (-ENOSPC), not writable (-EACCES/-EROFS), made on another device (-EXDEV), missing
 * where one on another device was (-ENODEV): each with its line. Loads the index; a lost or damaged
 * index is rebuilt from the chunk files.
 */
int tier_set_open(const struct tier_config *configs, uint32_t n, struct tier_set **ret_set,
	struct err *e) __must_check;
/* Publishes what is written (no fsync of data), closes; every chunk reference must be gone. NULL is
 * allowed. */
void tier_set_free(struct tier_set *set);

/* Takes effect for what is admitted from now on; a quota that shrank is met by evicting. -ENOMEM.
 * Volumes without a policy have that of all zeros. */
int tier_set_policy(struct tier_set *set, const struct volume_id *volume,
	const struct tier_policy *policy) __must_check;

/* Readers asked for `bytes` of a volume whose objects have `size` bytes together (0: as was said
 * before): the measure of what its cached bytes are worth against those of other volumes. */
void tier_volume_asked(
	struct tier_set *set, const struct volume_id *volume, uint64_t size, uint64_t bytes);

struct tier_volume_status {
	struct tier_policy policy;
	uint64_t charged; /* bytes, with reservations */
	uint64_t held;    /* part of them: unlinked, and not let go of by readers */
	uint64_t evicted; /* bytes since the set was opened */
	uint64_t chunks;
	/* Counts changes of what is present: while it is the same, so are tier_set_volume_bytes() of all lineages. */
	uint64_t changes;
};
/* False when nothing is known of the volume. */
bool tier_volume_status(struct tier_set *set, const struct volume_id *volume,
	struct tier_volume_status *ret_status) __must_check;

/*
 * The map of chunks for readers on this node (locate/chunk_map.h), of `bytes` at most: from now on
 * it is in step with the set's chunks; what goes leaves it before its file does. Once. -ENOMEM, or
 * why there is no memfd; the functions below are for a set that has one.
 */
int tier_set_publish(struct tier_set *set, uint64_t bytes) __must_check;
/* Of this map; 0: there is none. */
uint64_t tier_map_start(const struct tier_set *set);
/* A new descriptor for a reader; the caller closes it. */
int tier_map_fd(const struct tier_set *set, int *ret_fd) __must_check;
/* A reader read so many bytes of the chunk of that slot; any number is allowed. */
void tier_map_note_read(struct tier_set *set, uint32_t slot, uint64_t bytes);

struct tier_map_use {
	uint64_t bytes;
	uint32_t chunks;
	uint32_t max;
	uint64_t refused; /* times that there was no room */
};
/* All zeros without a map. */
void tier_map_use(const struct tier_set *set, struct tier_map_use *ret_use);

/* A cached chunk, referenced, or NULL. Never blocks on I/O. */
struct chunk *tier_chunk_find(struct tier_set *set, const struct chunk_id *id);

/* The id of the file that a cached chunk is stored in, which chunks of an extent share; 0: none. *ret_stalled: its tier, or the one it moves to,
 * is not in service, so a write of the chunk fails with -EIO. Never blocks on I/O. */
uint64_t tier_chunk_file(struct tier_set *set, const struct chunk_id *id, bool *ret_stalled);

/* True when these bytes are cached, also in a tier that is not in service now. Never blocks. */
bool tier_chunk_holds(
	struct tier_set *set, const struct chunk_id *id, uint32_t offset, uint32_t length);

/*
 * The chunk, created empty if it is not there. Admission of a new chunk: -ENOSPC when the capacity
 * has no room for a unit of 1 MiB with its metadata, when the filesystem is at its watermark of
 * bytes or inodes, or when the tier's disk is suspect; the caller bypasses. -EIO: every tier, or
 * the chunk's, is out.
 *
 * Bytes are charged when they are written, by the blocks that the file takes: a job that touches
 * 1 % of a dataset burns 1 %, and partly filled chunks leave nothing of the capacity unused.
 * Charges and reservations of writes under way never exceed the capacity. What was unlinked stays
 * charged until the chunk's last reference is gone.
 */
int tier_chunk_admit(
	struct tier_set *set, const struct chunk_id *id, struct chunk **ret_chunk) __must_check;

/* Why a chunk is here. */
enum tier_class {
	TIER_OWNED,
	TIER_COPY, /* another worker owns it: goes first */
};

/* Why one is wanted. */
enum tier_want {
	TIER_WANT_READ,  /* a reader waits for it: what may go, goes for it */
	TIER_WANT_AHEAD, /* one is about to read it: the same, but it counts as unread */
	TIER_WANT_FILL,  /* a neighbour: nothing goes for it */
};

struct tier_admission {
	enum tier_class class;
	enum tier_want want;
};

/* As tier_chunk_admit(), which is for an owned chunk that a reader waits for. */
int tier_chunk_admit_as(struct tier_set *set, const struct chunk_id *id,
	const struct tier_admission *how, struct chunk **ret_chunk) __must_check;

/* It was evicted, dropped or moved: who still has its file open should close it. Never blocks. */
bool chunk_is_dropped(const struct chunk *chunk);

/* A run of whole pieces of one object inside one chunk. */
struct piece_run {
	uint32_t offset;      /* in the chunk, BLOCK_BYTES-aligned */
	uint32_t length;      /* bytes; only the object's end may be no multiple of PIECE_BYTES */
	uint64_t object_seed; /* piece_object_seed() of the object's (key, tag) */
	uint64_t first_piece; /* number of the first piece in its object */
	/* Of a write: the data begins at a multiple of BLOCK_BYTES in memory, and is followed by zeros up to one. It is
	 * written from there, without a copy. */
	bool whole_blocks;
};

/* A run to be written. */
struct chunk_part {
	struct piece_run run;
	const void *data;
	const uint64_t *sums; /* of its pieces, as chunk_write_summed() takes them */
};

/*
 * Tells the tiers where objects lie, so that pieces are checked when a chunk moves: next_run() gives
 * the run of the object at `offset` of the chunk, or of the next one (from the first of its pieces
 * in the chunk); -ENOENT: none; -EAGAIN: not known now. Called on threads of the tiers; once, before
 * chunks move.
 */
void tier_set_runs(struct tier_set *set,
	int (*next_run)(
		void *arg, const struct chunk_id *id, uint32_t offset, struct piece_run *ret_run),
	void *arg);

/* A reader wanted bytes of it, also when they were not here or came through a descriptor. */
void chunk_note_read(struct chunk *chunk);

/* Why it is here; and: for another reason from now on, as tier_set_classify() says it. */
enum tier_class chunk_class(const struct chunk *chunk);
void chunk_set_class(struct chunk *chunk, enum tier_class class);

/* A number of the caller's, 0 at first; gone with the chunk, and with this process. */
void chunk_set_tag(struct chunk *chunk, uint32_t tag);
uint32_t chunk_tag(const struct chunk *chunk);

struct chunk *chunk_ref(struct chunk *chunk);
void chunk_unref(struct chunk *chunk); /* NULL is allowed; may close descriptors */
/* The same for a loop, which must not wait for a disk: what there is to close is closed by a thread of the pool. The pool ends
 * before the set does. With its queue full, or without memory, it is closed here. */
struct pool;
void chunk_unref_by(struct chunk *chunk, struct pool *pool);

const struct chunk_id *chunk_id_of(const struct chunk *chunk);

/*
 * Writes the run's data (`length` bytes; the last block is padded with zeros on disk), then its
 * entries, then marks the blocks present. Computes the checksums. Writing present pieces again is
 * harmless (the same bytes by construction) and skipped. -ENOSPC (no room, or the chunk was dropped
 * meanwhile), -EIO: the pieces of the MiB that failed are not marked; the tier's health is updated.
 * -EINVAL: not a run.
 */
int chunk_write(struct chunk *chunk, const struct piece_run *run, const void *data) __must_check;

/* The same with the checksums of the run's pieces, which the caller has compared: they are stored as
 * they are. NULL: computed. */
int chunk_write_summed(struct chunk *chunk, const struct piece_run *run, const void *data,
	const uint64_t *sums) __must_check;

/*
 * The same with several runs, each of which begins in the block after the end of the one before, UNIT_BYTES together at
 * most: one write of their data and one of their entries. All or none of them is marked. -EEXIST: some is present, so
 * nothing was done. After -EEXIST and -ENOSPC they can be written one by one.
 */
int chunk_write_parts(struct chunk *chunk, const struct chunk_part *parts, uint32_t n) __must_check;

/*
 * Reads and checks whole pieces: `out` gets run->length bytes. UNVERIFIED pieces become CLEAN.
 * -ENODATA when a piece is absent; -EBADMSG on a mismatch, -EIO when the disk cannot read them:
 * those pieces are ABSENT afterwards, counted, and the caller fetches them again.
 */
int chunk_read(struct chunk *chunk, const struct piece_run *run, void *out) __must_check;

/* What a piece table says of a block where a piece begins; length 0: none does. */
struct chunk_sum {
	uint64_t sum;
	uint32_t length; /* bytes */
};

/*
 * Whole blocks as they lie there, with what the piece table says of them, for somebody elsewhere who
 * compares the two: nothing is checked here. `out` gets `length` bytes, which are at most UNIT_BYTES,
 * through the page cache, and `sums` an entry for each block. Blocks that hold no piece are of any content.
 * -EAGAIN: some are UNVERIFIED, so that chunk_read() must look at them first; -EIO as there.
 */
int chunk_read_blocks(struct chunk *chunk, uint32_t offset, uint32_t length, void *out,
	struct chunk_sum *sums) __must_check;
/* The same of what lies in memory; -EAGAIN when the disk would have to be waited for, too. */
int chunk_read_blocks_now(struct chunk *chunk, uint32_t offset, uint32_t length, void *out,
	struct chunk_sum *sums) __must_check;

/*
 * The same without a copy: the pages themselves are in `pipe` then, an empty one with room for `length` bytes
 * (F_SETPIPE_SZ). They stay what they are, whatever becomes of the chunk: what lies there later has pages of
 * its own. The exception is a piece that was damaged, which is written again on a filesystem without O_DIRECT;
 * who compares sees it. Of a failure the pipe may keep some.
 */
int chunk_splice_blocks_now(struct chunk *chunk, uint32_t offset, uint32_t length, int pipe,
	struct chunk_sum *sums) __must_check;

/* A reader found these pieces damaged: they are read and checked again here, and ABSENT afterwards
 * if so. 0: they are fine; -EBADMSG, -EIO: dropped; -ENODATA: absent already. */
int chunk_recheck(struct chunk *chunk, const struct piece_run *run) __must_check;

/* True when every block of [offset, offset + length) is present (CLEAN or UNVERIFIED). Never
 * blocks. */
bool chunk_present(const struct chunk *chunk, uint32_t offset, uint32_t length);
/* True when some block of it is UNVERIFIED. Never blocks. */
bool chunk_unverified(const struct chunk *chunk, uint32_t offset, uint32_t length);
/* Snapshot of the presence bits. Never blocks. */
void chunk_bitmap(const struct chunk *chunk, uint8_t out[CHUNK_BITMAP_BYTES]);
/* Bytes present. Never blocks. */
uint64_t chunk_present_bytes(const struct chunk *chunk);

/*
 * A new descriptor on the file that holds the chunk, its own or its extent's, for handing to a
 * reader on this node: read-only, O_DIRECT where the filesystem has it. The caller closes it. Data
 * may be read from it at every offset whose blocks are present; the piece table too.
 */
int chunk_open_fd(struct chunk *chunk, int *ret_fd) __must_check;
/* Bytes of the extent in whose file the chunk lies (locate/extent_format.h); 0: it has its own. */
uint64_t chunk_extent_bytes(const struct chunk *chunk);

/* What a worker knows of a volume. */
struct tier_layout {
	uint64_t end;          /* of the volume */
	uint64_t used;         /* bytes of it that objects take */
	uint64_t extent_bytes; /* 0: as the image has it, layout_extent_bytes() */
	bool whole;            /* this worker is to hold all of it */
};

/*
 * Chunks of a volume that is to be here whole, and fits into tiers and quota, lie in extents from
 * now on; those of others get files of their own. What is there already follows in the background.
 * -ENOMEM, -ENOSPC: too many volumes are known; nothing changes.
 */
int tier_set_layout(struct tier_set *set, const struct volume_id *volume, uint64_t lineage,
	const struct tier_layout *layout) __must_check;
/* Bytes that all of such a volume would be charged. */
uint64_t tier_layout_need(const struct tier_layout *layout);
/* Bytes that the volume may take, by its quota and what is free, with those that it has; *ret_extents:
 * some of it lies in extents, where only whole ones do. Never blocks on I/O. */
uint64_t tier_volume_room(
	struct tier_set *set, const struct volume_id *volume, uint64_t lineage, bool *ret_extents);

struct tier_status {
	const char *path; /* borrowed from the set */
	/* "ok", "stalled", "suspect", "out"; "replaced": its disk came back as another device, and it is
	 * used again once the set is opened again. */
	const char *state;
	char why[192]; /* it is not "ok", or has no room on its filesystem; "" */
	uint64_t capacity;
	uint64_t used; /* charged */
	uint64_t chunks;
	uint64_t data_bytes; /* bytes present */
	uint64_t held;       /* part of used: unlinked, and not let go of by readers */
	enum tier_kind kind;
	bool swaps;       /* in memory that the kernel may swap out */
	uint64_t extents; /* extent files */
};
uint32_t tier_set_count(const struct tier_set *set);
/* fn is called at every change of a tier's state, on a thread of the set; NULL: none is. A call of the previous fn has returned when this
 * returns, so fn must not call it. */
void tier_set_on_state(struct tier_set *set,
	void (*fn)(void *arg, const char *path, const char *state, const char *why), void *arg);
void tier_set_status(struct tier_set *set, uint32_t tier, struct tier_status *ret_status);

/* True when no tier has room for another chunk. Never blocks. */
bool tier_set_full(struct tier_set *set);
/* True when callers had better not fetch what no reader waits for: no new chunk of the volume would be
 * admitted now, or, of neighbours (TIER_WANT_FILL), there is no room for a whole one. Never blocks. */
bool tier_volume_full(
	struct tier_set *set, const struct volume_id *volume, enum tier_want want) __must_check;

/* By volume, lineage, chunk: <0, 0, >0. */
int chunk_id_compare(const struct chunk_id *a, const struct chunk_id *b);
/*
 * The lowest ids, in order and at most `max`, of cached chunks that come after `after` (NULL: from
 * the first on); `unverified`: of those with UNVERIFIED pieces. Returns how many. Looks at every
 * chunk; never blocks on I/O.
 */
uint32_t tier_set_list(struct tier_set *set, const struct chunk_id *after, bool unverified,
	struct chunk_id *ret_ids, uint32_t max);
/* Bytes UNVERIFIED. Never blocks on I/O. */
uint64_t tier_set_unverified(struct tier_set *set);

/* Unlinks every chunk of a (volume, lineage) that `keep` does not want, with NULL all; for dropped
 * generations. Returns bytes freed. */
uint64_t tier_set_drop(struct tier_set *set, const struct volume_id *volume, uint64_t lineage,
	bool (*keep)(void *arg, uint64_t chunk), void *arg);

/* Lineages of a volume that have chunks, at most `max` of them; how many. */
uint32_t tier_set_lineages(
	struct tier_set *set, const struct volume_id *volume, uint64_t *out, uint32_t max);

/* Present bytes of one volume and lineage over all tiers. */
uint64_t tier_set_volume_bytes(
	struct tier_set *set, const struct volume_id *volume, uint64_t lineage);
/* Of these, bytes of copies. */
uint64_t tier_set_copy_bytes(
	struct tier_set *set, const struct volume_id *volume, uint64_t lineage);

/*
 * A look at a chunk, for tier_set_classify(): why it is here, and how much of it. Its fields are a copy.
 */
struct tier_chunk_look {
	struct chunk_id id;
	enum tier_class class;
	uint64_t bytes; /* present */
};
/*
 * Says anew why chunks are here, as slots moved: `which` is called for each one, under a lock, so that
 * it may not call here, and returns what it is now. It is remembered over a restart once
 * tier_set_keep_classes() was called. Returns how many changed.
 */
uint64_t tier_set_classify(struct tier_set *set,
	enum tier_class (*which)(void *arg, const struct tier_chunk_look *look), void *arg);

/* Writes down the classes that are others than those written: how many. May block on the disk. */
uint64_t tier_set_keep_classes(struct tier_set *set);

#define TIER_COUNTERS(X)                                                                         \
	X(chunks, "granary_tier_chunks", GAUGE, "chunks", "Chunks cached")                       \
	X(used, "granary_tier_used_bytes", GAUGE, "bytes", "Bytes charged to the tiers")         \
	X(capacity, "granary_tier_capacity_bytes", GAUGE, "bytes", "Bytes the tiers may hold")   \
	X(written, "granary_tier_written_bytes_total", COUNTER, "bytes", "Bytes written")        \
	X(read, "granary_tier_read_bytes_total", COUNTER, "bytes", "Bytes read by the worker")   \
	X(refused, "granary_tier_refused_total", COUNTER, "chunks", "Chunks not admitted: full") \
	X(over_quota, "granary_tier_over_quota_total", COUNTER, "chunks",                        \
		"Chunks not admitted: quota of their volume")                                    \
	X(evicted, "granary_tier_evicted_chunks_total", COUNTER, "chunks", "Chunks evicted")     \
	X(evicted_bytes, "granary_tier_evicted_bytes_total", COUNTER, "bytes",                   \
		"Bytes evicted, as charged")                                                     \
	X(promoted, "granary_tier_promoted_chunks_total", COUNTER, "chunks",                     \
		"Chunks moved to a faster tier")                                                 \
	X(demoted, "granary_tier_demoted_chunks_total", COUNTER, "chunks",                       \
		"Chunks moved to a slower tier, or for room")                                    \
	X(held, "granary_tier_held_bytes", GAUGE, "bytes",                                       \
		"Bytes unlinked that readers still hold")                                        \
	X(into_extents, "granary_tier_into_extents_total", COUNTER, "chunks",                    \
		"Chunks moved into extents")                                                     \
	X(out_of_extents, "granary_tier_out_of_extents_total", COUNTER, "chunks",                \
		"Chunks moved out of extents")                                                   \
	X(mismatches, "granary_tier_mismatches_total", COUNTER, "pieces",                        \
		"Pieces dropped: checksum")                                                      \
	X(io_errors, "granary_tier_io_errors_total", COUNTER, "calls", "Failed disk operations") \
	X(adopted, "granary_tier_adopted_chunks_total", COUNTER, "chunks",                       \
		"Chunks found at start")                                                         \
	X(rebuilt, "granary_tier_index_rebuilds_total", COUNTER, "rebuilds",                     \
		"Indexes rebuilt from chunk files")

#define TIER_HISTOGRAMS(X)                                                       \
	X(read_time, "granary_tier_io_seconds", "op", "read",                    \
		"Reading or writing some pieces of a chunk and their checksums") \
	X(write_time, "granary_tier_io_seconds", "op", "write",                  \
		"Reading or writing some pieces of a chunk and their checksums")

HISTOGRAM_STRUCT(tier_histograms, TIER_HISTOGRAMS);
const struct tier_histograms *tier_set_histograms(const struct tier_set *set);
const struct histogram_info *tier_histogram_table(uint32_t *ret_n);

COUNTER_STRUCT(tier_counters, TIER_COUNTERS);
const struct tier_counters *tier_set_counters(const struct tier_set *set);
const struct counter_info *tier_counter_table(uint32_t *ret_n);
