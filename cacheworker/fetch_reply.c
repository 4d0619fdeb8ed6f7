/*
 * Answers to readers: a descriptor, a unit that lies in memory, or bytes that are gathered, each
 * with the checksum of every piece that they touch. See fetch.c.
 */
#include "cacheworker/fetch_internal.h"
#include "cacheworker/duty.h"
#include "cacheworker/holds.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/piece.h"
#include "cacheworker/tier_call.h"
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
	atomic_fetch_sub(&out->worker->answers, 1);
	herds_leave(out->ticket, true);
	pipes_give(&out->worker->pipes, out->pipe);
	buffers_give(&out->worker->buffers, out->data, out->length);
	free(out);
}

static void reply_range(struct frame *reply, const struct fetch *fetch)
{
	const struct frame *asked = &fetch->request->frame;

	*reply = (struct frame){ .offset = asked->offset,
		.length = asked->length,
		.generation = asked->generation,
		.flags = fetch->moved ? FRAME_MOVED : 0 };
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
	r = tier_call_open_fd(fetch->worker, chunk, &payload.fd);
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
	reply.flags |= FRAME_LOCAL;
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

/* Bytes of a flight to a reader. */
static void note_given(
	struct source *source, const struct flight *flight, uint32_t bytes, bool read)
{
	if (read)
		counter_add(flight->pulled ? &source->use.peer_bytes : &source->use.origin_bytes,
			bytes);
}

static void note_tier(struct gathered *to, uint64_t bytes)
{
	counter_add(&to->worker->counters.hit_bytes, bytes);
	if (to->read)
		counter_add(&to->source->use.tier_bytes, bytes);
}

/* For the cluster's eyes. */
static void note_served(const struct fetch *fetch)
{
	const struct frame *frame = &fetch->request->frame;

	member_note_served(fetch->worker, worker_slot(&frame->volume, frame->offset >> CHUNK_BITS),
		frame->length);
}

/* The checksums of the pieces that a span touches, all of which have landed. */
static void copy_sums(const struct span *span, const struct flight *flight, uint64_t *sums)
{
	uint64_t end = span->object_offset + span->length;
	uint64_t at = align_down(span->object_offset, PIECE_BYTES);

	for (; at < end; at += PIECE_BYTES)
		*sums++ = htole64(flight->sums[(at - flight->object_offset) / PIECE_BYTES]);
}

/* The references that a reply out of a unit's memory has until it is sent. */
struct reply_owner {
	struct flight *flight;
	struct herd_ticket *ticket;
	uint64_t sums[];
};

static void release_owner(void *arg)
{
	struct reply_owner *owner = arg;

	flight_unref(owner->flight);
	herds_leave(owner->ticket, true);
	free(owner);
}

/* A request that waited for the flight ends: what it was spent on. */
static void note_parts(struct fetch *fetch, struct flight *f)
{
	uint64_t now = clock_mono_ns();
	uint64_t at = fetch->began_ns;
	counter_t *ns = fetch->worker->waits.ns[histogram_bucket(now - at)];
	struct flight_times times;

	pthread_mutex_lock(&fetch->worker->flights.lock);
	times = f->times;
	pthread_mutex_unlock(&fetch->worker->flights.lock);
	if (!times.sent_ns || !fetch_counts(fetch)) /* it was no GET of its own */
		return;
	const uint64_t ends[N_WAIT_PARTS] = { [WAIT_PLAN] = fetch->wanted_ns,
		[WAIT_QUEUE] = times.sent_ns,
		[WAIT_FIRST_BYTE] = times.first_ns,
		[WAIT_BODY] = times.landed_ns ? times.landed_ns : now, /* a part is there */
		[WAIT_REPLY] = now };

	for (unsigned int part = 0; part < N_WAIT_PARTS; part++) {
		bool is_origins = part > WAIT_PLAN && part < WAIT_JOINED;
		uint64_t end = max(ends[part], at);

		counter_add(&ns[times.joined && is_origins ? WAIT_JOINED : part], end - at);
		at = end;
	}
}

/* One unit in memory: its bytes go out as they lie there. */
void fetch_reply_flight(struct fetch *fetch)
{
	struct span *span = &fetch->spans[0];
	size_t sums_bytes = fetch->n_sums * sizeof(uint64_t);
	struct reply_owner *owner = malloc(sizeof(*owner) + sums_bytes);
	struct net_payload payload = NET_PAYLOAD_NONE;
	struct frame reply;

	if (!owner) {
		fetch_fail(fetch, -ENOMEM, NULL);
		return;
	}
	owner->flight = TAKE(span->wait.flight);
	owner->ticket = TAKE(fetch->ticket);
	copy_sums(span, owner->flight, owner->sums);
	reply_range(&reply, fetch);
	reply.checksums = (uint16_t)fetch->n_sums; /* of a chunk at most */
	payload.parts[0].data = owner->flight->data + (span->at - owner->flight->start);
	payload.parts[0].len = span->length;
	payload.parts[1].data = zeros;
	payload.parts[1].len = fetch->request->frame.length - span->length;
	payload.parts[2].data = owner->sums;
	payload.parts[2].len = sums_bytes;
	payload.n = 3;
	payload.release = release_owner;
	payload.arg = owner;
	note_given(fetch->source, owner->flight, span->length, fetch_counts(fetch));
	note_served(fetch);
	note_parts(fetch, owner->flight);
	fetch_note_end(fetch, &fetch->worker->histograms.origin);
	rpc_reply(fetch_end(fetch), 0, &reply, payload);
}

/* What no object has of the range; of whole spans the rest of their last block, too. */
static void zero_gaps(struct gathered *to, const struct span *spans, uint32_t n)
{
	uint64_t at = to->offset;

	for (uint32_t i = 0; i < n; i++) {
		memset(to->data + (at - to->offset), 0, spans[i].at - at);
		at = spans[i].at + spans[i].length;
	}
	memset(to->data + (at - to->offset), 0, to->offset + to->length - at);
}

int fetch_make_head(struct fetch *fetch, enum budget_class class, uint32_t length)
{
	struct worker *w = fetch->worker;
	uint64_t head = sizeof(*fetch->out) + fetch->n_sums * sizeof(uint64_t);
	uint64_t bytes = head + length;

	if (!budget_take(&w->gathered, class, bytes))
		return -EAGAIN;
	fetch->out = calloc(1, head);
	if (!fetch->out) {
		budget_give(&w->gathered, bytes);
		return -ENOMEM;
	}
	atomic_fetch_add(&w->answers, 1);
	fetch->out->worker = w;
	fetch->out->source = fetch->source;
	fetch->out->bytes = bytes;
	fetch->out->offset = fetch->request->frame.offset;
	fetch->out->length = fetch->request->frame.length;
	fetch->out->read = fetch_counts(fetch);
	return 0;
}

/*
 * -EAGAIN when the budget is used up: the reader asks again. Whoever has its memory waits for units
 * at most, which never wait for this budget: no two can hold each other up.
 */
int fetch_make_out(struct fetch *fetch, enum budget_class class)
{
	uint32_t length = fetch->request->frame.length;
	struct buffers *buffers = &fetch->worker->buffers;
	char *data = buffers_take(buffers, length);
	int r = data ? fetch_make_head(fetch, class, length) : -ENOMEM;

	if (r < 0) {
		buffers_give(buffers, data, length);
		return r;
	}
	fetch->out->data = data;
	zero_gaps(fetch->out, fetch->spans, fetch->n_spans);
	return 0;
}

static char *out_of_span(struct gathered *to, const struct span *span, uint64_t **ret_sums)
{
	*ret_sums = to->sums + span->first_sum;
	return to->data + (span->at - to->offset);
}

void fetch_copy_flight(struct gathered *to, const struct span *span)
{
	const struct flight *flight = span->wait.flight;
	uint64_t *sums;
	char *out = out_of_span(to, span, &sums);

	memcpy(out, flight->data + (span->at - flight->start), span->length);
	note_given(to->source, flight, span->length, to->read);
	copy_sums(span, flight, sums);
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
	note_tier(to, span->length);
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

/* The checksums of a span's pieces as the piece table has them; the span begins and ends with one. */
static bool sums_of_span(const struct span *span, const struct chunk_sum *table, uint64_t *ret_sums)
{
	uint64_t end = span->object_offset + span->length;

	if (span->object_offset % PIECE_BYTES || (end % PIECE_BYTES && end != span->object_size))
		return false;
	for (uint32_t done = 0; done < span->length; done += PIECE_BYTES) {
		const struct chunk_sum *sum = &table[done / BLOCK_BYTES];

		if (sum->length != min(span->length - done, PIECE_BYTES))
			return false;
		*ret_sums++ = htole64(sum->sum);
	}
	return true;
}

bool fetch_take_sums(
	struct gathered *to, const struct span *spans, uint32_t n, const struct chunk_sum *table)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < n; i++) {
		const struct span *span = &spans[i];

		if (!sums_of_span(span, &table[(span->at - to->offset) / BLOCK_BYTES],
			    to->sums + span->first_sum))
			return false;
		bytes += span->length;
	}
	note_tier(to, bytes);
	return true;
}

/* All of it is in the tier: as it is stored there, with the checksums that are stored next to it, which the
 * receiver of both compares. False: piece by piece, then. */
static bool compose_blocks(
	struct composition *c, int (*read)(struct chunk *chunk, uint32_t offset, uint32_t length,
				       void *out, struct chunk_sum *sums))
{
	struct chunk_sum table[LIMIT_PAYLOAD_BYTES / BLOCK_BYTES];
	struct gathered *to = c->out;
	uint32_t offset = (uint32_t)(to->offset & (CHUNK_BYTES - 1));
	bool whole;

	for (uint32_t i = 0; i < c->n_spans; i++)
		if (c->spans[i].wait.flight || c->spans[i].copied)
			return false;
	whole = c->chunk && read(c->chunk, offset, to->length, to->data, table) == 0 &&
		fetch_take_sums(to, c->spans, c->n_spans, table);
	zero_gaps(
		to, c->spans, c->n_spans); /* also when some was read: it may be of other tenants */
	return whole;
}

static int composition_run(void *arg)
{
	_cleanup_free_ char *piece = NULL;
	struct composition *c = arg;
	int r;

	if (compose_blocks(c, chunk_read_blocks))
		return 0;
	piece = malloc(PIECE_BYTES);
	r = piece ? 0 : -ENOMEM;
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
	int r;

	if (fetch_zero_copy(fetch))
		return 0;
	r = fetch->out ? 0 : fetch_make_out(fetch, BUDGET_DEMAND);
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
	/* What lies in memory is no matter for another thread, which would cost more than it takes. */
	if (in_memory(c))
		r = composition_run(c);
	else if (!compose_blocks(c, chunk_read_blocks_now))
		r = tier_call(fetch->worker, composition_run, composition_free, c);
	if (r == -ETIMEDOUT)
		return r;
	fetch->spans = TAKE(c->spans);
	fetch->n_spans = c->n_spans;
	fetch->out = TAKE(c->out);
	c->n_spans = 0;
	composition_free(c);
	return r;
}

void fetch_reply_out(struct fetch *fetch)
{
	struct net_payload payload = NET_PAYLOAD_NONE;
	struct frame reply;

	reply_range(&reply, fetch);
	reply.checksums = (uint16_t)fetch->n_sums; /* of a chunk at most */
	payload.parts[0].len = reply.length;
	payload.parts[0].data = fetch->out->data;
	payload.pipe = fetch->out->pipe.out;
	payload.parts[1].len = fetch->n_sums * sizeof(uint64_t);
	payload.parts[1].data = fetch->out->sums;
	fetch->out->ticket = TAKE(fetch->ticket);
	payload.arg = TAKE(fetch->out);
	payload.n = 2;
	payload.release = fetch_gathered_free;
	note_served(fetch);
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
		fetch_reply_out(fetch);
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
