/* What of an extent is there, and was verified. See seal_internal.h. */
#include "base/cleanup.h"
#include "cacheworker/seal_internal.h"

#include <stdlib.h>
#include <string.h>

struct look {
	struct worker *worker;
	const struct seal_scope *scope;
	struct extent *extent;
	/* The chunk looked at last: */
	uint64_t number;
	bool loaded;
	bool cached; /* it is in the tier */
	bool inside; /* in the extent */
	uint8_t present[CHUNK_BITMAP_BYTES];
	struct seal_look found;
};

void seal_chunks(
	const struct seal_scope *scope, uint32_t number, uint64_t *ret_first, uint64_t *ret_end)
{
	uint64_t from = number * scope->extent_bytes;
	uint64_t to = min(from + scope->extent_bytes, max(scope->end, from));

	*ret_first = from / CHUNK_BYTES;
	*ret_end = align_up(to, CHUNK_BYTES) / CHUNK_BYTES;
}

static void load(struct look *l, uint64_t number)
{
	struct chunk_id id = {
		.volume = l->scope->volume, .lineage = l->scope->lineage, .chunk = number
	};
	struct chunk *chunk = tier_chunk_find(l->worker->tiers, &id);
	enum tier_seal_mark mark = TIER_SEAL_NONE;

	l->number = number;
	l->loaded = true;
	l->cached = chunk != NULL;
	l->inside = chunk && tier_seal_has(l->extent, chunk);
	if (l->inside) {
		mark = tier_seal_mark(l->extent, chunk);
		chunk_bitmap(chunk, l->present);
	}
	l->found.there &= mark != TIER_SEAL_NONE;
	l->found.fresh &= mark == TIER_SEAL_FRESH;
	chunk_unref(chunk);
}

/* Bytes of blocks [from, to) of the volume, in one chunk, that are absent. */
static uint64_t absent_bytes(const struct look *l, uint64_t from, uint64_t to)
{
	uint32_t block = (uint32_t)(from % CHUNK_BYTES / BLOCK_BYTES);
	uint32_t n = (uint32_t)((align_up(to, BLOCK_BYTES) - from) / BLOCK_BYTES);
	uint64_t absent = 0;

	if (!l->inside)
		return (uint64_t)n * BLOCK_BYTES;
	for (uint32_t i = block; i < block + n; i++)
		absent += !(l->present[i / 8] >> i % 8 & 1);
	return absent * BLOCK_BYTES;
}

static void look_at_row(struct look *l, uint64_t from, uint64_t to)
{
	while (from < to) {
		uint64_t number = from / CHUNK_BYTES;
		uint64_t stop = min(to, (number + 1) * CHUNK_BYTES);

		if (!l->loaded || l->number != number)
			load(l, number);
		l->found.missing += absent_bytes(l, from, stop);
		l->found.elsewhere |= l->cached && !l->inside;
		from = stop;
	}
}

int seal_look(struct worker *w, const struct seal_scope *scope, struct table *table,
	struct extent *extent, uint32_t number, struct seal_look *ret_look)
{
	const struct generation_retained view = { scope->generation, scope->end };
	_cleanup_free_ struct table_row *row = malloc(sizeof(*row));
	_cleanup_free_ struct look *l = calloc(1, sizeof(*l));
	uint64_t first = number * scope->extent_bytes;
	uint64_t end = min(first + scope->extent_bytes, max(scope->end, first));
	uint64_t at = first;
	int r = 0;

	if (!row || !l)
		return -ENOMEM;
	l->worker = w;
	l->scope = scope;
	l->extent = extent;
	l->found.there = l->found.fresh = true;
	while (at < end && (r = source_row_from(table, at, row)) == 0 && row->offset < end) {
		uint64_t row_end = row->offset + row->size;

		if (generation_names(&view, 1, row))
			look_at_row(l, max(row->offset, first),
				min(row_end, first + scope->extent_bytes));
		at = align_up(row_end, BLOCK_BYTES);
	}
	if (r < 0 && r != -ENOENT)
		return r;
	*ret_look = l->found;
	return 0;
}
