/*
 * The parts of sealing; see seal.h.
 *
 *	seal		views, answers
 *	seal_hold	what mounts have as devices
 *	seal_look	what of an extent is there, and was verified
 *	seal_verify	the periodic work: looks, verifies, decides
 *
 * An extent of a view:
 *
 *	UNKNOWN ──looked at──► ABSENT
 *	ABSENT ──its file is there──► INCOMPLETE ──complete for quiet_ns──► VERIFYING ──► SEALED
 *	   ▲                              ▲                                     │            │
 *	   └──its file is gone──(any)     └──a finding, pieces gone─────────────┴────────────┘
 *
 * REFUSED: the volume does not lie in extents (but what is sealed stays so), they have another
 * size, or the disk is out; then as INCOMPLETE.
 */
#pragma once

#include "base/list.h"
#include "cacheworker/scrub_internal.h"
#include "cacheworker/seal.h"
#include "catalog/catalog.h"
#include "proto/seal.h"
#include "tiers/seal.h"

#define SEAL_VIEWS_MAX   128u /* mounts' generations, of each source */
#define SEAL_HOLDERS_MAX 256u
#define SEAL_TICK_NS     (250 * CLOCK_MS)
#define SEAL_QUIET_NS    (2 * CLOCK_SECOND)
#define SEAL_REST_NS     (2 * CLOCK_SECOND) /* between two looks when all is sealed */
#define SEAL_VIEW_NS     (120 * CLOCK_SECOND) /* a view that no mount asks about is forgotten; after */
#define SEAL_VIEW_SOON   (30 * CLOCK_SECOND) /* so long when half of the room is taken */
#define SEAL_PART_NS     (50 * CLOCK_MS)     /* most that looking takes of a tick */

/* What is asked for. */
struct seal_scope {
	struct volume_id volume;
	uint64_t lineage;
	uint64_t generation;
	uint64_t end; /* of the volume, as it is shown; UINT64_MAX: not known */
	uint64_t extent_bytes;
};

/* One extent. */
struct seal {
	struct seal_status status;
	uint64_t file;     /* 0: none */
	uint32_t damages;  /* of the file, as seen */
	bool looked;       /* at the file, and: */
	uint64_t changes;  /* of the file, at that time */
	uint64_t look_at;  /* it cannot be complete before that much was written */
	uint64_t whole_ns; /* when it was found complete; 0: it is not */
};

struct seal_view {
	struct list link;
	struct seal_scope scope;
	uint64_t asked_ns;
	uint64_t failed_ns; /* the table was not to be had */
	uint64_t rest_ns;   /* until then nothing is to be done but for damage */
	uint64_t damages;   /* tier_seal_damages() when all were looked at */
	uint32_t next;      /* the work's: extent to go on with */
	uint32_t n;
	struct seal *seals;
};

/* What one connection has of one view's extents. */
struct seal_holder {
	struct list link;
	const struct rpc_conn *conn; /* NULL: gone */
	struct seal_scope scope;
	uint64_t until_ns;
	uint32_t n;
	struct extent **held; /* referenced and held, or NULL */
};

/* An extent being verified; the work's. */
struct seal_run {
	struct seal_view *view; /* NULL: none is */
	uint32_t number;
	uint64_t file;
	uint64_t chunk; /* the next */
	uint64_t first;
	uint64_t end;
};

struct seals {
	pthread_mutex_t lock;
	struct list views;   /* newest last; only the work takes any away */
	struct list holders; /* struct seal_holder */
	uint32_t n_views;
	uint32_t n_holders;
	uint64_t epoch;
	_Atomic uint64_t quiet_ns; /* SEAL_QUIET_NS; tests have less time */
	struct periodic_work work;
	bool started;
	struct scrub pace; /* the work's waiting, reading and findings */
	struct scrub_tally tally;
	struct seal_run run;
	uint64_t turn_ns; /* of the last tick */
};

/* What a look at an extent found, for the rows that a view names. */
struct seal_look {
	uint64_t missing; /* bytes */
	bool elsewhere;   /* some of them are in the tier, in another file */
	bool there;       /* every chunk has a mark */
	bool fresh;       /* and nothing came since */
};

/* Looks at all rows of the extent. Negative: the table cannot be read. */
int seal_look(struct worker *w, const struct seal_scope *scope, struct table *table,
	struct extent *extent, uint32_t number, struct seal_look *ret_look) __must_check;

/* Notes what the tiers know of the extent (NULL: it is not there): another file, damage. */
void seal_note(struct seal *seal, const struct tier_seal_facts *facts);

/* Counts what was sealed, or is no more; under seals.lock. */
void seal_count(struct worker *w, const struct seal_scope *scope, uint32_t number, bool was,
	const struct seal_status *status);

/* Chunks of the extent that the view shows, [*ret_first, *ret_end). */
void seal_chunks(
	const struct seal_scope *scope, uint32_t number, uint64_t *ret_first, uint64_t *ret_end);

/* seal_hold.c: the bits of an ask about [first, first + n). May close files. */
void seal_holders_note(struct worker *w, const struct rpc_request *request,
	const struct seal_scope *scope, uint32_t first, uint32_t n, const uint8_t *held);
/* Holds one for the connection: it goes out now. False: the connection is gone, or no memory. */
bool seal_holders_add(struct worker *w, const struct rpc_request *request,
	const struct seal_scope *scope, uint32_t number, struct extent *extent);
/* Lets go of what was not named for too long; all: of everything. */
void seal_holders_expire(struct worker *w, bool all);
uint32_t seal_holders_count_locked(
	struct seals *seals, const struct volume_id *volume, uint64_t lineage);

uint64_t seal_run_slice(void *arg);
