/*
 * The cluster as the master keeps it: members (members.h), the slots they own (slots.h), and those who wait for
 * news of both (watch.h), under one lock.
 *
 *	JOIN ──► members ──┐            a work: gathers what changed, repairs
 *	BEAT ──► (states) ─┼─ changes ─► the table, stores it, publishes it ──► parked GET_SLOTS
 *	/v1  ──► drain ... ┘
 *
 * Each version of the table (epoch, sequence) is durable before anybody hears of it, but for steps in which only
 * states changed: a master that starts again has a higher epoch, so no sequence of it is taken for one of those.
 * What changes within GATHER_NS is one step.
 *
 * Threads: JOIN, and what operators do, block on the store: not on a loop. BEAT and GET_SLOTS are answered on the loop.
 * Locks: `writing` (what is stored, in order), then `lock`, a leaf but for events and periodic work.
 */
#pragma once

#include <pthread.h>
#include "admin/admin.h"
#include "base/counter.h"
#include "master/members.h"
#include "master/slots.h"
#include "master/watch.h"

#define MEMBERSHIP_COUNTERS(X)                                                               \
	X(joins, "granary_master_joins_total", COUNTER, "requests",                          \
		"Workers that joined, again or not")                                         \
	X(beats, "granary_master_beats_total", COUNTER, "requests", "Heartbeats of workers") \
	X(steps, "granary_master_table_changes_total", COUNTER, "changes",                   \
		"Versions of the slot table that were created")                              \
	X(moved, "granary_master_slots_moved_total", COUNTER, "slots",                       \
		"Slots that moved to another worker")                                        \
	X(failed_steps, "granary_master_table_failures_total", COUNTER, "changes",           \
		"Versions that could not be created or stored, and are tried again")         \
	X(tables_sent, "granary_master_tables_sent_total", COUNTER, "answers",               \
		"Answers about the slot table")

COUNTER_STRUCT(membership_counters, MEMBERSHIP_COUNTERS);
const struct counter_info *membership_counter_table(uint32_t *ret_n);

struct membership_config {
	struct store *store; /* borrowed */
	uint64_t epoch;
	uint64_t out_after_ns;
	uint64_t grace_ns;
	uint64_t down_after_ns; /* without a beat; 0: as it should be (tests) */
	/* What the worker with this id said of itself counts no more: it is out, removed, or another took its place.
	 * Without locks; may be said again. NULL: it is not called. */
	void (*on_gone)(void *arg, uint64_t id);
	void *arg;
};

struct membership;

/* Loads what the store knows; membership_start() begins to watch. */
int membership_new(const struct membership_config *config, struct membership **ret_membership,
	struct err *e) __must_check;
/* -EAGAIN: no thread. */
int membership_start(struct membership *m) __must_check;
/* The loop on which beats are read: while it is late no member is called down, or out, for beats that wait in sockets.
 * NULL: none any more, which must be said before that loop ends, and not on it. */
void membership_listen(struct membership *m, struct loop *loop);
/* After the server's end. NULL is allowed. */
void membership_free(struct membership *m);

/* ---- requests: each is replied to -------------------------------------------------------------- */

void membership_join(struct membership *m, struct rpc_request *request);  /* blocks */
void membership_beat(struct membership *m, struct rpc_request *request);  /* on the loop */
void membership_slots(struct membership *m, struct rpc_request *request); /* likewise */
void membership_cancelled(struct membership *m, struct rpc_request *request);
/* There is something new in what GET_RETENTION answers. Never blocks for long; NULL is allowed. */
void membership_news(struct membership *m);

/* ---- what is known ----------------------------------------------------------------------------- */

struct membership_sum {
	uint64_t epoch;
	uint64_t sequence;
	uint32_t states[MEMBER_STATES];
	uint32_t watchers;
	uint32_t hot;
	bool owned; /* somebody owns the slots */
};
void membership_sum(struct membership *m, struct membership_sum *ret_sum);
/* Ids of those who own slots, by number; returns how many, of which `max` are written. The version since which they
 * do (SlotTable.slots_sequence). */
uint32_t membership_owners(struct membership *m, uint64_t *ids, uint32_t max, uint64_t *ret_epoch,
	uint64_t *ret_sequence);
/* What a worker with this id says of itself counts: it is a member, and not out. 0: what came without an id. */
bool membership_counts(struct membership *m, uint64_t id);
/* It was removed, or is out. Who is not known yet is not gone. */
bool membership_is_gone(struct membership *m, uint64_t id);
/* Its name; false: it is no member. */
bool membership_name(struct membership *m, uint64_t id, char out[CLUSTER_NAME_BYTES]);
/* Its number; PLACEMENT_NONE: it is not a member. */
uint16_t membership_number_of(struct membership *m, uint64_t id);
/* Of whom members_find() finds; its errors. */
int membership_number(
	struct membership *m, const char *name, uint16_t *ret_number, struct err *e) __must_check;
const struct membership_counters *membership_counters(const struct membership *m);

/* What a worker is to the cluster, for answers: a copy. */
struct membership_worker {
	struct member member; /* its addresses are not: `addresses` */
	char addresses[CLUSTER_ADDRESSES][MEMBER_TEXT_BYTES];
	uint32_t owned; /* slots */
	uint32_t share; /* that it should own, by weight */
	uint32_t replica;
	uint32_t leaving; /* slots that are another's now, and it was the last to own */
	bool stuck; /* it is drained, has what no other worker has, and all that could take it are full */
	uint32_t waiting; /* slots of one that is drained whose new owner is down: */
	char waits_for[CLUSTER_NAME_BYTES]; /* one of these owners */
};
/* All of them by number, to be freed; NULL without memory. */
struct membership_worker *membership_workers(struct membership *m, uint32_t *ret_n);
/* The table in force, and which slots are hot: copies. */
struct slots_table *membership_table(struct membership *m, struct hot *ret_hot);

/* ---- membership_change.c: what operators do; `name` as members_find() takes it ------------------ */

int membership_drain(
	struct membership *m, const char *name, bool drain, struct err *e) __must_check;
/* `bytes_of` says how much a worker has, for refusals; may be NULL. */
int membership_remove(struct membership *m, const char *name, bool force,
	uint64_t (*bytes_of)(void *arg, uint64_t id), void *arg, struct err *e) __must_check;
