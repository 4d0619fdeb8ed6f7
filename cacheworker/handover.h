/*
 * Chunks whose slots went to another worker: handed over to him, so that nothing is lost that only this
 * one has (docs/decisions/copies.md).
 *
 *	OWNED here ──slot went──► offered to its owner, who pulls it from here ──he has it──► COPY here
 *	COPY here  ──slot came──► OWNED here
 *
 * Until its owner has it, what was owned stays so: copies are evicted first, and must never be the only
 * ones. Offers are made when slots have moved, at a bounded rate, a chunk at a time, behind all
 * readers: PREFETCH | PEER of the units that the owner's presence bits do not show, which he pulls as any
 * other owner does, and answers with these bits. Nothing is fetched from an origin for it.
 *
 * A worker that is drained offers everything, also copies, faster, and tells its master how many bytes
 * no other worker is known to have yet (member_set_only_copies()).
 *
 * Threads: a periodic work; functions any, unless stated.
 */
#pragma once

#include "cacheworker/worker.h"

struct handover;

/* What is known of it, for status. */
struct handover_status {
	uint64_t chunks;  /* that are another's by now, and still to be handed over */
	uint64_t bytes;   /* present of these that he has not */
	uint64_t offered; /* bytes, since the start */
};

int handover_open(struct worker *w) __must_check;
void handover_start(struct worker *w);
/* The slot table changed, or it is drained now. Never blocks. */
void handover_wake(struct worker *w);
void handover_status(struct worker *w, struct handover_status *ret_status);
void handover_stop(struct worker *w);  /* nothing is offered any more */
void handover_join(struct worker *w);  /* waits for the last offer: before the view goes */
void handover_close(struct worker *w); /* once no table comes any more */
