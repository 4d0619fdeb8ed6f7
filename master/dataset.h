/*
 * Datasets: named sets of sources, each at a path, with what an operator wants of them. The record is
 * all there is of one: generations and bytes are its sources' (source.h), which go on without it.
 *
 *	POST   /v1/datasets		{"name", "mounts": [{"path", "url", ...}], ...}: checks the
 *					origin, stores, lists in the background
 *	GET    /v1/datasets[/NAME]	the record and what is known of its sources
 *					?claims=TEXT: if it allows the caller that claims this;
 *					with ?user=1 not without claims
 *	PATCH  /v1/datasets/NAME	some of its settings, null for the default; "name" renames
 *	DELETE /v1/datasets/NAME	?force=1: though it is mounted
 *					?left_out=1: and which keys no file can have
 *	GET    .../generations, .../diff?from=&to=
 *	POST   .../rollback, .../pin, .../evict
 *
 * Several mounts may be of one volume: a *view* shows what lies below a prefix (`subtree`) of a source
 * that another dataset, or mount, shows whole. The generation of a dataset is the vector of those of
 * its sources (docs/decisions/generations-of-several.md).
 *
 * A mount is of a dataset's UUID, which never changes. A record is never changed in place: a new
 * one takes its place, so that what was read of it under the lock may be used without it.
 *
 * Threads: any but a loop's; all block on the store, creation on the origin.
 */
#pragma once

#include "admin/admin.h"
#include "base/claims.h"
#include "base/dataset_name.h"
#include "base/policy.h"
#include "base/pool.h"
#include "master/source.h"
#include "master/source_rules.h"

#define DATASET_UUID_BYTES 16u
#define DATASET_UUID_TEXT  (2 * DATASET_UUID_BYTES + 1)
#define DATASET_MOUNTS_MAX 16u
#define DATASET_PINS_MAX   64u /* of all its sources; of one no more than GENERATIONS_PINNED */
#define DATASET_PATH_BYTES 1024u
#define DATASETS_MAX       4096u
#define DATASET_TEXT_BYTES 4096u
#define DATASET_INTERVAL_S 60u

enum dataset_consistency {
	DATASET_PINNED, /* a mount sees one generation until it is refreshed */
	DATASET_FOLLOW, /* its sources are listed again and again, and mounts see what comes of it */
};

struct dataset_mount {
	char *path;               /* "/", "/a/b": where in the dataset its source appears; owned */
	char *url;                /* as it was given; owned */
	struct ufs_config config; /* of the source; owned */
	struct volume_id volume;
	char *subtree; /* "a/b/": of a view the keys that it shows; NULL: all; owned */
};

/* A generation of one of its sources. */
struct dataset_generation {
	struct volume_id volume;
	uint64_t lineage;
	uint64_t generation; /* 0: none */
};

struct dataset {
	char name[DATASET_NAME_BYTES + 1];
	char uuid[DATASET_UUID_TEXT];
	int64_t created; /* seconds since 1970 */
	struct dataset_mount mounts[DATASET_MOUNTS_MAX];
	uint32_t n_mounts;
	char *cache_scope; /* NULL: the reference to its credentials; owned */
	char *allow; /* who may use it: forms of base/claims.h; NULL: administrators only; owned */
	struct policy_change policy; /* of its sources; parts that are not set are the default */
	uint64_t idle_s;             /* not mounted for so long it makes room first; 0: never */
	uint64_t ttl_s;              /* not mounted for so long it is dropped; 0: never */
	enum dataset_consistency consistency;
	uint64_t interval_s; /* DATASET_FOLLOW: between two listings; 0: the default */
	/* Rolled back to; of the other sources the newest is shown. */
	struct dataset_generation shown[DATASET_MOUNTS_MAX];
	uint32_t n_shown;
	struct dataset_generation pins[DATASET_PINS_MAX];
	uint32_t n_pins;
};

void dataset_release(struct dataset *d);
int dataset_copy(const struct dataset *from, struct dataset *ret_to) __must_check;

/* Is mount `i` the first of its volume? For what is done once for each source. */
bool dataset_is_first(const struct dataset *d, uint32_t i);
/* Of how many sources it is. */
uint32_t dataset_sources_of(const struct dataset *d);
bool dataset_has_volume(const struct dataset *d, const struct volume_id *volume);
/* What a source of it was rolled back to; NULL: it shows the newest. */
const struct dataset_generation *dataset_shown(
	const struct dataset *d, const struct volume_id *volume);
struct dataset_set;
/*
 * Which generation a number means: of several lineages the one that the dataset pins, else the one that it shows, else that of
 * the newest lineage. generation 0: the newest. -ENOENT with a line.
 */
int dataset_find_generation(struct dataset_set *set, const struct dataset *d,
	const struct volume_id *volume, uint64_t generation, struct dataset_generation *ret,
	struct err *e) __must_check;
/* The mount at that path, written in any way; NULL: none. */
const struct dataset_mount *dataset_mount_at(const struct dataset *d, const char *path);

/* ---- dataset_record.c ------------------------------------------------------------------------ */

#define DATASET_KEY_BYTES 64u
void dataset_key(const char *uuid, char out[DATASET_KEY_BYTES]);
int dataset_encode(const struct dataset *d, struct buf *out) __must_check;
/* As record_source_decode(). What a newer version added is passed over. */
int dataset_decode(const void *data, size_t len, struct dataset *ret) __must_check;

/* ---- dataset_spec.c -------------------------------------------------------------------------- */

/* What a request's body says, over what `d` has; `create`: sources too, and a name is needed. Of
 * sources that are there already only how they are reached may change. On failure `d` may have
 * changed. `rules`: what the caller may name; NULL: all. -EINVAL with a line that names the member, or as
 * source_rules_check(). */
int dataset_apply(struct dataset *d, const json_t *body, bool create,
	const struct source_rules *rules, struct err *e) __must_check;
/* As a path of a dataset is kept: "/", or "/a/b". -EINVAL with a line. */
int dataset_path_normal(const char *path, char out[DATASET_PATH_BYTES], struct err *e) __must_check;

/* ---- dataset_set.c --------------------------------------------------------------------------- */

struct dataset_set;

struct dataset_set_config {
	struct store *store; /* borrowed, as the following */
	struct source_set *sources;
	struct pool *pool;               /* for listings without a waiter */
	const struct ufs_limits *limits; /* of checks */
	void (*on_change)(
		void *arg); /* workers should ask for their retention settings; may be NULL */
	void *arg;
};

int dataset_set_new(const struct dataset_set_config *config, struct dataset_set **ret_set,
	struct err *e) __must_check;
/* After the pool's end. NULL is allowed. */
void dataset_set_free(struct dataset_set *set);

/* Copies the record with that name, or of that UUID. -ENOENT with a line. */
int dataset_set_find(
	struct dataset_set *set, const char *name, struct dataset *ret, struct err *e) __must_check;
int dataset_set_find_uuid(
	struct dataset_set *set, const char *uuid, struct dataset *ret, struct err *e) __must_check;

/*
 * Finds what a caller with these claims (base/claims.h) may use. -EPERM with a line, the same whether there is no such dataset or
 * it does not allow the caller.
 */
int dataset_set_find_allowed(struct dataset_set *set, const char *name, const char *claims,
	struct dataset *ret, struct err *e) __must_check;

/* All, by name: the caller's to release and free. */
int dataset_set_all(
	struct dataset_set *set, struct dataset **ret_all, uint32_t *ret_n) __must_check;

/* ---- dataset.c: each with its line; *ret the new record, to be released; `rules` as dataset_apply() */

/* What dataset_create() with the same arguments would make, with the sources that it would share: nothing is stored. */
int dataset_preview(struct dataset_set *set, const json_t *body, bool check,
	const struct source_rules *rules, struct dataset *ret, struct err *e) __must_check;
int dataset_create(struct dataset_set *set, const json_t *body, bool check,
	const struct source_rules *rules, struct dataset *ret, struct err *e) __must_check;
/* -EEXIST: the new name is taken. -EBUSY: while `rules` were applied, the access settings of its
 * sources changed, or another dataset took its name. `check`: asks origins that are to be reached in another way. */
int dataset_update(struct dataset_set *set, const char *name, const json_t *body, bool check,
	const struct source_rules *rules, struct dataset *ret, struct err *e) __must_check;
/* -EBUSY: mounted, and not forced. */
int dataset_delete(
	struct dataset_set *set, const char *name, bool force, struct err *e) __must_check;

/* ---- dataset_evict.c ------------------------------------------------------------------------- */

/*
 * Drops what workers have of it; `path`: of the mount there only, or NULL; `paths`: of what these globs
 * name only, an array of texts, or NULL.
 * *ret_json: {"sources": [{"volume", "serial" or "paths_serial"}...]}: that serial is reached by
 * `evicted` (or `evicted_paths`) of the source then. -EBUSY: mounted, and not forced, or another
 * eviction by paths is under way. -EINVAL: several mounts that are meant show one source, which takes
 * one order at a time, and theirs cannot be one. Nothing is ordered then, of no source.
 */
int dataset_evict(struct dataset_set *set, const char *name, const char *path, const json_t *paths,
	bool force, json_t **ret_json, struct err *e) __must_check;

/* ---- dataset_generation.c -------------------------------------------------------------------- */

/* What is said of one of its sources. */
struct dataset_which {
	const char *path;    /* of a mount; NULL: the dataset has one source only */
	uint64_t generation; /* 0: the newest */
};

/* Shows these generations from now on; n 0: the newest of all. -ENOENT: one is not kept. */
int dataset_rollback(struct dataset_set *set, const char *name, const struct dataset_which *which,
	uint32_t n, struct dataset *ret, struct err *e) __must_check;
/* Keeps these generations, or no more. -ENOENT: one is not kept; -ENOSPC: too many. */
int dataset_pin(struct dataset_set *set, const char *name, const struct dataset_which *which,
	uint32_t n, bool pin, struct dataset *ret, struct err *e) __must_check;

/* ---- dataset_follow.c ------------------------------------------------------------------------ */

/* Members "consistency" and "interval_s" of a request's body. -EINVAL with a line. */
int dataset_take_consistency(struct dataset *d, const json_t *body, struct err *e) __must_check;
/* Whether mounts of it see that source as it changes: one that was rolled back stays there. */
bool dataset_follows(const struct dataset *d, const struct volume_id *volume);
uint64_t dataset_interval_s(const struct dataset *d);
/* What is to be listed again by itself: all sources that are followed. To be freed. -ENOMEM. */
int dataset_set_follow(
	struct dataset_set *set, struct source_follow **ret_follows, uint32_t *ret_n) __must_check;

/* ---- dataset_age.c --------------------------------------------------------------------------- */

/* What was not mounted for long makes room first, or is dropped. Called with each question of a
 * worker. NULL is allowed. */
void dataset_age(struct dataset_set *set);

/* ---- dataset_json.c -------------------------------------------------------------------------- */

/* The record and what is known of its sources; NULL without memory. */
json_t *dataset_json(struct dataset_set *set, const struct dataset *d);
/* The record alone, for the audit log: without memory less, or NULL. No secrets are in it. */
json_t *dataset_record_json(const struct dataset *d);
struct source_set *dataset_sources(struct dataset_set *set);

/* ---- dataset_view.c -------------------------------------------------------------------------- */

/*
 * Makes mounts of `d` views where they lie inside a source that is used already: one that another
 * dataset has, or mounts show, or of which something is cached. `check`: only where the credentials
 * reach that source. What is wrong keeps a mount a source of its own.
 */
void dataset_find_views(struct dataset_set *set, struct dataset *d, bool check);
/* Live objects below `subtree` (NULL: all) of the generation, counted once and remembered. */
int dataset_view_count(struct dataset_set *set, const struct volume_id *volume,
	const struct record_generation *g, const char *subtree, uint64_t *ret_files,
	uint64_t *ret_bytes) __must_check;

/* ---- dataset_left_out.c ---------------------------------------------------------------------- */

/* {"count", "keys": [{"key", "reason"}...]}: keys of a dataset that no file can have, in what it
 * shows, the first hundred of them by name. Reads whole tables: a second for a million. */
int dataset_left_out_json(struct source_set *sources, const struct dataset *d, json_t **ret_json,
	struct err *e) __must_check;

/* ---- dataset_diff.c -------------------------------------------------------------------------- */

#define DIFF_PAGE     1000u
#define DIFF_PAGE_MAX 10000u

/*
 * {"mount", "from", "to", "added": [{"key", "size", "mtime"}...], "changed", "removed", "next"}: what
 * differs between two generations, in the order of keys, of what the mount shows; `to` 0: the newest. `next`
 * of one page is the `after` of the following one. A key that is no UTF-8 has its bytes in "key_hex".
 */
int dataset_diff_json(struct dataset_set *set, const struct dataset *dataset,
	const struct dataset_mount *mount, uint64_t from, uint64_t to, const char *after,
	uint32_t limit, json_t **ret_json, struct err *e) __must_check;

/* ---- dataset_api.c --------------------------------------------------------------------------- */

/* Handlers of the routes above; `arg` of each is a struct service. */
int dataset_api_list(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e);
int dataset_api_create(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e);
int dataset_api_preview(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e);
int dataset_api_get(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e);
int dataset_api_update(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e);
int dataset_api_delete(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e);
int dataset_api_generations(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e);
int dataset_api_diff(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e);
int dataset_api_rollback(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e);
int dataset_api_pin(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e);
int dataset_api_evict(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e);
