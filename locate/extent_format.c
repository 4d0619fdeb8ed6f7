/* Places in an extent file, and its foot. See extent_format.h. */
#include "locate/extent_format.h"
#include "base/hash.h"
#include "base/little.h"

#include <assert.h>
#include <errno.h>

#define FOOT_SUM_AT 64u

static_assert(CHUNK_META_BYTES % BLOCK_BYTES == 0, "heads and tables readable with O_DIRECT");
static_assert(CHUNK_FILE_BYTES == CHUNK_BYTES + CHUNK_META_BYTES, "as in a chunk file");

bool extent_bytes_valid(uint64_t extent_bytes)
{
	return extent_bytes >= CHUNK_BYTES && extent_bytes <= EXTENT_BYTES_MAX &&
	       (extent_bytes & (extent_bytes - 1)) == 0;
}

uint64_t extent_foot_offset(uint64_t extent_bytes)
{
	return extent_bytes + extent_bytes / CHUNK_BYTES * CHUNK_META_BYTES;
}

uint64_t extent_file_bytes(uint64_t extent_bytes)
{
	return extent_foot_offset(extent_bytes) + EXTENT_FOOT_BYTES;
}

uint64_t extent_bytes_of_file(uint64_t file_bytes)
{
	for (uint64_t bytes = CHUNK_BYTES; bytes <= EXTENT_BYTES_MAX; bytes *= 2)
		if (extent_file_bytes(bytes) == file_bytes)
			return bytes;
	return 0;
}

struct chunk_place extent_place(uint64_t extent_bytes, uint64_t chunk)
{
	uint64_t in_extent = chunk % (extent_bytes / CHUNK_BYTES);

	return (struct chunk_place){
		.data = in_extent * CHUNK_BYTES,
		.head = extent_bytes + in_extent * CHUNK_META_BYTES,
	};
}

void extent_foot_encode(const struct extent_foot *foot, uint8_t out[EXTENT_FOOT_BYTES])
{
	memset(out, 0, EXTENT_FOOT_BYTES);
	little_put32(out, EXTENT_FOOT_MAGIC);
	little_put32(out + 4, EXTENT_FOOT_VERSION);
	memcpy(out + 8, foot->volume.bytes, VOLUME_ID_LEN);
	little_put64(out + 24, foot->lineage);
	little_put64(out + 32, foot->number);
	little_put64(out + 40, foot->file_id);
	little_put64(out + 48, foot->extent_bytes);
	little_put64(out + FOOT_SUM_AT, hash_xxh3(out, FOOT_SUM_AT, 0));
}

int extent_foot_decode(const uint8_t in[EXTENT_FOOT_BYTES], struct extent_foot *ret_foot)
{
	struct extent_foot foot = {
		.lineage = little_get64(in + 24),
		.number = little_get64(in + 32),
		.file_id = little_get64(in + 40),
		.extent_bytes = little_get64(in + 48),
	};

	if (little_get32(in) != EXTENT_FOOT_MAGIC)
		return -EBADMSG;
	if (little_get64(in + FOOT_SUM_AT) != hash_xxh3(in, FOOT_SUM_AT, 0))
		return -EBADMSG;
	if (little_get32(in + 4) != EXTENT_FOOT_VERSION || little_get64(in + 56) != 0)
		return -EPROTONOSUPPORT;
	if (!extent_bytes_valid(foot.extent_bytes))
		return -EBADMSG;
	memcpy(foot.volume.bytes, in + 8, VOLUME_ID_LEN);
	*ret_foot = foot;
	return 0;
}
