/*
 * The object table on disk, little-endian throughout:
 *
 *	header  TABLE_HEADER_BYTES
 *	blocks  one after the other: zstd frames of 32 KiB or a little more of rows (row.c)
 *	index   an entry a block: struct table_index_entry, then its first key; ends the file
 *
 *	  0 magic "GRNTABLE"      8 version u16, 0 u16   12 features u32
 *	 16 volume[16]           32 lineage u64          40 generation u64
 *	 48 prev_hash[32]
 *	 80 rows u64             88 live_files u64       96 live_bytes u64     104 dead_rows u64
 *	112 end u64             120 built_at i64        128 index_offset u64   136 index_bytes u64
 *	144 blocks u32          148 0 u32
 *	152 hash[32]: SHA-256 over header[0..152) and the index, which holds each block's SHA-256
 *	184 0 u64
 *
 * Within a block the rows with numbers k * TABLE_RESTART are coded against nothing, so that a key
 * is found by bisection over these and at most TABLE_RESTART - 1 rows more.
 *
 * A reader refuses a newer version and unknown feature bits.
 */
#pragma once

#include <assert.h>
#include "base/hash.h"
#include "catalog/catalog.h"

#define TABLE_MAGIC_TEXT   "GRNTABLE"
#define TABLE_VERSION      2u     /* 1: tombstones do not say when they died */
#define TABLE_FEATURES     0u     /* known incompatible features */
#define TABLE_BLOCK_BYTES  32768u /* a block is cut at the first row past this */
#define TABLE_RESTART      16u
#define TABLE_HEADER_BYTES 192u

struct table_header {
	char magic[8];
	uint16_t version;
	uint16_t zero0;
	uint32_t features;
	uint8_t volume[VOLUME_ID_LEN];
	uint64_t lineage;
	uint64_t generation;
	uint8_t prev_hash[SHA256_BYTES];
	uint64_t rows;
	uint64_t live_files;
	uint64_t live_bytes;
	uint64_t dead_rows;
	uint64_t end;
	int64_t built_at;
	uint64_t index_offset;
	uint64_t index_bytes;
	uint32_t blocks;
	uint32_t zero1;
	uint8_t hash[SHA256_BYTES];
	uint64_t zero2;
};

static_assert(sizeof(struct table_header) == TABLE_HEADER_BYTES, "disk format");
static_assert(offsetof(struct table_header, hash) == 152, "disk format");
#define TABLE_HASHED_BYTES offsetof(struct table_header, hash)

struct table_index_entry {
	uint8_t hash[SHA256_BYTES]; /* of the compressed bytes */
	uint64_t offset;            /* in the file */
	uint64_t first_ordinal;
	uint32_t packed_bytes;
	uint32_t raw_bytes;
	uint16_t key_len; /* the first row's key follows */
} __attribute__((packed));

static_assert(sizeof(struct table_index_entry) == 58, "disk format");
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the structs are stored as they are");
