/* The objects of standalone mode, for s3d_store.c and s3d_list.c. */
#pragma once

#include "tests/tools/s3d.h"

#define STORE_ETAG 40 /* text of an ETag with its quotes */

struct s3d_entry {
	char *key;
	uint64_t size;
	int64_t seconds;
	uint64_t version; /* synthetic: 0, 1, ...; else what makes the etag: nanoseconds, inode */
	bool synthetic;
	bool archived;
	bool restored;
};

struct s3d_store {
	const char *bucket;
	const char *dir;
	bool versioned;
	struct s3d_entry *entries; /* sorted by key */
	size_t count;
	size_t room;
	char *noise; /* S3D_NOISE_BYTES, twice a slice longer so that a slice never wraps */
};

void s3d_entry_etag(const struct s3d_entry *entry, char out[STORE_ETAG]);
/* First entry whose key is >= `key` (> with `past`). */
size_t s3d_store_find(const struct s3d_store *s, const char *key, bool past);

/* s3d_list.c */
/* Whether the bucket keeps versions. */
void s3d_list_versioning(const struct s3d_store *s, struct s3d_conn *c);
void s3d_list_serve(const struct s3d_store *s, struct s3d_conn *c);
