/*
 * An open object table: its index in memory, a bounded cache of decoded blocks, and the rows' order
 * by offset, made when first asked for. Shared by table_read.c (file, blocks) and table_find.c
 * (rows).
 *
 * Threads: any. A shard's lock covers its slots of `cached`; the rest does not change after
 * table_open(), but `by_offset`, which is published once under `by_offset_lock`.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include "catalog/catalog_internal.h"
#include "catalog/table_format.h"

#define TABLE_SHARDS        16u
#define TABLE_CACHED_BLOCKS 1024u /* of about 32 KiB: the rows of a million files stay decoded */

/* One index entry, checked. */
struct table_block_info {
	uint8_t hash[SHA256_BYTES];
	uint64_t offset;
	uint64_t first_ordinal;
	uint32_t packed_bytes;
	uint32_t raw_bytes;
	uint32_t key_len;
	const char *key; /* in table.index */
};

/* A decoded block: every row was decoded once and is in order. */
struct table_block {
	_Atomic uint32_t refs;
	uint32_t number;
	uint32_t rows;
	uint32_t raw_bytes;
	bool used; /* since the clock's hand passed; under the shard's lock */
	uint8_t *raw;
	uint32_t restarts[]; /* where row k * TABLE_RESTART starts */
};

struct table_shard {
	pthread_mutex_t lock;
	uint32_t cached; /* blocks in the cache whose number % TABLE_SHARDS is this shard's */
	uint32_t hand;   /* next candidate for eviction, counted in numbers of this shard */
};

/* The rows with bytes in the order of their offsets, 6 bytes a row. */
#define PLACES_STEP 4u
struct table_places {
	uint64_t n;
	uint64_t *starts;   /* of each PLACES_STEP-th, in 4 KiB blocks */
	uint32_t *ordinals; /* of all; one allocation with the struct */
};

struct table {
	uint32_t magic;
	_Atomic uint32_t refs;
	int fd;
	struct table_info info;
	char *index;
	struct table_block_info *blocks;
	uint32_t n_blocks;
	_Atomic(struct table_block *) *cached; /* by block number */
	struct table_shard shards[TABLE_SHARDS];
	pthread_mutex_t by_offset_lock;
	struct table_places *_Atomic by_offset;
	uint64_t charged; /* to the arena, for as long as the table lives */
	bool reserved;    /* by_offset is part of it; under by_offset_lock */
};

#define TABLE_MAGIC 0x5441424cu /* "TABL" */

/* Rows of one block. */
static inline uint32_t table_block_rows(const struct table *t, uint32_t number)
{
	uint64_t next =
		number + 1 < t->n_blocks ? t->blocks[number + 1].first_ordinal : t->info.rows;

	return (uint32_t)(next - t->blocks[number].first_ordinal);
}

/* Takes `bytes` from the arena for as long as the table lives. -ENOMEM with a line. */
int table_charge(struct table *t, uint64_t bytes, struct err *e) __must_check;

/* A decoded block, referenced. */
int table_block_get(struct table *t, uint32_t number, struct table_block **ret_block) __must_check;
void table_block_unref(struct table_block *block); /* NULL is allowed */

/* Orders rows of one key: 0 when `next` may not follow `prev` with the same key. */
static inline bool table_rows_in_order(
	bool prev_dead, uint64_t prev_offset, const struct table_row *next)
{
	return (next->flags & ROW_DEAD) && (!prev_dead || next->offset > prev_offset);
}
