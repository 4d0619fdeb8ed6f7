/*
 * Requests of readers, from arrival to reply.
 *
 *	ARRIVED ─► SOURCE (parked until the table is there) ─┬─ small and in memory ─► reply (fetch_now.c)
 *	                                                     └► PLAN (serve pool)
 *	PLAN ─┬─ all present ─► LOCAL, or COMPOSE from the tier ─► reply
 *	      ├─ absent, and another serves the chunk ─► -EREMOTE (duty.h)
 *	      └─ absent ─► WAITING on flights ─► one unit: reply from its memory
 *	                                      └► several: COMPOSE ─► reply
 *	COMPOSE ─ a piece was damaged ─► PLAN, at most FETCH_ATTEMPTS times; when the tier has
 *	          nothing but errors, as if nothing were present
 *
 * Bytes are answered with the checksum of every piece they touch. A fetch of several units copies
 * each as it lands and lets go of it: it never holds one unit's memory while it waits for
 * another's. Arrival, cancelling and the end are here, PLAN and WAITING in fetch_plan.c, replies in
 * fetch_reply.c.
 */
#include "cacheworker/fetch_internal.h"
#include "cacheworker/admit.h"
#include "cacheworker/handout.h"
#include "cacheworker/holds.h"
#include "cacheworker/seal.h"
#include "base/arena.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "net/identity.h"

#include <stdlib.h>
#include <string.h>

#define FETCH_MAGIC 0x66657463u

/* Counted with the requests: past what those may have, fewer of them are read. */
struct span_block {
	uint64_t bytes;
	struct span spans[];
};

struct span *fetch_spans_new(uint32_t n)
{
	uint64_t bytes = sizeof(struct span_block) + n * sizeof(struct span);
	struct span_block *block = calloc(1, bytes);

	if (!block)
		return NULL;
	block->bytes = bytes;
	arena_must(ARENA_CONNECTIONS, bytes);
	return block->spans;
}

void fetch_spans_free(struct span *spans)
{
	struct span_block *block;

	if (!spans)
		return;
	block = container_of(spans, struct span_block, spans);
	arena_give(ARENA_CONNECTIONS, block->bytes);
	free(block);
}

void fetch_drop_spans(struct fetch *fetch)
{
	for (uint32_t i = 0; i < fetch->n_spans; i++)
		flight_unref(fetch->spans[i].wait.flight);
	fetch_spans_free(TAKE(fetch->spans));
	fetch_gathered_free(TAKE(fetch->out));
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
void fetch_note_end(struct fetch *fetch, struct histogram *h)
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
struct rpc_request *fetch_end(struct fetch *fetch)
{
	struct rpc_request *request = fetch->request;

	pthread_mutex_lock(&fetch->worker->fetch_lock);
	request->priv = NULL;
	pthread_mutex_unlock(&fetch->worker->fetch_lock);
	fetch_drop_spans(fetch);
	herds_leave(TAKE(fetch->ticket), false);
	pthread_mutex_destroy(&fetch->lock);
	fetch->magic = 0;
	free(fetch);
	return request;
}

void fetch_fail(struct fetch *fetch, int status, const struct err *e)
{
	struct err copy = ERR_INIT; /* e may lie in the fetch */

	if (e && e->code)
		copy = *e;
	else
		(void)err_set(&copy, status, "%s", err_str(status)); /* returns status */
	fetch_note_end(fetch, NULL);
	rpc_reply_err(fetch_end(fetch), status, &copy);
}

void fetch_refuse(struct fetch *fetch, int status, uint16_t flags, uint64_t number)
{
	const struct frame reply = { .flags = flags, .extent = number };

	fetch_note_end(fetch, NULL);
	rpc_reply(fetch_end(fetch), status, &reply, NET_PAYLOAD_NONE);
}

void fetch_submit(struct fetch *fetch, void (*run)(struct pool_job *job))
{
	int r;

	fetch->job.run = run;
	r = pool_submit(fetch->worker->serve, &fetch->job);
	if (r < 0)
		fetch_fail(fetch, r, NULL);
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
	else if (fetch->part || !fetch_answer_now(fetch)) /* which looks into no table */
		fetch_submit(fetch, fetch_run_plan);
}

/* The descriptor alone, of a chunk that the reader found in the map. */
static void run_file(struct pool_job *job)
{
	struct fetch *fetch = container_of(job, struct fetch, job);
	const struct frame *frame = &fetch->request->frame;
	struct chunk_id id = fetch_chunk_of(frame);
	uint32_t length = frame->length;
	struct worker *w = fetch->worker;
	struct chunk *chunk = tier_chunk_find(w->tiers, &id);
	int r = -ENODATA;

	if (fetch->request->cancelled)
		r = -ECANCELED;
	else if (chunk)
		r = fetch_reply_local(fetch, chunk);
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

/* Is there anything of the chunk, or will there be? */
static bool has_some(struct worker *w, const struct frame *frame)
{
	struct chunk_id id = fetch_chunk_of(frame);
	struct chunk *chunk = tier_chunk_find(w->tiers, &id);

	chunk_unref_by(chunk, w->disk);
	return chunk != NULL || flights_of_chunk(w, &id);
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
	struct key_prefixes prefixes;
	struct fetch *fetch;
	bool part;

	if (!admit_request(request))
		return;
	if (frame->op == FRAME_HELD || frame->op == FRAME_SEAL) {
		answer_held(w, request);
		return;
	}
	if (frame->op == FRAME_ROOM) {
		spill_answer(w, request);
		return;
	}
	if (frame->op == FRAME_MAP) {
		handout_answer(w, request);
		return;
	}
	if (!frame_op_fetches(frame->op) && frame->op != FRAME_PREFETCH &&
		frame->op != FRAME_RECHECK && frame->op != FRAME_FILE &&
		frame->op != FRAME_REFUSED) {
		refuse(request, -EOPNOTSUPP, "a worker does not serve this operation");
		return;
	}
	if (frame->op == FRAME_FILE && !(frame->flags & FRAME_LOCAL_OK)) {
		refuse(request, -EOPNOTSUPP, "a descriptor is for a reader on this node");
		return;
	}
	if (!range_valid(frame)) {
		refuse(request, -EINVAL, "the range is not whole blocks inside one chunk");
		return;
	}
	part = peer_reads_part(rpc_conn_peer(request->conn), &frame->volume, &prefixes);
	/* Of a part it is looked up first whether the range belongs to it. */
	if (fetch_is_cached_only(frame) && !part && !has_some(w, frame)) {
		rpc_reply(
			request, -ENODATA, NULL, NET_PAYLOAD_NONE); /* not even a table is loaded */
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
	fetch->part = part;
	fetch->began_ns = clock_mono_ns();
	fetch->planned_ns = frame->op == FRAME_FILE ? fetch->began_ns : 0;
	list_init(&fetch->source_wait.link);
	fetch->source_wait.ready = on_source;
	fetch->source_wait.answered = frame->op == FRAME_FILE; /* waits for none */
	pthread_mutex_init(&fetch->lock, NULL);
	request->priv = fetch;
	if (frame->op == FRAME_FILE)
		fetch_submit(fetch, run_file);
	else
		source_find(
			w, &frame->volume, frame->lineage, frame->generation, &fetch->source_wait);
}

/*
 * The answer is not wanted any more. A fetch parked on its source or on flights is taken off and answered at
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
			mine = fetch_leave_flights_locked(fetch);
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
