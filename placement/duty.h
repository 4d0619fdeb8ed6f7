/*
 * Duty: what a worker is to do with a request for a chunk, and where one that asks goes next. Pure
 * functions of the slot's entry and of who is up, so that the model of the fill protocol
 * (tests/unit/placement/test_fill_model.c) checks the very decisions that run.
 *
 *	OWNER	ends it: from what it has, from peers by SEEK, from the origin
 *	COPY	pulls it from who serves the chunk, by FETCH | FRAME_PEER, and keeps a copy
 *	NONE	-EREMOTE with the number of who serves it
 *
 * Why no worker waits for itself, though every table may be wrong: an OWNER makes no request but
 * SEEK, which makes none; a COPY makes one to an OWNER, who alone ends FRAME_PEER requests (a
 * COPY or NONE sends them away); and no request is sent away more than ROUTE_HOPS times.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "placement/placement.h"

enum duty_kind {
	DUTY_OWNER,
	DUTY_COPY,
	DUTY_NONE,
};

/* What is known about the four that a slot names. */
struct duty_states {
	bool owner_up;
	bool previous_up;
	bool replica_up[2];
};

struct duty_ask {
	uint16_t self; /* PLACEMENT_NONE: not known yet */
	struct placement_slot slot;
	struct duty_states up;
	bool whole;     /* this worker keeps the whole volume (`copies`) */
	uint8_t copies; /* N of `copies: N`: the owner and the first N - 1 replicas have it; else 1 */
	bool hot;       /* the slot is hot: its replicas have copies */
	bool peer;      /* FRAME_PEER */
	bool last;      /* FRAME_LAST */
};

struct duty {
	enum duty_kind kind;
	uint16_t
		serves; /* the worker that serves the chunk by this table; PLACEMENT_NONE: none is up */
	bool owned;     /* the slot is this worker's: what it stores is no copy */
	bool moved;     /* FRAME_MOVED: by this table others serve the chunk */
};

/* Who serves a slot: the owner if up, else the deputy (the first of its replicas that is up), else the
 * previous owner, else PLACEMENT_NONE. */
uint16_t duty_serves(const struct placement_slot *slot, const struct duty_states *up);

struct duty duty_of(const struct duty_ask *ask);

/* ---- where a request goes -------------------------------------------------------------------- */

#define ROUTE_HOPS       4u /* "ask X" answers that are followed */
#define ROUTE_CANDIDATES 4u

/* One request's way through the cluster. */
struct route {
	uint16_t candidates[ROUTE_CANDIDATES]; /* those who serve the chunk, best first */
	uint8_t n;
	uint8_t hops;  /* followed so far */
	uint8_t dead;  /* bit i: candidates[i] did not answer */
	bool last;     /* ask with FRAME_LAST */
	bool cached;   /* ask with FETCH_CACHED: it was named by an owner with a herd */
	uint16_t back; /* that owner, who is asked again when `to` has it not */
	uint16_t self; /* the caller, if it is a worker; otherwise PLACEMENT_NONE */
	uint16_t to;   /* ask this one; PLACEMENT_NONE: none is left */
	uint16_t failed[ROUTE_HOPS]; /* sent to by others, and did not answer */
	uint8_t n_failed;
};

enum route_outcome {
	ROUTE_MOVED, /* "ask X", with FRAME_MOVED: X serves the chunk by the answerer's table */
	ROUTE_HERD,  /* "ask X", without: X took it a moment ago */
	ROUTE_MISS,  /* what was asked with FETCH_CACHED is not there */
	ROUTE_DEAD,  /* no answer: refused, reset, timed out */
};

/* The first to ask: route->to, with FRAME_LAST when it is not the owner, who is down. `owner` is the
 * table's, up or not. Without candidates route->to is PLACEMENT_NONE. */
void route_begin(
	struct route *route, const uint16_t *candidates, uint32_t n, uint16_t owner, uint16_t self);
/* What the one asked came to, `x` being whom it named; the next is route->to. A worker that is sent to
 * itself, or has none left to ask, ends the request itself: route->to is `self` then. At most
 * 2 x ROUTE_HOPS + 2 x ROUTE_CANDIDATES requests are made. */
void route_next(struct route *route, enum route_outcome outcome, uint16_t x);
