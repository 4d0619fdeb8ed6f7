/* Head and piece table of a chunk file. See chunk_format.h. */
#include "locate/chunk_format.h"
#include "base/hash.h"
#include "base/little.h"

#include <assert.h>
#include <errno.h>

#define HEAD_SUM_AT 56u

static_assert(CHUNK_TABLE_BYTES == 49152, "the piece table is fixed for version 1");
static_assert(CHUNK_TABLE_OFFSET % BLOCK_BYTES == 0, "readable with O_DIRECT");
static_assert(CHUNK_TABLE_BYTES % BLOCK_BYTES == 0, "readable with O_DIRECT");

void chunk_head_encode(const struct chunk_head *head, uint8_t out[CHUNK_HEAD_BYTES])
{
	memset(out, 0, CHUNK_HEAD_BYTES);
	little_put32(out, CHUNK_HEAD_MAGIC);
	little_put32(out + 4, CHUNK_HEAD_VERSION);
	memcpy(out + 8, head->id.volume.bytes, VOLUME_ID_LEN);
	little_put64(out + 24, head->id.lineage);
	little_put64(out + 32, head->id.chunk);
	little_put64(out + 40, head->file_id);
	little_put64(out + HEAD_SUM_AT, hash_xxh3(out, HEAD_SUM_AT, 0));
}

int chunk_head_decode(const uint8_t in[CHUNK_HEAD_BYTES], struct chunk_head *ret_head)
{
	if (little_get32(in) != CHUNK_HEAD_MAGIC)
		return -EBADMSG;
	if (little_get64(in + HEAD_SUM_AT) != hash_xxh3(in, HEAD_SUM_AT, 0))
		return -EBADMSG;
	if (little_get32(in + 4) != CHUNK_HEAD_VERSION || little_get64(in + 48) != 0)
		return -EPROTONOSUPPORT;
	memcpy(ret_head->id.volume.bytes, in + 8, VOLUME_ID_LEN);
	ret_head->id.lineage = little_get64(in + 24);
	ret_head->id.chunk = little_get64(in + 32);
	ret_head->file_id = little_get64(in + 40);
	return 0;
}

void piece_entry_encode(const struct piece_entry *entry, uint8_t out[CHUNK_ENTRY_BYTES])
{
	ensure(entry->length <= PIECE_BYTES);
	little_put64(out, entry->xxh3);
	little_put32(out + 8, entry->length | (uint32_t)entry->flags << 24);
}

void piece_entry_decode(const uint8_t in[CHUNK_ENTRY_BYTES], struct piece_entry *ret_entry)
{
	uint32_t tail = little_get32(in + 8);
	uint32_t length = tail & 0xffffffu;

	*ret_entry = (struct piece_entry){ 0 };
	if (length == 0 || length > PIECE_BYTES)
		return;
	*ret_entry = (struct piece_entry){
		.xxh3 = little_get64(in),
		.length = length,
		.flags = (uint8_t)(tail >> 24),
	};
}
