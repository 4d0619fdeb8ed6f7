/*
 * Answers to readers: a descriptor, a unit that lies in memory, or bytes that are gathered, each
 * with the checksum of every piece that they touch. See fetch.c.
 */
#include "cacheworker/fetch_internal.h"
#include "cacheworker/guard.h"
#include "cacheworker/holds.h"
#include "base/cleanup.h"
#include "base/piece.h"
#include "proto/held.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FETCH_ATTEMPTS 3u

static const uint8_t zeros[BLOCK_BYTES];

void fetch_gathered_free(void *arg)
{
	struct gathered *out = arg;

	if (!out)
		return;
	budget_give(&out->worker->gathered, out->bytes);
	free(out);
}

static void reply_range(struct frame *reply, const struct fetch *fetch)
{
	const struct frame *asked = &fetch->request->frame;

	*reply = (struct frame){
		.offset = asked->offset, .length = asked->length, .generation = asked->generation
	};
}

/* Everything is in one file of the tier: its descriptor and the chunk's presence bits. */
int fetch_reply_local(struct fetch *fetch, struct chunk *chunk)
{
	struct net_payload payload = NET_PAYLOAD_NONE;
	struct frame reply;
	uint8_t *bitmap = malloc(CHUNK_BITMAP_BYTES + HELD_ENTRY_BYTES);
	uint64_t hold;
	int r;

	if (!bitmap)
		return -ENOMEM;
	chunk_bitmap(chunk, bitmap);
	r = guard_open_fd(fetch->worker, chunk, &payload.fd);
	if (r < 0) {
		free(bitmap);
		return r;
	}
	hold = holds_give(fetch->worker, fetch->request, chunk);
	if (!hold) {                     /* too many: the bytes, then */
		(void)close(payload.fd); /* only read from */
		free(bitmap);
		return -ENOBUFS;
	}
	held_put(bitmap + CHUNK_BITMAP_BYTES, 0, held_entry(hold, false));
	reply_range(&reply, fetch);
	reply.flags = FRAME_LOCAL;
	reply.extent = chunk_extent_bytes(chunk);
	payload.parts[0].data = bitmap;
	payload.parts[0].len = CHUNK_BITMAP_BYTES + HELD_ENTRY_BYTES;
	payload.n = 1;
	payload.release = free;
	payload.arg = bitmap;
	if (fetch->source) /* of FRAME_FILE it is not known */
		counter_add(&fetch->source->use.file_bytes, reply.length);
	fetch_note_end(fetch, &fetch->worker->histograms.file);
	rpc_reply(fetch_end(fetch), 0, &reply, payload);
	return 0;
}

static uint64_t piece_sum(const struct span *span, uint64_t number, const char *data, size_t len)
{
	return htole64(hash_xxh3(data, len, piece_seed(span->object_seed, number)));
}

/* The checksums of the pieces that a span touches, of which the flight has all bytes. */
static void sum_flight(const struct span *span, const struct flight *flight, uint64_t *sums)
{
	uint64_t end = span->object_offset + span->length;
	uint64_t at = align_down(span->object_offset, PIECE_BYTES);

	for (; at < end; at += PIECE_BYTES) {
		uint64_t in_unit = at - flight->object_offset;

		*sums++ = piece_sum(span, at >> PIECE_BITS, flight->data + in_unit,
			min((uint64_t)PIECE_BYTES, flight->length - in_unit));
	}
}

/* What an answer out of a unit's memory holds on to. */
struct lent {
	struct flight *flight;
	uint64_t sums[];
};

static void release_lent(void *arg)
{
	struct lent *lent = arg;

	flight_unref(lent->flight);
	free(lent);
}

/* One unit in memory: its bytes go out as they lie there. */
void fetch_reply_flight(struct fetch *fetch)
{
	struct span *span = &fetch->spans[0];
	size_t sums_bytes = fetch->n_sums * sizeof(uint64_t);
	struct lent *lent = malloc(sizeof(*lent) + sums_bytes);
	struct net_payload payload = NET_PAYLOAD_NONE;
	struct frame reply;

	if (!lent) {
		fetch_fail(fetch, -ENOMEM, NULL);
		return;
	}
	lent->flight = TAKE(span->wait.flight);
	sum_flight(span, lent->flight, lent->sums);
	reply_range(&reply, fetch);
	reply.checksums = fetch->n_sums;
	payload.parts[0].data = lent->flight->data + (span->at - lent->flight->start);
	payload.parts[0].len = span->length;
	payload.parts[1].data = zeros;
	payload.parts[1].len = fetch->request->frame.length - span->length;
	payload.parts[2].data = lent->sums;
	payload.parts[2].len = sums_bytes;
	payload.n = 3;
	payload.release = release_lent;
	payload.arg = lent;
	counter_add(&fetch->source->use.origin_bytes, span->length);
	fetch_note_end(fetch, &fetch->worker->histograms.origin);
	rpc_reply(fetch_end(fetch), 0, &reply, payload);
}

/*
 * -EAGAIN when the budget is used up: the reader asks again. Whoever has its memory waits for units
 * at most, which never wait for this budget: no two can hold each other up.
 */
int fetch_make_out(struct fetch *fetch)
{
	struct worker *w = fetch->worker;
	uint64_t bytes = sizeof(*fetch->out) + fetch->request->frame.length +
			 fetch->n_sums * sizeof(uint64_t);

	if (!budget_take(&w->gathered, BUDGET_DEMAND, bytes))
		return -EAGAIN;
	fetch->out = calloc(1, bytes);
	if (!fetch->out) {
		budget_give(&w->gathered, bytes);
		return -ENOMEM;
	}
	fetch->out->worker = w;
	fetch->out->source = fetch->source;
	fetch->out->bytes = bytes;
	fetch->out->offset = fetch->request->frame.offset;
	fetch->out->length = fetch->request->frame.length;
	return 0;
}

static char *out_of_span(struct gathered *to, const struct span *span, uint64_t **ret_sums)
{
	char *data = (char *)to->data;

	/* Whole blocks, so the checksums behind them are aligned. */
	*ret_sums = (uint64_t *)(void *)(data + to->length) + span->first_sum;
	return data + (span->at - to->offset);
}

void fetch_copy_flight(struct gathered *to, const struct span *span)
{
	const struct flight *flight = span->wait.flight;
	uint64_t *sums;
	char *out = out_of_span(to, span, &sums);

	memcpy(out, flight->data + (span->at - flight->start), span->length);
	counter_add(&to->source->use.origin_bytes, span->length);
	sum_flight(span, flight, sums);
}

/* Copies a span out of the tier, piece by piece, each checked. `piece` holds PIECE_BYTES. */
static int read_span(struct gathered *to, const struct span *span, struct chunk *chunk, char *piece)
{
	uint64_t *sums;
	char *out = out_of_span(to, span, &sums);
	uint32_t done = 0;

	while (done < span->length) {
		uint64_t in_object = span->object_offset + done;
		uint32_t skip = (uint32_t)(in_object & (PIECE_BYTES - 1));
		struct piece_run run = {
			.offset = (uint32_t)((span->at + done - skip) & (CHUNK_BYTES - 1)),
			.length = (uint32_t)min(
				(uint64_t)PIECE_BYTES, span->object_size - (in_object - skip)),
			.object_seed = span->object_seed,
			.first_piece = in_object >> PIECE_BITS,
		};
		uint32_t n = min(run.length - skip, span->length - done);
		int r = chunk ? chunk_read(chunk, &run, piece) : -ENODATA;

		if (r < 0)
			return r;
		memcpy(out + done, piece + skip, n);
		*sums++ = piece_sum(span, run.first_piece, piece, run.length);
		done += n;
	}
	counter_add(&to->worker->counters.hit_bytes, span->length);
	counter_add(&to->source->use.tier_bytes, span->length);
	return 0;
}

struct chunk *fetch_find_chunk(struct fetch *fetch, uint64_t at)
{
	struct chunk_id id = { .volume = fetch->source->volume,
		.lineage = fetch->source->lineage,
		.chunk = at >> CHUNK_BITS };

	return tier_chunk_find(fetch->worker->tiers, &id);
}

/* What the bytes of an answer are put together from, apart from the fetch: when the disk hangs they
 * stay with the call, and the fetch goes on without them. */
struct composition {
	struct chunk *chunk; /* referenced, or NULL */
	struct span *spans;
	uint32_t n_spans;
	struct gathered *out;
};

static void composition_free(void *arg)
{
	struct composition *c = arg;

	for (uint32_t i = 0; i < c->n_spans; i++)
		flight_unref(c->spans[i].wait.flight);
	fetch_spans_free(c->spans);
	fetch_gathered_free(c->out);
	chunk_unref(c->chunk);
	free(c);
}

static int composition_run(void *arg)
{
	_cleanup_free_ char *piece = malloc(PIECE_BYTES);
	struct composition *c = arg;
	int r = piece ? 0 : -ENOMEM;

	for (uint32_t i = 0; i < c->n_spans && r == 0; i++) {
		const struct span *span = &c->spans[i];

		if (span->wait.flight)
			fetch_copy_flight(c->out, span);
		else if (!span->copied)
			r = read_span(c->out, span, c->chunk, piece);
	}
	return r;
}

/* Every span is a unit in memory: no disk is waited for. */
static bool in_memory(const struct composition *c)
{
	for (uint32_t i = 0; i < c->n_spans; i++)
		if (!c->spans[i].wait.flight && !c->spans[i].copied)
			return false;
	return true;
}

static int compose(struct fetch *fetch)
{
	struct composition *c;
	int r = fetch->out ? 0 : fetch_make_out(fetch);

	if (r < 0)
		return r;
	c = calloc(1, sizeof(*c));
	if (!c)
		return -ENOMEM;
	c->chunk = fetch_find_chunk(fetch, fetch->request->frame.offset);
	c->spans = TAKE(fetch->spans);
	c->n_spans = fetch->n_spans;
	c->out = TAKE(fetch->out);
	fetch->n_spans = 0;
	r = in_memory(c) ? composition_run(c)
			 : guard_call(fetch->worker, composition_run, composition_free, c);
	if (r == -ETIMEDOUT)
		return r;
	fetch->spans = TAKE(c->spans);
	fetch->n_spans = c->n_spans;
	fetch->out = TAKE(c->out);
	c->n_spans = 0;
	composition_free(c);
	return r;
}

static void reply_out(struct fetch *fetch)
{
	struct net_payload payload = NET_PAYLOAD_NONE;
	struct frame reply;

	reply_range(&reply, fetch);
	reply.checksums = fetch->n_sums;
	payload.parts[0].len = reply.length + fetch->n_sums * sizeof(uint64_t);
	payload.parts[0].data = fetch->out->data;
	payload.arg = TAKE(fetch->out);
	payload.n = 1;
	payload.release = fetch_gathered_free;
	fetch_note_end(fetch, fetch->waited ? &fetch->worker->histograms.origin
					    : &fetch->worker->histograms.tier);
	rpc_reply(fetch_end(fetch), 0, &reply, payload);
}

/* Gathers a range that lies in several units, or in a tier for a reader elsewhere. */
void fetch_run_compose(struct pool_job *job)
{
	struct fetch *fetch = container_of(job, struct fetch, job);
	int r = fetch->request->cancelled ? -ECANCELED : compose(fetch);

	if (r == 0) {
		reply_out(fetch);
		return;
	}
	/*
	 * What was damaged or not to be read is absent now: planned again, it comes from the
	 * origin. Whatever else ails the tier (read-only, out of service) is none of the reader's
	 * business.
	 */
	if (r != -ECANCELED && r != -ENOMEM && r != -EAGAIN && ++fetch->attempts < FETCH_ATTEMPTS) {
		fetch->passed_by =
			(r != -EBADMSG && r != -ENODATA) || fetch->attempts + 1 == FETCH_ATTEMPTS;
		fetch_drop_spans(fetch);
		fetch_run_plan(&fetch->job);
		return;
	}
	fetch_fail(fetch, r, NULL);
}
