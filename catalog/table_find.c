/*
 * Rows of an open table: in order, by key, by offset.
 *
 *	key     index (first keys) ─► block ─► its restarts ─► at most TABLE_RESTART rows
 *	offset  by_offset, 6 bytes a row, made when first asked for: one of PLACES_STEP ordinals
 *		─► block ─► row
 */
#include "catalog/table_internal.h"
#include "base/arena.h"
#include "base/cleanup.h"

#include <stdlib.h>

DEFINE_CLEANUP(struct table_block *, table_block_unref);

/* Decodes row `i` of a block from its restart on. */
static int block_row(
	const struct table *t, const struct table_block *b, uint32_t i, struct table_row *row)
{
	const uint8_t *p = b->raw + b->restarts[i / TABLE_RESTART];
	struct row_base base = { 0 };

	row->key_len = 0;
	for (uint32_t k = i - i % TABLE_RESTART; k <= i; k++) {
		if (row_decode(&p, b->raw + b->raw_bytes, &base, row) < 0)
			return -EBADMSG;
	}
	row->ordinal = t->blocks[b->number].first_ordinal + i;
	return 0;
}

static uint32_t block_of_ordinal(const struct table *t, uint64_t ordinal)
{
	uint32_t low = 0;
	uint32_t high = t->n_blocks; /* the answer is in [low, high) */

	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;

		if (t->blocks[middle].first_ordinal <= ordinal)
			low = middle;
		else
			high = middle;
	}
	return low;
}

static int row_at(struct table *t, uint64_t ordinal, struct table_row *row)
{
	_cleanup_(table_block_unref_p) struct table_block *b = NULL;
	uint32_t number;
	int r;

	if (ordinal >= t->info.rows)
		return -ENOENT;
	number = block_of_ordinal(t, ordinal);
	r = table_block_get(t, number, &b);
	if (r < 0)
		return r;
	return block_row(t, b, (uint32_t)(ordinal - t->blocks[number].first_ordinal), row);
}

/* ---- in order -------------------------------------------------------------------------------- */

/* What a cursor's `block` points to: the decoder between two rows. */
struct cursor_state {
	struct table_block *block;
	uint64_t ordinal; /* of the row that `at` points to */
	const uint8_t *at;
	struct row_base base;
	struct table_row row; /* the previous one */
};

void table_cursor_release(struct table_cursor *cursor)
{
	struct cursor_state *s = cursor->block;

	if (s) {
		table_block_unref(s->block);
		free(s);
	}
	cursor->block = NULL;
}

/* Puts the decoder at the cursor's ordinal. */
static int cursor_seek(struct table *t, struct table_cursor *cursor)
{
	struct cursor_state *s = cursor->block;
	uint32_t i;
	int r;

	if (!s) {
		s = calloc(1, sizeof(*s));
		if (!s)
			return -ENOMEM;
		cursor->block = s;
	}
	table_block_unref(s->block);
	s->block = NULL;
	cursor->block_number = block_of_ordinal(t, cursor->ordinal);
	r = table_block_get(t, (uint32_t)cursor->block_number, &s->block);
	if (r < 0)
		return r;
	i = (uint32_t)(cursor->ordinal - t->blocks[cursor->block_number].first_ordinal);
	s->at = s->block->raw + s->block->restarts[i / TABLE_RESTART];
	s->base = (struct row_base){ 0 };
	s->row.key_len = 0;
	for (s->ordinal = cursor->ordinal - i % TABLE_RESTART; s->ordinal < cursor->ordinal;
		s->ordinal++) {
		if (row_decode(&s->at, s->block->raw + s->block->raw_bytes, &s->base, &s->row) < 0)
			return -EBADMSG;
	}
	return 0;
}

int table_next(struct table *t, struct table_cursor *cursor, struct table_row *row)
{
	struct cursor_state *s = cursor->block;
	uint64_t first;
	int r;

	CHECK_MAGIC(t, TABLE_MAGIC);
	if (cursor->ordinal >= t->info.rows)
		return -ENOENT;
	if (!s || !s->block || s->ordinal != cursor->ordinal ||
		s->at == s->block->raw + s->block->raw_bytes) {
		r = cursor_seek(t, cursor);
		if (r < 0)
			return r;
		s = cursor->block;
	}
	first = t->blocks[cursor->block_number].first_ordinal;
	if ((s->ordinal - first) % TABLE_RESTART == 0) {
		s->row.key_len = 0;
		s->base = (struct row_base){ 0 };
	}
	if (row_decode(&s->at, s->block->raw + s->block->raw_bytes, &s->base, &s->row) < 0)
		return -EBADMSG;
	s->row.ordinal = s->ordinal++;
	cursor->ordinal++;
	row_copy(row, &s->row);
	return 0;
}

/* ---- by key ---------------------------------------------------------------------------------- */

/* The first block whose first key is >= key: the row sought is there or at the end of the one
 * before. */
static uint32_t block_of_key(const struct table *t, const char *key, uint32_t key_len)
{
	uint32_t low = 0;
	uint32_t high = t->n_blocks;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		const struct table_block_info *b = &t->blocks[middle];

		if (key_compare(b->key, b->key_len, key, key_len) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Number of the block's first row with a key >= `key`, and that row; rows when there is none. */
static int block_lower_bound(const struct table *t, const struct table_block *b, const char *key,
	uint32_t key_len, uint32_t *ret_i, struct table_row *row)
{
	const uint8_t *p;
	struct row_base base = { 0 };
	uint32_t low = 0; /* the last restart with a smaller key */
	uint32_t high = (b->rows + TABLE_RESTART - 1) / TABLE_RESTART;
	uint32_t i;

	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;

		if (block_row(t, b, middle * TABLE_RESTART, row) < 0)
			return -EBADMSG;
		if (key_compare(row->key, row->key_len, key, key_len) < 0)
			low = middle;
		else
			high = middle;
	}
	p = b->raw + b->restarts[low];
	for (i = low * TABLE_RESTART; i < b->rows; i++) {
		if (i % TABLE_RESTART == 0) {
			row->key_len = 0;
			base = (struct row_base){ 0 };
		}
		if (row_decode(&p, b->raw + b->raw_bytes, &base, row) < 0)
			return -EBADMSG;
		if (key_compare(row->key, row->key_len, key, key_len) >= 0)
			break;
	}
	row->ordinal = t->blocks[b->number].first_ordinal + i;
	*ret_i = i;
	return 0;
}

/* The first row with a key >= `key`; -ENOENT when there is none. */
static int find_lower_bound(
	struct table *t, const char *key, uint32_t key_len, struct table_row *row)
{
	_cleanup_(table_block_unref_p) struct table_block *b = NULL;
	uint32_t number = block_of_key(t, key, key_len);
	uint32_t i = 0;
	int r;

	if (number > 0) {
		r = table_block_get(t, number - 1, &b);
		if (r == 0)
			r = block_lower_bound(t, b, key, key_len, &i, row);
		if (r < 0 || i < b->rows)
			return r;
	}
	return number < t->n_blocks ? row_at(t, t->blocks[number].first_ordinal, row) : -ENOENT;
}

int table_lower_bound(struct table *t, const char *key, uint32_t key_len, uint64_t *ret_ordinal)
{
	struct table_row row;
	int r = find_lower_bound(t, key, key_len, &row);

	if (r == -ENOENT)
		*ret_ordinal = t->info.rows;
	else if (r == 0)
		*ret_ordinal = row.ordinal;
	return r == -ENOENT ? 0 : r;
}

int table_find_key(struct table *t, const char *key, uint32_t key_len, struct table_row *row)
{
	int r;

	CHECK_MAGIC(t, TABLE_MAGIC);
	r = find_lower_bound(t, key, key_len, row);
	if (r < 0)
		return r;
	/* The live row of a key is its first. */
	if (row->flags & ROW_DEAD || key_compare(row->key, row->key_len, key, key_len) != 0)
		return -ENOENT;
	return 0;
}

int table_find_twin(
	struct table *t, const struct table_row *of, uint32_t *at, struct table_row *row)
{
	uint64_t first;
	int r;

	CHECK_MAGIC(t, TABLE_MAGIC);
	r = table_lower_bound(t, of->key, of->key_len, &first);
	while (r == 0 && (r = row_at(t, first + *at, row)) == 0) {
		if (key_compare(row->key, row->key_len, of->key, of->key_len) != 0)
			return -ENOENT;
		(*at)++;
		if (row->offset != of->offset && row->size == of->size && row_has_bytes(row) &&
			row->tag_len == of->tag_len && memcmp(row->tag, of->tag, of->tag_len) == 0)
			return 0;
	}
	return r;
}

/* ---- by offset ------------------------------------------------------------------------------- */

/* Where a row's bytes lie, in 4 KiB blocks: while places are sorted. */
struct place {
	uint64_t start : 48;
	uint64_t ordinal_low : 16;
	uint64_t blocks : 48;
	uint64_t ordinal_high : 16;
};
static_assert(sizeof(struct place) == 16, "memory per row, and what sort_runs() takes");

#define PLACE_MASK ((1ull << 48) - 1) /* of the two wide fields */

static uint64_t start_of(const struct table_row *row)
{
	return row->offset / BLOCK_BYTES;
}

static uint64_t blocks_of(const struct table_row *row)
{
	return (row->size + BLOCK_BYTES - 1) / BLOCK_BYTES;
}

static int place_compare(const void *a, const void *b, const void *arg)
{
	const struct place *x = a;
	const struct place *y = b;

	(void)arg;
	return (x->start > y->start) - (x->start < y->start);
}

static void sums_add(struct table_info *sums, const struct table_row *row)
{
	if (row->flags & ROW_DEAD) {
		sums->dead_rows++;
	} else if (!(row->flags & ROW_DIRECTORY)) {
		sums->live_files++;
		sums->live_bytes += row->size;
	}
}

/* The header's sums must be the rows'. */
static bool sums_equal(const struct table_info *a, const struct table_info *b)
{
	return a->dead_rows == b->dead_rows && a->live_files == b->live_files &&
	       a->live_bytes == b->live_bytes;
}

static void places_add(struct table_places *places, uint64_t start, uint64_t ordinal)
{
	if (places->n % PLACES_STEP == 0)
		places->starts[places->n / PLACES_STEP] = start;
	places->ordinals[places->n++] = (uint32_t)ordinal;
}

/* Reads all rows as long as each lies behind the one before, as in a first generation; -EAGAIN when
 * one does not. */
static int places_in_order(struct table *t, struct table_places *places)
{
	_cleanup_(table_cursor_release) struct table_cursor cursor = { 0 };
	struct table_info sums = { 0 };
	struct table_row row;
	uint64_t end = 0;
	int r;

	while ((r = table_next(t, &cursor, &row)) == 0) {
		sums_add(&sums, &row);
		if (!row_has_bytes(&row))
			continue;
		if (start_of(&row) < end)
			return -EAGAIN;
		places_add(places, start_of(&row), row.ordinal);
		end = start_of(&row) + blocks_of(&row);
	}
	if (r != -ENOENT)
		return r;
	return sums_equal(&sums, &t->info) ? 0 : -EBADMSG;
}

/* Reads all rows. */
static int places_collect(struct table *t, struct place *places, uint64_t *ret_n)
{
	_cleanup_(table_cursor_release) struct table_cursor cursor = { 0 };
	struct table_info sums = { 0 };
	struct table_row row;
	uint64_t n = 0;
	int r;

	while ((r = table_next(t, &cursor, &row)) == 0) {
		sums_add(&sums, &row);
		if (!row_has_bytes(&row))
			continue;
		places[n++] = (struct place){
			.start = start_of(&row) & PLACE_MASK,
			.blocks = blocks_of(&row) & PLACE_MASK,
			.ordinal_low = row.ordinal & 0xffff,
			.ordinal_high = row.ordinal >> 16 & 0xffff,
		};
	}
	if (r != -ENOENT)
		return r;
	if (!sums_equal(&sums, &t->info))
		return -EBADMSG;
	*ret_n = n;
	return 0;
}

static int places_sort(struct table *t, struct table_places *places)
{
	_cleanup_free_ struct place *all = malloc((t->info.rows + 1) * sizeof(*all));
	uint64_t n = 0;
	int r = all ? places_collect(t, all, &n) : -ENOMEM;

	if (r == 0)
		r = sort_runs(all, n, sizeof(*all), place_compare, NULL);
	if (r < 0)
		return r;
	places->n = 0;
	for (uint64_t i = 0; i < n; i++) {
		if (i > 0 && (uint64_t)all[i - 1].start + all[i - 1].blocks > all[i].start)
			return -EBADMSG;
		places_add(places, all[i].start,
			(uint64_t)all[i].ordinal_high << 16 | all[i].ordinal_low);
	}
	return 0;
}

static uint64_t places_bytes(const struct table *t)
{
	return sizeof(struct table_places) + (t->info.rows / PLACES_STEP + 1) * sizeof(uint64_t) +
	       t->info.rows * sizeof(uint32_t);
}

static int reserve_locked(struct table *t, struct err *e)
{
	int r = t->reserved ? 0 : table_charge(t, places_bytes(t), e);

	t->reserved |= r == 0;
	return r;
}

int table_reserve(struct table *t, struct err *e)
{
	int r;

	CHECK_MAGIC(t, TABLE_MAGIC);
	pthread_mutex_lock(&t->by_offset_lock);
	r = reserve_locked(t, e);
	pthread_mutex_unlock(&t->by_offset_lock);
	return r;
}

/* Under by_offset_lock. */
static int by_offset_build(struct table *t)
{
	_cleanup_free_ struct table_places *places = NULL;
	uint64_t sorting = 2 * (t->info.rows + 1) * sizeof(struct place);
	int r;

	static_assert(ROWS_MAX < 1ull << 32, "an ordinal has 32 bits");
	static_assert(VOLUME_MAX_BYTES / BLOCK_BYTES < 1ull << 48, "a block number has 48");
	r = reserve_locked(t, NULL);
	if (r < 0)
		return r;
	places = malloc(places_bytes(t));
	if (!places)
		return -ENOMEM;
	places->n = 0;
	places->starts = (uint64_t *)(places + 1);
	places->ordinals = (uint32_t *)(places->starts + t->info.rows / PLACES_STEP + 1);
	r = places_in_order(t, places);
	if (r == -EAGAIN) {
		arena_must(ARENA_TABLES, sorting);
		r = places_sort(t, places);
		arena_give(ARENA_TABLES, sorting);
	}
	if (r < 0)
		return r;
	atomic_store_explicit(&t->by_offset, TAKE(places), memory_order_release);
	return 0;
}

/* The rows by offset, made at the first call. */
static int by_offset_get(struct table *t, const struct table_places **ret_places)
{
	const struct table_places *places =
		atomic_load_explicit(&t->by_offset, memory_order_acquire);
	int r = 0;

	if (!places) {
		pthread_mutex_lock(&t->by_offset_lock);
		if (!t->by_offset)
			r = by_offset_build(t);
		places = t->by_offset;
		pthread_mutex_unlock(&t->by_offset_lock);
	}
	if (r < 0)
		return r;
	ensure(places);
	*ret_places = places;
	return 0;
}

int table_check(struct table *t)
{
	const struct table_places *places;

	CHECK_MAGIC(t, TABLE_MAGIC);
	return by_offset_get(t, &places);
}

/* Number of the first place that starts at or after `block`; `row` is scratch. */
static int place_lower_bound(struct table *t, const struct table_places *places, uint64_t block,
	struct table_row *row, uint64_t *ret_number)
{
	uint64_t low = 0; /* of the steps: how many start before it */
	uint64_t high = (places->n + PLACES_STEP - 1) / PLACES_STEP;

	while (low < high) {
		uint64_t middle = low + (high - low) / 2;

		if (places->starts[middle] < block)
			low = middle + 1;
		else
			high = middle;
	}
	high = min(low * PLACES_STEP, places->n);
	low = low ? (low - 1) * PLACES_STEP + 1 : 0;
	while (low < high) {
		uint64_t middle = low + (high - low) / 2;
		int r = row_at(t, places->ordinals[middle], row);

		if (r < 0)
			return r;
		if (start_of(row) < block)
			low = middle + 1;
		else
			high = middle;
	}
	*ret_number = low;
	return 0;
}

int table_find_offset(struct table *t, uint64_t offset, struct table_row *row)
{
	const struct table_places *places;
	uint64_t block = offset / BLOCK_BYTES;
	uint64_t i = 0;
	int r;

	CHECK_MAGIC(t, TABLE_MAGIC);
	r = by_offset_get(t, &places);
	if (r < 0)
		return r;
	r = place_lower_bound(t, places, block + 1, row, &i);
	if (r == 0)
		r = i ? row_at(t, places->ordinals[i - 1], row) : -ENOENT;
	if (r < 0)
		return r;
	return block - start_of(row) < blocks_of(row) ? 0 : -ENOENT;
}

int table_next_offset(struct table *t, uint64_t offset, struct table_row *row)
{
	const struct table_places *places;
	uint64_t i = 0;
	int r;

	CHECK_MAGIC(t, TABLE_MAGIC);
	r = by_offset_get(t, &places);
	if (r < 0)
		return r;
	if (offset > VOLUME_MAX_BYTES)
		return -ENOENT;
	r = place_lower_bound(t, places, align_up(offset, BLOCK_BYTES) / BLOCK_BYTES, row, &i);
	if (r < 0)
		return r;
	return i < places->n ? row_at(t, places->ordinals[i], row) : -ENOENT;
}
