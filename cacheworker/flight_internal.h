/* A flight's parts, shared by flight.c, flight_unit.c and flight_write.c. */
#pragma once

#include "base/deadline.h"
#include "cacheworker/flight.h"

/* flight.c: the map, who waits, who starves. */
/* The one place where a state changes. A flight that is GONE has left the map. */
void flight_set_state_locked(struct flight *f, enum flight_state next);
/* May units that no reader waits for have `bytes` more before some are written? False: it is noted that the window was the limit. */
bool flight_in_window_locked(
	struct worker *w, enum budget_class class, uint64_t bytes) __must_check;
/* Does one wait for memory that the window would let begin? */
bool flight_lacks_memory_locked(struct worker *w);
/* Units have left the window, of which answers may still need the memory: who starved at it may begin, or lack memory now. */
void flight_window_opened(struct worker *w);
/* Waiters whose bytes are there, to be notified without the lock; UINT64_MAX: all. */
void flight_collect_ready_locked(struct flight *f, struct list *ready, uint64_t landed);
/* A waiter that got its bytes keeps the reference; the others lose it here. */
void flight_tell(struct list *ready, int status, const struct err *e);
/* Out of the map, with its reference; waiters get `status`. */
void flight_end(struct flight *f, int status, const struct err *e);

/* flight_unit.c: a unit, from the origin's request to the tier. */
/* NULL without memory. It is in no map yet. */
struct flight *flight_new(struct source *source, const struct table_row *row, uint64_t at,
	enum ufs_class class, bool bypass);
/* Has its memory in the budget and is FETCHING. */
void flight_start(struct flight *f);
/* Memory for its bytes, if it has none yet. False: out of memory. */
bool flight_data_new(struct flight *f) __must_check;
/* The GET ended as its readers' time was up, and a reader has come that waits longer. flights.lock is held. */
static inline bool flight_outlives_locked(
	const struct flight *f, const struct ufs_get *get, int status)
{
	return status == -ETIMEDOUT && get->until_ns &&
	       deadline_later(f->until_ns, get->until_ns) != get->until_ns;
}

void flight_data_free(struct flight *f);
/* No other worker has it. Takes the reference for the origin. */
void flight_ask_origin(struct flight *f);
/* Its first `bytes` are in f->data: computes the checksums of the pieces that are complete, while the CPU's cache has them.
 * To be called before these bytes count as landed. */
void flight_sum(struct flight *f, uint64_t bytes);
/* Its bytes are in f->data, all of them, or it has failed for good. Take the same reference. */
void flight_all_landed(struct flight *f);
void flight_failed(struct flight *f, int status, const struct err *e);
/* A unit no tier takes, or that could not be written (`why`): kept for the readers that come right after, oldest pushed
 * out. */
void flight_keep(struct flight *f, int why);

/* flight_write.c: all its bytes are there, its state is WRITING. 0: it will end, or be kept. -EAGAIN: too much waits for
 * the disks. */
int flight_write(struct flight *f) __must_check;
/* The job of its `write`. */
void flight_run_write(struct pool_job *job);

/* Among the units that may be under way. */
struct flight_places {
	uint32_t fills;
	uint32_t preloads;
};
/*
 * Their pull pauses, and no reader waits for them: their memory is for others meanwhile, and the places that some have
 * among those of a fill and, if no worker answers (`silent`), of preloads, if not too many are parked. flights.lock is
 * held; flights_parked() with what it returns is to follow without it.
 */
struct flight_places flights_park_locked(
	struct flight **flights, uint32_t n, bool silent) __must_check;
void flights_parked(struct worker *w, struct flight_places places);
/* It goes on: 0, they have their memory again, or had it. -EAGAIN: there is none for all of them, so they are STARVED
 * without a pull, whose references are gone. -ECANCELED while closing. */
int flights_unpark(struct flight **flights, uint32_t n) __must_check;
/* One that is kept leaves; the map's reference becomes the caller's. */
struct flight *flight_let_go_locked(struct flight *f);
/* Until at most `keep` bytes are kept: none while others starve for the memory, and not only at the window. */
void flight_push_out_kept(struct worker *w, uint64_t keep);
