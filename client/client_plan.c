/* Cuts a read into what one FETCH may ask for. See client_op.h. */
#include "client/client_op.h"
#include "client/client_pieces.h"

#define FETCH_MAX LIMIT_PAYLOAD_BYTES /* length of one FETCH */

static void add_part(struct client_op *op, uint64_t from, uint64_t to, bool gap)
{
	ensure(op->n_parts < CLIENT_PARTS);
	op->parts[op->n_parts++] = (struct client_part){
		.offset = from,
		.length = (uint32_t)(to - from),
		.gap = gap,
	};
}

/* A part of whole pieces, which may be a gap only, as wide as objects that a token does not see. */
static int add_pieces(struct client_op *op, uint64_t from, uint64_t to)
{
	uint64_t start = from;
	uint64_t end = to;
	bool any;
	int r = piece_range_widen(op->volume->table, &start, &end, &any);

	if (r == 0)
		add_part(op, from, to, !any);
	return r;
}

/* The pieces of [from, to), which is within one chunk, in parts of at most FETCH_MAX. */
static int plan_chunk(struct client_op *op, uint64_t from, uint64_t to)
{
	uint64_t start = from;
	uint64_t end = to;
	bool any;
	int r = piece_range_widen(op->volume->table, &start, &end, &any);

	if (r < 0)
		return r;
	if (!any || end - start <= FETCH_MAX) {
		add_part(op, any ? start : from, any ? end : to, !any);
		return 0;
	}
	while (end - start > FETCH_MAX) {
		uint64_t cut = start + FETCH_MAX;
		uint64_t cut_end = cut + BLOCK_BYTES;

		r = piece_range_widen(op->volume->table, &cut, &cut_end, &any);
		if (r < 0)
			return r;
		r = add_pieces(op, start, cut);
		if (r < 0)
			return r;
		start = cut;
	}
	return add_pieces(op, start, end);
}

/* -ESTALE when a part of the read belongs to no object. */
static int check_named(const struct client_op *op)
{
	struct piece_walk walk;
	struct piece_span span;
	int r;

	piece_walk_init(&walk, op->volume->table, op->offset, op->length);
	while ((r = piece_walk_next(&walk, &span)) > 0)
		if (!span.length)
			return -ESTALE;
	return r;
}

int client_plan(struct client_op *op)
{
	uint64_t end = op->offset + op->length;
	int r = op->volume->named_only ? check_named(op) : 0;

	for (uint64_t pos = op->offset; pos < end && r == 0;) {
		uint64_t stop = min(end, align_down(pos, CHUNK_BYTES) + CHUNK_BYTES);

		r = plan_chunk(op, pos, stop);
		pos = stop;
	}
	if (r < 0)
		op->n_parts = 0;
	return r;
}

const struct client_part *client_plan_part(const struct client_op *op)
{
	return &op->parts[op->part];
}

void client_plan_wanted(const struct client_op *op, uint64_t *ret_from, uint32_t *ret_length)
{
	const struct client_part *part = client_plan_part(op);
	uint64_t from = max(part->offset, op->offset);
	uint64_t to = min(part->offset + part->length, op->offset + op->length);

	*ret_from = from;
	*ret_length = (uint32_t)(to - from);
}
