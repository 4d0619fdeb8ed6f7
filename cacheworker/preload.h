/*
 * Preloads: all objects of a source, or those that some patterns mean, are brought into the tiers
 * (docs/decisions/preload.md). The master keeps the jobs; this worker asks for them, loads, and says
 * how far it is. Nothing is remembered here: what is cached is found in the piece tables, so a job
 * goes on after a restart of anything.
 *
 *	OPENING ─table─► COUNTING ─► LOADING ─all asked for─► DRAINING ─► CHECKING ─► ENDED
 *	   └────────────────┴──────────┴─ it cannot go on ───────────────────────────►─┘
 *
 * Of a cluster it loads what it owns, and what it is to keep copies of (copies.h), which come from their owners.
 * When slots have moved meanwhile all is walked once more: what is there is passed. The master knows a job
 * to be complete once all have ended by the same slot table.
 *
 * LOADING walks the objects in the order of the volume; units that are not cached are asked from the
 * origin, many at a time, behind all readers and in no memory that readers need. Of what an earlier
 * boot left, each piece is compared with its checksum. CHECKING sees that all is still there.
 *
 * Threads: one walks for all jobs, which take turns by bytes; another talks to the master.
 */
#pragma once

#include "cacheworker/worker.h"

int preloads_open(struct worker *w) __must_check; /* before preloads_start() */
void preloads_start(struct worker *w);            /* once the master can be asked */
void preloads_stop(struct worker *w);             /* nothing more is asked for; first of all */
void preloads_join(struct worker *w);             /* once the master's client is gone */
void preloads_close(struct worker *w);            /* once every unit has ended */
/* So many units that are under way wait for somebody who does not answer (flight_wait.yielded): others may be asked for in
 * their places. Any thread, without a lock. */
void preloads_yielded(struct worker *w, uint32_t n);
