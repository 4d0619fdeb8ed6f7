/* Walks over the pieces of a range. See client_pieces.h. */
#include "client/client_pieces.h"

#include <errno.h>

void piece_walk_init(struct piece_walk *walk, struct table *table, uint64_t offset, uint64_t length)
{
	walk->table = table;
	walk->pos = offset;
	walk->end = offset + length;
	walk->inside = false;
}

/* What the table says is checked again where a wrong offset would make us write outside a
 * buffer. */
static int check_row(const struct piece_walk *walk)
{
	const struct table_row *row = &walk->row;

	if (row->offset % BLOCK_BYTES || row->offset > walk->pos ||
		row->size <= align_down(walk->pos - row->offset, BLOCK_BYTES))
		return -EBADMSG;
	if (row->size > UINT64_MAX - row->offset - BLOCK_BYTES)
		return -EBADMSG;
	return 0;
}

static int next_gap(struct piece_walk *walk, struct piece_span *ret_span)
{
	uint64_t stop = walk->end;
	int r = table_next_offset(walk->table, walk->pos, &walk->row);

	if (r < 0 && r != -ENOENT)
		return r;
	if (r == 0) {
		if (walk->row.offset <= walk->pos || walk->row.offset % BLOCK_BYTES)
			return -EBADMSG;
		stop = min(stop, walk->row.offset);
	}
	*ret_span = (struct piece_span){
		.offset = walk->pos,
		.padded = (uint32_t)(stop - walk->pos),
	};
	walk->pos = stop;
	return 1;
}

int piece_walk_next(struct piece_walk *walk, struct piece_span *ret_span)
{
	const struct table_row *row = &walk->row;
	uint64_t number;
	uint64_t start;
	int r;

	if (walk->pos >= walk->end)
		return 0;
	if (!walk->inside) {
		r = table_find_offset(walk->table, walk->pos, &walk->row);
		if (r == -ENOENT)
			return next_gap(walk, ret_span);
		if (r == 0)
			r = check_row(walk);
		if (r < 0)
			return r;
		walk->inside = true;
		walk->object_seed =
			piece_object_seed(row->key, row->key_len, row->tag, row->tag_len);
	}
	number = (walk->pos - row->offset) >> PIECE_BITS;
	start = row->offset + (number << PIECE_BITS);
	ret_span->offset = start;
	ret_span->length = (uint32_t)min(row->size - (number << PIECE_BITS), (uint64_t)PIECE_BYTES);
	ret_span->padded = (uint32_t)align_up(ret_span->length, BLOCK_BYTES);
	ret_span->seed = piece_seed(walk->object_seed, number);
	if (start >> CHUNK_BITS != (start + ret_span->padded - 1) >> CHUNK_BITS)
		return -EBADMSG;
	walk->pos = start + ret_span->padded;
	walk->inside = walk->pos < row->offset + row->size;
	return 1;
}

int piece_range_widen(struct table *table, uint64_t *offset, uint64_t *end, bool *ret_any)
{
	struct piece_walk walk;
	struct piece_span span;
	uint64_t from = *offset;
	uint64_t to = *end;
	bool any = false;
	int r;

	piece_walk_init(&walk, table, *offset, *end - *offset);
	while ((r = piece_walk_next(&walk, &span)) > 0) {
		from = min(from, span.offset);
		to = max(to, span.offset + span.padded);
		any = any || span.length;
	}
	if (r < 0)
		return r;
	*offset = from;
	*end = to;
	*ret_any = any;
	return 0;
}
