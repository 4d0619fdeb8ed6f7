/* Which units are fetched without having been asked for. See fill.h. */
#include "cacheworker/fill.h"
#include "cacheworker/flight.h"

#include <stdlib.h>

#define FILLS_EXPECTED 4096u

struct fill {
	struct list link;     /* fills.active */
	struct map_node node; /* fills.chunks */
	struct source *source;
	struct table *table; /* referenced */
	enum ufs_class class;
	uint64_t chunk;
	uint64_t cursor; /* next volume offset to look at */
	uint64_t end;    /* of the range, within the chunk */
	uint64_t credit; /* bytes it may still fetch */
};

static uint64_t fill_hash(const struct source *source, uint64_t chunk)
{
	return hash_xxh3(&chunk, sizeof(chunk), (uint64_t)(uintptr_t)source);
}

static struct fill *find_locked(struct source *source, uint64_t chunk, uint64_t hash)
{
	struct map_node *node = map_first(&source->worker->fills.chunks, hash);

	for (; node; node = map_next_same(node)) {
		struct fill *fill = container_of(node, struct fill, node);

		if (fill->source == source && fill->chunk == chunk)
			return fill;
	}
	return NULL;
}

static void fill_free(struct fill *fill)
{
	table_unref(fill->table);
	free(fill);
}

static void fill_remove_locked(struct fills *fills, struct fill *fill)
{
	list_remove(&fill->link);
	map_remove(&fills->chunks, &fill->node);
}

/* Asks for a run of the pump; when it runs already, for another after it. */
static void pump_locked(struct worker *w)
{
	struct fills *fills = &w->fills;

	if (fills->closing || list_empty(&fills->active) ||
		fills->in_flight >= fills->max_in_flight)
		return;
	if (fills->pumping) {
		fills->again = true;
		return;
	}
	fills->pumping = pool_submit(w->serve, &fills->pump) ==
			 0; /* a full queue: the next event asks again */
}

/* The next unit of the fill that is not there: 0, -ENOENT at its end, or the table's error. */
static int next_unit(struct fill *fill, struct table_row *row, uint64_t *ret_at)
{
	while (fill->cursor < fill->end) {
		uint64_t object_offset;
		uint64_t start;
		uint32_t length;
		uint64_t at;
		struct chunk_id id = { .volume = fill->source->volume,
			.lineage = fill->source->lineage };
		struct chunk *chunk;
		bool present;
		int r = source_row_from(fill->table, fill->cursor, row);

		if (r == -ENOENT || (r == 0 && row->offset >= fill->end))
			return -ENOENT;
		if (r < 0)
			return r;
		at = max(row->offset, fill->cursor);
		flight_unit_of(row, at, &start, &length, &object_offset);
		fill->cursor = start + align_up(length, BLOCK_BYTES);
		if (row->flags & ROW_DEAD)
			continue;
		id.chunk = start >> CHUNK_BITS;
		chunk = tier_chunk_find(fill->source->worker->tiers, &id);
		present =
			chunk &&
			chunk_present(chunk, (uint32_t)(start & (CHUNK_BYTES - 1)),
				min(length, (uint32_t)(CHUNK_BYTES - (start & (CHUNK_BYTES - 1)))));
		chunk_unref(chunk);
		if (present)
			continue;
		*ret_at = start;
		return 0;
	}
	return -ENOENT;
}

/* Takes one unit of the fill into flight. False when the fill is done (or can go no further). */
static bool fill_step(struct fill *fill, struct table_row *row, bool *ret_no_memory)
{
	struct worker *w = fill->source->worker;
	uint64_t before = fill->cursor;
	uint64_t object_offset;
	uint64_t start;
	uint32_t length;
	uint64_t at = 0;
	int r;

	if (next_unit(fill, row, &at) < 0)
		return false;
	flight_unit_of(row, at, &start, &length, &object_offset);
	if (length > fill->credit)
		return false;
	pthread_mutex_lock(&w->fills.lock);
	w->fills.in_flight++;
	pthread_mutex_unlock(&w->fills.lock);
	r = flight_want(fill->source, row, at, fill->class, false, NULL);
	if (r == 0) {
		fill->credit -= length;
		return true;
	}
	pthread_mutex_lock(&w->fills.lock);
	w->fills.in_flight--;
	pthread_mutex_unlock(&w->fills.lock);
	if (r == -EALREADY)
		return true;
	*ret_no_memory = r == -EAGAIN || r == -ENOMEM;
	fill->cursor = before;
	return *ret_no_memory;
}

/* The first fill, while there is room in flight. It stays in the list; only the pump removes. */
static struct fill *current_fill(struct worker *w)
{
	struct fill *fill = NULL;

	pthread_mutex_lock(&w->fills.lock);
	if (!w->fills.closing && !list_empty(&w->fills.active) &&
		w->fills.in_flight < w->fills.max_in_flight)
		fill = list_entry(w->fills.active.next, struct fill, link);
	pthread_mutex_unlock(&w->fills.lock);
	return fill;
}

static void run_pump(struct pool_job *job)
{
	struct worker *w = container_of(job, struct worker, fills.pump);
	struct table_row *row = malloc(sizeof(*row));
	bool no_memory = row == NULL;
	struct fill *fill;

	while (!no_memory && (fill = current_fill(w)) != NULL) {
		if (fill_step(fill, row, &no_memory))
			continue;
		pthread_mutex_lock(&w->fills.lock);
		fill_remove_locked(&w->fills, fill);
		pthread_mutex_unlock(&w->fills.lock);
		fill_free(fill);
	}
	free(row);
	pthread_mutex_lock(&w->fills.lock);
	w->fills.pumping = false;
	/* Without memory the units under way end first, and ask again. */
	if (w->fills.again && !no_memory)
		pump_locked(w);
	w->fills.again = false;
	pthread_mutex_unlock(&w->fills.lock);
}

static void fill_add(
	struct source *source, uint64_t offset, uint64_t end, uint64_t credit, enum ufs_class class)
{
	struct fills *fills = &source->worker->fills;
	uint64_t chunk = offset >> CHUNK_BITS;
	uint64_t hash = fill_hash(source, chunk);
	struct fill *fresh = calloc(1, sizeof(*fresh));
	struct fill *fill;

	if (!fresh)
		return; /* neighbours are a favour */
	fresh->table = source_table(source);
	pthread_mutex_lock(&fills->lock);
	fill = find_locked(source, chunk, hash);
	if (!fill && !fills->closing) {
		fill = fresh;
		fill->source = source;
		fill->chunk = chunk;
		fill->cursor = offset;
		fill->end = end;
		fill->credit = credit;
		fill->class = class;
		map_insert(&fills->chunks, &fill->node, hash);
		list_push_back(&fills->active, &fill->link);
		fresh = NULL;
	}
	pump_locked(source->worker);
	pthread_mutex_unlock(&fills->lock);
	if (fresh)
		fill_free(fresh);
}

void fill_asked(struct source *source, uint64_t start, uint32_t length)
{
	uint64_t chunk_start = align_down(start, CHUNK_BYTES);
	uint64_t asked = atomic_fetch_add(&source->asked_bytes, length) + length;
	struct table *table;
	bool whole;

	if (tier_set_full(source->worker->tiers))
		return;
	table = source_table(source);
	whole = asked >= table_info(table)->live_bytes / FILL_WHOLE_SHARE;
	table_unref(table);
	if (whole)
		fill_add(source, chunk_start, chunk_start + CHUNK_BYTES, UINT64_MAX, UFS_FILL);
	else
		fill_add(source, start + align_up(length, BLOCK_BYTES), chunk_start + CHUNK_BYTES,
			(uint64_t)length * FILL_NEIGHBOURS, UFS_FILL);
}

void fill_ahead(struct source *source, uint64_t offset, uint32_t length)
{
	if (!tier_set_full(source->worker->tiers))
		fill_add(source, offset, offset + length, UINT64_MAX, UFS_PREFETCH);
}

void fill_unit_ended(struct worker *w)
{
	pthread_mutex_lock(&w->fills.lock);
	ensure(w->fills.in_flight > 0);
	w->fills.in_flight--;
	pump_locked(w);
	pthread_mutex_unlock(&w->fills.lock);
}

int fills_init(struct worker *w)
{
	pthread_mutex_init(&w->fills.lock, NULL);
	list_init(&w->fills.active);
	w->fills.max_in_flight = w->config->origin_requests;
	w->fills.pump.run = run_pump;
	return map_init(&w->fills.chunks, FILLS_EXPECTED);
}

void fills_close(struct worker *w)
{
	pthread_mutex_lock(&w->fills.lock);
	w->fills.closing = true;
	pthread_mutex_unlock(&w->fills.lock);
}

void fills_release(struct worker *w)
{
	list_for_each_safe (node, &w->fills.active) {
		struct fill *fill = list_entry(node, struct fill, link);

		fill_remove_locked(&w->fills, fill);
		fill_free(fill);
	}
	map_release(&w->fills.chunks);
	pthread_mutex_destroy(&w->fills.lock);
}
