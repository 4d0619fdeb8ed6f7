/*
 * Extents: files that hold a run of chunks of a volume as the image's devices show it, used while
 * the tiers are to hold the whole volume (docs/decisions/extent-files.md; the file's format is
 * locate/extent_format.h).
 *
 *	ext/VOLUME.LINEAGE/N		extent N
 *	ext/VOLUME.LINEAGE/N.ID		a former file of extent N, whose chunks are being moved
 *	ext/VOLUME.LINEAGE/N.new	one being made; removed at the next start
 *
 *	MAKING ──file made──► LIVE ──its last chunk left──► UNLINKING ──► GONE
 *	   └──failed──► GONE
 *
 * MAKING and UNLINKING hold the extent's place, so that no other thread makes or removes the same name.
 *
 * A chunk *joins* an extent before it is made in it and *leaves* when it is unlinked or moved; the
 * extent goes with the last one that leaves. Its struct, and what it is charged, lives until the
 * last struct chunk that lay in it is freed. What left is not given back to the filesystem before
 * that: a reader may have the file open.
 *
 * Threads: any. `extents.lock` guards the maps, the plans, states and the counts of chunks; it is a
 * leaf, not held over I/O.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include "base/list.h"
#include "base/map.h"
#include "locate/extent_format.h"
#include "tiers/descriptor_internal.h"
#include "tiers/tier_internal.h"

/* "ext/VOLUME.LINEAGE" and "ext/VOLUME.LINEAGE/N.ID", with the NUL. */
#define EXTENT_DIR_BYTES  (4 + 2 * VOLUME_ID_LEN + 1 + 16 + 1)
#define EXTENT_PATH_BYTES (EXTENT_DIR_BYTES + 1 + 20 + 1 + FILE_ID_HEX)

#define EXT_DIR "ext"

struct chunk;
struct volume_space;

enum extent_state {
	EXTENT_MAKING,
	EXTENT_LIVE,
	EXTENT_UNLINKING,
	EXTENT_GONE,
};

#define EXTENT_MAGIC 0x45585445u

struct extent {
	uint32_t magic;
	_Atomic uint32_t refs; /* the map's and one per struct chunk */
	struct volume_id volume;
	uint64_t lineage;
	uint64_t number;
	uint64_t bytes;
	uint64_t file; /* id */
	struct tier_set *set;
	struct tier *tier;
	struct descriptor descriptor;
	struct volume_space *space;
	_Atomic uint64_t charged;  /* what the file takes */
	_Atomic uint64_t orphaned; /* part of it: of no struct chunk */
	_Atomic uint64_t held;     /* part of that: of chunks that were unlinked */
	/* Of sealing (seal.h): */
	_Atomic uint32_t holders; /* nothing of it moves or goes meanwhile */
	_Atomic uint32_t damages; /* pieces found damaged */
	_Atomic uint64_t changes; /* marks that went */
	_Atomic uint64_t written; /* blocks that became present */
	/* Under extents.lock: */
	struct map_node by_number; /* (volume, lineage, number) */
	struct map_node by_file;
	enum extent_state state;
	uint32_t chunks;   /* joined */
	uint32_t complete; /* of them */
	uint64_t dead;     /* bytes charged to chunks that left */
	uint64_t buried;   /* of these, since the start: they come back with the last that leaves */
	bool aside;        /* its name is N.ID: nothing joins any more */
	bool lost;         /* its file was removed behind our back: as `aside` */
	bool scanned;      /* a start looked at all of its places */
	uint32_t *marks;   /* of each chunk, what was verified (seal.c); NULL: nothing */
};

/* What is known of a volume: whether all of it is to be here. Under extents.lock. */
struct extent_plan {
	struct list link;
	struct volume_id volume;
	uint64_t lineage;
	uint64_t bytes; /* of an extent */
	uint64_t need;  /* bytes that all of it would be charged */
	bool wanted;    /* this worker is to hold all of it */
	bool whole;     /* and it fits: its chunks lie in extents */
	bool settled;   /* every chunk lies where it is to; else: */
	bool failed;    /* some could not be moved in this pass */
	uint32_t rest;  /* rounds until it is looked at again */
	uint64_t next;  /* extent to go on with */
};

struct extents {
	pthread_mutex_t lock;
	pthread_cond_t settled; /* an extent left MAKING or UNLINKING */
	struct map by_number;
	struct map by_file;
	struct list plans;
	uint32_t n_plans;
	_Atomic uint64_t damages; /* of all extents */
};

/* The size of the extents that new chunks of a volume join; 0: they do not (extent_plan.c). */
uint64_t extent_plan_bytes_locked(
	struct extents *extents, const struct volume_id *volume, uint64_t lineage);
void extent_plans_free(struct extents *extents);
struct extent_plan *extent_plan_find_locked(
	struct extents *extents, const struct volume_id *volume, uint64_t lineage);
/* Chunks of the volume are to be looked at again. */
void extent_plan_stir_locked(
	struct extents *extents, const struct volume_id *volume, uint64_t lineage);
void extent_plan_stir(struct tier_set *set, const struct volume_id *volume, uint64_t lineage);
/* All of it was dropped. */
void extent_plan_forget(struct tier_set *set, const struct volume_id *volume, uint64_t lineage);
/* Decides about every volume anew, as room came and went. */
void extent_plans_review(struct tier_set *set);

/*
 * Moves a bounded number of chunks, of one extent of one volume after the other, to where they are
 * to lie: into extents, out of them, or out of a file most of which is dead. True: there is more to
 * do. One caller at a time: the work that minds the space, or a test. Layouts may change meanwhile.
 */
bool extents_round(struct tier_set *set);

int extents_init(struct extents *extents) __must_check;
/* Every chunk is freed. */
void extents_release(struct extents *extents);

/* Finds the files in ext/ of a tier just opened; what can never be read again is removed. */
int extents_scan(struct tier_set *set, struct tier *tier) __must_check;
/* The extent of a row found at start, joined; NULL when its file is not there. */
struct extent *extents_join_file(
	struct tier_set *set, const struct tier *tier, uint64_t file, const struct chunk_id *id);
/* Calls fn for each extent of the tier until it fails; for the start, when no other thread is there. */
int extents_each(struct tier_set *set, const struct tier *tier,
	int (*fn)(void *arg, struct extent *extent), void *arg) __must_check;
/* What was found is not used: as before extents_join_file(). */
void extent_leave_found(struct extent *extent);
/* 1 when the place has the chunk's head; 0; or an error of the disk. Pinned. */
int extent_has_head(struct extent *extent, const struct chunk_id *id,
	const struct chunk_place *place) __must_check;
/* Removes extents in which nothing was found. */
void extents_sweep(struct tier_set *set, const struct tier *tier);

/*
 * The extent in which the chunk is to lie, joined; NULL when it is to have a file of its own: the
 * volume does not fit, or the extent cannot be made. `tier` is where a new one would be made.
 */
struct extent *extents_join(struct tier_set *set, const struct chunk_id *id, struct tier *tier);
/* A chunk left, `dead` bytes of which stay in the file; `was_complete` as passed to
 * extent_note_complete(). Unlinks the file of the last. */
void extent_leave(struct extent *extent, bool was_complete, uint64_t dead);
/* Gives the file its other name, so that a new one is made for what still lies in it. */
int extent_set_aside(struct extent *extent) __must_check;

/* The extent of that number which new chunks join, or the one that is being made or removed. */
struct extent *extent_find_locked(
	struct extents *extents, const struct volume_id *volume, uint64_t lineage, uint64_t number);
/* A piece of the chunk was damaged, or the chunk leaves its extent, if it lies in one: it does not
 * count as verified any more (seal.c). */
void extent_unmark(struct chunk *chunk, bool damaged);

struct extent *extent_ref(struct extent *extent);
void extent_unref(struct extent *extent); /* NULL is allowed */

/* Opens when needed, pins. -ENOENT: the file is gone. */
int extent_pin(struct extent *extent) __must_check;
void extent_unpin(struct extent *extent);
/* Its file was removed behind our back: nothing joins it any more. */
void extent_lose(struct extent *extent);

/* Writes the chunk's head to its place, with an empty table; `table` is memory for it. The extent is
 * pinned. */
int extent_chunk_begin(struct extent *extent, const struct chunk_id *id,
	const struct chunk_place *place, uint8_t table[CHUNK_TABLE_BYTES]) __must_check;
/* The head goes: the next start does not find the chunk. */
void extent_chunk_end(struct extent *extent, const struct chunk_place *place);

/*
 * Charging. The file's blocks are charged as they grow, each to the chunk that was written then.
 * They come back all at once: what a struct chunk was charged becomes the extent's own when it is
 * freed.
 */
/* What the file takes now; returns by how much it grew, to be charged to somebody. */
uint64_t extent_charge(struct extent *extent, uint64_t allocated);
/* Takes at most `bytes` of what is charged to no volume, as what a start found is. */
uint64_t extent_take_charge(struct extent *extent, uint64_t bytes);
/* A struct chunk is freed; `held`: it was unlinked. */
void extent_give_charge(struct extent *extent, uint64_t bytes, bool held);

/* True if the chunks that move out of it may exceed the capacity of its tier: one extent at a time, until its bytes are free. */
bool extent_may_exceed(struct extent *extent);
/* Ends that of extents whose volume is within its quota again: nothing moves out of them any more. */
void extents_review_exceeding(struct tier_set *set);

/* A chunk of it became complete, or is no more: the file's mode follows. The extent is pinned. */
void extent_note_complete(struct extent *extent, bool complete);

/* The file itself, when it was made or found. */
void extent_charge_file(struct extent *extent, uint64_t allocated);

/* Relative to the tier's directory; `aside` with the id. */
void extent_path(const struct extent *extent, bool aside, char out[EXTENT_PATH_BYTES]);
/* Makes the file of an extent in state MAKING. */
int extent_make_file(struct extent *extent) __must_check;
/* -EBADMSG, -ENODATA: not an extent's file. */
int extent_read_foot(int fd, struct extent_foot *ret_foot, uint64_t *ret_allocated) __must_check;
/* Removes the file. */
void extent_unlink(struct extent *extent);

/* Live ones, of a tier or (NULL) of all. */
uint32_t extents_count(struct tier_set *set, const struct tier *tier);
