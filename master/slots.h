/*
 * Who owns which slot: the table that is in force, and how the ones before it differed, so that whoever has one of
 * the last SLOTS_STEPS is sent the difference and not everything.
 *
 * A table is never changed: a new one takes its place, and who still sends the old one has a reference to it.
 * Answers (struct slots_message) are made once and shared, whoever asks.
 *
 * Threads: the owner's lock covers all but what says otherwise (membership.h).
 */
#pragma once

#include "base/buf.h"
#include "master/hot.h"
#include "master/members.h"
#include "master/store.h"
#include "net/net.h"
#include "placement/placement.h"

#define SLOTS_BYTES  (PLACEMENT_SLOTS * sizeof(struct placement_slot))
#define SLOTS_STEPS  64u
#define SLOTS_DELTA  SLOTS_BYTES /* bytes of differences in one answer; beyond, the whole table */
#define SLOTS_DELTAS (4 * MiB)   /* bytes of differences that are kept */

/* Immutable but for its references, any thread. */
struct slots_table {
	_Atomic uint32_t refs;
	struct placement_table table; /* its version is that of struct slots */
};
/* A copy to be changed, with one reference; NULL without memory. */
struct slots_table *slots_table_copy(const struct slots_table *table);
struct slots_table *slots_table_ref(struct slots_table *table);
void slots_table_unref(struct slots_table *table); /* NULL is allowed */

/* One step: what changed with it. */
struct slots_step {
	struct buf slots; /* placement/placement_delta.h */
	uint64_t members[PLACEMENT_MAX / 64];
};

/* An answer, packed: shared by those who get it. Any thread. */
struct slots_message {
	_Atomic uint32_t refs;
	struct slots_table *table; /* follows the head; NULL: does not */
	size_t len;
	uint8_t head[];
};
/* For rpc_reply(): takes the reference over. */
struct net_payload slots_payload(struct slots_message *message);

struct slots {
	uint64_t epoch;
	uint64_t sequence;
	uint64_t news;
	struct slots_table *table;
	uint64_t changed; /* the sequence that `table` came with, or this epoch's first */
	struct hot hot;
	struct slots_step steps[SLOTS_STEPS]; /* that led to sequence s: at s % SLOTS_STEPS */
	size_t delta_bytes;                   /* of their differences */
	uint64_t first; /* the oldest sequence that a difference can begin at */
	/* Of this version, by how many steps their reader is behind; the last: whole. */
	struct slots_message *made[SLOTS_STEPS + 1];
};

/* What the store has, or slots without an owner. -EBADMSG, -EPROTONOSUPPORT and others with their line. */
int slots_open(
	struct store *store, uint64_t epoch, struct slots *ret_slots, struct err *e) __must_check;
void slots_release(struct slots *slots);

/* As the store has it under "slots". -ENOMEM. */
int slots_encode(
	const struct placement_table *table, uint64_t sequence, struct buf *out) __must_check;

/* A new version: `table`, whose reference it takes over, or NULL: the slots are as they were. `members`: bits of the
 * numbers of those that changed. A difference that is too large, or for which there is no memory, is lost, and all are
 * sent everything. */
void slots_publish(
	struct slots *slots, struct slots_table *table, const uint64_t members[PLACEMENT_MAX / 64]);
/* Answers have it from now on. */
void slots_set_news(struct slots *slots, uint64_t news);

/* The answer for who knows (epoch, sequence), a reference; NULL without memory. */
struct slots_message *slots_message(
	struct slots *slots, const struct members *members, uint64_t epoch, uint64_t sequence);
