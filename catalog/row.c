/*
 * One row of the object table as bytes, front-coded against the row before it:
 *
 *	flags u8 | shared varint | rest varint | rest bytes of the key
 *	[size varint] | [offset / 4096 varint] | [died varint] | time varint | tag
 *
 * `shared` bytes of the key are the previous row's. No size for directories; no offset without
 * bytes, nor where the layout rule would have put the row after the previous one, which is nearly
 * everywhere. The time is a zigzag difference to the previous row's, in milliseconds where that is
 * exact, else in nanoseconds. Rows at restarts are coded against nothing.
 */
#include "catalog/catalog_internal.h"

enum row_code {
	CODE_DEAD = 1,
	CODE_DIRECTORY = 2,
	CODE_PLACED = 4,   /* the offset is where layout_place() puts it */
	CODE_MTIME_MS = 8, /* the difference of times is in milliseconds */
	CODE_DIED = 16,    /* a tombstone's generation follows; older tables have none */
	CODE_ALL = 31,
};

#define NS_PER_MS 1000000

static uint64_t zigzag(int64_t v)
{
	return ((uint64_t)v << 1) ^ (uint64_t)(v >> 63);
}

static int64_t unzigzag(uint64_t v)
{
	return (int64_t)(v >> 1) ^ -(int64_t)(v & 1);
}

static uint32_t shared_prefix(const char *a, uint32_t a_len, const char *b, uint32_t b_len)
{
	uint32_t n = min(a_len, b_len);
	uint32_t i = 0;

	while (i < n && a[i] == b[i])
		i++;
	return i;
}

size_t row_encode(const struct table_row *row, const char *prev_key, uint32_t prev_len,
	struct row_base *base, uint8_t *out)
{
	uint32_t shared = shared_prefix(row->key, row->key_len, prev_key, prev_len);
	int64_t difference = (int64_t)((uint64_t)row->mtime_ns - (uint64_t)base->mtime_ns);
	uint8_t code = (uint8_t)(row->flags & (ROW_DEAD | ROW_DIRECTORY));
	struct tag_packed tag;
	size_t n = 1;

	n += varint_put(out + n, shared);
	n += varint_put(out + n, row->key_len - shared);
	memcpy(out + n, row->key + shared, row->key_len - shared);
	n += row->key_len - shared;
	if (!(row->flags & ROW_DIRECTORY))
		n += varint_put(out + n, row->size);
	if (row_has_bytes(row)) {
		if (row->offset == layout_place(base->end, row->size))
			code |= CODE_PLACED;
		else
			n += varint_put(out + n, row->offset / BLOCK_BYTES);
		base->end = layout_after(row->offset, row->size);
	}
	if (row->flags & ROW_DEAD && row->died) {
		code |= CODE_DIED;
		n += varint_put(out + n, row->died);
	}
	if (difference % NS_PER_MS == 0) {
		code |= CODE_MTIME_MS;
		difference /= NS_PER_MS;
	}
	n += varint_put(out + n, zigzag(difference));
	base->mtime_ns = row->mtime_ns;
	tag_pack(row->tag, row->tag_len, &tag);
	memcpy(out + n, tag.bytes, tag.len);
	out[0] = code;
	return n + tag.len;
}

static int key_decode(const uint8_t **p, const uint8_t *end, struct table_row *row)
{
	uint64_t shared;
	uint64_t rest;

	if (varint_get(p, end, &shared) < 0 || varint_get(p, end, &rest) < 0)
		return -EBADMSG;
	if (shared > row->key_len || rest > LIMIT_KEY_BYTES - shared || shared + rest == 0 ||
		rest > (uint64_t)(end - *p) || memchr(*p, 0, rest))
		return -EBADMSG;
	memcpy(row->key + shared, *p, rest);
	*p += rest;
	row->key_len = (uint16_t)(shared + rest);
	row->key[row->key_len] = '\0';
	return 0;
}

/* Size and offset, by the rules of the layout. */
static int place_decode(const uint8_t **p, const uint8_t *end, uint8_t code, struct row_base *base,
	struct table_row *row)
{
	uint64_t block;

	row->size = 0;
	row->offset = 0;
	if (!(code & CODE_DIRECTORY) && varint_get(p, end, &row->size) < 0)
		return -EBADMSG;
	if (row->size == 0)
		return code & CODE_PLACED ? -EBADMSG : 0;
	if (row->size > VOLUME_MAX_BYTES)
		return -EBADMSG;
	if (code & CODE_PLACED) {
		row->offset = layout_place(base->end, row->size);
	} else {
		if (varint_get(p, end, &block) < 0 || block >= VOLUME_MAX_BYTES / BLOCK_BYTES)
			return -EBADMSG;
		row->offset = block * BLOCK_BYTES;
	}
	if (row->offset > VOLUME_MAX_BYTES - row->size ||
		layout_place(row->offset, row->size) != row->offset)
		return -EBADMSG;
	base->end = layout_after(row->offset, row->size);
	return 0;
}

static int died_decode(const uint8_t **p, const uint8_t *end, uint8_t code, struct table_row *row)
{
	row->died = 0;
	if (!(code & CODE_DIED))
		return 0;
	if (!(code & CODE_DEAD) || varint_get(p, end, &row->died) < 0 || row->died == 0)
		return -EBADMSG;
	return 0;
}

int row_decode(const uint8_t **p, const uint8_t *end, struct row_base *base, struct table_row *row)
{
	uint64_t difference;
	uint64_t scale;
	uint8_t code;

	if (*p == end)
		return -EBADMSG;
	code = *(*p)++;
	if (code & ~CODE_ALL || key_decode(p, end, row) < 0)
		return -EBADMSG;
	if ((row->key[row->key_len - 1] == '/') != !!(code & CODE_DIRECTORY))
		return -EBADMSG;
	row->flags = code & (CODE_DEAD | CODE_DIRECTORY);
	if (place_decode(p, end, code, base, row) < 0 || died_decode(p, end, code, row) < 0 ||
		varint_get(p, end, &difference) < 0)
		return -EBADMSG;
	scale = code & CODE_MTIME_MS ? NS_PER_MS : 1; /* unsigned: a hostile difference may wrap */
	base->mtime_ns =
		(int64_t)((uint64_t)base->mtime_ns + (uint64_t)unzigzag(difference) * scale);
	row->mtime_ns = base->mtime_ns;
	return tag_unpack(p, end, row->tag, &row->tag_len);
}

void row_copy(struct table_row *to, const struct table_row *from)
{
	memcpy(to, from, offsetof(struct table_row, key));
	memcpy(to->key, from->key, from->key_len + 1u);
	memcpy(to->tag, from->tag, from->tag_len + 1u);
}
