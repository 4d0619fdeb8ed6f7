/* The parts of preloads; see preload.h. */
#pragma once

#include <pthread.h>
#include "master/preload.h"

struct preload {
	struct list link; /* preloads.all, oldest first; never removed while it has not ended */
	struct preload_record record;
	struct preload_rate rate;
	uint64_t stored_ns; /* monotonic: its record was written last */
};

struct preloads {
	struct preloads_config config;
	/* Held over a write to the store, so that they are written in the order of what happened;
	 * before `lock`. */
	pthread_mutex_t writing;
	pthread_mutex_t lock;
	struct list all;
	uint32_t n;
	uint64_t next_id;
	struct list parked; /* requests of workers that wait for a job */
	/* Who has to have ended, and by which table; n_owners 0: whoever says so. */
	uint64_t *owners; /* sorted */
	uint32_t n_owners;
	uint64_t epoch;
	uint64_t sequence;
	uint64_t owners_ns; /* monotonic: looked at last */
};

struct preload *preload_find_locked(struct preloads *p, uint64_t id);
/* That which it loads. -ENOENT: it is not kept. */
int preload_find_generation(struct preloads *p, const struct preload_record *record,
	struct record_generation *ret_generation) __must_check;
/* A worker has something to do. */
static inline bool preload_is_active(const struct preload *job)
{
	return job->record.state == PRELOAD_WAITING || job->record.state == PRELOAD_RUNNING;
}
/*
 * Takes the job to `next` with that reason, once the store has it: under `writing`, without the
 * lock. -ENOENT; -EEXIST: it has ended; what the store says: nothing changed.
 */
int preload_set_state(struct preloads *p, uint64_t id, enum preload_state next, const char *reason);
/* How far it is, into the store; under `writing`, without the lock. */
void preload_store_progress(struct preloads *p, uint64_t id);
/* Sources of jobs under way are used, though nothing may be mounted: they are neither idle nor too
 * old. A job whose generation is not kept any more fails. Under `writing`, without the lock. */
void preload_look_after(struct preloads *p);
/* ---- preload_part.c: what workers say of their parts, and what that comes to ------------------- */

struct Granary__PreloadReport;

/* Who owns slots now, looked at now and then. Without the lock. */
void preload_look_at_owners(struct preloads *p);
void preload_take_part_locked(struct preloads *p, struct preload *job, uint64_t worker,
	const struct Granary__PreloadReport *m);
/* RUNNING, or how the job ended, with its line. */
enum preload_state preload_outcome_locked(
	struct preloads *p, struct preload *job, char reason[PRELOAD_REASON_BYTES]);
/* What each worker that has not ended its part may fetch, bytes a second; 0: no bound. */
uint64_t preload_share_locked(const struct preloads *p, const struct preload *job);

/* The jobs there are for a worker, packed, to be freed; NULL without memory. */
uint8_t *preload_pack_jobs_locked(struct preloads *p, size_t *ret_len);
/* Tells the workers that are parked of the jobs there are. Without the lock. */
void preload_wake(struct preloads *p);
