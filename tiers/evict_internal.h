/*
 * Making room: which chunk goes, and the unlinking of it.
 *
 * In this order, inside a class the oldest read first:
 *	1. what was not read yet (but not what came in the last EVICT_GRACE_NS),
 *	2. local copies,
 *	3. owned chunks of the volume of the lowest rank.
 * For a quota that shrank: copies (copies that stay are dropped later anyway), what was not read yet, the rest.
 *
 * For a chunk of volume V a chunk of V itself may go only when V is `lru` (or for an owned chunk
 * its copies); one of another volume only when that is not pinned and ranks lower: by priority, or
 * by a worth of less than a quarter. A watermark takes only from `lru` volumes and local copies; a
 * quota that shrank takes anything of its volume.
 * A chunk with writes under way, or on its way to another tier, stays.
 *
 * Unlinked bytes that a reader still holds come back when he lets go: nothing more is evicted for
 * what they will make room for.
 *
 * Threads: any; evict_possible() only looks, the others unlink files.
 */
#pragma once

#include "tiers/policy_internal.h"

#define EVICT_GRACE_NS (10ull * 1000000000ull)
/* Most that one admission or write unlinks itself; the rest is done behind its back. */
#define EVICT_INLINE 4u

struct tier;

/* For whom room is wanted. */
struct evict_for {
	struct volume_space *space; /* NULL: a watermark */
	enum tier_class class;
	bool shrink;   /* the volume's quota shrank: from its own chunks, whatever its policy */
	bool own_only; /* its quota has no room: only its own chunks help */
};

/* Unlinks one chunk, in `tier` or (NULL) in any. Bytes that come free, now or when their holders
 * let go; 0: nothing may go. */
uint64_t evict_one(struct tier_set *set, const struct evict_for *why, const struct tier *tier);

/* Makes room for `need` bytes in the tier; at most `most` chunks go. 0; -ENOSPC: not, or not yet. */
int evict_room(struct tier_set *set, const struct evict_for *why, struct tier *tier, uint64_t need,
	uint32_t most) __must_check;
/* Makes room under the volume's quota. */
int evict_quota(struct tier_set *set, const struct evict_for *why, uint64_t need,
	uint32_t most) __must_check;

/* Whether anything may go for that. */
bool evict_possible(struct tier_set *set, const struct evict_for *why);
