/* What of a range is there, and who is waited for. See fetch.c. */
#include "cacheworker/fetch_internal.h"
#include "cacheworker/copies.h"
#include "cacheworker/duty.h"
#include "cacheworker/fill.h"
#include "cacheworker/pull.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/piece.h"
#include "cacheworker/tier_call.h"
#include "net/identity.h"

#include <stdlib.h>

/* ---- waiting --------------------------------------------------------------------------------- */

/* The range is one unit from its first byte, and at most the rest of its last block. */
static bool one_flight_answers(const struct fetch *fetch)
{
	const struct frame *asked = &fetch->request->frame;
	const struct span *span = &fetch->spans[0];

	return fetch->n_spans == 1 && span->wait.flight && span->at == asked->offset &&
	       asked->length - span->length < BLOCK_BYTES;
}

static void send_away(struct fetch *fetch, uint16_t worker)
{
	counter_add(&fetch->worker->counters.herd_sent, 1);
	fetch_refuse(fetch, -EREMOTE, 0, worker);
}

static void run_told(struct pool_job *job)
{
	struct fetch *fetch = container_of(job, struct fetch, job);

	if (fetch->request->cancelled)
		fetch_fail(fetch, -ECANCELED, NULL);
	else if (fetch->herd_wait.answer == HERD_ASK)
		send_away(fetch, fetch->herd_wait.worker);
	else
		fetch->herd_resume(job);
}

static void on_told(struct herds_wait *wait)
{
	struct fetch *fetch = container_of(wait, struct fetch, herd_wait);

	fetch->ticket = TAKE(wait->ticket);
	fetch_submit(fetch, run_told);
}

/* Another worker, sent here by an owner. */
static bool gives(struct fetch *fetch)
{
	if (herds_give(fetch->worker, &fetch->ticket))
		return true;
	counter_add(&fetch->worker->counters.herd_refused, 1);
	fetch_refuse(fetch, -ENODATA, 0, 1); /* not 0: that would be said of the whole chunk */
	return false;
}

/*
 * The bytes are there. True when they are sent now: to a reader, or to one of a few workers at a time that
 * want a copy. Else it was sent away, or waits, and `resume` is run.
 */
static bool herd_admits(struct fetch *fetch, void (*resume)(struct pool_job *job))
{
	const struct frame *frame = &fetch->request->frame;
	const struct herd_request request = {
		.worker = (uint16_t)min(frame->extent, (uint64_t)PLACEMENT_NONE),
		.offset = (uint32_t)(frame->offset & (CHUNK_BYTES - 1)),
		.length = frame->length,
		.last = frame->flags & FRAME_LAST,
	};
	const struct chunk_id id = fetch_chunk_of(frame);
	uint16_t worker = PLACEMENT_NONE;

	if (fetch->ticket || !(frame->flags & FRAME_PEER))
		return true;
	if (frame->op == FRAME_FETCH_CACHED)
		return gives(fetch);
	if (frame->op != FRAME_FETCH) /* of FRAME_SEEK maybe no other worker has it */
		return true;
	fetch->herd_wait.go = on_told;
	fetch->herd_resume = resume;
	switch (herds_ask(
		fetch->worker, &id, &request, &fetch->herd_wait, &fetch->ticket, &worker)) {
	case HERD_ASK:
		send_away(fetch, worker);
		return false;
	case HERD_WAIT: /* it may be gone already */
		return false;
	case HERD_SERVE:
	default:
		return true;
	}
}

static void answer_landed(struct fetch *fetch)
{
	if (one_flight_answers(fetch))
		fetch_reply_flight(fetch);
	else
		fetch_submit(fetch, fetch_run_compose);
}

static void run_landed(struct pool_job *job)
{
	struct fetch *fetch = container_of(job, struct fetch, job);

	if (fetch->request->cancelled)
		fetch_fail(fetch, -ECANCELED, NULL);
	else if (herd_admits(fetch, run_landed))
		answer_landed(fetch);
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
	else if (herd_admits(fetch, run_landed))
		answer_landed(fetch);
}

static void on_landed(struct flight_wait *wait, int status, const struct err *e)
{
	struct span *span = container_of(wait, struct span, wait);
	struct source *source = span->fetch->source;
	bool first =
		status == 0 && wait->first && !(span->fetch->request->frame.flags & FRAME_EXACT);
	uint64_t start = status == 0 ? wait->flight->start : 0;
	uint32_t length = status == 0 ? wait->flight->length : 0;

	if (status == 0 && wait->flight->starved)
		span->fetch->starved = true;
	if (status == 0 && span->fetch->out) {
		fetch_copy_flight(span->fetch->out, span);
		span->copied = true;
		flight_unref(TAKE(wait->flight));
	}
	fetch_arrived(span->fetch, status, e);
	if (first) /* after the reader's answer */
		fill_asked(source, start, length);
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
		fetch->spans = fetch_spans_new(max_spans);
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
	span->wait.until_ns = fetch->request->deadline_ns;
	return 0;
}

/* What the asker sees of the volume; NULL: all. */
static const struct key_prefixes *part_of(const struct fetch *fetch, struct key_prefixes *prefixes)
{
	const struct rpc_request *request = fetch->request;

	return peer_reads_part(rpc_conn_peer(request->conn), &request->frame.volume, prefixes)
		       ? prefixes
		       : NULL;
}

/* The row that covers `at`, or the next before `end`, of what the asker sees; -ENOENT: there is none. */
static int visible_row(const struct key_prefixes *part, struct table *table, uint64_t at,
	uint64_t end, struct table_row *row)
{
	int r;

	while ((r = source_row_from(table, at, row)) == 0) {
		if (row->offset >= end)
			return -ENOENT;
		if (!part || key_prefixes_have(part, row->key, row->key_len))
			return 0;
		at = align_up(row->offset + row->size, BLOCK_BYTES);
	}
	return r;
}

/* The units inside the range; blocks of no object stay zero, as do those that the asker may not see. -ENXIO with its
 * line: it may see nothing of the range. */
static int make_spans(struct fetch *fetch, struct table *table, struct table_row *row)
{
	const struct frame *frame = &fetch->request->frame;
	uint64_t at = frame->offset;
	uint64_t end = at + frame->length;
	struct key_prefixes prefixes;
	const struct key_prefixes *part = part_of(fetch, &prefixes);
	int r = 0;

	while (at < end && (r = visible_row(part, table, at, end, row)) == 0) {
		at = max(at, row->offset);
		r = add_span(fetch, row, at, end);
		if (r < 0)
			return r;
		at = align_up(at + fetch->spans[fetch->n_spans - 1].length, BLOCK_BYTES);
	}
	if (r < 0 && r != -ENOENT)
		return r;
	return part && fetch->n_spans == 0 ? peer_sees_nothing(&fetch->err) : 0;
}

static bool span_present(const struct span *span, const struct chunk *chunk)
{
	return chunk &&
	       chunk_present(chunk, (uint32_t)(span->at & (CHUNK_BYTES - 1)), span->length);
}

/* Joins or starts the flight of one absent span. `row` is scratch. */
static int want_span(struct fetch *fetch, struct flight_batch *batch, struct span *span,
	struct table *table, struct table_row *row)
{
	struct worker *w = fetch->worker;
	struct chunk_id id = { .volume = fetch->source->volume,
		.lineage = fetch->source->lineage,
		.chunk = span->at >> CHUNK_BITS };
	enum ufs_class class =
		fetch->request->frame.class == FRAME_DEMAND ? UFS_DEMAND : UFS_PREFETCH;
	int r = table_find_offset(table, span->at, row);

	if (r < 0)
		return r;
	r = tier_call_admit(w, &id);
	pthread_mutex_lock(&fetch->lock);
	fetch->awaited++;
	pthread_mutex_unlock(&fetch->lock);
	span->wait.ends = fetch->ends;
	r = flight_want_in(batch, fetch->source, row, span->at, class, r < 0, &span->wait);
	if (r < 0) {
		pthread_mutex_lock(&fetch->lock);
		fetch->awaited--;
		pthread_mutex_unlock(&fetch->lock);
		return r == -EEXIST ? 0 : r; /* it is read from its tier */
	}
	return 0;
}

/* Takes a cancelled fetch off its flights. True when nothing is awaited any more. */
bool fetch_leave_flights_locked(struct fetch *fetch)
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
	int r = fetch->n_spans > 1 ? fetch_make_out(fetch, BUDGET_FILL) : 0;
	struct flight_batch batch = { .n = 0 };

	fetch->wanted_ns = clock_mono_ns();
	fetch->awaited =
		1; /* this function's: the fetch does not go on before every flight is joined */
	for (uint32_t i = 0; i < fetch->n_spans && r == 0; i++)
		if (fetch->passed_by || !span_present(&fetch->spans[i], chunk))
			r = want_span(fetch, &batch, &fetch->spans[i], table, row);
	flight_batch_start(&batch);
	fetch->waited = true;
	counter_add(&fetch->worker->counters.waits, 1);
	counter_add(&fetch->source->use.waits, 1);
	pthread_mutex_lock(&fetch->lock);
	fetch->waiting = true;
	if (fetch->cancelled)
		(void)fetch_leave_flights_locked(
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

/* Which blocks of the chunk (NULL: none) are here, for another worker. */
static struct net_payload presence_of(const struct chunk *chunk)
{
	struct net_payload payload = NET_PAYLOAD_NONE;
	uint8_t *bitmap = calloc(1, CHUNK_BITMAP_BYTES);

	if (bitmap) {
		if (chunk)
			chunk_bitmap(chunk, bitmap);
		payload.parts[0].data = bitmap;
		payload.parts[0].len = CHUNK_BITMAP_BYTES;
		payload.n = 1;
		payload.release = free;
		payload.arg = bitmap;
	}
	return payload;
}

/* Is each block of the range of an object that the asker sees? `row` is scratch. */
static bool sees_all(const struct fetch *fetch, struct table *table, struct table_row *row)
{
	const struct frame *frame = &fetch->request->frame;
	uint64_t at = frame->offset;
	uint64_t end = at + frame->length;
	struct key_prefixes prefixes;
	const struct key_prefixes *part = part_of(fetch, &prefixes);

	while (at < end && source_row_from(table, at, row) == 0 && row->offset <= at &&
		(!part || key_prefixes_have(part, row->key, row->key_len)))
		at = align_up(row->offset + row->size, BLOCK_BYTES);
	return at >= end;
}

static void answer_prefetch(struct fetch *fetch)
{
	const struct frame *frame = &fetch->request->frame;
	struct net_payload payload = NET_PAYLOAD_NONE;
	struct duty duty;
	int r;

	worker_duty(fetch->worker, &frame->volume, frame->offset >> CHUNK_BITS,
		frame->flags & FRAME_LAST, &duty);
	if (duty.kind == DUTY_NONE) {
		counter_add(&fetch->worker->counters.redirected, 1);
		fetch_refuse(fetch, -EREMOTE, FRAME_MOVED, duty.serves);
		return;
	}
	if (frame->class == FRAME_DEMAND)
		flights_raise(fetch->source, frame->offset);
	r = frame->flags & FRAME_EXACT ? fill_exact(fetch->source, frame->offset, frame->length)
				       : fill_ahead(fetch->source, frame->offset, frame->length);
	if (r < 0) {
		fetch_fail(fetch, r, NULL);
		return;
	}
	if (frame->flags & FRAME_PEER) {
		struct chunk *chunk = fetch_find_chunk(fetch, frame->offset);

		payload = presence_of(chunk);
		chunk_unref(chunk);
	}
	rpc_reply(fetch_end(fetch), 0, NULL, payload);
}

/* Is all that is absent in flight from the origin? `row` is scratch. *ret_awaited: some of it to another worker. */
static bool is_coming(const struct fetch *fetch, const struct chunk *chunk, struct table *table,
	struct table_row *row, bool *ret_awaited)
{
	*ret_awaited = false;
	for (uint32_t i = 0; i < fetch->n_spans; i++) {
		const struct span *span = &fetch->spans[i];
		uint64_t object_offset;
		uint64_t start;
		uint32_t length;
		bool awaited;

		if (span_present(span, chunk))
			continue;
		if (table_find_offset(table, span->at, row) < 0)
			return false;
		flight_unit_of(row, span->at, &start, &length, &object_offset);
		if (!flight_is_coming(fetch->source, start, &awaited))
			return false;
		*ret_awaited |= awaited;
	}
	return true;
}

/* CACHED_ONLY, and something is absent: nothing is waited for. A reader has others to ask. */
static void answer_absent(
	struct fetch *fetch, const struct chunk *chunk, struct table *table, struct table_row *row)
{
	const struct frame *frame = &fetch->request->frame;
	const struct chunk_id id = fetch_chunk_of(frame);
	uint64_t some = chunk ? chunk_present_bytes(chunk) : 0;
	bool awaited;

	if (fetch->part) { /* how much of the chunk is here is not reported: most of it may be of others */
		fetch_refuse(fetch, -ENODATA, 0, BLOCK_BYTES);
	} else if (frame->op == FRAME_SEEK && is_coming(fetch, chunk, table, row, &awaited)) {
		fetch_refuse(fetch, -EALREADY, 0, awaited ? BLOCK_BYTES : 0);
	} else if (flights_of_chunk(fetch->worker, &id)) { /* there will be more */
		fetch_refuse(fetch, -ENODATA, 0, max(some, (uint64_t)BLOCK_BYTES));
	} else if (frame->op == FRAME_SEEK && some > 0) {
		const struct frame reply = { .extent = some };
		struct net_payload presence = presence_of(chunk);

		fetch_note_end(fetch, NULL);
		rpc_reply(fetch_end(fetch), -ENODATA, &reply, presence);
	} else {
		fetch_refuse(fetch, -ENODATA, 0, some);
	}
}

/* Something is absent. True when it is this worker's to wait for; else the fetch has been answered. */
static bool absent_is_ours(
	struct fetch *fetch, const struct chunk *chunk, struct table *table, struct table_row *row)
{
	const struct frame *frame = &fetch->request->frame;
	const struct chunk_id id = fetch_chunk_of(frame);
	uint16_t number;
	struct duty duty;

	if (fetch_is_cached_only(frame)) {
		answer_absent(fetch, chunk, table, row);
		return false;
	}
	worker_duty(
		fetch->worker, &frame->volume, frame->offset >> CHUNK_BITS, frame->flags, &duty);
	if (duty.kind == DUTY_NONE) {
		counter_add(&fetch->worker->counters.redirected, 1);
		fetch_refuse(fetch, -EREMOTE, FRAME_MOVED, duty.serves);
		return false;
	}
	if (duty.kind == DUTY_OWNER && duty.owned && !(frame->flags & FRAME_LAST) &&
		spill_to(fetch->worker, &id, &number)) {
		counter_add(&fetch->worker->counters.spilled, 1);
		fetch_refuse(fetch, -EREMOTE, FRAME_LAST, number);
		return false;
	}
	fetch->ends = duty.kind == DUTY_OWNER;
	return true;
}

/* It has the bytes, and is not who is to be asked for them. */
static bool has_moved(struct fetch *fetch)
{
	const struct frame *frame = &fetch->request->frame;
	struct duty duty;

	if (frame->op != FRAME_FETCH || atomic_load(&fetch->worker->others) == 0)
		return false;
	worker_duty(
		fetch->worker, &frame->volume, frame->offset >> CHUNK_BITS, frame->flags, &duty);
	return duty.kind == DUTY_NONE;
}

void fetch_note_hit(struct fetch *fetch)
{
	fetch->moved = has_moved(fetch);
	counter_add(&fetch->worker->counters.hits, 1);
	counter_add(&fetch->source->use.hits, 1);
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
		r = tier_call_recheck(fetch->worker, chunk, &run);
		if (r < 0)
			result = r;
	}
	return result;
}

static void run_plan_again(struct pool_job *job)
{
	fetch_drop_spans(container_of(job, struct fetch, job));
	fetch_run_plan(job);
}

static void answer_present(struct fetch *fetch, struct chunk *chunk)
{
	if (!herd_admits(fetch, run_plan_again))
		return;
	fetch_note_hit(fetch);
	if (!chunk || fetch->part || !(fetch->request->frame.flags & FRAME_LOCAL_OK) ||
		fetch_reply_local(fetch, chunk) < 0)
		fetch_run_compose(&fetch->job);
}

/* A reader on this node; also one that is sent elsewhere. After it is known that the asker sees something of the range. */
static void note_reader(struct fetch *fetch)
{
	if (fetch->request->frame.flags & FRAME_LOCAL_OK)
		copies_note_reader(fetch->worker, &fetch->source->volume);
}

/* Of a part only its own bytes count. */
static void note_asked(struct fetch *fetch, const struct table *table)
{
	uint64_t bytes = fetch->part ? 0 : fetch->request->frame.length;

	for (uint32_t i = 0; fetch->part && i < fetch->n_spans; i++)
		bytes += fetch->spans[i].length;
	note_reader(fetch);
	if (fetch->attempts == 0)
		tier_volume_asked(fetch->worker->tiers, &fetch->source->volume,
			table_info(table)->live_bytes, bytes);
}

static void plan_range(struct fetch *fetch, struct table *table, struct table_row *row)
{
	const struct frame *frame = &fetch->request->frame;
	struct chunk *chunk = fetch_find_chunk(fetch, frame->offset);
	int r = make_spans(fetch, table, row);

	if (r == 0)
		note_asked(fetch, table);
	if (r == 0 && chunk && fetch_is_read(fetch))
		chunk_note_read(chunk);
	if (r < 0) {
		fetch_fail(fetch, r, &fetch->err);
	} else if (frame->op == FRAME_RECHECK) {
		r = recheck(fetch, chunk);
		rpc_reply(fetch_end(fetch), r, NULL, NET_PAYLOAD_NONE);
	} else if (!all_present(fetch, chunk)) {
		if (absent_is_ours(fetch, chunk, table, row))
			wait_for_spans(fetch, table, chunk, row);
	} else {
		answer_present(fetch, chunk);
	}
	chunk_unref(chunk);
}

static void plan_prefetch(struct fetch *fetch, struct table_row *row)
{
	struct table *table = fetch->part ? source_table(fetch->source) : NULL;

	if (table && !sees_all(fetch, table, row)) {
		int r = peer_sees_nothing(&fetch->err);

		fetch_fail(fetch, r, &fetch->err);
	} else {
		note_reader(fetch);
		answer_prefetch(fetch);
	}
	table_unref(table);
}

/* By another worker's requests. What was listed since then is believed instead. */
static void note_refused(struct fetch *fetch, struct table_row *row)
{
	const struct frame *frame = &fetch->request->frame;
	struct table *table = source_table(fetch->source);

	if (table_info(table)->id.generation == frame->generation &&
		table_find_offset(table, frame->offset, row) == 0)
		ufs_note_refused(source_ufs(fetch->source), row->key, row->key_len, row->tag,
			row->tag_len, (uint32_t)min(frame->extent, (uint64_t)UINT8_MAX));
	table_unref(table);
	rpc_reply(fetch_end(fetch), 0, NULL, NET_PAYLOAD_NONE);
}

void fetch_run_plan(struct pool_job *job)
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
		plan_prefetch(fetch, row);
	} else if (fetch->request->frame.op == FRAME_REFUSED) {
		note_refused(fetch, row);
	} else {
		table = source_table(fetch->source);
		plan_range(fetch, table, row);
		table_unref(table);
	}
	free(row);
}
