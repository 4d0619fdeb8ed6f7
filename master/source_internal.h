/* Inside of a source: shared by source.c (who asks), flight.c (what is done for them) and
 * generations.c and holds.c (what is kept). */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include "base/list.h"
#include "base/map.h"
#include "base/rate.h"
#include "master/cuts.h"
#include "master/source.h"

/* A generation that mounts show; there as long as one does. */
struct shown {
	struct list link; /* source.shown */
	uint64_t lineage;
	uint64_t generation;
	uint32_t n;
};

/* What a mount said it shows. */
struct hold {
	struct map_node by_mount; /* source_set.holds */
	struct list link;         /* source.holds */
	const struct source *source;
	struct shown *shown;
	uint8_t mount[HOLD_MOUNT_BYTES];
	uint64_t until;              /* monotonic ns */
	uint32_t follow_s;           /* struct source_hold */
	int64_t since_ms;            /* likewise */
	uint64_t local_bytes;        /* likewise, as it said last */
	struct allowance *allowance; /* with a reference; NULL: none */
};

#define SOURCE_KEEPERS 16u /* that are sent */

/* What a worker said of a source. */
struct source_worker {
	uint64_t id;
	uint64_t heard_ns; /* last */
	bool gone;         /* only what it gave and fetched is left of its report */
	struct source_report report;
};

/* And of itself. */
struct source_capacity {
	uint64_t id;
	uint64_t bytes;
};

struct source {
	struct list link; /* in source_set.sources; never removed */
	struct source_set *set;
	struct record_source record; /* config and policy under the lock, the rest never changes */
	struct list waiters;         /* for the next flight */
	bool flying;
	/* by serial; changed by the flight under the lock, read under the lock (by the flight also
	 * without) */
	struct record_generation *generations;
	uint32_t n;
	uint64_t next_serial;
	struct list holds; /* under the lock; by `until`, the first to expire first */
	struct list shown; /* by those */
	uint32_t n_holds;
	uint32_t n_shown;
	uint32_t held_follow_s; /* the least of what they want to follow by; 0: none does */
	int64_t held_since_ms;  /* the latest time requested for a listing; 0: none */
	uint64_t held_ns;       /* when these were computed; 0: stale */
	uint64_t crowded_until; /* monotonic ns: there were more; everything counts as held */
	/* Under the lock, as the following: kept whoever shows them. */
	struct source_pin pins[GENERATIONS_PINNED];
	uint32_t n_pins;
	struct source_worker *workers; /* source_workers.c; those that have, or had, any of it */
	uint32_t n_workers;
	uint16_t keepers[SOURCE_KEEPERS]; /* as they were looked for last */
	uint32_t n_keepers;
	uint64_t keepers_ns;  /* when that was; 0: never */
	uint64_t local_bytes; /* that mounts read past them; since this run began */
	bool reported;        /* by any */
	bool idle;
	uint64_t policy_sets;          /* how often source_set_policies() was called */
	struct rate lineages;          /* begun because of what askers have seen; under the lock */
	int64_t used_stored;           /* record.used as the store has it */
	_Atomic uint64_t listing_keys; /* progress of the listing under way */
	_Atomic bool listing;
	struct ufs *lister; /* of the listing under way, under the lock; NULL: none */
	bool needed; /* by a wait of the flight that is not of a dataset; under the lock, as the next */
	bool ended;                /* source_set_end_listing() ended the flight's listing */
	char notice[ERR_TEXT_MAX]; /* last one, for status */
	struct err failure;        /* of the last listing; code 0: none */
	int64_t listed_at;         /* seconds since 1970; 0: not in this run */
	/* source_follow.c, under the lock. */
	uint32_t follow_s;     /* what datasets want; 0: nothing */
	uint64_t follow_ns;    /* monotonic: the next listing by itself; 0: none is planned */
	uint32_t follow_fails; /* in a row */
	bool following;        /* one is under way */
};

struct source_set {
	struct source_set_config config;
	pthread_mutex_t lock; /* sources, waiters, generations; never held over I/O */
	/* Held while a source's record is written, so that the last word is the last one stored;
	 * before `lock`, and by no thread that others wait for. */
	pthread_mutex_t write_lock;
	struct source_capacity *capacities; /* of the workers; under the lock */
	uint32_t n_capacities;
	bool (*name_of)(void *arg, uint64_t id, char *out);
	void *name_arg;
	struct list sources;
	uint32_t n;
	struct cuts cuts;
	struct map holds; /* of all sources; under the lock */
	_Atomic bool stopping;
	uint64_t started; /* monotonic ns */
};

/* NULL: unknown. */
struct source *source_find_locked(struct source_set *set, const struct volume_id *volume);

/* Whether two askers reach the origin in the same way: one's refused key must not fail the
 * other. */
bool source_same_way(const struct ufs_config *a, const struct ufs_config *b);

/* ---- generations.c --------------------------------------------------------------------------- */

/* The newest generation, or NULL. */
const struct record_generation *generations_newest(const struct source *source);
/* By name, 0 meaning the current lineage or the newest generation of it; only such as have their
 * table. NULL: none. */
const struct record_generation *generations_find(
	const struct source *source, uint64_t lineage, uint64_t generation);
/* The newest generation, which there is, with its seal. */
struct generation_id generations_newest_sealed(const struct source *source);
/* True if `seen` is of the newest lineage, is newer or has another hash, and has this master's seal.
 * *ret_unsealed: only the seal is missing. */
bool generations_contradict(
	const struct source *source, const struct source_seen *seen, bool *ret_unsealed);
/* Says so. Without the lock. */
void generations_refuse_unsealed(const struct source *source, const struct source_seen *seen);
/* Path of a table file. -ENAMETOOLONG. */
int generations_path(
	const struct source *source, const struct generation_id *id, struct buf *out) __must_check;
int generations_open_table(
	const struct source *source, const struct generation_id *id, int *ret_fd) __must_check;
/* Stores and publishes a new one, whose table file is in place; then drops what is kept no more.
 * Flight only. */
int generations_add(struct source *source, const struct record_generation *generation,
	struct err *e) __must_check;
/* Its record, if it has one: that of a source without a generation is written with the first. */
int generations_store_source(struct source *source) __must_check;
int generations_load(struct source *source, struct err *e) __must_check;
void generations_sweep(struct source_set *set); /* removes table files without a record */

/* ---- holds.c --------------------------------------------------------------------------------- */

/* Shortly after the start, when mounts may not have said yet what they show. */
bool holds_in_grace(const struct source_set *set);
/* Mounts that show it, more or less: 0 is exact. */
uint32_t holds_count_locked(const struct source *source, uint64_t lineage, uint64_t generation);
/* Mounts of any of its generations, likewise. */
uint32_t holds_mounts_locked(const struct source *source);
/* The least follow_s of them; 0: none follows. Looked up again when one of them changed, and once a second. */
uint32_t holds_follow_locked(struct source *source, int64_t *ret_since_ms);
void holds_release(struct source *source); /* for its end */
/* Numbers of the retained generations, newest first. */
uint32_t holds_retained_locked(const struct source *source, uint32_t out[GENERATIONS_RETAINED]);
bool holds_pinned(const struct source *source, const struct generation_id *id);
/* At load: it was held in the run before. */
void holds_load_mark(struct source *source, uint64_t serial);
/* It lost its protection, or went. */
void holds_forget_mark(struct source *source, uint32_t i);

/* ---- source_workers.c ------------------------------------------------------------------------ */

/* All workers together. */
struct source_report source_report_locked(const struct source *source);
/* [{"cached_bytes", "copy_bytes", "whole"}]; NULL without memory. */
json_t *source_workers_json_locked(const struct source *source);
/* The highest numbers of orders that any of them has followed. */
void source_followed_locked(const struct source *source, uint64_t *ret_evict, uint64_t *ret_paths);
uint64_t source_capacity_locked(const struct source_set *set);
/* Numbers of those that keep all of it and were heard of, most bytes first, without those that have much less than
 * the first; looked for once a second. False: not known, shortly after the start. */
bool source_keepers_locked(struct source *source, const uint16_t **ret_keepers, uint32_t *ret_n);

/* ---- source_follow.c ------------------------------------------------------------------------- */

/* How often it is to be listed by itself, s; 0: it is not. */
uint32_t source_follow_interval_locked(struct source *source);

/* ---- retention.c --------------------------------------------------------------------------------- */

struct Granary__Source;
/* Borrows from `config`. */
void source_message(const struct ufs_config *config, struct Granary__Source *out);

/* ---- source_change.c ------------------------------------------------------------------------- */

/* Now. True when it is time to store that. */
bool source_use_locked(struct source *source);
void source_store_use(struct source *source);

/* ---- flight.c -------------------------------------------------------------------------------- */

/* Serves everybody in `waiters`. */
void flight_run(struct source *source, struct list *waiters);
