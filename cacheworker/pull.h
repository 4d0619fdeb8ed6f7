/*
 * Pulls: bytes of flights from other workers, between a look at this worker's own tiers (adopt.h) and
 * the origin. Units that lie behind each other in a chunk are pulled with one request. Where one GET fetches more units
 * than one answer has (range.h), the first are sought: if no worker has any of all, the origin is asked for all at once,
 * else each is pulled by itself.
 *
 *	it ends here (owner, deputy, FRAME_LAST)	SEEK to each that may have it
 *		(worker_holders()); none has it: the origin
 *	another serves the chunk (a copy)		FETCH | FRAME_PEER to who serves it, sent on as
 *		placement/duty.h has it; none answers: it ends here after all
 *
 * What comes is compared with the sender's checksums, which are of (key, tag, piece) as this worker's
 * own table has them, and stored with these. A piece that does not match is looked at again by the
 * sender (RECHECK), and comes from elsewhere.
 *
 * Whoever does not answer now, or has no memory for an answer, is asked again, for 20 s at most, as long as no
 * reader waits and the master does not call him down: he may have what the origin would be asked for a second
 * time. A reader waits for two seconds at most (an owner: until he is called down), then the origin is asked.
 *
 * A flight that must end here while it is pulled from another leaves that one at once: none waits for
 * a copy's flight but this worker's own readers, so no two workers wait for each other
 * (docs/decisions/peers.md).
 *
 * Threads: any; answers are looked at on the pool `peers`.
 */
#pragma once

#include <pthread.h>
#include "base/list.h"
#include "base/layout.h"
#include "base/loop.h"
#include "cacheworker/barren.h"

struct flight;
struct worker;

#define PULL_FLIGHTS (UNIT_BYTES / BLOCK_BYTES) /* units in one request, at most */

struct pulls {
	pthread_mutex_t lock;
	pthread_cond_t idle;
	struct list all;
	uint32_t n; /* and what is still to be looked at */
	bool closing;
	struct barren barren;
	/* When something is due (pull_wait.c); under flights.lock: */
	uint64_t clock_ns; /* UINT64_MAX: never */
	bool posted;
	struct loop_task task;
	struct loop_timer *timer; /* the loop's */
};

/* Flights that were let in together; in the order of their units. */
struct flight_batch {
	struct flight *flights[PULL_FLIGHTS];
	uint32_t n;
};

/* Goes on with flights that have their memory and are FETCHING: of one source and chunk, one behind the
 * other, of UNIT_BYTES together or such that range_joins(). Takes the reference that each has for its origin. */
void pull_start(struct flight **flights, uint32_t n);

/* Its class was raised while it has a pull; and: it is being pulled as a copy, and is to end here: flights.lock is held. */
void pull_raise_locked(struct flight *f);
void pull_give_up_locked(struct flight *f);
/* Does its pull wait for what another worker fetches from the origin? Likewise. */
bool pull_awaits_locked(const struct flight *f);

/* Its origin refused its object `times` more: the owners of other chunks of the object count that, too. Never blocks. */
void pull_tell_refused(const struct flight *f, uint32_t times);

/* There is another table, or somebody hangs (view_hangs()): whoever is down by it, or hangs, answers nothing though his
 * connection may stand; others are asked. What waits looks again who may have it. Never blocks. */
void pulls_leave(struct worker *w);

int pulls_init(struct worker *w) __must_check;
/* Ends all, and waits for that. After flights_close(); not on the loop. */
void pulls_close(struct worker *w);
void pulls_release(struct worker *w);
