/*
 * A sample of cached units, fetched from the origin once more and compared. A difference is one of
 * three: another version at the origin (its tag says so), bytes that rotted here (their checksum
 * says so), or an origin that changed an object under the same tag.
 *
 * Chosen without keeping a list: all units are counted, then walked again, each taken with the
 * probability of those still to take among those still to come (Knuth 3.4.2, algorithm S).
 */
#include "base/cleanup.h"
#include "base/log.h"
#include "base/piece.h"
#include "cacheworker/flight.h"
#include "cacheworker/scrub_internal.h"
#include "ufs/ufs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A unit, as far as it lies in its chunk. */
struct unit {
	struct chunk_id id;
	const struct table_row *row;
	uint64_t at;            /* volume offset */
	uint64_t object_offset; /* of `at` */
	uint32_t length;
};

struct sampling {
	struct scrub *scrub;
	struct scrub_tally *tally;
	const struct scrub_order *order;
	uint64_t total;
	uint64_t seen;
	uint64_t left; /* to take */
	uint8_t *piece;
	struct table_row row; /* scratch */
};

/* ---- walking --------------------------------------------------------------------------------- */

/* False ends the walk. */
typedef bool (*unit_fn)(struct sampling *sm, const struct unit *unit);

static bool walk_object(
	struct sampling *sm, const struct chunk_id *id, uint64_t at, uint64_t end, unit_fn fn)
{
	const struct table_row *row = &sm->row;

	while (at < end) {
		struct unit unit = { .id = *id, .row = row, .at = at };
		uint64_t start;
		uint32_t length;

		flight_unit_of(row, at, &start, &length, &unit.object_offset);
		unit.object_offset = at - row->offset;
		unit.length = (uint32_t)(min(start + length, end) - at);
		if (tier_chunk_holds(sm->scrub->worker->tiers, id,
			    (uint32_t)(at & (CHUNK_BYTES - 1)), unit.length) &&
			!fn(sm, &unit))
			return false;
		at += unit.length;
	}
	return true;
}

static bool walk_chunk(struct sampling *sm, const struct chunk_id *id, unit_fn fn)
{
	struct source *source = scrub_source(sm->scrub, id);
	uint64_t at = id->chunk * CHUNK_BYTES;
	const uint64_t end = at + CHUNK_BYTES;
	struct table *table;
	bool go_on = true;

	if (!source)
		return true;
	table = source_table(source);
	while (go_on && at < end && source_row_from(table, at, &sm->row) == 0 &&
		sm->row.offset < end) {
		uint64_t row_end = sm->row.offset + sm->row.size;

		if (!(sm->row.flags & ROW_DEAD))
			go_on = walk_object(sm, id, max(at, sm->row.offset), min(row_end, end), fn);
		at = align_up(row_end, BLOCK_BYTES);
	}
	table_unref(table);
	return go_on;
}

static bool walk(struct sampling *sm, unit_fn fn)
{
	struct chunk_id ids[SCRUB_BATCH];
	struct chunk_id after;
	bool first = true;
	uint32_t n;

	do {
		n = tier_set_list(
			sm->scrub->worker->tiers, first ? NULL : &after, false, ids, SCRUB_BATCH);
		for (uint32_t i = 0; i < n; i++) {
			if (sm->order->one_volume &&
				!volume_id_equal(&sm->order->volume, &ids[i].volume))
				continue;
			if (scrub_closing(sm->scrub) || !walk_chunk(sm, &ids[i], fn))
				return false;
		}
		if (n)
			after = ids[n - 1];
		first = false;
	} while (n);
	return true;
}

/* ---- fetching -------------------------------------------------------------------------------- */

struct again {
	struct ufs_get get;
	struct scrub *scrub;
	bool done; /* under scrub.lock; `wake` says so */
	int status;
};

static void on_done(struct ufs_get *get, int status, const struct err *e)
{
	struct again *a = container_of(get, struct again, get);
	struct scrub *s = a->scrub;

	(void)e;
	pthread_mutex_lock(&s->lock);
	a->done = true;
	a->status = status;
	pthread_cond_broadcast(&s->wake);
	pthread_mutex_unlock(&s->lock);
}

static void wait_for(struct scrub *s, struct ufs *ufs, struct again *a)
{
	bool cancelled = false;

	pthread_mutex_lock(&s->lock);
	while (!a->done) {
		if (!s->closing || cancelled) {
			pthread_cond_wait(&s->wake, &s->lock);
			continue;
		}
		cancelled = true;
		pthread_mutex_unlock(&s->lock); /* on_done() may follow at once */
		ufs_cancel(ufs, &a->get);
		pthread_mutex_lock(&s->lock);
	}
	pthread_mutex_unlock(&s->lock);
}

static bool take_memory(struct scrub *s, uint64_t bytes)
{
	while (!budget_take(&s->worker->memory, BUDGET_FILL, bytes))
		if (!scrub_sleep(s, 20 * CLOCK_MS))
			return false;
	return true;
}

/* The unit's bytes as the origin has them now, in scrub.unit. */
static int fetch_again(struct sampling *sm, const struct unit *unit)
{
	struct scrub *s = sm->scrub;
	struct source *source = scrub_source(s, &unit->id);
	struct ufs *ufs;
	struct again a = {
		.get = { .key = unit->row->key,
			.key_len = unit->row->key_len,
			.tag = unit->row->tag,
			.tag_len = unit->row->tag_len,
			.size = unit->row->size,
			.offset = unit->object_offset,
			.length = unit->length,
			.buf = s->unit,
			.class = UFS_FILL,
			.on_done = on_done },
		.scrub = s,
	};
	int r;

	if (!source)
		return -ESTALE;
	if (!take_memory(s, unit->length))
		return -ECANCELED;
	list_init(&a.get.link);
	ufs = source_ufs(source);
	r = ufs_get(ufs, &a.get);
	if (r == 0) {
		wait_for(s, ufs, &a);
		r = a.status;
	}
	budget_give(&s->worker->memory, unit->length);
	flight_memory_freed(s->worker);
	return r;
}

/* ---- comparing ------------------------------------------------------------------------------- */

static void note(struct sampling *sm, const struct unit *unit, enum scrub_finding_kind kind,
	const char *what)
{
	struct scrub_finding finding = { .kind = kind,
		.id = unit->id,
		.offset = (uint32_t)(unit->at & (CHUNK_BYTES - 1)),
		.length = unit->length };

	(void)snprintf(finding.key, sizeof(finding.key), "%.*s",
		(int)min(unit->row->key_len, SCRUB_NAME - 1u), unit->row->key); /* for people */
	LOG_LIMITED(LOG_WARN, "sample differs from the origin",
		"key=\"%s\" offset=%llu what=\"%s\"", finding.key,
		(unsigned long long)unit->object_offset, what);
	scrub_add_finding(sm->scrub, sm->tally, &finding);
}

static void count(struct sampling *sm, uint64_t *counted, uint64_t n)
{
	pthread_mutex_lock(&sm->scrub->lock);
	*counted += n;
	pthread_mutex_unlock(&sm->scrub->lock);
}

enum outcome { SAME, ROTTEN, OTHER_BYTES };

/* What is cached against scrub.unit. Reading checks it against its checksums first. */
static enum outcome compare(struct sampling *sm, const struct unit *unit, struct chunk *chunk)
{
	uint64_t seed = piece_object_seed(
		unit->row->key, unit->row->key_len, unit->row->tag, unit->row->tag_len);
	enum outcome outcome = SAME;

	for (uint32_t done = 0; done < unit->length; done += PIECE_BYTES) {
		struct piece_run run = {
			.offset = (uint32_t)((unit->at + done) & (CHUNK_BYTES - 1)),
			.length = min(unit->length - done, PIECE_BYTES),
			.object_seed = seed,
			.first_piece = (unit->object_offset + done) >> PIECE_BITS,
		};
		int r = chunk_read(chunk, &run, sm->piece);

		if (r == 0 && memcmp(sm->piece, (char *)sm->scrub->unit + done, run.length) != 0)
			return OTHER_BYTES;
		if (r < 0 && !chunk_present(chunk, run.offset, run.length)) {
			count(sm, &sm->tally->bad, 1);
			counter_add(&sm->scrub->worker->counters.scrub_bad, 1);
			outcome = ROTTEN;
		}
	}
	return outcome;
}

static bool all_but(void *arg, uint64_t chunk)
{
	return chunk != *(const uint64_t *)arg;
}

/* The cached bytes match their checksums and the origin has others under the same tag: its word
 * counts. The whole chunk goes, since bytes once published never change within a file. */
static void drop_chunk(struct sampling *sm, const struct unit *unit)
{
	uint64_t chunk = unit->id.chunk;

	(void)tier_set_drop(sm->scrub->worker->tiers, &unit->id.volume, unit->id.lineage, all_but,
		&chunk); /* bytes freed */
}

static void judge(struct sampling *sm, const struct unit *unit, struct chunk *chunk)
{
	enum outcome outcome = compare(sm, unit, chunk);

	if (outcome == OTHER_BYTES && fetch_again(sm, unit) == 0)
		outcome = compare(sm, unit, chunk); /* not a fault of one transfer */
	if (outcome == ROTTEN) {
		note(sm, unit, SCRUB_DAMAGED, "damaged here, dropped, fetched again");
		scrub_refetch(scrub_source(sm->scrub, &unit->id), unit->at, unit->length);
	} else if (outcome == OTHER_BYTES) {
		count(sm, &sm->tally->differ, 1);
		note(sm, unit, SCRUB_DIFFERS,
			"the origin has other bytes under the same tag, chunk dropped");
		drop_chunk(sm, unit);
	}
}

static bool check_unit(struct sampling *sm, const struct unit *unit)
{
	struct chunk *chunk = tier_chunk_find(sm->scrub->worker->tiers, &unit->id);
	int r = chunk ? fetch_again(sm, unit) : -ENODATA;

	if (r == 0) {
		judge(sm, unit, chunk);
		counter_add(&sm->scrub->worker->counters.revalidated, 1);
		count(sm, &sm->tally->sampled, 1);
	} else if (r == -ESTALE || r == -ENOENT) {
		count(sm, &sm->tally->sampled, 1);
		count(sm, &sm->tally->changed, 1);
		note(sm, unit, SCRUB_CHANGED, "the object was changed or removed at the origin");
	} else if (r != -ECANCELED) {
		count(sm, &sm->tally->failed, 1);
	}
	chunk_unref(chunk);
	return scrub_pace(sm->scrub, unit->length);
}

static bool count_unit(struct sampling *sm, const struct unit *unit)
{
	(void)unit;
	sm->total++;
	return true;
}

static bool choose_unit(struct sampling *sm, const struct unit *unit)
{
	uint64_t to_come = sm->total > sm->seen ? sm->total - sm->seen : 1;
	uint64_t random;

	sm->seen++;
	hash_random(&random, sizeof(random));
	if (random % to_come >= sm->left)
		return true;
	sm->left--;
	return check_unit(sm, unit) && sm->left > 0;
}

void scrub_sample(struct scrub *s, struct scrub_tally *tally, const struct scrub_order *order)
{
	struct sampling *sm = calloc(1, sizeof(*sm));

	if (!sm)
		return;
	sm->scrub = s;
	sm->tally = tally;
	sm->order = order;
	sm->piece = aligned_alloc(BLOCK_BYTES, PIECE_BYTES);
	if (sm->piece && walk(sm, count_unit)) {
		sm->left = order->sample_ratio > 0
				   ? (uint64_t)ceil((double)sm->total * order->sample_ratio - 1e-6)
				   : min(order->sample, sm->total);
		if (sm->left)
			(void)walk(sm, choose_unit); /* ended early: closing, or all taken */
	}
	free(sm->piece);
	free(sm);
}
