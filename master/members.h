/*
 * Who is in the cluster: workers, how they are reached, and in what state they are.
 *
 *	              JOIN                    3 beats missed            --out-after
 *	(none) ────────────► UP ◄──────────────────────────► DOWN ───────────────────► OUT
 *	                     │ ▲          BEAT                 ▲ ▲         BEAT         │
 *	               drain │ │ undrain                       │ └──────────────────────┘ (to UP)
 *	                     ▼ │                               │
 *	                  DRAINING ◄───────────────────────────┘
 *	                     │ remove
 *	                     ▼
 *	                 (removed: its number rests for a day)
 *
 * UP and DOWN own slots, DRAINING and OUT none. The last that owns slots is never put out; nor is anybody
 * while no member at all is heard of, which is when this master was cut off and not they. A master that was
 * just started, or did not run for a while, gives everybody time before it calls anybody down.
 *
 * A number is a worker's for as long as its id is known; a worker with a new id in the place of another (the
 * same addresses on the same host, where the other is not heard of) takes its number over, so that
 * nothing moves when a tier was made anew.
 *
 * Threads: none of its own, no locks: whoever owns it has one (membership.h). Times are monotonic ns and given
 * by the caller. Nothing here blocks: what is to be stored is asked for by member_encode().
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/clock.h"
#include "base/layout.h"
#include "base/map.h"
#include "cluster/view.h"
#include "master/history.h"
#include "master/store.h"
#include "placement/placement.h"

#define MEMBER_BEAT_NS CLOCK_SECOND
#define MEMBER_DOWN_NS (3 * MEMBER_BEAT_NS + MEMBER_BEAT_NS / 2)
#define MEMBER_OUT_NS  (600 * CLOCK_SECOND)
#define MEMBER_REST_S \
	86400 /* of a number that was somebody's: tables that name it are gone by then */
#define MEMBER_HOT        16u  /* pairs of a beat */
#define MEMBER_TEXT_BYTES 128u /* of an address */

struct member {
	struct map_node by_id;
	uint16_t number;
	uint64_t id; /* 0: of a store of version 0.1 to 0.6: the first that joins is it */
	uint64_t run;
	char name[CLUSTER_NAME_BYTES];
	char domain_name[CLUSTER_NAME_BYTES];
	char version[32];
	char *addresses[CLUSTER_ADDRESSES];
	uint32_t n_addresses;
	uint8_t host[CLUSTER_HOST_BYTES];
	uint64_t capacity; /* bytes */
	uint32_t weight;   /* 1 at least */
	uint16_t domain;   /* of the same name, the same number, in this run of the master */
	int64_t joined_s;  /* since 1970 */
	int64_t removed_s; /* since 1970: only its number is left; 0: it is a member */
	bool drain;
	bool drained;     /* nothing is on it alone */
	bool out;         /* its slots moved */
	bool passed_over; /* slots moved while it was down: it has its share once it is up. Stored */
	bool stored;      /* as it is here; else it is to be */
	bool replaces;    /* it took the place of `replaced`, which its taker has not said yet */
	uint64_t replaced; /* id; 0: of the one that had none */

	enum cluster_state state;
	bool heard;        /* in this run of the master */
	uint64_t heard_ns; /* last; what counts as that after a start */
	uint64_t down_ns;  /* since when it is down */

	/* Of its beats. */
	uint32_t in_flight;
	uint64_t served_bytes;
	uint64_t served_rate; /* bytes a second, of the last two beats */
	uint64_t only_copies;
	bool counted;          /* only_copies is known, of this drain */
	uint32_t drain_number; /* not 0 while it is drained; another in each run of the master */
	bool full;
	uint16_t hot[MEMBER_HOT];
	uint32_t hot_kib[MEMBER_HOT]; /* a second */
	uint32_t n_hot;
};

struct members_config {
	uint64_t out_after_ns;
	uint64_t grace_ns;      /* after the start */
	uint64_t down_after_ns; /* without a beat; 0: MEMBER_DOWN_NS */
};

struct members {
	struct members_config config;
	struct member *all[PLACEMENT_MAX]; /* by number; NULL: none */
	struct map ids;
	uint32_t n;   /* members: not those whose number rests */
	uint32_t top; /* numbers below it may be somebody's */
	uint64_t looked_ns;
	uint64_t back_ns; /* since when anybody is heard of: the time to be out begins then */
	bool silent;      /* no member is heard of */
	/* Told of every change that tables say: `moves`, slots may, too. */
	void (*on_change)(void *arg, const struct member *member, bool moves);
	void *arg;
};

/* -ENOMEM. */
int members_init(
	struct members *members, const struct members_config *config, uint64_t now) __must_check;
void members_release(struct members *members);

/* What a JOIN says, checked; texts are borrowed. */
struct member_join {
	uint64_t id;
	uint64_t run;
	const char *name;
	const char *domain; /* "": its host */
	const char *version;
	const char *addresses[CLUSTER_ADDRESSES];
	uint32_t n_addresses;
	uint64_t capacity;
	uint32_t weight; /* 0: by its capacity */
	uint8_t host[CLUSTER_HOST_BYTES];
};

/* -EINVAL with the line: a name, an address or a number that cannot be. */
int member_join_check(const struct member_join *join, struct err *e) __must_check;

/*
 * Enters it, or takes down what changed of it. *ret_member is borrowed; when it is not `stored` it must be
 * before it is answered. -EEXIST: another member that is up has its id; -EPERM: it was removed, and this is
 * the same start of it; -ENOSPC; -ENOMEM: each with its line.
 */
int members_join(struct members *members, const struct member_join *join, uint64_t now,
	int64_t now_s, struct member **ret_member, struct err *e) __must_check;

/* What a BEAT says. */
struct member_beat {
	uint64_t id;
	uint64_t run;
	uint32_t in_flight;
	uint64_t served_bytes;
	const uint32_t *hot; /* pairs */
	uint32_t n_hot;      /* numbers, two each */
	bool has_only_copies;
	uint64_t only_copies;
	uint32_t drain; /* number that they were counted for */
	bool full;
};

/* NULL: it must join (again). Else who it is, borrowed. */
struct member *members_beat(struct members *members, const struct member_beat *beat, uint64_t now);

/* Who is down or out by `now`. */
void members_look(struct members *members, uint64_t now);

/* By name, number or id (16 digits of hex), of those that are members. -ENOENT; -EEXIST: several have that
 * name; each with its line. */
int members_find(struct members *members, const char *text, struct member **ret_member,
	struct err *e) __must_check;
struct member *members_by_id(const struct members *members, uint64_t id); /* NULL */
/* It was removed, or is out: what it says of itself counts no more. False also for who never joined. */
bool members_is_gone(const struct members *members, uint64_t id);
/* True when a message without an id counts: a member has no id yet, or the cluster has no members. */
bool members_has_nameless(const struct members *members);

/* -EBUSY with the line: no other member could own its slots. Then it is to be stored. */
int members_drain(
	struct members *members, struct member *member, bool drain, struct err *e) __must_check;
/* Unconditionally, as it was before: that could not be stored. */
void members_take_back_drain(struct members *members, struct member *member, bool drain);
/* Everything that only it has was counted to be nothing. */
bool member_is_drained(const struct member *member);
/*
 * Takes it out for good; what is left of it is to be stored. -EBUSY: it is up and not drained; or it has bytes,
 * `bytes` of them, that may be nowhere else; without `force`; the line says what to do. -EBUSY also with it: it is
 * the last that owns slots, and others are there.
 */
int members_remove(struct members *members, struct member *member, uint64_t bytes, bool force,
	int64_t now_s, struct err *e) __must_check;
/* Takes the rest of numbers that rested long enough: their keys are to be deleted. Returns how many of
 * `numbers` it filled. */
uint32_t members_rested(struct members *members, int64_t now_s, uint16_t *numbers, uint32_t max);

/* What placement_repair() takes, in the order of numbers; returns how many. Some have a weight. */
uint32_t members_placement(
	const struct members *members, struct placement_worker out[PLACEMENT_MAX], bool *ret_any);
/* The slots are given out by that: members that are down receive none. */
void members_pass_over(struct members *members);

const char *member_state_name(
	const struct member *member); /* "up", "down", "out", "draining", "drained" */
/* How many are in each enum cluster_state. */
#define MEMBER_STATES 4u
void members_count(const struct members *members, uint32_t ret_states[MEMBER_STATES]);

/* ---- member_record.c: as the store has them -------------------------------------------------- */

void member_key(uint16_t number, char out[32]);
int member_encode(const struct member *member, struct buf *out) __must_check;
/* All that there are. -EBADMSG, -EPROTONOSUPPORT with their line, -ENOMEM. Also "worker/0" of older versions. */
int members_load(
	struct members *members, struct store *store, uint64_t now, struct err *e) __must_check;
/* A member whose id is not known yet, as number 0. -ENOMEM. */
int members_seed(struct members *members, uint64_t now) __must_check;
/* For loading: takes it over, or frees it. -EBADMSG: its number or id is another's. */
int members_enter(struct members *members, struct member *member) __must_check;
void member_free(struct member *member);
