/*
 * Which volumes this worker keeps copies of, besides the chunks that it owns
 * (docs/decisions/copies.md):
 *
 *	shared		none
 *	N		of the slots in whose list it is among the first N
 *	everywhere	of all of it, while it fits
 *	auto		of all of it, once a mount of this node reads it and it takes at most 4/5 of what is
 *			free or its own; given up past 19/20
 *
 * The only worker of a cluster owns everything and keeps everything whole. What is kept whole lies in
 * extents (tiers.h), which is what sealing needs.
 *
 * Threads: all functions any, unless stated; a periodic work decides again as room, policies and
 * the cluster change.
 */
#pragma once

#include "base/layout.h"
#include "cacheworker/worker.h"

/* Shares of the room below which a volume is taken, and above which it is given up, of 100. */
#define COPIES_TAKE 80u
#define COPIES_KEEP 95u

/* What is known of a volume when it is decided. */
struct copies_ask {
	uint32_t copies; /* of its policy: COPIES_AUTO, ... */
	bool alone;      /* there is no other worker */
	bool asked;      /* a mount of this node reads it */
	bool kept;       /* it is kept whole by now */
	uint64_t need;   /* bytes that all of it takes */
	uint64_t room;   /* free ones and its own */
};
/* Is all of it to be here? A pure function. */
bool copies_keep_whole(const struct copies_ask *ask);

/* All of the volume is to be here: what it does not own is pulled from the owners and kept. Never
 * blocks. */
bool worker_keeps_whole(struct worker *w, const struct volume_id *volume);
/* How many of a slot's list, the owner first, keep each chunk of it: 1 to COPIES_MAX. Never blocks. */
uint32_t worker_copies(struct worker *w, const struct volume_id *volume);

/* COPIES_AUTO, ..., as its dataset says. Never blocks. */
uint32_t copies_policy(struct worker *w, const struct volume_id *volume);

/* Another one each time that what is to be kept of it changes. Never blocks. */
uint64_t copies_version(struct worker *w, const struct volume_id *volume);

/* A mount of this node asks for it: the first time it is decided before this returns. Not on a loop. */
void copies_note_reader(struct worker *w, const struct volume_id *volume);
/* What the master says: decided soon; never blocks. */
void copies_note_policy(struct worker *w, const struct volume_id *volume, uint32_t copies);
/* Who else keeps all of it, as the master says: the first COPIES_KEEPERS count. Never blocks. */
#define COPIES_KEEPERS 16u
void copies_note_keepers(
	struct worker *w, const struct volume_id *volume, const uint32_t *numbers, size_t n);
/* Their numbers, this worker's maybe among them; how many. Never blocks. */
uint32_t copies_keepers(
	struct worker *w, const struct volume_id *volume, uint16_t out[COPIES_KEEPERS]);
/* As copies_note_policy(), and decided before this returns, if there is a table of it. Not on a loop. */
void copies_take_policy(struct worker *w, const struct volume_id *volume, uint32_t copies);
struct table;
/* The newest table of a volume: it is decided, and the tiers have the layout, before this returns. Not on a
 * loop. */
void copies_note_table(struct worker *w, const struct table *table);
/* Room, or the cluster, may have changed: decided anew soon. Never blocks. */
void copies_wake(struct worker *w);

int copies_open(struct worker *w) __must_check; /* before the tiers are asked for anything */
void copies_start(struct worker *w);
void copies_stop(struct worker *w);
void copies_close(struct worker *w); /* NULL w->copies is allowed */
