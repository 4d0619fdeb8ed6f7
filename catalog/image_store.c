/*
 * The image as a file of blocks, given in order and never back. Inodes are gathered in segments of
 * 16 blocks, directories take runs of their own between them, so that neither is padded to the
 * other.
 */
#include "catalog/image_internal.h"
#include "base/file.h"

#include <unistd.h>

int image_store_open(struct image_store *s, const char *path, uint64_t head_bytes, struct err *e)
{
	s->next_block = (head_bytes + BLOCK_BYTES - 1) / BLOCK_BYTES;
	s->segment = 0;
	s->segment_used = 0;
	s->pending = 0;
	s->pending_used = 0;
	return output_open(&s->out, path, e);
}

void image_store_release(struct image_store *s)
{
	output_release(&s->out);
}

int image_store_blocks(struct image_store *s, uint64_t n, uint64_t *ret_offset)
{
	if (n > UINT32_MAX - s->next_block)
		return -EFBIG; /* block numbers of the image have 32 bits */
	*ret_offset = s->next_block * BLOCK_BYTES;
	s->next_block += n;
	return 0;
}

static int segment_flush(struct image_store *s)
{
	int r = 0;

	if (s->segment)
		r = file_pwrite_exact(s->out.fd, s->segment_bytes, SEGMENT_BYTES, s->segment);
	s->segment = 0;
	return r;
}

int image_store_inode(struct image_store *s, uint32_t bytes, uint64_t *ret_offset)
{
	int r;

	ensure(bytes <= BLOCK_BYTES);
	bytes = (uint32_t)align_up(bytes, 1u << EROFS_NID_BITS);
	if (!s->segment || bytes > SEGMENT_BYTES - s->segment_used) {
		r = segment_flush(s);
		if (r == 0)
			r = image_store_blocks(s, SEGMENT_BYTES / BLOCK_BYTES, &s->segment);
		if (r < 0)
			return r;
		s->segment_used = 0;
		memset(s->segment_bytes, 0, SEGMENT_BYTES);
	}
	*ret_offset = s->segment + s->segment_used;
	s->segment_used += bytes;
	return 0;
}

int image_store_put_inode(struct image_store *s, uint64_t offset, const void *data, uint32_t len)
{
	if (s->segment && offset >= s->segment && offset < s->segment + SEGMENT_BYTES) {
		memcpy(s->segment_bytes + (offset - s->segment), data, len);
		return 0;
	}
	return file_pwrite_exact(s->out.fd, data, len, offset); /* a directory closed late */
}

static int pending_flush(struct image_store *s)
{
	int r = file_pwrite_exact(s->out.fd, s->pending_bytes, s->pending_used, s->pending);

	s->pending_used = 0;
	return r;
}

int image_store_put_blocks(struct image_store *s, uint64_t offset, const void *data, uint32_t len)
{
	if (s->pending_used &&
		(offset != s->pending + s->pending_used || len > PENDING_BYTES - s->pending_used)) {
		int r = pending_flush(s);

		if (r < 0)
			return r;
	}
	ensure(len <= PENDING_BYTES);
	if (s->pending_used == 0)
		s->pending = offset;
	memcpy(s->pending_bytes + s->pending_used, data, len);
	s->pending_used += len;
	return 0;
}

int image_store_flush(struct image_store *s)
{
	int r = segment_flush(s);

	if (r == 0)
		r = pending_flush(s);
	if (r == 0 && ftruncate(s->out.fd, (off_t)(s->next_block * BLOCK_BYTES)) != 0)
		r = err_errno();
	return r;
}
