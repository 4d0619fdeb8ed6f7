/* Which units are fetched without having been asked for. See fill.h. */
#include "cacheworker/fill.h"
#include "cacheworker/flight.h"
#include "cacheworker/pull.h"
#include "base/arena.h"
#include "base/cleanup.h"

#include <stdlib.h>

#define FILLS_EXPECTED 4096u
#define FILLS_MAX      65536u /* 1 TiB announced ahead */
#define WHOLE          UINT64_MAX
#define PUMP_SHARE     8u /* this part of the units in flight may end before others are sought */

/* Bytes to look for, within one chunk. */
struct stretch {
	uint64_t start; /* volume offset */
	uint64_t end;
	uint64_t credit; /* bytes it may fetch; WHOLE: all */
};

/* The pump alone works on a fill and removes it; others leave what they want in `next`. */
struct fill {
	struct list link;     /* fills.ahead or fills.active */
	struct map_node node; /* fills.chunks */
	struct source *source;
	struct table *table; /* referenced */
	enum ufs_class class;
	bool exact; /* its range is its own: nothing is added to it */
	uint64_t chunk;
	struct stretch now;  /* changes under the lock */
	struct stretch next; /* under the lock: to be done after `now`; end 0: nothing */
	uint64_t cursor;     /* the pump's: next volume offset to look at */
	uint64_t credit;     /* the pump's: what is left of it */
	unsigned int passed; /* the pump's: objects in a row that it did not fetch */
};

enum step {
	STEP_TAKEN,
	STEP_NO_MEMORY,
	STEP_DONE, /* or it can go no further */
};

static uint64_t fill_hash(const struct source *source, uint64_t chunk)
{
	return hash_xxh3(&chunk, sizeof(chunk), (uint64_t)(uintptr_t)source);
}

static bool same_stretch(const struct stretch *a, const struct stretch *b)
{
	return a->start == b->start && a->end == b->end;
}

/* The fill that `fresh` would repeat; its hash is that of where it starts when it is exact. */
static struct fill *find_locked(const struct fill *fresh, uint64_t hash)
{
	struct map_node *node = map_first(&fresh->source->worker->fills.chunks, hash);

	for (; node; node = map_next_same(node)) {
		struct fill *fill = container_of(node, struct fill, node);

		if (fill->source == fresh->source && fill->chunk == fresh->chunk &&
			fill->class == fresh->class && fill->exact == fresh->exact &&
			(!fill->exact || same_stretch(&fill->now, &fresh->now)))
			return fill;
	}
	return NULL;
}

static struct list *queue_of(struct fills *fills, enum ufs_class class)
{
	return class == UFS_PREFETCH ? &fills->ahead : &fills->active;
}

static bool none_active_locked(const struct fills *fills)
{
	return list_empty(&fills->ahead) && list_empty(&fills->active);
}

static void fill_free(struct fill *fill)
{
	table_unref(fill->table);
	arena_free(ARENA_FILLS, fill, sizeof(*fill));
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

	if (fills->closing || none_active_locked(fills) || fills->in_flight >= fills->max_in_flight)
		return;
	if (fills->pumping) {
		fills->again = true;
		return;
	}
	fills->pumping = pool_submit(w->serve, &fills->pump) ==
			 0; /* a full queue: the next event asks again */
}

/* Announced objects need no credit. */
static bool has_credit(struct fill *fill, const struct table_row *row)
{
	return fill->class != UFS_FILL || kinds_have_credit(&fill->source->kinds, row);
}

/* The next unit to fetch: 0, -ENOENT at the end of the fill, or the table's error. */
static int next_unit(struct fill *fill, struct table_row *row, uint64_t *ret_at)
{
	while (fill->cursor < fill->now.end) {
		uint64_t object_offset;
		uint64_t start;
		uint32_t length;
		uint64_t at;
		int r = source_row_from(fill->table, fill->cursor, row);

		if (r == -ENOENT || (r == 0 && row->offset >= fill->now.end))
			return -ENOENT;
		if (r < 0)
			return r;
		at = max(row->offset, fill->cursor);
		flight_unit_of(row, at, &start, &length, &object_offset);
		fill->cursor = start + align_up(length, BLOCK_BYTES);
		if (row->flags & ROW_DEAD || flight_unit_held(fill->source, start, length) ||
			ufs_refused(source_ufs(fill->source), row->key, row->key_len, row->tag,
				row->tag_len))
			continue;
		if (!has_credit(fill, row)) {
			if (++fill->passed > FILL_PASSED)
				return -ENOENT;
			continue;
		}
		fill->passed = 0;
		*ret_at = start;
		return 0;
	}
	return -ENOENT;
}

/* Neighbours push nothing out; what is announced does, where its volume's policy says so. */
static bool is_full(const struct source *source, enum ufs_class class)
{
	return tier_volume_full(source->worker->tiers, &source->volume,
		class == UFS_PREFETCH ? TIER_WANT_AHEAD : TIER_WANT_FILL);
}

/* Is there memory for what of the object one request would ask for from there on? If nothing is on its way that gives
 * some back, it begins with what there is. */
static bool may_start(const struct fill *fill, const struct table_row *row, uint64_t start)
{
	struct fills *fills = &fill->source->worker->fills;
	uint64_t bytes = min(fill->now.end, row->offset + row->size) - start;
	bool alone;

	pthread_mutex_lock(&fills->lock);
	alone = fills->in_flight == 0;
	pthread_mutex_unlock(&fills->lock);
	return alone ||
	       flight_may_start_range(fill->source, row, min(bytes, fill->credit), fill->class);
}

/* Takes one unit of the fill into flight, which `batch` gets. `row` is scratch. */
static enum step fill_step(struct fill *fill, struct flight_batch *batch, struct table_row *row)
{
	struct worker *w = fill->source->worker;
	uint64_t before = fill->cursor;
	uint64_t object_offset;
	uint64_t start;
	uint32_t length;
	uint64_t at = 0;
	int r;

	/* What no tier takes would be pushed out before it is read. */
	if (is_full(fill->source, fill->class) || next_unit(fill, row, &at) < 0)
		return STEP_DONE;
	flight_unit_of(row, at, &start, &length, &object_offset);
	if (length > fill->credit)
		return STEP_DONE;
	if (batch->n == 0 && !may_start(fill, row, start)) {
		fill->cursor = before;
		return STEP_NO_MEMORY;
	}
	pthread_mutex_lock(&w->fills.lock);
	w->fills.in_flight++;
	pthread_mutex_unlock(&w->fills.lock);
	r = flight_want_in(batch, fill->source, row, at, fill->class, false, NULL);
	if (r == 0) {
		fill->credit -= length;
		if (fill->class == UFS_FILL)
			kinds_spend(&fill->source->kinds, row);
		return STEP_TAKEN;
	}
	pthread_mutex_lock(&w->fills.lock);
	w->fills.in_flight--;
	pthread_mutex_unlock(&w->fills.lock);
	if (r == -EALREADY || r == -EEXIST)
		return STEP_TAKEN;
	fill->cursor = before;
	return r == -EAGAIN || r == -ENOMEM ? STEP_NO_MEMORY : STEP_DONE;
}

/* The first fill, while there is room in flight. It stays in the list; only the pump removes. */
static struct fill *current_fill(struct worker *w)
{
	struct fill *fill = NULL;

	pthread_mutex_lock(&w->fills.lock);
	if (!w->fills.closing && !none_active_locked(&w->fills) &&
		w->fills.in_flight < w->fills.max_in_flight)
		fill = list_entry(
			list_empty(&w->fills.ahead) ? w->fills.active.next : w->fills.ahead.next,
			struct fill, link);
	pthread_mutex_unlock(&w->fills.lock);
	return fill;
}

/* The fill goes on with what was asked for meanwhile, behind the others; or it is done. */
static void fill_done(struct worker *w, struct fill *fill)
{
	bool more;

	pthread_mutex_lock(&w->fills.lock);
	more = fill->next.end != 0;
	if (more) {
		fill->now = fill->next;
		fill->next = (struct stretch){ 0 };
		fill->cursor = fill->now.start;
		fill->credit = fill->now.credit;
		fill->passed = 0;
		list_remove(&fill->link);
		list_push_back(queue_of(&w->fills, fill->class), &fill->link);
	} else {
		fill_remove_locked(&w->fills, fill);
	}
	pthread_mutex_unlock(&w->fills.lock);
	if (!more)
		fill_free(fill);
}

static void run_pump(struct pool_job *job)
{
	struct worker *w = container_of(job, struct worker, fills.pump);
	struct flight_batch batch = { .n = 0 };
	struct table_row row;
	bool hungry = false;
	const struct fill *last = NULL;
	struct fill *fill;

	while ((fill = current_fill(w)) != NULL) {
		enum step step;

		if (fill != last) /* a batch is of one */
			flight_batch_start(&batch);
		last = fill;
		step = fill_step(fill, &batch, &row);
		/* What is under way does not wait for what is not. */
		if (step != STEP_TAKEN || flight_batch_full(&batch))
			flight_batch_start(&batch);
		if (step == STEP_DONE)
			fill_done(w, fill);
		if (step == STEP_NO_MEMORY && hungry)
			break;
		/* Told from now on; but memory may have come free just before: once more. */
		hungry = step == STEP_NO_MEMORY;
		if (hungry)
			w->fills.hungry = true;
	}
	flight_batch_start(&batch);
	pthread_mutex_lock(&w->fills.lock);
	w->fills.pumping = false;
	if (w->fills.again)
		pump_locked(w);
	w->fills.again = false;
	pthread_mutex_unlock(&w->fills.lock);
}

/* Adds a stretch to those of a fill under way, unless it is part of what is done anyway. */
static void stretch_add(struct fill *fill, const struct stretch *more)
{
	struct stretch *next = &fill->next;

	if (fill->exact)
		return;
	if (fill->now.credit == WHOLE && more->start >= fill->now.start &&
		more->end <= fill->now.end)
		return;
	if (next->end == 0) {
		*next = *more;
		return;
	}
	next->start = min(next->start, more->start);
	next->end = max(next->end, more->end);
	next->credit = next->credit == WHOLE || more->credit == WHOLE ? WHOLE
								      : next->credit + more->credit;
}

static int fill_add(
	struct source *source, const struct stretch *stretch, enum ufs_class class, bool exact)
{
	struct fills *fills = &source->worker->fills;
	uint64_t chunk = stretch->start >> CHUNK_BITS;
	uint64_t hash = fill_hash(source, exact ? stretch->start : chunk);
	struct fill *fresh = NULL;
	struct fill *fill;
	int r = 0;

	if (!arena_take(ARENA_FILLS, (enum budget_class) class, sizeof(*fresh)))
		return -EAGAIN;
	fresh = calloc(1, sizeof(*fresh));
	if (!fresh) {
		arena_give(ARENA_FILLS, sizeof(*fresh));
		return -ENOMEM;
	}
	*fresh = (struct fill){
		.source = source,
		.table = source_table(source),
		.class = class,
		.exact = exact,
		.chunk = chunk,
		.now = *stretch,
		.cursor = stretch->start,
		.credit = stretch->credit,
	};
	pthread_mutex_lock(&fills->lock);
	fill = find_locked(fresh, hash);
	if (fill) {
		stretch_add(fill, stretch);
	} else if (fills->closing) {
		r = -ECANCELED;
	} else if (fills->chunks.count >= FILLS_MAX) {
		r = -EAGAIN;
	} else {
		fill = TAKE(fresh);
		map_insert(&fills->chunks, &fill->node, hash);
		list_push_back(queue_of(fills, class), &fill->link);
	}
	pump_locked(source->worker);
	pthread_mutex_unlock(&fills->lock);
	if (fresh)
		fill_free(fresh);
	return r;
}

void fill_asked(struct source *source, uint64_t start, uint32_t length)
{
	uint64_t asked = atomic_fetch_add(&source->asked_bytes, length) + length;
	struct stretch before = { .start = align_down(start, CHUNK_BYTES), .end = start };
	struct stretch after = { .start = start + align_up(length, BLOCK_BYTES),
		.end = before.start + CHUNK_BYTES };
	struct table *table = source_table(source);
	bool whole = asked >= table_info(table)->live_bytes / FILL_WHOLE_SHARE;
	struct table_row row;
	int r = table_find_offset(table, start, &row);

	table_unref(table);
	if (r < 0) /* a newer table came, in which the object is not */
		return;
	before.credit = whole ? WHOLE : 0;
	after.credit = whole ? WHOLE : (uint64_t)length * FILL_NEIGHBOURS;
	kinds_pay(&source->kinds, &row, whole ? FILL_REQUESTS : FILL_NEIGHBOURS);
	if (is_full(source, UFS_FILL))
		return;
	/* Backfill is optional. Readers go forward more often than backward. */
	if (after.start < after.end)
		(void)fill_add(source, &after, UFS_FILL, false);
	if (whole && before.start < before.end)
		(void)fill_add(source, &before, UFS_FILL, false);
}

int fill_ahead(struct source *source, uint64_t offset, uint32_t length)
{
	struct stretch stretch = { .start = offset, .end = offset + length, .credit = WHOLE };

	return is_full(source, UFS_PREFETCH) ? 0 : fill_add(source, &stretch, UFS_PREFETCH, false);
}

int fill_exact(struct source *source, uint64_t offset, uint32_t length)
{
	struct stretch stretch = { .start = offset, .end = offset + length, .credit = WHOLE };

	return is_full(source, UFS_PREFETCH) ? 0 : fill_add(source, &stretch, UFS_PREFETCH, true);
}

void fill_memory_freed(struct worker *w)
{
	if (!w->fills.hungry)
		return;
	pthread_mutex_lock(&w->fills.lock);
	w->fills.hungry = false;
	pump_locked(w);
	pthread_mutex_unlock(&w->fills.lock);
}

void fill_unit_ended(struct worker *w)
{
	pthread_mutex_lock(&w->fills.lock);
	ensure(w->fills.in_flight > 0);
	w->fills.in_flight--;
	/* Several at a time: the pump is a job of another thread. */
	if (w->fills.in_flight <= w->fills.max_in_flight - w->fills.max_in_flight / PUMP_SHARE)
		pump_locked(w);
	pthread_mutex_unlock(&w->fills.lock);
}

int fills_init(struct worker *w)
{
	pthread_mutex_init(&w->fills.lock, NULL);
	list_init(&w->fills.ahead);
	list_init(&w->fills.active);
	w->fills.max_in_flight = w->config->origin_requests;
	w->fills.pump.run = run_pump;
	w->fills.pump.background = true; /* readers' requests go first */
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
	list_splice_back(&w->fills.active, &w->fills.ahead);
	list_for_each_safe (node, &w->fills.active) {
		struct fill *fill = list_entry(node, struct fill, link);

		fill_remove_locked(&w->fills, fill);
		fill_free(fill);
	}
	map_release(&w->fills.chunks);
	pthread_mutex_destroy(&w->fills.lock);
}
