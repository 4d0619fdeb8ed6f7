/* All tiers of a worker, and the map of their chunks, in shards. See tiers.h and
 * chunk_internal.h. */
#pragma once

#include "base/buffers.h"
#include "base/periodic.h"
#include "tiers/chunk_internal.h"
#include "tiers/descriptor_internal.h"
#include "tiers/publish_internal.h"
#include "tiers/space_internal.h"
#include "tiers/tier_internal.h"
#include "tiers/watch_internal.h"

#define SET_SHARDS    64u
#define SET_TIERS_MAX 16u
#define SET_MAGIC     0x54534554u

struct shard {
	pthread_mutex_t lock;
	pthread_cond_t settled; /* a chunk left CREATING or UNLINKING, or a move ended */
	struct map map;
};

struct tier_set {
	uint32_t magic;
	uint32_t n_tiers;
	struct tier *tiers[SET_TIERS_MAX];
	struct shard shards[SET_SHARDS];
	struct descriptor_cache descriptors;
	struct buffers bounce; /* of CHUNK_IO_BYTES, for memory of callers that is not aligned */
	struct pool *
		pool; /* runs `space` and the works of `watch`: a thread for each, since calls to disks may hang */
	struct watch watch;
	struct volumes volumes;
	enum tier_kind slowest; /* of the tiers */
	bool several;           /* speeds */
	int (*next_run)(void *arg, const struct chunk_id *id, uint32_t offset,
		struct piece_run *ret_run); /* or NULL */
	void *next_run_arg;
	struct periodic_work space;
	struct extents extents;
	struct publish publish;
	struct tier_counters counters;
	struct tier_histograms histograms;
};

uint64_t set_hash(const struct chunk_id *id);
struct shard *set_shard(struct tier_set *set, uint64_t hash);
/* The chunk in any state, not referenced. */
struct chunk *set_find_locked(struct shard *shard, const struct chunk_id *id, uint64_t hash);
void set_insert_locked(struct shard *shard, struct chunk *chunk, uint64_t hash);
/* The tier of the chunk, or the one that it moves to, is not in service: nothing waits for them. */
bool set_is_stalled(const struct chunk *chunk);
/* Those who wait for `settled` look again. */
void set_wake_waiters(struct tier_set *set);
/*
 * Takes a live chunk out for ever: UNLINKING, index, file, GONE. False when somebody else did. One
 * that is being moved stays UNLINKING until the move ends: its next life may lie where that writes.
 */
bool set_unlink(struct tier_set *set, struct chunk *chunk);
/* The same, unless it is written or moved. */
bool set_unlink_idle(struct tier_set *set, struct chunk *chunk);
/* Ends what chunk_begin_move() began. Nothing may be left at the new place, or nothing at the old
 * one. */
void set_end_move(struct tier_set *set, struct chunk *chunk);

/* Capacity of a tier that was given none, on a filesystem with `room` bytes that are free or the tier's: all but a tenth, and but
 * 2 GiB for the other users of the filesystem, or a quarter where that is less. */
uint64_t tier_default_capacity(uint64_t room);
/* Fills the map from index and files of a tier just opened. */
int recover_tier(struct tier_set *set, struct tier *tier, struct err *e) __must_check;
/* Tries to bring a tier back that is out: probes the disk, builds a failed index anew from
 * memory. */
void recover_probe(struct tier_set *set, struct tier *tier);
