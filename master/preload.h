/*
 * Preloads: jobs that bring a source, or parts of it, into the workers' tiers
 * (docs/decisions/preload.md). The master keeps them durably, opens their source, hands them to the
 * worker that asks, and takes down how far it is. States and bounds are in proto/preload.h.
 *
 *	POST   /v1/preloads		{"url" and how to reach it, or "dataset", or "volume" with a "label",
 *					"lineage" and "generation"; "paths", "bandwidth"}: a job, or the one that does it already
 *	GET    /v1/preloads[/ID]	how far they are
 *	DELETE /v1/preloads/ID		cancels it; what is cached stays
 *
 * Every worker has a part of each job: the chunks that it owns, and those of which it is to keep copies
 * (cacheworker/preload.h). A job has ended once all that own slots have ended their parts by the slot table
 * in force; its rate is shared out among those that have not.
 *
 * Outcomes are durable before anybody hears of them; how far a job is only now and then, as its
 * worker says it again.
 *
 * Threads: any but a loop's, unless stated; they block on the store.
 */
#pragma once

#include "admin/admin.h"
#include "base/pool.h"
#include "master/preload_rate.h"
#include "master/source.h"
#include "master/source_rules.h"
#include "net/net.h"
#include "proto/preload.h"

struct dataset_set;

/* How far a worker is with its part of a job: what it owns, and is to have copies of. */
struct preload_part {
	uint64_t worker;         /* its id; 0: of one that never joined */
	uint64_t run;            /* its start */
	uint64_t run_fetched;    /* bytes from the origin by it */
	uint64_t fetched_before; /* and by earlier ones */
	enum preload_state state;
	uint64_t files_done;
	uint64_t files_failed;
	uint64_t bytes_done;
	uint64_t bytes_copied;
	char reason[128];
	/* Not kept: */
	uint64_t epoch; /* of the slot table by which it has ended */
	uint64_t sequence;
	bool heard;       /* in this run of the master */
	json_t *failures; /* as the record's */
};

#define PRELOAD_PARTS_MAX  4096u /* PLACEMENT_MAX */
#define PRELOAD_PARTS_KEPT 1024u

/* What is kept of a job. */
struct preload_record {
	uint64_t id;
	enum preload_state state;
	char *target;             /* as it was asked for: URL, dataset, label of a volume; owned */
	struct ufs_config config; /* while LISTING: what is to be opened; owned */
	bool refresh;             /* likewise: it is listed again */
	struct volume_id volume;  /* from WAITING on */
	uint64_t lineage;         /* of the generation that is loaded; 0: the newest */
	uint64_t generation;
	bool exact;                     /* that one, and not the newest when its turn comes */
	char *paths[PRELOAD_PATHS_MAX]; /* globs; owned */
	uint32_t n_paths;
	char *subtree;      /* "a/b/": of a view: only keys below it; NULL: all; owned */
	char *at;           /* "a/b/": what stands before keys for `paths`; NULL: nothing; owned */
	bool part;          /* of a dataset of several sources: `paths` may mean nothing of it */
	uint64_t bandwidth; /* bytes a second; 0: no bound */
	uint32_t user;   /* uid of the ordinary user whose it is; 0: of root, or an administrator */
	int64_t created; /* seconds since 1970; 0: not yet */
	int64_t started;
	int64_t ended;
	uint64_t files;
	uint64_t files_done;
	uint64_t files_failed;
	uint64_t bytes;
	uint64_t bytes_done;
	uint64_t bytes_fetched;     /* by all workers, over all their starts */
	struct preload_part *parts; /* of those that reported; owned */
	uint32_t n_parts;
	json_t *failures; /* [{"key", "reason"}], the first ones; owned; NULL: none */
	char reason[PRELOAD_REASON_BYTES];
};

/* ---- preload_record.c ------------------------------------------------------------------------ */

void preload_record_release(struct preload_record *record);
void preload_record_key(uint64_t id, char out[RECORD_KEY_BYTES]);
/* What people see of it: a new reference; NULL without memory. */
json_t *preload_record_json(const struct preload_record *record);
int preload_record_encode(const struct preload_record *record, struct buf *out) __must_check;
/* As record_source_decode(). What a newer version added is passed over. */
int preload_record_decode(
	const void *data, size_t len, struct preload_record *ret_record) __must_check;

/* ---- preload_spec.c -------------------------------------------------------------------------- */

/* What a request's body says, for a new record, which is the caller's to release also on failure;
 * -EINVAL with a line that names the member; of a URL's source as source_rules_check(). `mount`: which of a
 * dataset's. `datasets` may be NULL. */
int preload_apply(struct preload_record *record, const json_t *body, uint32_t mount,
	struct dataset_set *datasets, const struct source_rules *rules, struct err *e) __must_check;
/* How many jobs such a request makes: one for each mount of a dataset. */
uint32_t preload_count(const json_t *body, struct dataset_set *datasets);

/* ---- preload.c ------------------------------------------------------------------------------- */

struct preloads;

struct preloads_config {
	struct store *store; /* borrowed, as the following */
	struct source_set *sources;
	struct dataset_set *datasets; /* NULL: there are none */
	struct pool *pool;            /* where sources are opened */
	/* Ids of the workers that own slots, to be freed, and the version of the table that says so; NULL:
	 * not known now. Without it a job is whoever reports it. Blocks on no I/O. */
	uint64_t *(*owners)(
		void *arg, uint32_t *ret_n, uint64_t *ret_epoch, uint64_t *ret_sequence);
	/* The name of a worker, at most PRELOAD_NAME_BYTES with the NUL; false: not known. NULL: of none. */
	bool (*name_of)(void *arg, uint64_t id, char *out);
	void *owners_arg; /* of both */
};

#define PRELOAD_NAME_BYTES 64u

/* Loads what the store knows, and goes on with it. */
int preloads_new(const struct preloads_config *config, struct preloads **ret_preloads,
	struct err *e) __must_check;
/* After the server's and the pool's end. NULL is allowed. */
void preloads_free(struct preloads *p);

struct preload_request {
	const json_t *body;
	const struct source_rules *rules;
	uint32_t user; /* as preload_record.user */
};

/* A job, or that which does the same already (*ret_joined). Of a dataset with several mounts one for
 * each: *ret_json is that of the first, with "jobs", their numbers. -EBUSY: too many are in progress; other errors as
 * of preload_apply(). */
int preloads_create(struct preloads *p, const struct preload_request *request, json_t **ret_json,
	bool *ret_joined, struct err *e) __must_check;
/* -ENOENT; -EEXIST: it has ended. */
int preloads_cancel(struct preloads *p, uint64_t id, json_t **ret_json, struct err *e) __must_check;
/* One, or with 0 all: {"preloads": [...]}, newest first, without their failures. -ENOENT. */
int preloads_json(struct preloads *p, uint64_t id, json_t **ret_json, struct err *e) __must_check;

/* A worker's PRELOAD: takes down what it says; answered now, or once there is a job. The request's
 * `link` is initialised. */
void preloads_answer(struct preloads *p, struct rpc_request *request);
/* That request has no waiter any more. On the loop. */
void preloads_cancelled(struct preloads *p, struct rpc_request *request);

/* ---- preload_owners.c ------------------------------------------------------------------------- */

/* As preloads_config.name_of and .owners; `membership`: a struct membership. */
bool preload_worker_name(void *membership, uint64_t id, char *out);
uint64_t *preload_owners(
	void *membership, uint32_t *ret_n, uint64_t *ret_epoch, uint64_t *ret_sequence);

/* ---- preload_api.c: the routes' handlers; `arg` of each is a struct service ------------------ */

int preload_api_list(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e);
int preload_api_get(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e);
int preload_api_create(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e);
int preload_api_cancel(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e);
