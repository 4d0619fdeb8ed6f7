/* The rest of extents, from who owns it. See promote.h. */
#include "cacheworker/promote.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "cacheworker/duty.h"
#include "cacheworker/fill.h"
#include "cacheworker/flight.h"
#include "cacheworker/source.h"

#include <stdlib.h>

#define STEP_UNITS  2048u
#define STEP_BYTES  (256ull << 20)
#define STEP_MISSES 16u /* owners that have not got one, in a row */
#define PROBE_NS    CLOCK_SECOND
#define STEP_NS     (5 * CLOCK_SECOND)
#define HERE_SHARE  2u /* of an extent that must be here */

struct missing {
	uint64_t start;
	uint32_t length;
};

struct step {
	struct worker *worker;
	struct source *source;
	struct table *table;
	uint64_t named; /* bytes of living objects in the extent */
	uint64_t here;
	struct missing *missing; /* of chunks that others own */
	uint32_t n;
	uint64_t bytes; /* of these */
};

/* With a table; it lives until the worker closes. */
static struct source *find_source(
	struct worker *w, const struct volume_id *volume, uint64_t lineage)
{
	struct source *found = NULL;

	pthread_mutex_lock(&w->sources.lock);
	list_for_each (node, &w->sources.all) {
		struct source *source = list_entry(node, struct source, link);

		if (source->table && source->lineage == lineage &&
			volume_id_equal(&source->volume, volume))
			found = source;
	}
	pthread_mutex_unlock(&w->sources.lock);
	return found;
}

static void look_at_unit(struct step *s, uint64_t start, uint32_t length)
{
	s->named += length;
	if (flight_unit_held(s->source, start, length)) {
		s->here += length;
		return;
	}
	if (s->n == STEP_UNITS || s->bytes >= STEP_BYTES ||
		worker_class(s->worker, &s->source->volume, start >> CHUNK_BITS) == TIER_OWNED)
		return;
	s->missing[s->n++] = (struct missing){ start, length };
	s->bytes += length;
}

static int look_at_extent(struct step *s, uint64_t at, uint64_t end, const _Atomic bool *stop)
{
	_cleanup_free_ struct table_row *row = malloc(sizeof(*row));
	int r = row ? 0 : -ENOMEM;

	while (r == 0 && at < end && !atomic_load(stop) &&
		(r = source_row_from(s->table, at, row)) == 0 && row->offset < end) {
		uint64_t object_offset;
		uint64_t start;
		uint32_t length;

		flight_unit_of(row, max(at, row->offset), &start, &length, &object_offset);
		if (!(row->flags & ROW_DEAD))
			look_at_unit(s, start, length);
		at = align_up(start + length, BLOCK_BYTES);
	}
	return r == -ENOENT ? 0 : r;
}

/* Has its owner this unit? He is asked for its first block, which causes nothing. */
static bool owner_has(const struct step *s, const struct missing *m)
{
	struct worker *w = s->worker;
	struct rpc_call call = {
		.frame = { .op = FRAME_FETCH_CACHED,
			.class = FRAME_FILL,
			.volume = s->source->volume,
			.lineage = s->source->lineage,
			.generation = table_info(s->table)->id.generation,
			.extent = PLACEMENT_NONE,
			.offset = m->start,
			.length = BLOCK_BYTES },
		.payload = NET_PAYLOAD_NONE,
		.deadline_ns = clock_mono_ns() + PROBE_NS,
		.reply_fd = -1,
	};
	struct view_candidates c;
	struct view_peer *peer;
	int r;

	view_find(w->view, placement_volume_hash(&s->source->volume), m->start >> CHUNK_BITS, &c);
	peer = c.owner == PLACEMENT_NONE ? NULL : view_peer(w->view, c.owner);
	if (!peer || peer->self || !peer->rpc || !view_usable(w->view, peer))
		return false;
	r = rpc_call_wait(peer->rpc, &call, NULL);
	rpc_call_release(&call);
	return r == 0;
}

static uint64_t ask_for_rest(struct step *s, const _Atomic bool *stop)
{
	uint64_t until = clock_mono_ns() + STEP_NS;
	uint32_t misses = 0;
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < s->n && misses < STEP_MISSES && clock_mono_ns() < until; i++) {
		const struct missing *m = &s->missing[i];

		if (atomic_load(stop))
			break;
		if (!owner_has(s, m)) {
			misses++;
			continue;
		}
		misses = 0;
		if (fill_exact(s->source, m->start, (uint32_t)align_up(m->length, BLOCK_BYTES)) < 0)
			break; /* too much is announced already: with the next step */
		bytes += m->length;
	}
	return bytes;
}

uint64_t promote_step(struct worker *w, const struct volume_id *volume, uint64_t lineage,
	uint64_t *at, const _Atomic bool *stop)
{
	struct step s = { .worker = w, .source = find_source(w, volume, lineage) };
	uint64_t bytes = 0;
	uint64_t extent;
	uint64_t end;

	if (!s.source)
		return 0;
	s.missing = calloc(STEP_UNITS, sizeof(*s.missing));
	if (!s.missing)
		return 0;
	s.table = source_table(s.source);
	end = table_info(s.table)->end;
	extent = layout_extent_bytes(end);
	if (*at * extent >= end)
		*at = 0;
	if (look_at_extent(&s, *at * extent, min((*at + 1) * extent, end), stop) == 0 &&
		s.here >= s.named / HERE_SHARE)
		bytes = ask_for_rest(&s, stop);
	++*at;
	table_unref(s.table);
	free(s.missing);
	return bytes;
}
