/*
 * Sources a worker fills from: an origin and the newest object table of one (volume, lineage).
 *
 * A source is made when a reader first names it, by asking the master; requests park on it
 * meanwhile. Once it had a table it lives until the worker closes; one that the master does not
 * know is forgotten at once. The worker remembers, next to its tier (kept.h), the highest generation
 * it saw of each volume and refuses a table that does not follow it.
 *
 * Threads: any; ready() runs on a control thread or inside source_find().
 */
#pragma once

#include "base/list.h"
#include "catalog/catalog.h"
#include "cacheworker/kinds.h"
#include "cacheworker/metrics.h"
#include "cacheworker/worker.h"
#include "ufs/ufs.h"

#define SOURCE_ELDERS 4u
#define SOURCE_FORMER 16u /* ways to one source in the life of a worker */
#define SOURCE_MAGIC  0x736f7572u

/*
 *	LOADING ──table came──► READY ──a reader names a newer generation──► LOADING
 *	   └──master or table refused──► FAILED ──next request──► LOADING
 *
 * A table that is there serves whoever names its generation or an older one, in every state.
 */
enum source_state {
	SOURCE_LOADING,
	SOURCE_READY,
	SOURCE_FAILED,
};

struct source_way {
	struct ufs *ufs;
	struct ufs_config origin;
};

struct source {
	uint32_t magic;
	struct list link; /* sources.all */
	struct worker *worker;
	struct volume_id volume;
	uint64_t lineage;
	enum source_state state;
	struct list parked;  /* struct source_wait */
	struct table *table; /* sources.lock guards the pointer; NULL until first READY */
	/* Last tables of other lineages of the volume with bytes on the tier; as `table`. */
	struct table *elders[SOURCE_ELDERS];
	uint32_t n_elders;
	/* Set before the first READY, and anew when it is to be reached in another way; sources.lock
	 * guards the pointer for all but those who know that there is one (source_ufs()). */
	struct ufs *ufs;
	struct ufs_config origin;
	/* Other ways, that it was reached in before: they may have requests, and come back. */
	struct source_way former[SOURCE_FORMER];
	uint32_t n_former;
	int64_t current_ms; /* when the last listing began, by the master; 0: not known; sources.lock */
	_Atomic uint64_t
		asked_bytes; /* bytes of units that readers asked for: the fill policy's measure */
	struct kinds kinds;  /* of objects that readers asked for */
	struct source_use use;
	struct pool_job job;
};

/* Of a source that has a table. What was asked of it is ended and raised there, too: it may be another
 * one by then. It lives until the worker closes. */
static inline struct ufs *source_ufs(struct source *source)
{
	return __atomic_load_n(&source->ufs, __ATOMIC_ACQUIRE);
}

/* A counter of its origin, under sources.lock: what only grows is summed over all ways, else it is that
 * one's that is used. Of a source that has a table. */
uint64_t source_origin_counter(const struct source *source, const struct counter_info *info);
/* All of them. */
void source_origin_counters(const struct source *source, struct ufs_counters *ret_counters);

struct Granary__Source;
/* How the volume is reached from now on; what is asked already ends there, and is asked for in that way.
 * Opens an origin when that is another way, which may block for some seconds. */
void source_set_way(
	struct worker *w, const struct volume_id *volume, const struct Granary__Source *way);

/* The last listing of the volume began then. Another one than before, even if it found nothing new, found the objects of
 * the newest generation: what the origin refused of them is asked for again. */
void source_note_current(struct worker *w, const struct volume_id *volume, int64_t current_ms);

/* One request waiting for a source; embedded in the request. */
struct source_wait {
	struct list link;
	bool answered;       /* ready() is due or was called */
	bool asked;          /* was parked before the master was asked */
	uint64_t generation; /* the lowest that will do */
	int status;          /* of ready() */
	void (*ready)(
		struct source_wait *wait, struct source *source, int status, const struct err *e);
};

/*
 * Calls wait->ready(): at once when the source is READY with at least `generation`, else when the
 * master answered, with a negative status when it refused. Never blocks.
 */
void source_find(struct worker *w, const struct volume_id *volume, uint64_t lineage,
	uint64_t generation, struct source_wait *wait);

/* Takes a request off the source it waits for: true when ready() will not be called. */
bool source_wait_cancel(struct worker *w, struct source_wait *wait);

/* How fast the origin of that volume may be asked from now on: bytes and requests a second, 0: no
 * bound. What is opened later hears it from the master first. Any thread. */
void source_set_rates(struct worker *w, const struct volume_id *volume, uint64_t bytes_per_s,
	uint64_t requests_per_s);

/* The newest table, referenced. Only of a source that was READY once. */
struct table *source_table(struct source *source);

/* That lineage has no bytes here any more. */
void source_forget_elder(struct worker *w, const struct volume_id *volume, uint64_t lineage);

/* The row, live or dead, that covers `at` (block-aligned), or the next one with bytes. As
 * table_next_offset(). */
int source_row_from(struct table *table, uint64_t at, struct table_row *row) __must_check;

/* The master is asked no more: its client may be freed, and what waits for it ends soon. */
void sources_close(struct worker *w);
/* Closes the origins: every request of theirs ends with -ECANCELED before this returns. */
void sources_close_origins(struct worker *w);
void sources_free(struct worker *w);
