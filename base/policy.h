/*
 * How much of a source a worker keeps, and what goes first: what an operator says with a mount, the
 * master remembers, and every tier follows.
 *
 * A value without owner; nothing blocks.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/check.h"

/* How a volume behaves once it is full, by its quota or because nothing else may go. */
enum tier_evict {
	TIER_EVICT_NEVER, /* what is there stays; what comes is bypassed: the best for epochs */
	TIER_EVICT_LRU,   /* its least recently read chunks go */
};

#define PRIORITY_MAX       1000u       /* 0: the default */
#define TIER_EVICT_CHOICES "never|lru" /* names, in the order of the enum */

/*
 * How many workers of a cluster keep each byte of a volume: a number, or one of these. With
 * COPIES_AUTO, the default, its owner, and in their extents all that have readers of it on their node
 * and room for all of it.
 */
enum {
	COPIES_AUTO = 0,
	COPIES_SHARED = 1, /* its owner alone */
	COPIES_MAX = 3,    /* owner and the two others of a slot */
	COPIES_EVERYWHERE = 255,
};
#define COPIES_NAME_BYTES 16u
#define COPIES_ALLOWED    "auto, shared, a number from 1 to 3, or everywhere"

/* What an operator set for the bytes of one volume; all zeros is the default. */
struct tier_policy {
	uint64_t quota;   /* bytes charged over all tiers of a worker at most; 0: no bound */
	int32_t priority; /* across volumes the lower goes first */
	bool pin;         /* never evicted for another volume's sake */
	enum tier_evict evict;
	/* What a worker asks of its origin at most; 0: no bound. No business of the tiers. */
	uint64_t origin_bandwidth; /* bytes a second */
	uint64_t origin_requests;  /* a second */
	uint32_t copies;           /* COPIES_AUTO, ...: what the cluster keeps; nor this */
	bool direct; /* its mounts may ask the origin themselves when no worker answers; nor this */
};

/* Which parts of a policy somebody sets; the others stay as they are. */
enum policy_part {
	POLICY_QUOTA = 1,
	POLICY_PRIORITY = 2,
	POLICY_PIN = 4,
	POLICY_EVICT = 8,
	POLICY_BANDWIDTH = 16,
	POLICY_REQUESTS = 32,
	POLICY_COPIES = 64,
	POLICY_DIRECT = 128,
	POLICY_ALL = 255,
};

struct policy_change {
	struct tier_policy to;
	unsigned int parts; /* of enum policy_part */
};

/* True when that made a difference. */
bool policy_apply(struct tier_policy *policy, const struct policy_change *change);

/* "never", "lru". */
const char *tier_evict_name(enum tier_evict evict);
/* -EINVAL: no such name. */
int tier_evict_parse(const char *name, enum tier_evict *ret_evict) __must_check;

/* "auto", "shared", "2", "everywhere". */
void copies_name(uint32_t copies, char out[COPIES_NAME_BYTES]);
/* -EINVAL: it is none of COPIES_ALLOWED. */
int copies_parse(const char *text, uint32_t *ret_copies) __must_check;
/* COPIES_AUTO to COPIES_MAX, or COPIES_EVERYWHERE. */
bool copies_valid(uint64_t copies);
