/*
 * One tier: its directory, identity, lock, index, health, and what is charged to it.
 *
 * Charging. A chunk is charged what the filesystem gave to its file, so a job that touches 1 % of
 * its data burns 1 % and a cache full of partly filled chunks still uses its last MiB. Before bytes
 * are written their blocks (and what table and extent tree may need) are reserved; afterwards the
 * reservation is replaced by the file's real blocks. Hence used = charges + reservations + index
 * never passes the capacity by more than the index's growth between two looks at it, and than the chunks that move out of one
 * extent, of a volume whose quota shrank. An unlinked chunk stays charged until its last reference goes.
 *
 * Room is what capacity and the filesystem's watermark leave. Order of locks: index, shard, chunk,
 * then space, health, descriptor cache, bounce: leaves.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/cleanup.h"
#include "tiers/gate_internal.h"
#include "tiers/health_internal.h"
#include "tiers/identity_internal.h"
#include "tiers/index_internal.h"
#include "tiers/tiers.h"

#define TIER_CAPACITY_MIN (64ull << 20)
/* New chunks need room for one unit, head, table and the tree of extents. */
#define TIER_ADMIT_BYTES ((uint64_t)UNIT_BYTES + CHUNK_HEAD_BYTES + CHUNK_TABLE_BYTES + (32u << 10))
/* A chunk costs about 1.3 KiB of memory: at most one per 256 KiB of capacity. */
#define TIER_BYTES_PER_CHUNK (256ull << 10)
#define TIER_CHUNKS_MIN      4096ull

#define TIER_MAGIC 0x54494552u

struct tier {
	uint32_t magic;
	char *path;
	int dir_fd; /* locked with flock() */
	int chk_fd;
	int move_fd; /* of move/; -1: nothing is moved here */
	enum tier_kind kind;
	bool swaps; /* in memory that the kernel may swap out */
	struct identity identity;
	bool created;               /* by this open */
	_Atomic bool unnamed;       /* no room for the identity of this start: read only */
	_Atomic uint64_t next_file; /* id */
	struct health health;
	struct gate gate;
	dev_t dev; /* of the directory, when it was opened */
	ino_t ino;
	_Atomic bool replaced; /* away: its path leads to the same tier, on another device */
	_Atomic bool away;     /* its path leads elsewhere: out until it comes back (watch.c) */

	pthread_rwlock_t index_lock; /* read: one index call; write: replacing `index` */
	struct index *index;
	char *index_path;
	_Atomic bool index_failed;
	_Atomic uint32_t index_writes;
	_Atomic uint64_t index_bytes; /* charged */

	uint64_t capacity;
	_Atomic uint64_t used;
	_Atomic uint64_t exceeding; /* file id of the extent that moves out past it; 0: none */
	_Atomic uint64_t chunks;
	_Atomic uint64_t blocks; /* present */

	pthread_mutex_t space_lock; /* of the refresh below */
	uint64_t space_checked;     /* monotonic ns */
	/* Bytes above the watermark (the low mark while pressed) when last looked, less what was
	 * reserved since. */
	_Atomic int64_t space;
	_Atomic bool inodes_short;

	uint32_t number;                /* of the tier in its set */
	_Atomic uint64_t held;          /* bytes charged of chunks unlinked and still referenced */
	_Atomic uint64_t buried;        /* part of it: in extents in which others live */
	_Atomic bool pressed;           /* at its watermark: admits nothing up to the low mark */
	struct tier_counters *counters; /* the set's */
};

/* claim.c: makes or finds the tier in its directory and locks it; -EXDEV: made on another device. */
int tier_claim(struct tier *tier, const struct tier_config *config, struct err *e) __must_check;
/* It was just made and is refused: nothing of it stays. */
void tier_unclaim(struct tier *tier);
int tier_begin_start(
	struct tier *tier, const struct tier_config *config, struct err *e) __must_check;
/* The line for a directory that cannot be used. Returns `r`. */
int tier_refuse_access(const char *path, int r, struct err *e);

/* Opens the directory as tiers.h says; the index is opened, not read. */
int tier_open(const struct tier_config *config, struct tier_counters *counters,
	struct tier **ret_tier, struct err *e) __must_check;
/* The struct alone; the directory is not looked at. `counters` may be NULL without tier_open(). */
int tier_make(const char *path, struct tier_counters *counters, struct tier **ret_tier,
	struct err *e) __must_check;
/* -ENOSPC: too small, or the filesystem is. */
int tier_set_capacity(struct tier *tier, uint64_t capacity, struct err *e) __must_check;
void tier_free(struct tier *tier); /* NULL is allowed */
DEFINE_CLEANUP(struct tier *, tier_free);

/* May its chunks be touched? Not while it is out or a call to its disk does not return. */
static inline bool tier_in_service(const struct tier *tier)
{
	return health_get(&tier->health) != HEALTH_OUT && !gate_is_stalled(&tier->gate);
}

/* A name that no chunk file had before. */
uint64_t tier_new_file_id(struct tier *tier);

/* Takes room for bytes about to be written. -ENOSPC; `at_least` more must be left besides. */
int tier_reserve(struct tier *tier, uint64_t bytes, uint64_t at_least) __must_check;
/* The same, bound only by the filesystem's watermark: for a copy whose original is freed soon, together with more than the copy
 * takes. */
int tier_reserve_past_capacity(struct tier *tier, uint64_t bytes, uint64_t at_least) __must_check;
/* Replaces a reservation by what is really charged. */
void tier_settle(struct tier *tier, uint64_t reserved, uint64_t charged);
/* Bytes that may still be reserved. Never blocks. */
uint64_t tier_room(const struct tier *tier);
/* Held bytes that come back as soon as no reader has them any more: those in an extent in which others
 * live do not. Never blocks. */
uint64_t tier_soon(const struct tier *tier);
/* Bytes that must come free until the low mark is reached; 0 while not pressed. Never blocks. */
uint64_t tier_missing(const struct tier *tier);
/* Looks at the filesystem when the last look is old; `now` forces it. */
void tier_refresh_space(struct tier *tier, bool now);

/* Notes the outcome of a disk call that began at `began` (monotonic ns); returns `code`. */
int tier_io(struct tier *tier, int code, uint64_t began);

/* Index calls; a failing one takes the tier out. */
int tier_index_put(struct tier *tier, const struct index_row *row);
int tier_index_remove(struct tier *tier, const struct chunk_id *id);
/* Removes index/ and opens an empty one in its place. */
int tier_index_recreate(struct tier *tier, struct err *e) __must_check;
/* Charges what index/ takes now. */
void tier_index_charge(struct tier *tier);

/* Writes and reads back a file; 0 when the disk works. */
int tier_probe(struct tier *tier) __must_check;
