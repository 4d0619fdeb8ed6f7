/* Dropping some objects of a volume. See evict_paths.h. */
#include "cacheworker/evict_paths.h"
#include "cacheworker/duty.h"
#include "base/cleanup.h"
#include "base/list.h"
#include "base/piece.h"
#include "cacheworker/flight.h"
#include "cacheworker/kept.h"
#include "cacheworker/source.h"

#include <stdlib.h>

#define SCATTERED_SHARE 16u  /* less than that part of a chunk's bytes is scattered */
#define SCATTERED_MAX   256u /* such chunks in one order: 4 GiB are written again */
#define WRITE_TRIES     4u

/* A piece of an object that stays, out of the budget of units. */
struct stayer {
	struct list link;
	struct chunk_id id;
	struct piece_run run;
	char data[];
};

struct eviction {
	struct worker *worker;
	const struct meant *meant;
	struct volume_id volume;
	uint64_t lineage;
	struct table *table; /* of that lineage */
	struct table_row *row;
	struct list stayers; /* of the chunk that goes now */
	uint32_t scattered;
	struct evicted_paths sum;
};

static bool closing(const struct eviction *ev)
{
	return atomic_load(&ev->worker->retention.closing);
}

/* ---- what stays of a chunk that goes --------------------------------------------------------- */

static void stayer_free(struct eviction *ev, struct stayer *s)
{
	budget_give(&ev->worker->memory, s->run.length);
	free(s);
	flight_memory_freed(ev->worker);
}

static void drop_stayers(struct eviction *ev)
{
	struct list *node;

	while ((node = list_pop_front(&ev->stayers)))
		stayer_free(ev, list_entry(node, struct stayer, link));
}

/* -ENOMEM: the chunk stays; what is damaged is absent now. */
static int keep_piece(struct eviction *ev, struct chunk *chunk, const struct piece_run *run)
{
	struct stayer *s;
	int r;

	if (!budget_take(&ev->worker->memory, BUDGET_FILL, run->length))
		return -ENOMEM;
	s = malloc(sizeof(*s) + run->length);
	if (!s) {
		budget_give(&ev->worker->memory, run->length);
		return -ENOMEM;
	}
	s->id = *chunk_id_of(chunk);
	s->run = *run;
	r = chunk_read(chunk, run, s->data);
	if (r < 0) {
		stayer_free(ev, s);
		return r == -EBADMSG || r == -ENODATA ? 0 : r;
	}
	list_push_back(&ev->stayers, &s->link);
	return 0;
}

static int write_again(struct eviction *ev, const struct stayer *s)
{
	const struct tier_admission how = { .class = worker_class(
						    ev->worker, &s->id.volume, s->id.chunk) };
	int r = -EAGAIN;

	/* -EAGAIN: the chunk was moved between the two, and is found where it is now. */
	for (uint32_t i = 0; r == -EAGAIN && i < WRITE_TRIES; i++) {
		struct chunk *chunk;

		r = tier_chunk_admit_as(ev->worker->tiers, &s->id, &how, &chunk);
		if (r < 0)
			return r;
		r = chunk_write(chunk, &s->run, s->data);
		chunk_unref(chunk);
	}
	return r;
}

/* The chunk is gone: what stays of it comes back. What has no room is fetched when it is read. */
static void flush(struct eviction *ev)
{
	struct list *node;

	while ((node = list_pop_front(&ev->stayers))) {
		struct stayer *s = list_entry(node, struct stayer, link);

		(void)!write_again(ev, s);
		stayer_free(ev, s);
	}
}

/* ---- chunks ---------------------------------------------------------------------------------- */

/* What of a chunk is meant and what is not: present bytes; or, with `keep`, what is not is read. */
struct share {
	uint64_t meant;
	uint64_t other;
	bool keep;
};

static int look_at_pieces(
	struct eviction *ev, struct chunk *chunk, uint64_t at, uint64_t stop, struct share *share)
{
	const struct table_row *row = ev->row;
	bool meant = meant_matches(ev->meant, row->key, row->key_len);
	uint64_t seed = piece_object_seed(row->key, row->key_len, row->tag, row->tag_len);
	int r = 0;

	for (; at < stop && r == 0; at += PIECE_BYTES) {
		struct piece_run run = {
			.offset = (uint32_t)(at & (CHUNK_BYTES - 1)),
			.length = (uint32_t)min(stop - at, (uint64_t)PIECE_BYTES),
			.object_seed = seed,
			.first_piece = (at - row->offset) >> PIECE_BITS,
		};

		if (!chunk_present(chunk, run.offset, run.length))
			continue;
		if (meant)
			share->meant += run.length;
		else
			share->other += run.length;
		if (!meant && share->keep)
			r = keep_piece(ev, chunk, &run);
	}
	return r;
}

static int look(struct eviction *ev, struct chunk *chunk, struct share *share)
{
	uint64_t at = chunk_id_of(chunk)->chunk * CHUNK_BYTES;
	uint64_t end = at + CHUNK_BYTES;
	int r = 0;

	while (r == 0 && at < end) {
		uint64_t stop;

		r = source_row_from(ev->table, at, ev->row);
		if (r < 0 || ev->row->offset >= end)
			break;
		at = max(at, ev->row->offset);
		stop = min(ev->row->offset + ev->row->size, end);
		r = look_at_pieces(ev, chunk, at, stop, share);
		at = align_up(stop, BLOCK_BYTES);
	}
	return r == -ENOENT ? 0 : r;
}

static bool may_go(struct eviction *ev, struct chunk *chunk, const struct share *share)
{
	struct share again = { .keep = true };

	if (share->other == 0)
		return true;
	if (share->meant < (share->meant + share->other) / SCATTERED_SHARE &&
		++ev->scattered > SCATTERED_MAX)
		return false;
	return look(ev, chunk, &again) == 0 && !closing(ev);
}

static bool keep(void *arg, uint64_t number)
{
	struct eviction *ev = arg;
	struct chunk_id id = { .volume = ev->volume, .lineage = ev->lineage, .chunk = number };
	struct share share = { 0 };
	struct chunk *chunk;
	bool goes;

	flush(ev); /* of the chunk before, which is gone now */
	chunk = closing(ev) ? NULL : tier_chunk_find(ev->worker->tiers, &id);
	if (!chunk)
		return true;
	goes = look(ev, chunk, &share) == 0 && share.meant > 0;
	if (goes && !may_go(ev, chunk, &share)) {
		drop_stayers(ev);
		goes = false;
	}
	chunk_unref(chunk);
	if (goes)
		ev->sum.bytes += share.meant;
	else
		ev->sum.left += share.meant;
	return !goes;
}

/* Of a lineage whose table is there no more, or damaged, it is not known what is stored where, now or later. */
static bool may_open_later(int status)
{
	return status == -ENOMEM || status == -EMFILE || status == -ENFILE || status == -ENODEV;
}

int evict_paths(struct worker *w, const struct volume_id *volume, const struct meant *meant,
	struct evicted_paths *ret)
{
	_cleanup_free_ struct table_row *row = malloc(sizeof(*row));
	struct eviction ev = { .worker = w, .meant = meant, .volume = *volume, .row = row };
	uint64_t lineages[KEPT_LINEAGES];
	uint32_t n = tier_set_lineages(w->tiers, volume, lineages, KEPT_LINEAGES);
	int r = row ? 0 : -ENOMEM;

	list_init(&ev.stayers);
	for (uint32_t i = 0; i < n && r == 0; i++) {
		ev.lineage = lineages[i];
		r = kept_table_open(w, volume, lineages[i], &ev.table);
		if (r == 0) {
			(void)tier_set_drop(w->tiers, volume, ev.lineage, keep, &ev);
			flush(&ev);
			table_unref(ev.table);
		} else if (!may_open_later(r)) {
			ev.sum.left += tier_set_volume_bytes(w->tiers, volume, ev.lineage);
			r = 0;
		}
		r = closing(&ev) ? -ECANCELED : r;
	}
	*ret = ev.sum;
	return r;
}
