/*
 * What the files of catalog/ share: the coding of rows and tags, the order of rows, the layout
 * rule, the sort and the output file. The table's own disk format is in table_format.h.
 */
#pragma once

#include <limits.h>
#include <stddef.h>
#include "base/check.h"
#include "catalog/catalog.h"

/* The largest volume: LIMIT_DEVICES extents of 8 TiB, the largest power of two whose block numbers
 * EROFS can store. */
#define EXTENT_MAX       (8ull << 40)
#define VOLUME_MAX_BYTES (EXTENT_MAX * LIMIT_DEVICES)
#define ROWS_MAX         (2ull * LIMIT_FILES) /* live and dead rows of one table */
#define VERSIONS_MAX     64u                  /* dead rows kept for one key, the newest */

/* ---- layout ---------------------------------------------------------------------------------- */

/*
 * Where an object of `size` > 0 bytes goes when `end` is the first free offset. One that crosses an
 * extent, whatever the extents' size, starts at a multiple of 1 MiB: so its 1 MiB chunks in the
 * image end where the extent does, and the kernel reads it in requests of 1 MiB, not 64 KiB.
 */
static inline uint64_t layout_place(uint64_t end, uint64_t size)
{
	uint64_t at = align_up(end, size > UNIT_BYTES ? PIECE_BYTES : BLOCK_BYTES);

	if (size <= UNIT_BYTES && at / CHUNK_BYTES != (at + size - 1) / CHUNK_BYTES)
		at = align_up(at, CHUNK_BYTES);
	if (size > UNIT_BYTES && at / EXTENT_MIN != (at + size - 1) / EXTENT_MIN)
		at = align_up(at, UNIT_BYTES);
	return at;
}

/* The first free offset after an object. */
static inline uint64_t layout_after(uint64_t offset, uint64_t size)
{
	return align_up(offset + size, BLOCK_BYTES);
}

/* A row that occupies bytes of the volume; directories and empty objects do not. */
static inline bool row_has_bytes(const struct table_row *row)
{
	return row->size > 0 && !(row->flags & ROW_DIRECTORY);
}

/* ---- varints (LEB128) and tags --------------------------------------------------------------- */

#define VARINT_MAX 10u

static inline size_t varint_put(uint8_t *p, uint64_t v)
{
	size_t n = 0;

	for (; v >= 0x80; v >>= 7)
		p[n++] = (uint8_t)(v | 0x80);
	p[n++] = (uint8_t)v;
	return n;
}

static inline int varint_get(const uint8_t **p, const uint8_t *end, uint64_t *ret)
{
	uint64_t v = 0;

	for (unsigned int shift = 0; shift < 64 && *p < end; shift += 7) {
		uint8_t byte = *(*p)++;

		if (shift == 63 && byte > 1)
			return -EBADMSG;
		v |= (uint64_t)(byte & 0x7f) << shift;
		if (!(byte & 0x80)) {
			*ret = v;
			return 0;
		}
	}
	return -EBADMSG;
}

/* A tag in its packed form: equal tags have equal packed forms. */
#define TAG_PACKED_MAX (2u + LIMIT_TAG_BYTES)
struct tag_packed {
	uint8_t len;
	uint8_t bytes[TAG_PACKED_MAX];
};

void tag_pack(const char *tag, uint32_t len, struct tag_packed *ret_packed);
/* Unpacks from *p, which advances; `tag` has LIMIT_TAG_BYTES + 1 bytes. -EBADMSG. */
int tag_unpack(const uint8_t **p, const uint8_t *end, char *tag, uint8_t *ret_len) __must_check;

static inline bool tag_packed_equal(const struct tag_packed *a, const struct tag_packed *b)
{
	return a->len == b->len && memcmp(a->bytes, b->bytes, a->len) == 0;
}

/* ---- rows ------------------------------------------------------------------------------------ */

#define ROW_ENCODED_MAX (1u + 6u * VARINT_MAX + LIMIT_KEY_BYTES + TAG_PACKED_MAX)

/* What a row is coded against besides the previous key; all zero at a restart. */
struct row_base {
	uint64_t end;     /* after the previous row with bytes */
	int64_t mtime_ns; /* of the previous row */
};

/* Appends `row` to `out` (ROW_ENCODED_MAX bytes) coded against `prev_key` and `base`, which
 * advances. Returns the length. */
size_t row_encode(const struct table_row *row, const char *prev_key, uint32_t prev_len,
	struct row_base *base, uint8_t *out);
/* Decodes over the previous row in `row` (key_len 0 at a restart). -EBADMSG for whatever row_encode
 * cannot have written. */
int row_decode(const uint8_t **p, const uint8_t *end, struct row_base *base,
	struct table_row *row) __must_check;

/* Byte order, the shorter first. */
static inline int key_compare(const char *a, uint32_t a_len, const char *b, uint32_t b_len)
{
	int c = memcmp(a, b, min(a_len, b_len));

	return c ? c : (a_len > b_len) - (a_len < b_len);
}

/* Copies the used part of a row. */
void row_copy(struct table_row *to, const struct table_row *from);

/* ---- sort ------------------------------------------------------------------------------------ */

/*
 * Stable natural merge sort of elements of 8 or 16 bytes: sorted runs, which is how pages of a LIST
 * come, cost one comparison an element. -ENOMEM for the second array, which already sorted input
 * does not need.
 */
typedef int sort_compare_fn(const void *a, const void *b, const void *arg);
int sort_runs(
	void *base, size_t n, size_t width, sort_compare_fn *compare, const void *arg) __must_check;

/* ---- listing --------------------------------------------------------------------------------- */

struct listing_object {
	uint64_t size;
	int64_t mtime_ns;
	uint16_t key_len;
	uint8_t tag_len;
	char bytes[]; /* the key, then the packed tag */
};

/* Ends the adding: by key; of several objects with one key the newest stays, or the last added.
 * listing_next() begins with the first. -ENOMEM, or what the disk says. */
int listing_sort(struct listing *listing) __must_check;
/* To the first object again. */
int listing_rewind(struct listing *listing) __must_check;
/* The next object, valid until the next call; -ENOENT at the end; -EBADMSG, I/O errors. */
int listing_next(struct listing *listing, const struct listing_object **ret_object) __must_check;

/* ---- output ---------------------------------------------------------------------------------- */

/* A file that is written next to its place and renamed into it. */
struct output {
	int fd;
	char path[PATH_MAX];
	char temp[PATH_MAX];
};

#define OUTPUT_NONE ((struct output){ .fd = -1 })
int output_open(struct output *o, const char *path, struct err *e) __must_check;
/* fsync (file and directory) and rename. */
int output_publish(struct output *o, struct err *e) __must_check;
void output_release(struct output *o); /* removes what was not published */

/* ---- table, beyond catalog.h ----------------------------------------------------------------- */

struct table_writer;
struct table_writer *table_writer_new(void);
void table_writer_free(struct table_writer *w); /* NULL is allowed; removes an unfinished file */
int table_writer_open(struct table_writer *w, const char *path, struct err *e) __must_check;
/* Rows in their order: key, then the live one, then the dead ones by offset. row->ordinal is not
 * looked at. */
int table_writer_add(
	struct table_writer *w, const struct table_row *row, struct err *e) __must_check;
/* When the generation was built, in seconds since 1970; without it, now. */
void table_writer_built_at(struct table_writer *w, int64_t built_at);
/* Publishes; `id` gives all but the hash, which is returned in it. */
int table_writer_finish(
	struct table_writer *w, struct generation_id *id, uint64_t end, struct err *e) __must_check;

/* Reads the whole table once and checks what single blocks cannot show: that no two rows share
 * bytes, the header's sums. */
int table_check(struct table *table) __must_check;
