/*
 * What one version of a slot table changed of the one before it, as it travels to everybody at once: a rack of 25 among
 * a thousand workers that comes back changes 5,000 slots, and ten thousand mounts receive them.
 *
 *	delta = u32 bytes that follow, then for each slot that changed, ascending:
 *		u8 slots between it and the one before, 0 to 254; 255: so many, and another u8
 *		u8 code: two bits for each of owner, previous, replicas[0], replicas[1], lowest first
 *		u16 for each of them that is said (code 1), in that order
 *
 *	code	owner			previous		replicas[0]		replicas[1]
 *	0	as it was		as it was		as it was		as it was
 *	1	said			said			said			said
 *	2	replicas[0] was		owner was		replicas[1] was		replicas[0] was
 *	3	previous was		nobody			nobody			nobody
 *
 * Little-endian. "was" is of the same slot before this delta. Deltas of versions in a row, one behind the other, are
 * the delta of all of them.
 *
 * Pure functions over plain memory.
 */
#pragma once

#include <stddef.h>
#include "base/buf.h"
#include "placement/placement.h"

/* Appends it; nothing when there is no difference. All PLACEMENT_SLOTS of both. As buf_append(). */
int placement_delta_encode(const struct placement_slot *from, const struct placement_slot *to,
	struct buf *out) __must_check;

/* Called for each slot that changes, in order, with its old value; `arg` is the caller's. */
struct placement_delta_ops {
	struct placement_slot (*get)(void *arg, uint32_t slot);
	void (*put)(void *arg, uint32_t slot, struct placement_slot is);
};

/* `ops` NULL: looks only whether it could. -EBADMSG, and a part of it was done: look first. */
int placement_delta_walk(const void *delta, size_t len, const struct placement_delta_ops *ops,
	void *arg) __must_check;

/* Changes `slots`, PLACEMENT_SLOTS of them; likewise. */
int placement_delta_apply(struct placement_slot *slots, const void *delta, size_t len) __must_check;
