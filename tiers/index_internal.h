/*
 * The index of a tier: chunk -> file, state. Written when a chunk is made, complete, verified
 * after a boot, or unlinked; read once, at start. It only saves looking into every file: a lost one
 * is rebuilt from their heads.
 *
 * The seam lets tests and later backends take RocksDB's place. Threads: any; every call may block.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"
#include "tiers/chunk_file_internal.h"

/* What the index says of a chunk. */
struct index_row {
	struct chunk_id id;
	uint64_t file; /* id */
	uint32_t
		boot; /* of the tier; its pieces are trusted while this is the tier's present one */
	bool complete; /* every block is present */
	bool extent;   /* it lies in the extent file of that id */
	enum tier_class class;
};

#define INDEX_KEY_BYTES   32 /* volume, lineage and chunk big-endian: a volume's chunks in order */
#define INDEX_VALUE_BYTES 16 /* version, state, class, place, boot u32, file u64; little-endian */

void index_key_encode(const struct chunk_id *id, uint8_t out[INDEX_KEY_BYTES]);
void index_value_encode(const struct index_row *row, uint8_t out[INDEX_VALUE_BYTES]);
/* -EBADMSG: damaged, or of a version not known. */
int index_row_decode(const void *key, size_t key_len, const void *value, size_t value_len,
	struct index_row *ret_row) __must_check;

struct index;

struct index_ops {
	int (*put)(struct index *index, const struct index_row *row);
	int (*remove)(struct index *index, const struct chunk_id *id); /* 0 when it was not there */
	/* Calls fn for every row until it fails; its error, or -EBADMSG for a damaged index. */
	int (*each)(
		struct index *index, int (*fn)(void *arg, const struct index_row *row), void *arg);
	void (*close)(struct index *index); /* frees */
};

struct index {
	const struct index_ops *ops;
};

/*
 * Opens or makes the RocksDB at `path`. -EBUSY: in use; -ENOSPC; -EBADMSG: damaged; -EIO. Its
 * memory and files are bounded, see index_rocksdb.c.
 */
int index_rocksdb_open(const char *path, struct index **ret_index, struct err *e) __must_check;

/* Bytes that the files of a directory without subdirectories take; 0 when it is not there. */
uint64_t index_dir_bytes(const char *path);
/* Removes the files of the directory and itself; 0 when it is not there. */
int index_dir_remove(const char *path) __must_check;
