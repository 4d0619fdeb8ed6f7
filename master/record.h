/*
 * What the master's store holds, as structs: encoded as JSON so that a person can read a backup.
 *
 * Owned by the caller; not thread-safe.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <jansson.h>
#include "base/buf.h"
#include "base/err.h"
#include "base/policy.h"
#include "catalog/catalog.h"
#include "ufs/ufs.h"

#define RECORD_KEY_BYTES 96

/* One generation of one source. */
struct record_generation {
	struct generation_id id;
	uint64_t serial; /* order of making within the source, over all lineages */
	uint64_t rows;
	uint64_t files;
	uint64_t bytes;
	uint64_t table_bytes;
	int64_t built_at; /* seconds since 1970 */
	uint64_t end;     /* of the table; 0: not known */
	uint64_t added;   /* keys, against its predecessor; older records say 0 */
	uint64_t changed;
	uint64_t removed;
	bool held; /* a mount shows it, or did; own key */
	bool kept; /* its table file is there; without it only the hash is remembered */
	/* ms since 1970: the last listing that found it to be the newest began; 0: not in this run
	 * of the master. Not stored. */
	int64_t current_ms;
};

/* Objects of a source that workers are to drop. */
#define RECORD_DROP_MAX 16u
struct record_drop {
	uint64_t serial;              /* workers that followed less follow this one; 0: none */
	char *paths[RECORD_DROP_MAX]; /* globs; owned, as the rest; none: all below subtree */
	uint32_t n;
	char *subtree; /* "" or "a/b/"; NULL: "" */
	char *at;      /* "" or "a/b/"; NULL: "" */
};
/* Copies; at most RECORD_DROP_MAX. -ENOMEM. */
int record_drop_init(struct record_drop *drop, const char *const *paths, uint32_t n,
	const char *subtree, const char *at) __must_check;
void record_drop_release(struct record_drop *drop);

/* A source as the master knows it. */
struct record_source {
	struct volume_id volume;
	struct ufs_config config; /* owned */
	struct tier_policy policy;
	uint64_t evict; /* workers that dropped less than that drop all they have of it */
	struct record_drop drop;
	int64_t used; /* seconds since 1970: a mount showed it last; 0: never */
	char *text;   /* canonical, what the volume id is made from; owned */
};
void record_source_release(struct record_source *record);

struct record_cluster {
	char uuid[33];
	uint64_t epoch; /* of its last run: ms since 1970 at its start, or one more than before */
	uint8_t seal_key[SHA256_BYTES]; /* of the seals of generations; zero: none was drawn yet */
};

void record_source_key(const struct volume_id *volume, char out[RECORD_KEY_BYTES]);
void record_generation_key(
	const struct volume_id *volume, uint64_t serial, char out[RECORD_KEY_BYTES]);
void record_held_key(const struct volume_id *volume, uint64_t serial, char out[RECORD_KEY_BYTES]);

int record_source_encode(const struct record_source *record, struct buf *out) __must_check;
int record_generation_encode(const struct record_generation *record, struct buf *out) __must_check;
int record_cluster_encode(const struct record_cluster *record, struct buf *out) __must_check;

/* The line about `what` ("a source") in the store that could not be read: code, for `return`. */
int record_refuse(struct err *e, int code, const char *what);

/* A number of 16 hexadecimal digits. -EBADMSG. */
int record_u64_hex(const json_t *json, const char *name, uint64_t *ret) __must_check;

/* How an origin is reached, as other records hold it too: a new reference, NULL without memory. */
json_t *record_config_json(const struct ufs_config *config);
/* -EBADMSG, -ENOMEM. */
int record_config_decode(const json_t *json, struct ufs_config *ret_config) __must_check;

/* -EBADMSG when a field is missing or not understood; -EPROTONOSUPPORT for a newer format. */
int record_source_decode(
	const void *data, size_t len, struct record_source *ret_record) __must_check;
int record_generation_decode(
	const void *data, size_t len, struct record_generation *ret_record) __must_check;
int record_cluster_decode(
	const void *data, size_t len, struct record_cluster *ret_record) __must_check;
