/* Writing an object table: rows in order, block by block, then the index, the header last. Format:
 * table_format.h. */
#include "catalog/catalog_internal.h"
#include "catalog/table_format.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"

#include <stdlib.h>
#include <zstd.h>

#define ZSTD_LEVEL      3
#define BLOCK_RAW_MAX   (TABLE_BLOCK_BYTES + ROW_ENCODED_MAX)
#define INDEX_BYTES_MAX (4ull << 30)

struct table_writer {
	struct output out;
	ZSTD_CCtx *zstd;
	struct table_header header; /* the sums so far */
	uint64_t file_end;
	struct buf index;
	/* the current block */
	struct table_index_entry entry;
	uint32_t rows;
	char first_key[LIMIT_KEY_BYTES];
	struct row_base base;
	char prev_key[LIMIT_KEY_BYTES];
	uint32_t prev_len;
	uint8_t raw[BLOCK_RAW_MAX];
	uint8_t packed[ZSTD_COMPRESSBOUND(BLOCK_RAW_MAX)];
};

struct table_writer *table_writer_new(void)
{
	struct table_writer *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->out = OUTPUT_NONE;
	w->index = BUF_INIT(INDEX_BYTES_MAX);
	w->zstd = ZSTD_createCCtx();
	if (!w->zstd) {
		table_writer_free(w);
		return NULL;
	}
	return w;
}

void table_writer_free(struct table_writer *w)
{
	if (!w)
		return;
	output_release(&w->out);
	ZSTD_freeCCtx(w->zstd);
	buf_release(&w->index);
	free(w);
}

int table_writer_open(struct table_writer *w, const char *path, struct err *e)
{
	w->file_end = sizeof(struct table_header);
	return output_open(&w->out, path, e);
}

static int write_failed(const struct table_writer *w, int r, struct err *e)
{
	return err_set(
		e, r, "cannot write %s: %s: check the disk of the cache", w->out.temp, err_str(r));
}

static int block_flush(struct table_writer *w, struct err *e)
{
	size_t n;
	int r;

	if (w->rows == 0)
		return 0;
	n = ZSTD_compressCCtx(
		w->zstd, w->packed, sizeof(w->packed), w->raw, w->entry.raw_bytes, ZSTD_LEVEL);
	if (ZSTD_isError(n))
		return write_failed(w, -ENOMEM, e); /* the only way left to fail */
	hash_sha256(w->packed, n, w->entry.hash);
	w->entry.offset = w->file_end;
	w->entry.packed_bytes = (uint32_t)n;
	r = file_pwrite_exact(w->out.fd, w->packed, n, w->file_end);
	if (r == 0)
		r = buf_append(&w->index, &w->entry, sizeof(w->entry));
	if (r == 0)
		r = buf_append(&w->index, w->first_key, w->entry.key_len);
	if (r < 0)
		return write_failed(w, r, e);
	w->file_end += n;
	w->header.blocks++;
	w->rows = 0;
	return 0;
}

static void block_start(struct table_writer *w, const struct table_row *row)
{
	memset(&w->entry, 0, sizeof(w->entry));
	w->entry.first_ordinal = w->header.rows;
	w->entry.key_len = row->key_len;
	memcpy(w->first_key, row->key, row->key_len);
}

int table_writer_add(struct table_writer *w, const struct table_row *row, struct err *e)
{
	int r;

	if (w->header.rows >= ROWS_MAX)
		return err_set(e, -E2BIG,
			"the source has more than %llu objects, removed ones included: split it "
			"into several "
			"prefixes",
			ROWS_MAX);
	if (w->entry.raw_bytes >= TABLE_BLOCK_BYTES && (r = block_flush(w, e)) < 0)
		return r;
	if (w->rows == 0)
		block_start(w, row);
	if (w->rows % TABLE_RESTART == 0) {
		w->prev_len = 0;
		w->base = (struct row_base){ 0 };
	}
	w->entry.raw_bytes += (uint32_t)row_encode(
		row, w->prev_key, w->prev_len, &w->base, w->raw + w->entry.raw_bytes);
	memcpy(w->prev_key, row->key, row->key_len);
	w->prev_len = row->key_len;
	w->rows++;
	w->header.rows++;
	if (row->flags & ROW_DEAD) {
		w->header.dead_rows++;
	} else if (!(row->flags & ROW_DIRECTORY)) {
		w->header.live_files++;
		w->header.live_bytes += row->size;
	}
	return 0;
}

void table_writer_built_at(struct table_writer *w, int64_t built_at)
{
	w->header.built_at = built_at;
}

static void header_fill(struct table_writer *w, struct generation_id *id, uint64_t end)
{
	struct table_header *h = &w->header;
	struct hash_sha256 *sha = hash_sha256_new();

	ensure(sha); /* a few hundred bytes */
	memcpy(h->magic, TABLE_MAGIC_TEXT, sizeof(h->magic));
	h->version = TABLE_VERSION;
	h->features = TABLE_FEATURES;
	memcpy(h->volume, id->volume.bytes, sizeof(h->volume));
	h->lineage = id->lineage;
	h->generation = id->generation;
	memcpy(h->prev_hash, id->prev_hash, sizeof(h->prev_hash));
	h->end = end;
	if (!h->built_at)
		h->built_at = (int64_t)(clock_wall_ns() / CLOCK_SECOND);
	h->index_offset = w->file_end;
	h->index_bytes = w->index.len;
	hash_sha256_update(sha, h, TABLE_HASHED_BYTES);
	hash_sha256_update(sha, buf_str(&w->index), w->index.len);
	hash_sha256_final(sha, h->hash);
	memcpy(id->hash, h->hash, sizeof(id->hash));
}

int table_writer_finish(
	struct table_writer *w, struct generation_id *id, uint64_t end, struct err *e)
{
	int r = block_flush(w, e);

	if (r < 0)
		return r;
	header_fill(w, id, end);
	r = file_pwrite_exact(w->out.fd, buf_str(&w->index), w->index.len, w->file_end);
	if (r == 0)
		r = file_pwrite_exact(w->out.fd, &w->header, sizeof(w->header), 0);
	if (r < 0)
		return write_failed(w, r, e);
	return output_publish(&w->out, e);
}
