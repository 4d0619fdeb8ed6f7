/* The parts of preloads; see preload.h. */
#pragma once

#include "base/clock.h"
#include "base/rate.h"
#include "cacheworker/flight.h"
#include "cacheworker/master_call.h"
#include "cacheworker/meant.h"
#include "cacheworker/preload.h"
#include "cacheworker/source.h"
#include "proto/preload.h"

enum preload_phase {
	LOAD_OPENING,
	LOAD_COUNTING,
	LOAD_LOADING,
	LOAD_DRAINING,
	LOAD_CHECKING,
	LOAD_ENDED,
};

struct preload_failure {
	char reason[PRELOAD_REASON_BYTES];
	uint16_t key_len;
	char key[LIMIT_KEY_BYTES];
};

#define COPIES_UNSAID UINT32_MAX /* no policy: the master is older, or says none */

/* How far a job is; under preloads.lock. */
struct preload_tally {
	uint64_t files;
	uint64_t files_done;
	uint64_t files_failed;
	uint64_t bytes;
	uint64_t bytes_done;
	uint64_t bytes_fetched;
	uint64_t bytes_copied; /* of chunks that others own */
	uint32_t n_failures;
	struct preload_failure failures[PRELOAD_FAILURES_MAX];
};

/* What this worker is to do about a chunk. */
enum preload_share {
	SHARE_NONE,  /* another's */
	SHARE_OWNED, /* its own: the job is complete with it */
	SHARE_COPY,  /* another's, of which it keeps a copy: pulled from there */
};

/* Where a walk over the objects is. */
struct preload_walk {
	/* By this slot table, and by what the worker is to keep copies of: when there is another at its end, all is
	 * walked again. */
	uint64_t epoch;
	uint64_t sequence;
	uint64_t copies; /* copies_version() */
	bool begun;
	uint64_t chunk; /* whose share was asked for last, + 1; 0: none was */
	enum preload_share share;
	uint64_t at;               /* volume offset to look at next */
	uint64_t met;              /* objects */
	struct preload_file *file; /* that one of its units is next of; referenced, or NULL */
	struct table_row row;
};

struct preload_job {
	struct list link; /* preloads.jobs */
	struct preloads *preloads;
	uint32_t refs; /* under the lock: the list, and each unit */
	uint64_t id;
	uint64_t began_ns;
	struct volume_id volume;
	uint64_t lineage;
	uint64_t generation;
	/* Of what it names alone; else whatever the newest one names. */
	bool exact;
	uint64_t end;    /* of its table, when exact */
	uint32_t copies; /* its policy, under the lock; or COPIES_UNSAID */
	bool part;       /* its patterns may mean nothing here: they mean something elsewhere */
	struct meant meant;
	enum preload_phase phase;   /* under the lock; changed by the walker alone */
	enum preload_state outcome; /* once ENDED */
	uint64_t ended_ns;          /* likewise */
	char reason[PRELOAD_REASON_BYTES];
	bool dropped; /* the master wants it no more */
	bool known;   /* it was in the master's last answer */
	struct source_wait wait;
	bool waiting;      /* for `wait` */
	bool answered;     /* its outcome was received */
	struct err answer; /* why there is no source */
	struct source *source;
	uint32_t tries;    /* to find it */
	uint64_t retry_ns; /* when it is sought again */
	/* The walker's: */
	struct table *table;
	struct table_cursor cursor; /* COUNTING */
	struct preload_walk walk;
	bool recheck; /* something in the tiers is of an earlier boot */
	/* What was read last pushes out the rest of the source: a preload pushes out nothing then. */
	bool lru;
	/* Bytes that CHECKING found, and that there are to be: */
	uint64_t there;
	uint64_t due;
	uint64_t
		full_ns; /* CHECKING was first at its end, of a job that found no room; 0: it was not */
	bool had_room; /* it was walked again, as there was room for what had found none */
	uint64_t copies_there;
	uint64_t copies_due;
	uint32_t round; /* of the walker, in which it had its turn */
	/* Under the lock: */
	struct rate rate; /* of bytes; its bandwidth */
	uint32_t in_flight;
	struct list again; /* units that are to be asked for once more */
	bool full;         /* a unit found no room: none is asked for any more */
	uint32_t uncopied; /* copies in a row that could not be had or kept */
	uint32_t timeouts; /* units in a row that came to their deadline */
	bool given_up;     /* too many did; the reason is the last one's */
	struct preload_tally tally;
};

/* An object while units of it are on their way. */
struct preload_file {
	uint32_t refs; /* under the lock: the walk, and each unit */
	bool failed;
	bool missed; /* not failed, but some of it has no room */
	bool counts; /* its first unit is this worker's own */
	uint16_t key_len;
	char key[];
};

struct preload_unit {
	struct list link; /* job.again */
	struct flight_wait wait;
	struct preload_job *job;
	struct preload_file *file;
	uint64_t start; /* volume offset */
	uint32_t length;
	bool copy; /* SHARE_COPY */
	uint32_t tries;
	uint64_t not_before_ns;
};

struct preloads {
	struct worker *worker;
	uint64_t run;    /* random, of this start */
	uint32_t rounds; /* that the walker made; under the lock */
	pthread_mutex_t lock;
	struct list jobs;
	uint32_t n_jobs;
	uint32_t in_flight; /* but for those that have yielded their places */
	uint32_t max_in_flight;
	bool closing;
	uint64_t figured_ns; /* the asker's: up to when ended jobs were waited for with a report */
	struct periodic_work walker; /* poked when a job has something to do */
	struct periodic_work asker;  /* poked when a job ended, and by the master's answer */
	bool ended;                  /* under the lock: a job did, and that was not reported */
	bool asking;                 /* the asker's, as the next two: `ask` is in flight */
	uint32_t reported;           /* jobs, by it */
	struct master_ask ask;
	_Atomic bool answered; /* it has ended */
	void *unit;            /* UNIT_BYTES, the walker's: what it compares; or NULL */
};

#define PRELOAD_TURN_ROWS 4096u /* looked at in one turn, then another job may go on */

/* What a turn of a job came to. */
enum preload_step {
	PRELOAD_WENT,   /* on */
	PRELOAD_STUCK,  /* until a unit ends, or a while has passed */
	PRELOAD_PAUSED, /* until its rate lets it go on: *ret_ns */
};

/* preload_load.c: one turn of a job that has a source. On the walker. */
enum preload_step preload_turn(struct preload_job *job, uint64_t *ret_ns);
/* Its end, with a line. */
void preload_end(struct preload_job *job, enum preload_state outcome, const char *fmt, ...)
	__printf(3, 4);
void preload_walk_release(struct preload_job *job);

/* preload_share.c */
enum preload_share preload_share_of(struct preload_job *job, uint64_t chunk);
/* A walk begins, or all is walked once more, of a job that nothing is on its way of. */
void preload_begin_walk(struct preload_job *job);
void preload_walk_again(struct preload_job *job);
/* Slots have moved since its walk began. Any thread. */
bool preload_is_stale(const struct preload_job *job);
/* Or it is to keep other copies. */
bool preload_is_overtaken(const struct preload_job *job);

/* preload_open.c: turns of one that has no source yet, or counts what it means. */
enum preload_step preload_open_turn(struct preload_job *job, uint64_t *ret_ns);
enum preload_step preload_count_turn(struct preload_job *job);
/* An object that is to be loaded? */
bool preload_is_meant(const struct preload_job *job, const struct table_row *row);

/* preload_unit.c: a unit, from being asked for to its end. */
/* One that counts as on its way, with references on job and file; NULL without memory. */
struct preload_unit *preload_unit_new(
	struct preload_job *job, struct preload_file *file, uint64_t start, uint32_t length);
/* As which it asks. */
enum ufs_class preload_class(const struct preload_job *job);
/* Asks for it, by `batch` (NULL: at once): 0, and it ends by itself; else it is the caller's still. -EAGAIN, -ENOMEM: not now;
 * -EEXIST: it is in a tier by now; -ECANCELED: closing. */
int preload_unit_want(struct preload_unit *unit, const struct table_row *row,
	struct flight_batch *batch) __must_check;
/* Its outcome: in a tier (0), or why not. It is freed, or asked for again later. */
void preload_unit_end(struct preload_unit *unit, int status, const struct err *e);
/* As if it had not been made. */
void preload_unit_undo(struct preload_unit *unit);
/* None is asked for again. */
void preload_drop_again_locked(struct preload_job *job);
struct preload_file *preload_file_new(const struct table_row *row);
/* It will not be whole; the first time it is listed. */
void preload_file_fail_locked(struct preload_job *job, struct preload_file *file, const char *why);
/* A reference less; the last one counts the file. */
void preload_file_unref_locked(struct preload_job *job, struct preload_file *file);

/* preload.c */
void preload_job_unref_locked(struct preload_job *job);

/* preload_ask.c: the other work, which first runs after PRELOAD_PAUSE_NS. */
#define PRELOAD_PAUSE_NS (20 * CLOCK_MS) /* between two questions, whatever the master does */
uint64_t preload_ask(void *arg);
/* Once the asker has stopped, and the client of the master is gone. */
void preload_ask_release(struct preloads *p);
/* A job has ended: reported soon. Under preloads.lock. */
void preload_ended_locked(struct preloads *p);
