/*
 * The chunk file: one chunk of a volume as it lies on a tier, and as a reader on the same node
 * reads it through a descriptor (docs/formats.md). Bytes <-> structs, no I/O; nothing is
 * allocated; any thread.
 *
 *	0          16 MiB     +4 KiB                 +48 KiB
 *	| data     | head     | 4096 entries x 12    |
 *
 * Head, little-endian, the rest of its block zero:
 *
 *	 0  magic u32      4  version u32
 *	 8  volume 16 bytes
 *	24  lineage u64   32  chunk u64
 *	40  file id u64   48  features u64 (none yet; an unknown bit refuses the file)
 *	56  XXH3 of bytes 0..55, seed 0
 *
 * Entry of a piece, at the index of its first block in the chunk:
 *
 *	 0  xxh3 u64 (seeded: catalog.h, piece_seed)
 *	 8  length u24 (1..65536)   11  flags u8
 *
 * All zero: not present. Entries are written after their piece's data.
 */
#pragma once

#include <stdint.h>
#include "base/check.h"
#include "base/layout.h"

#define CHUNK_HEAD_BYTES   4096u
#define CHUNK_ENTRY_BYTES  12u
#define CHUNK_TABLE_BYTES  (CHUNK_BLOCKS * CHUNK_ENTRY_BYTES)
#define CHUNK_FILE_BYTES   (CHUNK_BYTES + CHUNK_HEAD_BYTES + CHUNK_TABLE_BYTES)
#define CHUNK_HEAD_OFFSET  CHUNK_BYTES
#define CHUNK_TABLE_OFFSET (CHUNK_BYTES + CHUNK_HEAD_BYTES)
#define CHUNK_BITMAP_BYTES (CHUNK_BLOCKS / 8) /* one bit per block, bit 0 of byte 0 first */

#define CHUNK_HEAD_MAGIC   0x314b4843u /* "CHK1" */
#define CHUNK_HEAD_VERSION 1u

/* What the head of a chunk file says. */
struct chunk_head {
	struct chunk_id id;
	uint64_t file_id;
};

void chunk_head_encode(const struct chunk_head *head, uint8_t out[CHUNK_HEAD_BYTES]);
/* -EBADMSG: not a head or damaged; -EPROTONOSUPPORT: newer version or unknown features. */
int chunk_head_decode(const uint8_t in[CHUNK_HEAD_BYTES], struct chunk_head *ret_head) __must_check;

/* What one 12-byte entry says. */
struct piece_entry {
	uint64_t xxh3;
	uint32_t length; /* 0: absent */
	uint8_t flags;
};

void piece_entry_encode(const struct piece_entry *entry, uint8_t out[CHUNK_ENTRY_BYTES]);
/* Every input decodes; a length above PIECE_BYTES is no entry and comes out as absent. */
void piece_entry_decode(const uint8_t in[CHUNK_ENTRY_BYTES], struct piece_entry *ret_entry);
