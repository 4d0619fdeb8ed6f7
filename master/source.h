/*
 * Sources and their generations: what the master lists, lays out, remembers and hands out.
 *
 *	request ──► waiters of its source ──► one flight at a time ──► answers
 *	                                      list, lay out, store, publish
 *
 * A source has at most one flight. Those who come while it is under way wait for the next one,
 * which serves them all: each sees the bucket as it was after he asked, and the bucket is listed
 * once for any number of them. A table that is asked for by name never waits for a listing.
 *
 * A generation is durable, table file and record, before anybody hears of it. Retained are the last
 * two and those that mounts show, at most GENERATIONS_KEPT: the newest; and those that datasets pin. They keep their files, and
 * workers what they name. Of the others the hash is remembered, so that a master restored from an
 * old copy is found out by what its askers have seen: it then starts a new lineage.
 *
 * Threads: source_open() and source_table() block on disk and network and run flights on the
 * caller's thread: callers are pool threads. Everything else: any thread.
 */
#pragma once

#include "admin/admin.h"
#include <stdbool.h>
#include "base/clock.h"
#include "base/list.h"
#include "base/policy.h"
#include "master/record.h"
#include "master/store.h"

#define GENERATIONS_KEPT       8u /* table files of one source */
#define GENERATIONS_PINNED     8u /* and of those that a dataset keeps beyond these */
#define GENERATIONS_RETAINED   (GENERATIONS_KEPT + GENERATIONS_PINNED)
#define GENERATIONS_REMEMBERED 256u /* records of one source */
#define SOURCES_MAX            4096u
#define SOURCES_AT_ONCE        16u     /* of source_set_policies() */
#define HOLDS_MAX              32768u  /* mounts of one source that are distinguished */
#define HOLDS_ALL              131072u /* of all sources; some 130 bytes each */
#define SHOWN_MAX              1024u   /* generations of a source that they show, likewise */
#define HOLD_MOUNT_BYTES       16u
#define SOURCE_WORKERS_MAX     4096u /* that any of it was ever on: PLACEMENT_MAX */
#define RETENTION_PAGE         256u  /* sources in one answer to GET_RETENTION */
#define HOLD_NS                (60 * CLOCK_SECOND)
#define GRACE_NS               (15 * CLOCK_SECOND)  /* mounts say what they show every 5 s */
#define LISTING_DISK_MOST      ((uint64_t)16 << 30) /* or half of what is free, if that is less */
#define LINEAGES_AT_ONCE       2u   /* of a source, because of what askers have seen */
#define LINEAGE_EVERY_S        600u /* and one more each time */

struct allowance;
struct source_set;

struct source_set_config {
	struct store *store;      /* borrowed until source_set_free() */
	const char *tables;       /* directory of the table files; must exist; borrowed */
	uint64_t epoch;           /* this run of the master */
	uint64_t listing_bytes;   /* memory of one listing */
	uint64_t listing_disk;    /* bytes of its files; 0: LISTING_DISK_MOST */
	struct ufs_limits limits; /* of the origins */
	uint64_t hold_ns;         /* how long a mount's word counts */
	uint64_t grace_ns;        /* after the start, in which nothing is given up */
	uint8_t seal_key[SHA256_BYTES];
	bool believe_unsealed; /* contradictions without a seal, too */
};

/* Loads what the store knows; removes table files that no record names. */
int source_set_new(const struct source_set_config *config, struct source_set **ret_set,
	struct err *e) __must_check;
/* No flight may be under way. NULL is allowed. */
void source_set_free(struct source_set *set);
/* Ends listings under way with -ECANCELED. */
void source_set_stop(struct source_set *set);
bool source_set_is_stopping(const struct source_set *set);

/* The highest generation the asker knows of; lineage 0: none. */
struct source_seen {
	uint64_t lineage;
	uint64_t generation;
	uint8_t hash[SHA256_BYTES];
	uint8_t seal[SHA256_BYTES]; /* as it came with that generation */
};

/* The seal of a generation: an HMAC with a key that only the master's store and its backups have, over volume, lineage, generation
 * and hash, which covers the hashes of all generations before. Only this master, or one with a copy of its state, has made what
 * has its seal. */
void source_set_seal(const struct source_set *set, const struct volume_id *volume,
	const struct source_seen *of, uint8_t out[SHA256_BYTES]);

/* Borrowed for the duration of on_done, except that fd may be taken by TAKE_FD(). */
struct source_answer {
	struct record_generation generation;
	struct generation_id newest; /* of its lineage, with its seal */
	const struct ufs_config *config;
	struct generation_stats stats; /* zero unless listed */
	struct tier_policy policy;
	bool listed;        /* the origin was listed for this answer */
	const char *notice; /* NULL, or a line for the operator, */
	bool own_notice;    /* which is about this asker, not about the source */
	int fd;             /* the table */
};

/* One asker, owned by the caller until on_done, which is called exactly once without locks held;
 * often before source_open() returns. */
struct source_wait {
	struct list link; /* the source's */
	const struct ufs_config
		*config; /* source_open(): the source, borrowed until on_done; else NULL */
	/* source_open(): made once the origin answered, unless it was set since (source_set_policies()) */
	struct policy_change policy;
	bool refresh;        /* list although a generation is there */
	bool as_known;       /* `config` is what the source has, or had: that is no news */
	uint64_t lineage;    /* source_table(): wanted; 0: the current one */
	uint64_t generation; /* wanted; 0: the newest */
	struct source_seen seen;
	struct allowance *allowance; /* of its token, borrowed until on_done; NULL: it has none */
	bool contradicts; /* the source's: `seen` cannot come from this master's history */
	uint64_t
		held_back_ns; /* likewise: its token may list again after that; 0: it was not refused */
	uint64_t policy_sets; /* the source's: how often its policy was set before */
	/* Asked when the flight begins, without locks: is the listing still wanted? False: -ECANCELED. NULL: yes.
	 * A listing that has begun is ended by source_set_end_listing(). */
	bool (*is_wanted)(struct source_wait *wait);
	bool of_dataset; /* ends with the last dataset of the source */
	bool unwanted;   /* the source's: it was not */
	/* Brings up `policy` once the origin has answered, which may take long; NULL: it is as it is.
	 * Without locks. */
	void (*policy_now)(struct source_wait *wait);
	/* status 0 with an answer, or a negative errno with its line */
	void (*on_done)(struct source_wait *wait, int status, struct source_answer *answer,
		const struct err *e);
	void *arg;
};

/* Generation of the source that wait->config names, which may be new. */
void source_open(struct source_set *set, struct source_wait *wait);

/* A generation by name. -ENXIO: unknown volume; -ESTALE: unknown generation. */
void source_table(struct source_set *set, const struct volume_id *volume, struct source_wait *wait);

struct cut;
struct rpc_conn;
/*
 * Before an answer is sent: to a connection whose token is for a part of the volume its table is replaced by one that is
 * cut to that part, which *ret_cut describes; to others ret_cut->part is 0. On failure no table is left.
 */
int source_answer_cut(struct source_set *set, const struct rpc_conn *conn,
	struct source_answer *answer, struct cut *ret_cut, struct err *e) __must_check;

/* As the two above when no flight is needed: true, and on_done was called. False: nothing happened.
 * They never wait for an origin. */
bool source_open_at_once(struct source_set *set, struct source_wait *wait);
bool source_table_at_once(
	struct source_set *set, const struct volume_id *volume, struct source_wait *wait);

/* A mount shows a generation, or no more. */
struct source_hold {
	struct volume_id volume;
	uint64_t lineage;
	uint64_t generation;
	uint8_t mount[HOLD_MOUNT_BYTES]; /* random, the mount's */
	uint32_t follow_s; /* it wants the source to be listed that often; 0: it does not care */
	int64_t since_ms; /* requests one listing that begins then or later, ms since 1970; 0: none */
	uint64_t local_bytes; /* that it read past the workers since it began */
	bool end;
	struct allowance *allowance; /* of its token, which is borrowed; NULL: it has none */
};

/* -ENXIO: unknown volume; -ESTALE: noted, but that generation is not kept; -EAGAIN: not noted, as its token has too many. */
int source_set_hold(
	struct source_set *set, const struct source_hold *hold, struct err *e) __must_check;

/* A packed message Retention about the sources from number `first` on, to be freed; *ret_next: the
 * first that did not fit, or 0. NULL without memory. */
uint8_t *source_set_retention(
	struct source_set *set, uint64_t first, uint64_t *ret_next, size_t *ret_len);

/* [{"volume", "source", "lineage", "generation", "files", ...}], with "workers" what each has of it; NULL without memory. */
json_t *source_set_json(struct source_set *set, bool workers);

/* ---- source_change.c: what datasets and workers say of it ------------------------------------ */

/* Of several, with `also`, if it is not NULL, in one write to the store: all of it or nothing. Of a
 * source that is not known yet nothing is to be changed. */
int source_set_policies(struct source_set *set, const struct volume_id *volumes, uint32_t n,
	const struct tier_policy *policy, const struct store_change *also) __must_check;
/* A generation that is kept whoever shows it. */
struct source_pin {
	uint64_t lineage;
	uint64_t generation;
};
/* All that are pinned from now on; the rest is pinned no more. More than GENERATIONS_PINNED are
 * cut. -ENOMEM. */
int source_set_pins(struct source_set *set, const struct volume_id *volume,
	const struct source_pin *pins, uint32_t n) __must_check;
/* Workers are to drop all they have of it. *ret_serial: source_view.evicted reaches it then. */
int source_set_evict(struct source_set *set, const struct volume_id *volume, uint64_t *ret_serial,
	struct err *e) __must_check;
/* Some of its objects: those below `subtree`, and of these what a glob matches, over `at` and the rest
 * of the key. */
#define SOURCE_PATHS_MAX  16u
#define SOURCE_PATH_BYTES 1024u
struct source_paths {
	const char *paths[SOURCE_PATHS_MAX]; /* borrowed, as the rest; none: all */
	uint32_t n;
	const char *subtree; /* "" or "a/b/" */
	const char *at;      /* "" or "a/b/" */
};
/* Workers are to drop these. *ret_serial: source_view.reported.evicted_paths reaches it then. -EBUSY:
 * another order of that kind is under way. */
int source_set_evict_paths(struct source_set *set, const struct volume_id *volume,
	const struct source_paths *paths, uint64_t *ret_serial, struct err *e) __must_check;
/* 0: what these would order of it could be now. -EBUSY as above, of `paths`; -ENXIO. */
int source_set_may_evict(struct source_set *set, const struct volume_id *volume, bool paths,
	struct err *e) __must_check;
/* Not used for long: it makes room before all others, whatever its policy says. */
void source_set_idle(struct source_set *set, const struct volume_id *volume, bool idle);
/* Its last dataset is gone: the listing in flight ends, and its waiters get -ECANCELED, unless a mount shows the source
 * or a waiter is not of a dataset. */
void source_set_end_listing(struct source_set *set, const struct volume_id *volume);
/* It is used now, though no mount shows it. */
void source_set_touch(struct source_set *set, const struct volume_id *volume);
/* ---- source_workers.c: what workers have of it ------------------------------------------------ */

/* What a worker has of it, or all that are not out together: then what was followed is what each of them
 * has followed that is heard of, and what went is what went by that. */
struct source_report {
	uint64_t cached_bytes; /* of chunks that it owns */
	uint64_t copy_bytes;   /* and of others' */
	uint64_t origin_bytes;
	uint64_t hit_bytes;  /* given to readers out of tiers */
	uint64_t miss_bytes; /* and as they came from the origin */
	uint64_t evicted;    /* serial */
	uint64_t evicted_bytes;
	uint64_t evicted_paths; /* likewise, of source_set_evict_paths() */
	uint64_t evicted_paths_bytes;
	uint64_t
		age_ns; /* of a sum: since the oldest report in it; of workers that do not report any more the newest counts */
	bool whole;     /* it keeps all of it */
	uint16_t number; /* of the worker in slot tables; PLACEMENT_NONE: it has none */
};
/* `worker`: its id; 0: of one that never joined. */
void source_set_report(struct source_set *set, uint64_t worker, const struct volume_id *volume,
	const struct source_report *report);
/* Of all its tiers. */
void source_set_capacity(struct source_set *set, uint64_t worker, uint64_t bytes);
/* It is out, or was removed: what it has counts no more; what it gave to readers, and fetched for them, was so. */
void source_set_forget_worker(struct source_set *set, uint64_t worker);
/* How workers are called, at most SOURCE_NAME_BYTES with the NUL; false: not known. Before anything is asked. */
#define SOURCE_NAME_BYTES 64u
void source_set_name_workers(
	struct source_set *set, bool (*name_of)(void *arg, uint64_t id, char *out), void *arg);
/* [{"id", "name", "cached_bytes", "copy_bytes", "whole"}] of those that have any of it; NULL without memory. */
json_t *source_set_workers_json(struct source_set *set, const struct volume_id *volume);

/* ---- source_follow.c: what is listed again by itself ------------------------------------------ */

#define FOLLOW_LEAST_S 1u
#define FOLLOW_MOST_S  86400u

struct source_follow {
	struct volume_id volume;
	uint32_t interval_s;
};
/* All that datasets want listed again, from now on; mounts add theirs by what they hold. A source
 * that was not requested yet is passed over. */
void source_set_follow(struct source_set *set, const struct source_follow *follows, uint32_t n);
/*
 * The source whose time came first of those whose time has come, and how it is reached (the caller's to release): listed next
 * time after source_set_followed() said what came of it. -ENOENT: none; -ENOMEM.
 */
int source_set_follow_due(struct source_set *set, struct volume_id *ret_volume,
	struct ufs_config *ret_config) __must_check;
/* After an error the next listing is twice as far away each time, ten minutes at most. */
void source_set_followed(struct source_set *set, const struct volume_id *volume, int status);
/* Nothing came of it, for want of room here: it is due still. */
void source_set_follow_later(struct source_set *set, const struct volume_id *volume);
/* What a mount that shows `hold` should know. -ENXIO. */
#define SOURCE_NEWS_KEEPERS 4u
struct source_news {
	struct generation_id newest; /* .generation 0: none */
	int64_t shown_ms;  /* since 1970: a listing began that found what it shows; 0: not known */
	int64_t newest_ms; /* likewise, for the newest generation */
	int64_t now_ms;
	bool kept;
	struct tier_policy policy;
	bool cached_known;
	uint64_t cached_bytes; /* by all workers together */
	bool keepers_known;
	uint16_t keepers[SOURCE_NEWS_KEEPERS]; /* numbers of workers that keep all of it */
	uint32_t n_keepers;
};
int source_set_news(struct source_set *set, const struct source_hold *hold,
	struct source_news *ret_news) __must_check;

/* ---- source_view.c: what is known of it ------------------------------------------------------ */

struct source_view {
	struct record_generation newest; /* .serial 0: there is none yet */
	struct tier_policy policy;
	struct source_report reported; /* by the workers together */
	bool heard;                    /* of any */
	uint64_t local_bytes;          /* that mounts read past them */
	uint64_t capacity;             /* of the workers' tiers */
	uint64_t evict;                /* serial that is asked for */
	uint32_t mounts;
	int64_t used; /* seconds since 1970: mounted last; 0: never */
	bool idle;
	bool listing;
	uint64_t listed_keys;
	uint32_t follow_s;  /* it is listed that often by itself; 0: it is not */
	struct err failure; /* of the last listing; code 0: none */
};

/* Adds "hit_bytes", "miss_bytes", "hit_ratio" and "as_of_s" to `json`: what readers were given since workers and mounts began,
 * `local` bytes of it by mounts from this node's tiers. hit_ratio is null when no read reached a daemon. */
void source_add_hits(json_t *json, const struct source_report *r, uint64_t local);

/* -ENXIO: it was not requested yet. */
int source_set_view(struct source_set *set, const struct volume_id *volume,
	struct source_view *ret_view) __must_check;
/* Bytes of all sources together that readers were given and that came from origins. */
struct source_sum {
	uint64_t hit_bytes; /* by workers and by mounts themselves */
	uint64_t miss_bytes;
	uint64_t origin_bytes;
};
void source_set_sum(struct source_set *set, struct source_sum *ret_sum);
/* As it is by now. -ENOENT. */
int source_set_policy(struct source_set *set, const struct volume_id *volume,
	struct tier_policy *ret_policy) __must_check;
/* A generation of the newest lineage that has its table; 0: the newest. -ENOENT. */
int source_set_generation(struct source_set *set, const struct volume_id *volume,
	uint64_t generation, struct record_generation *ret_generation) __must_check;
/* By its whole name, of whichever lineage. -ENOENT: it has no table any more. */
int source_set_find(struct source_set *set, const struct volume_id *volume,
	const struct source_pin *which, struct record_generation *ret_generation) __must_check;
/* The table of such a generation, opened; lineage 0: the newest. -ENOENT, and what table_open() says. */
int source_set_open_table(struct source_set *set, const struct volume_id *volume,
	const struct source_pin *which, struct table **ret_table, struct err *e) __must_check;
/* [{"generation", "lineage", "built_at", "files", ...}], newest first; NULL without memory. */
json_t *source_set_generations_json(struct source_set *set, const struct volume_id *volume);
/* Shortly after the start, when mounts may not have said yet what they show. */
bool source_set_in_grace(const struct source_set *set);
