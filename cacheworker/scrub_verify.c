/* Reading a chunk against its checksums. See scrub_internal.h. */
#include "base/log.h"
#include "base/piece.h"
#include "cacheworker/scrub_internal.h"

#include <stdlib.h>
#include <string.h>

struct verify {
	struct scrub *scrub;
	struct scrub_tally *tally;
	struct source *source;
	struct chunk *chunk;
	struct table_row row; /* the object */
	uint64_t seed;
};

static uint32_t pieces_of(uint32_t length)
{
	return (length + PIECE_BYTES - 1) / PIECE_BYTES;
}

static struct piece_run run_at(const struct verify *v, uint64_t at, uint32_t length)
{
	return (struct piece_run){
		.offset = (uint32_t)(at & (CHUNK_BYTES - 1)),
		.length = length,
		.object_seed = v->seed,
		.first_piece = (at - v->row.offset) >> PIECE_BITS,
	};
}

/* Pieces of the run that are not there any more were dropped by reading them. */
static uint32_t count_dropped(const struct verify *v, const struct piece_run *run)
{
	uint32_t dropped = 0;

	for (uint32_t done = 0; done < run->length; done += PIECE_BYTES)
		dropped += !chunk_present(
			v->chunk, run->offset + done, min(run->length - done, PIECE_BYTES));
	return dropped;
}

static void found_damaged(struct verify *v, const struct piece_run *run, uint32_t dropped)
{
	struct scrub_finding finding = { .kind = SCRUB_DAMAGED,
		.id = *chunk_id_of(v->chunk),
		.offset = run->offset,
		.length = run->length };

	(void)snprintf(finding.key, sizeof(finding.key), "%.*s",
		(int)min(v->row.key_len, SCRUB_NAME - 1u), v->row.key); /* cut: for people */
	LOG_LIMITED(LOG_WARN, "scrub found damage",
		"key=\"%s\" chunk=%llu offset=%u pieces=%u next=\"dropped, fetched again\"",
		finding.key, (unsigned long long)finding.id.chunk, run->offset, dropped);
	counter_add(&v->scrub->worker->counters.scrub_bad, dropped);
	pthread_mutex_lock(&v->scrub->lock);
	v->tally->bad += dropped;
	pthread_mutex_unlock(&v->scrub->lock);
	scrub_add_finding(v->scrub, v->tally, &finding);
	if (!(v->row.flags & ROW_DEAD))
		scrub_refetch(v->source, finding.id.chunk * CHUNK_BYTES + run->offset, run->length);
}

/* Present pieces that follow one another, at most a unit. False when closing. */
static bool verify_run(struct verify *v, uint64_t at, uint32_t length)
{
	struct scrub *s = v->scrub;
	struct piece_run run = run_at(v, at, length);
	int r = chunk_read(v->chunk, &run, s->unit);
	uint32_t dropped = r < 0 ? count_dropped(v, &run) : 0;

	if (dropped)
		found_damaged(v, &run, dropped);
	v->tally->unread += r < 0 && dropped == 0; /* this thread's */
	if (r < 0 && dropped == 0 && chunk_is_dropped(v->chunk))
		return !scrub_closing(s); /* it was evicted or moved meanwhile */
	if (r < 0 && dropped == 0)        /* the tier is out or stalls: later */
		return scrub_sleep(s, CLOCK_SECOND);
	counter_add(&s->worker->counters.scrubbed_bytes, length);
	pthread_mutex_lock(&s->lock);
	v->tally->pieces += pieces_of(length);
	v->tally->bytes += length;
	pthread_mutex_unlock(&s->lock);
	return scrub_pace(s, length);
}

/* The bytes [at, end) of the object, which lie in the chunk and begin a piece. */
static bool verify_object(struct verify *v, uint64_t at, uint64_t end)
{
	bool go_on = true;

	while (go_on && at < end) {
		uint32_t n = 0;

		while (at + n < end && n < UNIT_BYTES) {
			uint32_t piece = (uint32_t)min(end - at - n, (uint64_t)PIECE_BYTES);

			if (!chunk_present(
				    v->chunk, (uint32_t)((at + n) & (CHUNK_BYTES - 1)), piece))
				break;
			n += piece;
		}
		if (n)
			go_on = verify_run(v, at, n);
		at += n;
		if (n < UNIT_BYTES)
			at += PIECE_BYTES; /* the one that is absent, or past the end */
	}
	return go_on;
}

static bool verify_rows(struct verify *v, struct table *table)
{
	uint64_t at = chunk_id_of(v->chunk)->chunk * CHUNK_BYTES;
	const uint64_t end = at + CHUNK_BYTES;
	bool go_on = true;

	while (go_on && at < end && source_row_from(table, at, &v->row) == 0 &&
		v->row.offset < end) {
		uint64_t row_end = v->row.offset + v->row.size;

		v->seed = piece_object_seed(v->row.key, v->row.key_len, v->row.tag, v->row.tag_len);
		go_on = verify_object(v, max(at, v->row.offset), min(row_end, end));
		at = align_up(row_end, BLOCK_BYTES);
	}
	return go_on;
}

bool scrub_verify_chunk(struct scrub *s, struct scrub_tally *tally, const struct chunk_id *id)
{
	struct verify *v = calloc(1, sizeof(*v));
	struct table *table;
	bool go_on = true;

	if (!v)
		return scrub_sleep(s, CLOCK_SECOND);
	v->scrub = s;
	v->tally = tally;
	v->source = scrub_source(s, id);
	v->chunk = tier_chunk_find(s->worker->tiers, id);
	pthread_mutex_lock(&s->lock);
	tally->chunks++;
	tally->unknown += !v->source;
	pthread_mutex_unlock(&s->lock);
	if (v->source && v->chunk) {
		table = source_table(v->source);
		go_on = verify_rows(v, table);
		table_unref(table);
	}
	chunk_unref(v->chunk);
	free(v);
	return go_on && !scrub_closing(s);
}
