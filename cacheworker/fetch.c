/*
 * Requests of readers, from arrival to reply.
 *
 *	ARRIVED ─► SOURCE (parked until the table is there) ─► PLAN (serve pool)
 *	PLAN ─┬─ all present ─► LOCAL, or COMPOSE from the tier ─► reply
 *	      └─ absent ─► WAITING on flights ─► one unit: reply from its memory
 *	                                      └► several: COMPOSE ─► reply
 *	COMPOSE ─ a piece was damaged ─► PLAN, at most FETCH_ATTEMPTS times; when the tier has
 *	          nothing but errors, as if nothing were present
 *
 * Bytes are answered with the checksum of every piece they touch. A fetch of several units copies
 * each as it lands and lets go of it: it never holds one unit's memory while it waits for
 * another's.
 */
#include "cacheworker/fetch.h"
#include "cacheworker/fill.h"
#include "cacheworker/flight.h"
#include "cacheworker/handout.h"
#include "cacheworker/holds.h"
#include "cacheworker/seal.h"
#include "cacheworker/terms.h"
#include "cacheworker/guard.h"
#include "base/arena.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/piece.h"
#include "proto/held.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FETCH_MAGIC    0x66657463u
#define FETCH_ATTEMPTS 3u

/* Bytes of one unit inside the range asked for. */
struct span {
	struct flight_wait wait; /* flight set: the bytes come from it; else from the tier */
	bool copied;             /* they are in fetch->out already */
	struct fetch *fetch;
	uint64_t at;            /* volume offset of the first byte wanted */
	uint32_t length;        /* bytes of the object wanted */
	uint64_t object_offset; /* of `at` in its object */
	uint64_t object_size;
	uint64_t object_seed;
	uint32_t first_sum; /* place of its first piece among the answer's checksums */
};

struct gathered;

struct fetch {
	uint32_t magic;
	struct worker *worker;
	struct rpc_request *request;
	struct source_wait source_wait;
	struct source *source;
	struct pool_job job;
	struct span *spans;
	uint32_t n_spans;
	uint32_t n_sums;      /* pieces that the spans touch */
	struct gathered *out; /* the range and the checksums behind it, when it is gathered */
	unsigned int attempts;
	bool passed_by;       /* the tier cannot be read: all comes from the origin */
	bool waited;          /* for the origin */
	_Atomic bool starved; /* what it waited for had no memory */
	uint64_t began_ns;
	uint64_t planned_ns; /* its source was known; 0: not yet */
	/* Under `lock`: flights still awaited, plus one while they are being joined; whoever brings
	 * it to 0 goes on. */
	pthread_mutex_t lock;
	unsigned int awaited;
	bool waiting; /* every flight is joined; spans stay as they are until awaited is 0 */
	bool cancelled;
	int status;
	struct err err;
};

static const uint8_t zeros[BLOCK_BYTES];

static void run_plan(struct pool_job *job);
static void run_compose(struct pool_job *job);

/* Memory that a reply is gathered in, out of a budget of its own. */
struct gathered {
	struct worker *worker;
	struct source *source;
	uint64_t bytes;  /* taken from the budget */
	uint64_t offset; /* of the range in the volume */
	uint32_t length; /* the checksums lie behind it */
	uint64_t data[];
};

static void gathered_free(void *arg)
{
	struct gathered *out = arg;

	if (!out)
		return;
	budget_give(&out->worker->gathered, out->bytes);
	free(out);
}

/* Counted with the requests: past what those may have, fewer of them are read. */
struct span_block {
	uint64_t bytes;
	struct span spans[];
};

static struct span *spans_new(uint32_t n)
{
	uint64_t bytes = sizeof(struct span_block) + n * sizeof(struct span);
	struct span_block *block = calloc(1, bytes);

	if (!block)
		return NULL;
	block->bytes = bytes;
	arena_must(ARENA_CONNECTIONS, bytes);
	return block->spans;
}

static void spans_free(struct span *spans)
{
	struct span_block *block;

	if (!spans)
		return;
	block = container_of(spans, struct span_block, spans);
	arena_give(ARENA_CONNECTIONS, block->bytes);
	free(block);
}

static void drop_spans(struct fetch *fetch)
{
	for (uint32_t i = 0; i < fetch->n_spans; i++)
		flight_unref(fetch->spans[i].wait.flight);
	spans_free(TAKE(fetch->spans));
	gathered_free(TAKE(fetch->out));
	fetch->n_spans = 0;
	fetch->n_sums = 0;
}

/* What a request that took long waited for. */
static enum stall stall_of(const struct fetch *fetch, uint64_t now)
{
	uint64_t planned = fetch->planned_ns ? fetch->planned_ns : now;

	if (planned - fetch->began_ns > (now - fetch->began_ns) / 2)
		return STALL_MASTER;
	if (!fetch->waited)
		return STALL_DISK;
	return fetch->starved ? STALL_MEMORY : STALL_ORIGIN;
}

/* It ends now, with an answer that `h` (NULL: none) has the times of. */
static void note_end(struct fetch *fetch, struct histogram *h)
{
	struct worker_stalls *stalls = &fetch->worker->stalls;
	uint64_t now = clock_mono_ns();
	uint64_t took = now - fetch->began_ns;

	if (h)
		histogram_note(h, took);
	if (took > STALL_NS && !fetch->request->cancelled) {
		enum stall stall = stall_of(fetch, now);

		counter_add(&stalls->times[stall], 1);
		counter_add(&stalls->ns[stall], took);
	}
}

/* Unlinks the fetch from its request; on_cancel() finds it no more. The request is still to be
 * replied to. */
static struct rpc_request *fetch_end(struct fetch *fetch)
{
	struct rpc_request *request = fetch->request;

	pthread_mutex_lock(&fetch->worker->fetch_lock);
	request->priv = NULL;
	pthread_mutex_unlock(&fetch->worker->fetch_lock);
	drop_spans(fetch);
	pthread_mutex_destroy(&fetch->lock);
	fetch->magic = 0;
	free(fetch);
	return request;
}

static void fetch_fail(struct fetch *fetch, int status, const struct err *e)
{
	struct err copy = ERR_INIT; /* e may lie in the fetch */

	if (e && e->code)
		copy = *e;
	else
		(void)err_set(&copy, status, "%s", err_str(status)); /* returns status */
	note_end(fetch, NULL);
	rpc_reply_err(fetch_end(fetch), status, &copy);
}

static void submit(struct fetch *fetch, void (*run)(struct pool_job *job))
{
	int r;

	fetch->job.run = run;
	r = pool_submit(fetch->worker->serve, &fetch->job);
	if (r < 0)
		fetch_fail(fetch, r, NULL);
}

/* ---- replies --------------------------------------------------------------------------------- */

static void reply_range(struct frame *reply, const struct fetch *fetch)
{
	const struct frame *asked = &fetch->request->frame;

	*reply = (struct frame){
		.offset = asked->offset, .length = asked->length, .generation = asked->generation
	};
}

/* Everything is in one file of the tier: its descriptor and the chunk's presence bits. */
static int reply_local(struct fetch *fetch, struct chunk *chunk)
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
	note_end(fetch, &fetch->worker->histograms.file);
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
static void reply_flight(struct fetch *fetch)
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
	note_end(fetch, &fetch->worker->histograms.origin);
	rpc_reply(fetch_end(fetch), 0, &reply, payload);
}

/*
 * -EAGAIN when the budget is used up: the reader asks again. Whoever has its memory waits for units
 * at most, which never wait for this budget: no two can hold each other up.
 */
static int make_out(struct fetch *fetch)
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

static void copy_flight(struct gathered *to, const struct span *span)
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

static struct chunk *find_chunk(struct fetch *fetch, uint64_t at)
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
	spans_free(c->spans);
	gathered_free(c->out);
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
			copy_flight(c->out, span);
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
	int r = fetch->out ? 0 : make_out(fetch);

	if (r < 0)
		return r;
	c = calloc(1, sizeof(*c));
	if (!c)
		return -ENOMEM;
	c->chunk = find_chunk(fetch, fetch->request->frame.offset);
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
	payload.release = gathered_free;
	note_end(fetch, fetch->waited ? &fetch->worker->histograms.origin
				      : &fetch->worker->histograms.tier);
	rpc_reply(fetch_end(fetch), 0, &reply, payload);
}

/* Gathers a range that lies in several units, or in a tier for a reader elsewhere. */
static void run_compose(struct pool_job *job)
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
		drop_spans(fetch);
		run_plan(&fetch->job);
		return;
	}
	fetch_fail(fetch, r, NULL);
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* The range is one unit from its first byte, and at most the rest of its last block. */
static bool one_flight_answers(const struct fetch *fetch)
{
	const struct frame *asked = &fetch->request->frame;
	const struct span *span = &fetch->spans[0];

	return fetch->n_spans == 1 && span->wait.flight && span->at == asked->offset &&
	       asked->length - span->length < BLOCK_BYTES;
}

/* One flight less to wait for; the last one goes on. */
static void fetch_arrived(struct fetch *fetch, int status, const struct err *e)
{
	bool last;
	bool cancelled;

	pthread_mutex_lock(&fetch->lock);
	if (status < 0 && fetch->status == 0) {
		fetch->status = status;
		if (e)
			fetch->err = *e;
	}
	last = --fetch->awaited == 0;
	if (last)
		fetch->waiting = false;
	cancelled = fetch->cancelled;
	pthread_mutex_unlock(&fetch->lock);
	if (!last)
		return;
	if (cancelled)
		fetch_fail(fetch, -ECANCELED, NULL);
	else if (fetch->status < 0)
		fetch_fail(fetch, fetch->status, &fetch->err);
	else if (one_flight_answers(fetch))
		reply_flight(fetch);
	else
		submit(fetch, run_compose);
}

static void on_landed(struct flight_wait *wait, int status, const struct err *e)
{
	struct span *span = container_of(wait, struct span, wait);

	if (status == 0 && wait->flight->starved)
		span->fetch->starved = true;
	if (status == 0 && span->fetch->out) {
		copy_flight(span->fetch->out, span);
		span->copied = true;
		flight_unref(TAKE(wait->flight));
	}
	fetch_arrived(span->fetch, status, e);
}

/* ---- planning -------------------------------------------------------------------------------- */

static int add_span(struct fetch *fetch, const struct table_row *row, uint64_t at, uint64_t end)
{
	uint64_t object_offset;
	uint64_t start;
	uint32_t length;
	uint32_t max_spans = fetch->request->frame.length / BLOCK_BYTES; /* each begins a block */
	struct span *span;

	if (!fetch->spans) {
		fetch->spans = spans_new(max_spans);
		if (!fetch->spans)
			return -ENOMEM;
	}
	ensure(fetch->n_spans < max_spans);
	flight_unit_of(row, at, &start, &length, &object_offset);
	span = &fetch->spans[fetch->n_spans++];
	list_init(&span->wait.link);
	span->fetch = fetch;
	span->at = at;
	span->length = (uint32_t)(min(start + length, end) - at);
	span->object_offset = at - row->offset;
	span->object_size = row->size;
	span->object_seed = piece_object_seed(row->key, row->key_len, row->tag, row->tag_len);
	span->first_sum = fetch->n_sums;
	fetch->n_sums += (uint32_t)(((span->object_offset + span->length - 1) >> PIECE_BITS) -
				    (span->object_offset >> PIECE_BITS) + 1);
	/* Whole pieces, for their checksums. */
	span->wait.need =
		(uint32_t)min(align_up(at - start + span->length, PIECE_BYTES), (uint64_t)length);
	span->wait.done = on_landed;
	return 0;
}

/* The units inside the range; blocks of no object stay zero. */
static int make_spans(struct fetch *fetch, struct table *table, struct table_row *row)
{
	uint64_t at = fetch->request->frame.offset;
	uint64_t end = at + fetch->request->frame.length;

	while (at < end) {
		int r = source_row_from(table, at, row);

		if (r == -ENOENT || (r == 0 && row->offset >= end))
			return 0;
		if (r < 0)
			return r;
		at = max(at, row->offset);
		r = add_span(fetch, row, at, end);
		if (r < 0)
			return r;
		at = align_up(at + fetch->spans[fetch->n_spans - 1].length, BLOCK_BYTES);
	}
	return 0;
}

static bool span_present(const struct span *span, const struct chunk *chunk)
{
	return chunk &&
	       chunk_present(chunk, (uint32_t)(span->at & (CHUNK_BYTES - 1)), span->length);
}

/* Joins or starts the flight of one absent span. `row` is scratch. */
static int want_span(
	struct fetch *fetch, struct span *span, struct table *table, struct table_row *row)
{
	struct worker *w = fetch->worker;
	struct chunk_id id = { .volume = fetch->source->volume,
		.lineage = fetch->source->lineage,
		.chunk = span->at >> CHUNK_BITS };
	enum ufs_class class =
		fetch->request->frame.class == FRAME_DEMAND ? UFS_DEMAND : UFS_PREFETCH;
	uint64_t object_offset;
	uint64_t start;
	uint32_t length;
	int r = table_find_offset(table, span->at, row);

	if (r < 0)
		return r;
	flight_unit_of(row, span->at, &start, &length, &object_offset);
	r = guard_admit(w, &id);
	pthread_mutex_lock(&fetch->lock);
	fetch->awaited++;
	pthread_mutex_unlock(&fetch->lock);
	r = flight_want(fetch->source, row, span->at, class, r < 0, &span->wait);
	if (r < 0) {
		pthread_mutex_lock(&fetch->lock);
		fetch->awaited--;
		pthread_mutex_unlock(&fetch->lock);
		return r == -EEXIST ? 0 : r; /* it is read from its tier */
	}
	if (r > 0 && !(fetch->request->frame.flags & FRAME_EXACT))
		fill_asked(fetch->source, start, length);
	return 0;
}

/* Takes a cancelled fetch off its flights. True when nothing is awaited any more. */
static bool leave_flights_locked(struct fetch *fetch)
{
	unsigned int left = 0;

	for (uint32_t i = 0; i < fetch->n_spans; i++)
		if (flight_wait_cancel(fetch->worker, &fetch->spans[i].wait))
			left++;
	fetch->awaited -= left;
	return left > 0 && fetch->awaited == 0;
}

/* Puts the fetch on the flights of its absent spans, then lets go of it. */
static void wait_for_spans(
	struct fetch *fetch, struct table *table, struct chunk *chunk, struct table_row *row)
{
	int r = fetch->n_spans > 1 ? make_out(fetch) : 0;

	fetch->awaited = 1; /* this function's: nobody goes on before every flight is joined */
	for (uint32_t i = 0; i < fetch->n_spans && r == 0; i++)
		if (fetch->passed_by || !span_present(&fetch->spans[i], chunk))
			r = want_span(fetch, &fetch->spans[i], table, row);
	fetch->waited = true;
	counter_add(&fetch->worker->counters.waits, 1);
	counter_add(&fetch->source->use.waits, 1);
	pthread_mutex_lock(&fetch->lock);
	fetch->waiting = true;
	if (fetch->cancelled)
		(void)leave_flights_locked(
			fetch); /* not the last: this function's count is still there */
	pthread_mutex_unlock(&fetch->lock);
	fetch_arrived(fetch, r, NULL);
}

static bool all_present(const struct fetch *fetch, const struct chunk *chunk)
{
	if (fetch->passed_by)
		return false;
	for (uint32_t i = 0; i < fetch->n_spans; i++)
		if (!span_present(&fetch->spans[i], chunk))
			return false;
	return true;
}

static void answer_prefetch(struct fetch *fetch)
{
	const struct frame *frame = &fetch->request->frame;
	int r = frame->flags & FRAME_EXACT
			? fill_exact(fetch->source, frame->offset, frame->length)
			: fill_ahead(fetch->source, frame->offset, frame->length);

	if (r < 0)
		fetch_fail(fetch, r, NULL);
	else
		rpc_reply(fetch_end(fetch), 0, NULL, NET_PAYLOAD_NONE);
}

/* Verifies every whole piece of the range again; damaged ones are absent afterwards. */
static int recheck(struct fetch *fetch, struct chunk *chunk)
{
	int result = 0;

	for (uint32_t i = 0; i < fetch->n_spans && chunk; i++) {
		const struct span *span = &fetch->spans[i];
		uint64_t first = align_down(span->object_offset, PIECE_BYTES);
		uint64_t back = span->object_offset - first;
		uint64_t end = min(align_up(span->object_offset + span->length, PIECE_BYTES),
			span->object_size);
		uint64_t at = span->at - back;
		struct piece_run run = {
			.offset = (uint32_t)(at & (CHUNK_BYTES - 1)),
			.object_seed = span->object_seed,
			.first_piece = first >> PIECE_BITS,
		};
		int r;

		run.length = (uint32_t)min(end - first, (uint64_t)(CHUNK_BYTES - run.offset));
		r = guard_recheck(fetch->worker, chunk, &run);
		if (r < 0)
			result = r;
	}
	return result;
}

static void plan_range(struct fetch *fetch, struct table *table, struct table_row *row)
{
	const struct frame *frame = &fetch->request->frame;
	struct chunk *chunk = find_chunk(fetch, frame->offset);
	int r = make_spans(fetch, table, row);

	if (chunk && frame->op == FRAME_FETCH)
		chunk_note_read(chunk);
	if (r < 0) {
		fetch_fail(fetch, r, NULL);
	} else if (frame->op == FRAME_RECHECK) {
		r = recheck(fetch, chunk);
		rpc_reply(fetch_end(fetch), r, NULL, NET_PAYLOAD_NONE);
	} else if (!all_present(fetch, chunk)) {
		if (frame->op == FRAME_FETCH_CACHED)
			fetch_fail(fetch, -ENODATA, NULL);
		else
			wait_for_spans(fetch, table, chunk, row);
	} else {
		counter_add(&fetch->worker->counters.hits, 1);
		counter_add(&fetch->source->use.hits, 1);
		if (!chunk || !(frame->flags & FRAME_LOCAL_OK) || reply_local(fetch, chunk) < 0)
			run_compose(&fetch->job);
	}
	chunk_unref(chunk);
}

static void run_plan(struct pool_job *job)
{
	struct fetch *fetch = container_of(job, struct fetch, job);
	struct table_row *row = malloc(sizeof(*row));
	struct table *table;

	if (!row) {
		fetch_fail(fetch, -ENOMEM, NULL);
		return;
	}
	if (fetch->request->cancelled) {
		fetch_fail(fetch, -ECANCELED, NULL);
	} else if (fetch->request->frame.op == FRAME_PREFETCH) {
		answer_prefetch(fetch);
	} else {
		table = source_table(fetch->source);
		if (fetch->attempts == 0)
			tier_volume_asked(fetch->worker->tiers, &fetch->source->volume,
				table_info(table)->live_bytes, fetch->request->frame.length);
		plan_range(fetch, table, row);
		table_unref(table);
	}
	free(row);
}

/* ---- arrival --------------------------------------------------------------------------------- */

static void on_source(
	struct source_wait *wait, struct source *source, int status, const struct err *e)
{
	struct fetch *fetch = container_of(wait, struct fetch, source_wait);

	fetch->source = source;
	fetch->planned_ns = clock_mono_ns();
	if (status < 0)
		fetch_fail(fetch, status, e);
	else
		submit(fetch, run_plan);
}

/* The descriptor alone, of a chunk that the reader found in the map. */
static void run_file(struct pool_job *job)
{
	struct fetch *fetch = container_of(job, struct fetch, job);
	const struct frame *frame = &fetch->request->frame;
	struct chunk_id id = { .volume = frame->volume,
		.lineage = frame->lineage,
		.chunk = frame->offset >> CHUNK_BITS };
	uint32_t length = frame->length;
	struct worker *w = fetch->worker;
	struct chunk *chunk = tier_chunk_find(w->tiers, &id);
	int r = -ENODATA;

	if (fetch->request->cancelled)
		r = -ECANCELED;
	else if (chunk)
		r = reply_local(fetch, chunk);
	if (r < 0)
		fetch_fail(fetch, r, NULL);
	else
		chunk_note_read(chunk);
	chunk_unref(chunk);
	tier_volume_asked(w->tiers, &id.volume, 0, length);
}

/* A range of whole blocks inside one chunk. */
static bool range_valid(const struct frame *frame)
{
	uint32_t max_length = frame->op == FRAME_PREFETCH ? CHUNK_BYTES : LIMIT_PAYLOAD_BYTES;

	return frame->length > 0 && frame->length <= max_length &&
	       frame->length % BLOCK_BYTES == 0 && frame->offset % BLOCK_BYTES == 0 &&
	       (frame->offset & (CHUNK_BYTES - 1)) + frame->length <= CHUNK_BYTES;
}

static void refuse(struct rpc_request *request, int code, const char *why)
{
	struct err e = ERR_INIT;

	(void)err_set(&e, code, "%s", why); /* returns code */
	rpc_reply_err(request, code, &e);
}

struct held_job {
	struct pool_job job;
	struct worker *worker;
	struct rpc_request *request;
};

static void run_held(struct pool_job *job)
{
	struct held_job *held = container_of(job, struct held_job, job);

	if (held->request->frame.op == FRAME_SEAL)
		seals_answer(held->worker, held->request);
	else
		holds_answer(held->worker, held->request);
	free(held);
}

static void answer_held(struct worker *w, struct rpc_request *request)
{
	struct held_job *held = calloc(1, sizeof(*held));

	if (held)
		*held = (struct held_job){ .job.run = run_held, .worker = w, .request = request };
	if (held && pool_submit(w->serve, &held->job) == 0)
		return;
	free(held);
	refuse(request, -EAGAIN, "busy");
}

static void on_request(struct rpc_request *request, void *arg)
{
	struct worker *w = arg;
	const struct frame *frame = &request->frame;
	struct fetch *fetch;

	if (frame->op == FRAME_HELD || frame->op == FRAME_SEAL) {
		answer_held(w, request);
		return;
	}
	if (frame->op == FRAME_NEWS) {
		terms_wake(w);
		rpc_reply(request, 0, NULL, NET_PAYLOAD_NONE);
		return;
	}
	if (frame->op == FRAME_MAP) {
		handout_answer(w, request);
		return;
	}
	if (frame->op != FRAME_FETCH && frame->op != FRAME_FETCH_CACHED &&
		frame->op != FRAME_PREFETCH && frame->op != FRAME_RECHECK &&
		frame->op != FRAME_FILE) {
		refuse(request, -EOPNOTSUPP, "a worker does not serve this operation");
		return;
	}
	if (!range_valid(frame)) {
		refuse(request, -EINVAL, "the range is not whole blocks inside one chunk");
		return;
	}
	fetch = calloc(1, sizeof(*fetch));
	if (!fetch) {
		refuse(request, -ENOMEM, "no memory");
		return;
	}
	counter_add(frame->op == FRAME_FILE ? &w->counters.files : &w->counters.fetches, 1);
	fetch->magic = FETCH_MAGIC;
	fetch->worker = w;
	fetch->request = request;
	fetch->began_ns = clock_mono_ns();
	fetch->planned_ns = frame->op == FRAME_FILE ? fetch->began_ns : 0;
	list_init(&fetch->source_wait.link);
	fetch->source_wait.ready = on_source;
	fetch->source_wait.told = frame->op == FRAME_FILE; /* waits for none */
	pthread_mutex_init(&fetch->lock, NULL);
	request->priv = fetch;
	if (frame->op == FRAME_FILE)
		submit(fetch, run_file);
	else
		source_find(
			w, &frame->volume, frame->lineage, frame->generation, &fetch->source_wait);
}

/*
 * Nobody wants the answer. A fetch parked on its source or on flights is taken off and answered at
 * once; in any other state it is about to end by itself.
 */
static void on_cancel(struct rpc_request *request, void *arg)
{
	struct worker *w = arg;
	struct fetch *fetch;
	bool mine = false;

	pthread_mutex_lock(&w->fetch_lock); /* while it is held the fetch does not end */
	fetch = request->priv;
	if (fetch) {
		mine = source_wait_cancel(w, &fetch->source_wait);
		pthread_mutex_lock(&fetch->lock);
		fetch->cancelled = true;
		if (fetch->waiting)
			mine = leave_flights_locked(fetch);
		if (mine)
			fetch->waiting = false;
		pthread_mutex_unlock(&fetch->lock);
	}
	pthread_mutex_unlock(&w->fetch_lock);
	if (mine)
		fetch_fail(fetch, -ECANCELED, NULL);
}

static void on_close(const struct rpc_conn *conn, void *arg)
{
	holds_end(arg, conn);
	seals_end(arg, conn);
}

const struct rpc_server_ops fetch_server_ops = {
	.on_close = on_close,
	.on_request = on_request,
	.on_cancel = on_cancel,
};
