/*
 * Who owned this worker's slots before it: what the slot table names is one previous owner, and slots
 * move on (A to B to C) before everything has followed. Remembered from table to table and next to the
 * tier (kept.h), FORMER_EACH for each slot, the latest first.
 *
 *	TIER/seen/former	"GRNFORM1", then 65,536 x (owner u16, former u16 x FORMER_EACH), then the
 *				XXH3 of all that, little-endian
 *
 * A number is a worker for 24 hours at least after it left, and asking one that has nothing costs a
 * message: what is remembered may be wrong.
 *
 * Threads: former_of() any; the others as they say.
 */
#pragma once

#include <pthread.h>
#include <stdint.h>
#include "base/err.h"
#include "base/pool.h"
#include "placement/placement.h"

struct worker;

#define FORMER_EACH 3u

struct former_slot {
	uint16_t owner; /* as the last table had it */
	uint16_t former[FORMER_EACH];
};

struct former {
	pthread_mutex_t lock;
	struct former_slot *slots; /* PLACEMENT_SLOTS of them; NULL before it is open */
	bool queued;               /* the job */
	struct pool_job job;
};

/* What was kept, if anything of use is there. -ENOMEM. */
int former_open(struct worker *w) __must_check;
/* There is another table. Some milliseconds; what changed is kept soon, on a pool. On the loop, so that no
 * table is missed. */
void former_note_table(struct worker *w);
void former_close(struct worker *w); /* after the pools; also when it was never open */

/* Those of a slot before its previous owner and he; how many. */
uint32_t former_of(struct worker *w, uint32_t slot, uint16_t out[FORMER_EACH]);
