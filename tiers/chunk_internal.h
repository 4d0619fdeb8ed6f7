/*
 * A cached chunk in memory: identity, reference count, state, presence bits.
 *
 *	CREATING ──file made──► FILLING ──last block──► COMPLETE
 *	    │                     │  ▲──a piece dropped─────┘│
 *	    └──failed──► GONE ◄── UNLINKING ◄── dropped ─────┘
 *
 * CREATING and UNLINKING hold the chunk's place in the map so that no other thread makes or removes the
 * same chunk's file meanwhile; find() does not see them. UNLINKING lasts until a move of the chunk has
 * ended, too. The set holds one reference from CREATING
 * to GONE.
 *
 * Locks: the map's place under the shard's lock; state, charge and boot under `lock`; bits are
 * atomic and read without one. `repair` serialises the rare second look at a damaged piece and is
 * held over its I/O; no loop takes it.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include "base/list.h"
#include "base/map.h"
#include "tiers/chunk_file_internal.h"
#include "tiers/descriptor_internal.h"
#include "tiers/extent_internal.h"
#include "tiers/policy_internal.h"
#include "tiers/tier_internal.h"

enum chunk_state {
	CHUNK_CREATING,
	CHUNK_FILLING,
	CHUNK_COMPLETE,
	CHUNK_UNLINKING,
	CHUNK_GONE,
};

#define CHUNK_MAGIC 0x43484e4bu

struct chunk {
	uint32_t magic;
	_Atomic uint32_t refs;
	_Atomic int state; /* enum chunk_state; changed by chunk_set_state_locked() only */
	uint32_t boot;     /* of the tier when last all its pieces were known to be good */
	struct chunk_id id;
	uint64_t file;         /* id */
	struct extent *extent; /* NULL: it has a file of its own; set before the chunk is shared */
	struct chunk_place place;
	_Atomic bool counted; /* among the complete ones of its extent */
	struct tier_set *set;
	struct tier *tier;
	struct map_node node;
	struct list link;     /* in a list of chunks being dropped */
	_Atomic uint32_t tag; /* chunk_tag() */
	struct descriptor descriptor;
	pthread_mutex_t lock;
	pthread_mutex_t repair;
	uint64_t charged;
	bool held; /* unlinked: its charge is part of the tier's and the volume's held bytes */
	_Atomic uint32_t writers; /* writes under way; changed under `lock` */
	bool spill_waits;         /* for the last of them to end; under `lock` */
	_Atomic uint32_t writes;  /* counts pieces that became present, before they are */
	_Atomic uint32_t damages; /* counts pieces found damaged; under extents.lock */
	struct tier
		*_Atomic moving; /* tier of its next or last place: writes wait; set under `lock` */
	bool moved;              /* gone because another tier has it now */
	bool replaces; /* takes the place of another one: the volume's quota has room for one of the two */
	struct extent *leaves; /* the extent that it moves out of, while it moves; NULL: none */
	bool unlinked;         /* its file is gone; its name is taken while `moving` */
	struct volume_space *space;
	_Atomic enum tier_class class;      /* changed under volumes.lock once it is shared */
	_Atomic enum tier_class kept_class; /* as its row in the index has it, at the last look */
	/* Under volumes.lock: */
	struct list queued; /* in a queue of its volume while live */
	bool unread;        /* no reader asked for any of it */
	uint64_t read_at;   /* last, ns; or when it came */
	struct heat heat;
	_Atomic uint32_t present_blocks;
	_Atomic uint32_t unverified_blocks;
	_Atomic uint64_t present[CHUNK_WORDS];
	_Atomic uint64_t unverified[CHUNK_WORDS]; /* a subset of present */
};

/* State CREATING, one reference. NULL without memory. */
struct chunk *chunk_new(struct tier_set *set, struct tier *tier, const struct chunk_id *id);

/* Of a chunk just made: it will lie in the extent, which it joined. */
void chunk_set_extent(struct chunk *chunk, struct extent *extent);
/* Leaves the extent that it lay in; once, by who takes it out of the map. */
void chunk_leave_extent(struct chunk *chunk);
/* Opens the file that it lies in when needed, pins. -ENODATA: it is gone, and the chunk with it. */
int chunk_pin(struct chunk *chunk) __must_check;
/* Pins it when the file is open: -EAGAIN. Never waits for the disk. */
int chunk_pin_open(struct chunk *chunk) __must_check;
void chunk_unpin(struct chunk *chunk);
/* While it is pinned. */
const struct chunk_fds *chunk_fds(const struct chunk *chunk);
/* A new read-only descriptor of the very file that is pinned, whatever its name means by now;
 * `flags`: O_DIRECT, where the filesystem has it, or 0. -ENOENT: it has no name. */
int chunk_fds_reopen(const struct chunk_fds *fds, int flags) __must_check;
/* The mode of the file after the chunk's state turned; pinned. */
void chunk_note_mode(struct chunk *chunk);
/* Makes a chunk in its extent, as tier_set_admit.c does in a file. */
int chunk_make_in_extent(struct chunk *chunk) __must_check;
/* The same without telling the index. */
int chunk_begin_in_extent(struct chunk *chunk) __must_check;
/* After a start: one of the extent's complete chunks, if it is. */
void chunk_count_complete(struct chunk *chunk);
/* Its file, or its place in the extent, is to be found no more. */
void chunk_unlink_file(struct chunk *chunk);
/* What the file takes by now, all of it; returns by how much the charge grew. */
uint64_t chunk_charge_locked(struct chunk *chunk, uint64_t allocated);
/* Of a chunk found in an extent at start: its part of what the extent is charged. */
void chunk_charge_found(struct chunk *chunk);

void chunk_set_state_locked(struct chunk *chunk, enum chunk_state to);
enum chunk_state chunk_state(const struct chunk *chunk);
/* In use: its file is there. */
bool chunk_is_live(const struct chunk *chunk);
/* Live, and it is not written or moved. */
bool chunk_is_idle(const struct chunk *chunk);
/* Writers wait from now on. False: somebody uses or moves it, nothing was done. */
bool chunk_begin_move(struct chunk *chunk, struct tier *to) __must_check;
/* The same after the writers that there are. -EAGAIN: another thread moves it, or it is gone; -EIO: its disk does not
 * answer. */
int chunk_begin_spill(struct chunk *chunk, struct tier *to) __must_check;

/* A write begins: it waits for a move. -ENOSPC: the chunk was dropped; -EAGAIN: it was moved, and
 * is to be found again. */
int chunk_write_begin(struct chunk *chunk) __must_check;
void chunk_write_end(struct chunk *chunk);
/* Its charge counts as held from now on. */
void chunk_hold(struct chunk *chunk);
/* What was held is free. */
void chunk_held_sub(
	struct tier_set *set, struct tier *tier, struct volume_space *space, uint64_t bytes);
/* Takes room for bytes about to be written, out of the volume's quota and the tier; evicts for it
 * what may go. -ENOSPC; `at_least` more must be left besides. */
int chunk_reserve(struct chunk *chunk, uint64_t bytes, uint64_t at_least) __must_check;

/* Marks blocks [first, first + n); counts what changed. */
void chunk_bits_set(struct chunk *chunk, uint32_t first, uint32_t n);
void chunk_bits_clear(struct chunk *chunk, uint32_t first, uint32_t n);
void chunk_bits_verified(struct chunk *chunk, uint32_t first, uint32_t n);
bool chunk_bits_all(const _Atomic uint64_t *words, uint32_t first, uint32_t n);
bool chunk_bits_any(const _Atomic uint64_t *words, uint32_t first, uint32_t n);
/* Takes a table's bits at start, all unverified or none. */
void chunk_bits_load(struct chunk *chunk, const uint64_t present[CHUNK_WORDS], bool verified);

/* Charges what the file really takes, in place of a reservation. */
void chunk_settle(struct chunk *chunk, uint64_t reserved, uint64_t allocated);
/* After a change of bits: FILLING <-> COMPLETE, and all verified; tells the index. True when the
 * state changed, and with it the mode that the file should have. */
bool chunk_note_progress(struct chunk *chunk);
struct index_row chunk_row(struct chunk *chunk);
