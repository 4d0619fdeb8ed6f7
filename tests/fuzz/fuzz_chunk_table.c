/*
 * The head and the piece table of a chunk file: what a start reads from a disk that may hold
 * anything. No table makes a bit past the chunk or one that its entries do not cover, and a head
 * that decodes encodes to itself.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "tiers/chunk_file_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_head(const uint8_t *bytes)
{
	uint8_t again[CHUNK_HEAD_BYTES];
	struct chunk_head head;

	if (chunk_head_decode(bytes, &head) < 0)
		return;
	chunk_head_encode(&head, again);
	ensure(memcmp(again, bytes, 64) == 0);
}

/* Every run of bits begins with an entry, and every entry that begins one covers its blocks. */
static void check_table(const uint8_t *table)
{
	uint64_t present[CHUNK_WORDS];
	uint32_t covered = 0; /* blocks of the piece that is being walked */

	chunk_table_scan(table, present);
	for (uint32_t b = 0; b < CHUNK_BLOCKS; b++) {
		bool bit = present[b / 64] >> (b % 64) & 1;
		struct piece_entry entry;

		if (covered == 0 && bit) {
			piece_entry_decode(table + (size_t)b * CHUNK_ENTRY_BYTES, &entry);
			ensure(entry.length >= 1 && entry.length <= PIECE_BYTES);
			covered = (entry.length + BLOCK_BYTES - 1) / BLOCK_BYTES;
			ensure(covered <= CHUNK_BLOCKS - b);
		}
		ensure(bit == (covered > 0));
		covered -= covered > 0;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t bytes[CHUNK_HEAD_BYTES + CHUNK_TABLE_BYTES];
	struct chunk_head head = { .file_id = size };

	/* Most inputs would fail at the head's sum: one of the tests' own comes first in half of
	 * them. */
	memset(bytes, 0, sizeof(bytes));
	if (size % 2)
		chunk_head_encode(&head, bytes);
	for (size_t i = 0; i < size; i += CHUNK_ENTRY_BYTES + 2) {
		/* Records of (block, entry), so that small inputs reach the whole table. */
		size_t at = data[i];
		size_t n;

		if (i + 2 >= size)
			break;
		at = (at | (size_t)data[i + 1] << 8) % CHUNK_BLOCKS * CHUNK_ENTRY_BYTES;
		n = min(size - i - 2, (size_t)CHUNK_ENTRY_BYTES);
		memcpy(bytes + CHUNK_HEAD_BYTES + at, data + i + 2, n);
	}
	if (size % 4 == 3)
		bytes[data[0]] ^= data[size - 1];
	check_head(bytes);
	check_table(bytes + CHUNK_HEAD_BYTES);
	return 0;
}
