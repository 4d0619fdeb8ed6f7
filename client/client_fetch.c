/*
 * One read: FETCH to the owner of each chunk it touches, one after the other; the answer is a descriptor (read here, on an I/O
 * thread) or the bytes. What it asks for is widened to whole pieces, so that every byte served was checked here.
 *
 *	START ──► BUDGET	a read of several parts has no memory to put them together yet
 *	  │ ▲◄──────┘
 *	  │ ├──── WORK ◄──┐	an I/O thread reads the chunk file or checks the bytes
 *	  │ │		  │
 *	  ├─┼───► FETCH ──┤	a worker was asked
 *	  ├─┼───► RECHECK │	a worker looks at a piece that did not match here
 *	  │ │	     └────┼──► FETCH, without asking for a descriptor
 *	  │ └── BACKOFF ◄─┘	the worker is away or busy
 *	  └──► BACKOFF
 *
 * A read has one continuation (a posted task, a call, a job, a timer or a place in a queue) and owns one reference for it; a
 * cancel that was posted owns another. State changes happen on the loop. The caller hears of the end once (`finished`); what is
 * still under way then ends silently.
 */
#include "client/client_fetch.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "client/client_internal.h"
#include "client/client_local.h"
#include "client/client_pieces.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#define OP_MAGIC 0x434c4f50u

#define PARTS_MAX        4 /* chunks and payload limits cut a read into at most 3 */
#define FETCH_MAX        LIMIT_PAYLOAD_BYTES /* length of one FETCH */
#define ATTEMPT_DEADLINE (60 * CLOCK_SECOND) /* then the owner is looked up again */
#define BACKOFF_MIN      (10 * CLOCK_MS)
#define BACKOFF_MAX      (2 * CLOCK_SECOND)
#define BUDGET_INTERVAL  (5 * CLOCK_MS)
#define WATCH_INTERVAL   CLOCK_SECOND
#define SLOW_NS          (10 * CLOCK_SECOND) /* a read that waits this long is logged */
#define BAD_ANSWERS_MAX  5                   /* answers whose bytes do not match, then -EIO */
#define REFRESH_ATTEMPTS 2 /* failures after which the slots are asked for again */

enum op_state {
	OP_START,
	OP_BUDGET,
	OP_RECHECK,
	OP_FETCH,
	OP_WORK,
	OP_BACKOFF,
	OP_ENDED,
};

#define TO(s) (1u << (s))
static const unsigned int transitions[] = {
	[OP_START] = TO(OP_BUDGET) | TO(OP_RECHECK) | TO(OP_FETCH) | TO(OP_WORK) | TO(OP_BACKOFF) |
		     TO(OP_ENDED),
	[OP_BUDGET] = TO(OP_START) | TO(OP_ENDED),
	[OP_RECHECK] = TO(OP_START) | TO(OP_BACKOFF) | TO(OP_ENDED),
	[OP_FETCH] = TO(OP_WORK) | TO(OP_BACKOFF) | TO(OP_ENDED),
	[OP_WORK] = TO(OP_START) | TO(OP_BACKOFF) | TO(OP_ENDED),
	[OP_BACKOFF] = TO(OP_START) | TO(OP_ENDED),
	[OP_ENDED] = 0,
};

/* What one FETCH asks for: whole pieces of one chunk, or a gap that needs none. */
struct op_part {
	uint64_t offset;
	uint32_t length;
	bool gap;
};

struct client_op {
	uint32_t magic;
	enum op_state state; /* the loop's */
	struct list link;    /* client.active or client.ops_free; under client.lock */
	struct client_volume *volume;
	struct client_read *read; /* the caller's: not looked at once finished */
	uint64_t offset;
	uint32_t length;
	unsigned int refs; /* under client.lock, with the next two */
	bool finished;     /* on_done was called, or is being called */
	bool cancel_posted;
	struct loop_task task; /* the next step */
	struct loop_task cancel_task;
	struct list waiter; /* client.budget_waiters */
	struct loop_timer *timer;
	struct pool_job job;
	struct rpc_call call;
	struct client_owner *owner; /* that was asked last */

	struct op_part parts[PARTS_MAX];
	uint32_t n_parts; /* 0: not planned yet */
	uint32_t part;
	uint8_t *buffer; /* of several parts; `length` bytes out of the budget */

	uint64_t started_ns;
	uint64_t deadline_ns;
	uint32_t attempts; /* without an answer since the last progress */
	uint32_t bad_answers;
	uint32_t bad_files; /* descriptors that did not give the bytes */
	bool no_local;      /* asks for bytes: the file did not do */
	bool logged;
	int last_error;

	/* The answer being worked on: */
	uint8_t *payload;
	uint64_t charged; /* for the payload */
	uint32_t checksums;
	int fd;
	int work_status;
};

struct io_buffer {
	struct list link;
	uint8_t *data;
};

static void step(struct client_op *op);
static void run_step(struct loop_task *task);
static void run_job(struct pool_job *job);

static struct client *client_of(const struct client_op *op)
{
	return op->volume->client;
}

static void set_state(struct client_op *op, enum op_state state)
{
	ensure(transitions[op->state] & TO(state));
	op->state = state;
}

/* ---- memory ------------------------------------------------------------------------------------------------ */

int client_fetch_init(struct client *client, unsigned int io_threads)
{
	list_init(&client->ops_free);
	list_init(&client->active);
	list_init(&client->overflow);
	list_init(&client->overflow_cancelled);
	list_init(&client->budget_waiters);
	list_init(&client->buffers);
	/* Touched page by page as reads come. */
	client->ops = calloc(CLIENT_READS, sizeof(*client->ops));
	if (!client->ops)
		return -ENOMEM;
	for (unsigned int i = 0; i < io_threads; i++) {
		struct io_buffer *buffer = calloc(1, sizeof(*buffer));

		if (!buffer)
			return -ENOMEM;
		list_push_back(&client->buffers, &buffer->link);
		buffer->data = aligned_alloc(BLOCK_BYTES, CLIENT_READ_MAX);
		if (!buffer->data)
			return -ENOMEM;
	}
	return 0;
}

void client_fetch_release(struct client *client)
{
	struct list *node;

	if (!client->ops)
		return;
	while ((node = list_pop_front(&client->buffers)) != NULL) {
		struct io_buffer *buffer = list_entry(node, struct io_buffer, link);

		free(buffer->data);
		free(buffer);
	}
	free(client->ops);
	client->ops = NULL;
}

void client_fetch_stop(void *arg)
{
	struct client *client = arg;

	loop_timer_stop(client->budget_timer);
	loop_timer_stop(client->watch_timer);
	client->budget_timer = NULL;
	client->watch_timer = NULL;
}

/* One for each I/O thread, so there always is one. */
static struct io_buffer *buffer_take(struct client *client)
{
	struct list *node;

	pthread_mutex_lock(&client->lock);
	node = list_pop_front(&client->buffers);
	pthread_mutex_unlock(&client->lock);
	ensure(node);
	return list_entry(node, struct io_buffer, link);
}

static void buffer_give(struct client *client, struct io_buffer *buffer)
{
	if (!buffer)
		return;
	pthread_mutex_lock(&client->lock);
	list_push_front(&client->buffers, &buffer->link);
	pthread_mutex_unlock(&client->lock);
}

static void drop_answer(struct client_op *op)
{
	free(op->payload);
	op->payload = NULL;
	if (op->charged)
		budget_give(client_of(op)->budget, op->charged);
	op->charged = 0;
	if (op->fd >= 0)
		(void)close(op->fd); /* only ever read from */
	op->fd = -1;
}

/* ---- the life of an op ------------------------------------------------------------------------------------- */

static struct client_op *op_take_locked(
	struct client *client, struct client_volume *volume, struct client_read *read)
{
	struct list *node = list_pop_front(&client->ops_free);
	struct client_op *op;

	if (node)
		op = list_entry(node, struct client_op, link);
	else if (client->ops_used < CLIENT_READS)
		op = &client->ops[client->ops_used++];
	else
		return NULL;
	*op = (struct client_op){
		.magic = OP_MAGIC,
		.state = OP_START,
		.volume = volume,
		.read = read,
		.offset = read->offset,
		.length = read->length,
		.refs = 1,
		.task.run = run_step,
		.fd = -1,
		.started_ns = clock_mono_ns(),
	};
	op->deadline_ns = op->started_ns + client->read_deadline_ns;
	list_init(&op->waiter);
	list_push_back(&client->active, &op->link);
	read->priv = op;
	return op;
}

static void volume_unpend_locked(struct client_volume *volume)
{
	ensure(volume->pending > 0);
	if (--volume->pending == 0)
		pthread_cond_broadcast(&volume->client->idle);
}

/* A read that waited for an op gets this one. Its parts are planned by an I/O thread. */
static void start_overflow_locked(struct client *client)
{
	struct list *node = list_pop_front(&client->overflow);
	struct client_read *read;
	struct client_op *op;

	if (!node)
		return;
	read = list_entry(node, struct client_read, link);
	op = op_take_locked(client, read->priv, read);
	ensure(op);
	loop_post(client->loop, &op->task);
}

static void op_unref(struct client_op *op)
{
	struct client_volume *volume = op->volume;
	struct client *client = volume->client;

	pthread_mutex_lock(&client->lock);
	ensure(op->magic == OP_MAGIC && op->refs > 0);
	if (--op->refs == 0) {
		ensure(op->finished && !op->buffer && !op->payload);
		op->magic = 0;
		list_remove(&op->link);
		list_push_front(&client->ops_free, &op->link);
		start_overflow_locked(client);
		volume_unpend_locked(volume); /* which may go now */
	}
	pthread_mutex_unlock(&client->lock);
}

/* Ends the continuation. Whoever calls this touches the op no more. */
static void op_release(struct client_op *op)
{
	drop_answer(op);
	if (op->buffer)
		budget_give(client_of(op)->budget, op->length);
	free(op->buffer);
	op->buffer = NULL;
	op_unref(op);
}

/* Tells the caller, unless it was told before. */
static void op_finish(struct client_op *op, int status, const void *data)
{
	struct client *client = client_of(op);
	struct client_read *read = op->read;
	bool first;

	pthread_mutex_lock(&client->lock);
	first = !op->finished;
	op->finished = true;
	if (first)
		read->priv = NULL;
	pthread_mutex_unlock(&client->lock);
	if (!first)
		return;
	counter_sub(&client->counters.waiting, 1);
	if (status < 0 && status != -ECANCELED)
		counter_add(&client->counters.failed_reads, 1);
	read->on_done(read, status, data);
}

/* On the loop: told and ended. */
static void op_end(struct client_op *op, int status, const void *data)
{
	op_finish(op, status, data);
	set_state(op, OP_ENDED);
	op_release(op);
}

/* True when there is nothing left to do for the caller; the continuation is ended then. On the loop. */
static bool op_over(struct client_op *op)
{
	struct client *client = client_of(op);
	bool over;

	pthread_mutex_lock(&client->lock);
	over = op->finished || op->volume->closing;
	pthread_mutex_unlock(&client->lock);
	if (over)
		op_end(op, -ECANCELED, NULL);
	return over;
}

/* ---- parts ------------------------------------------------------------------------------------------------- */

static void add_part(struct client_op *op, uint64_t from, uint64_t to, bool gap)
{
	ensure(op->n_parts < PARTS_MAX);
	op->parts[op->n_parts++] = (struct op_part){
		.offset = from,
		.length = (uint32_t)(to - from),
		.gap = gap,
	};
}

/* The pieces of [from, to), which lies in one chunk, in parts of at most FETCH_MAX. */
static int plan_chunk(struct client_op *op, uint64_t from, uint64_t to)
{
	uint64_t start = from;
	uint64_t end = to;
	bool any;
	int r = piece_range_widen(op->volume->table, &start, &end, &any);

	if (r < 0)
		return r;
	if (!any) {
		add_part(op, from, to, true);
		return 0;
	}
	while (end - start > FETCH_MAX) {
		uint64_t cut = start + FETCH_MAX;
		uint64_t cut_end = cut + BLOCK_BYTES;

		r = piece_range_widen(op->volume->table, &cut, &cut_end, &any);
		if (r < 0)
			return r;
		add_part(op, start, cut, false);
		start = cut;
	}
	add_part(op, start, end, false);
	return 0;
}

/* Looks up the table: any thread but the loop. */
static int plan(struct client_op *op)
{
	uint64_t end = op->offset + op->length;
	int r = 0;

	for (uint64_t pos = op->offset; pos < end && r == 0;) {
		uint64_t stop = min(end, align_down(pos, CHUNK_BYTES) + CHUNK_BYTES);

		r = plan_chunk(op, pos, stop);
		pos = stop;
	}
	if (r < 0)
		op->n_parts = 0;
	return r;
}

static const struct op_part *current_part(const struct client_op *op)
{
	return &op->parts[op->part];
}

/* The bytes of the part that the caller asked for. */
static void wanted(const struct client_op *op, uint64_t *ret_from, uint32_t *ret_length)
{
	const struct op_part *part = current_part(op);
	uint64_t from = max(part->offset, op->offset);
	uint64_t to = min(part->offset + part->length, op->offset + op->length);

	*ret_from = from;
	*ret_length = (uint32_t)(to - from);
}

static bool needs_buffer(const struct client_op *op)
{
	return !op->buffer && (op->n_parts > 1 || op->parts[0].gap);
}

/* ---- waiting ----------------------------------------------------------------------------------------------- */

static bool buffer_reserve(struct client_op *op)
{
	struct budget *budget = client_of(op)->budget;

	if (!budget_take(budget, BUDGET_DEMAND, op->length))
		return false;
	op->buffer = aligned_alloc(BLOCK_BYTES, op->length);
	if (!op->buffer)
		budget_give(budget, op->length);
	return op->buffer != NULL;
}

static void on_budget_timer(void *arg)
{
	struct client *client = arg;
	struct list *node;

	client->budget_timer = NULL;
	while ((node = client->budget_waiters.next) != &client->budget_waiters) {
		struct client_op *op = list_entry(node, struct client_op, waiter);

		if (clock_mono_ns() < op->deadline_ns && !buffer_reserve(op))
			break;
		list_remove(&op->waiter);
		set_state(op, OP_START);
		step(op);
	}
	if (!list_empty(&client->budget_waiters) && !client->budget_timer)
		client->budget_timer =
			loop_timer_start(client->loop, BUDGET_INTERVAL, on_budget_timer, client);
}

/* In order of arrival: others use the budget too and do not tell us, so we look. */
static void wait_for_budget(struct client_op *op)
{
	struct client *client = client_of(op);

	set_state(op, OP_BUDGET);
	list_push_back(&client->budget_waiters, &op->waiter);
	if (!client->budget_timer)
		client->budget_timer =
			loop_timer_start(client->loop, BUDGET_INTERVAL, on_budget_timer, client);
}

static void on_backoff(void *arg)
{
	struct client_op *op = arg;

	op->timer = NULL;
	set_state(op, OP_START);
	step(op);
}

static uint64_t backoff_ns(uint32_t attempts)
{
	uint32_t doublings = min(attempts, 10u);
	uint64_t ns = min(BACKOFF_MIN << doublings, BACKOFF_MAX);
	uint32_t jitter;

	hash_random(&jitter, sizeof(jitter));
	return ns / 2 + ns * (jitter % 1024) / 1024; /* 0.5 to 1.5 */
}

static void retry(struct client_op *op, int error)
{
	struct client *client = client_of(op);
	uint64_t now = clock_mono_ns();

	op->last_error = error;
	op->attempts++;
	counter_add(&client->counters.retries, 1);
	if (op->attempts >= REFRESH_ATTEMPTS)
		client_owners_refresh(client->owners);
	if (now >= op->deadline_ns) {
		op_end(op, -EIO, NULL);
		return;
	}
	set_state(op, OP_BACKOFF);
	op->timer = loop_timer_start(
		client->loop, min(backoff_ns(op->attempts), op->deadline_ns - now), on_backoff, op);
	if (!op->timer) { /* no memory: at once, then */
		set_state(op, OP_START);
		loop_post(client->loop, &op->task);
	}
}

/* What another attempt may cure. Everything else is the worker's last word. */
static bool worth_retrying(int status)
{
	static const int codes[] = { EAGAIN, EBUSY, ECONNRESET, ECONNREFUSED, ECONNABORTED, EPIPE,
		ENOTCONN, ETIMEDOUT, EHOSTUNREACH, ENETUNREACH, ENOMEM, ENOBUFS, ENODATA, EBADMSG,
		ECANCELED };

	for (size_t i = 0; i < ARRAY_SIZE(codes); i++)
		if (status == -codes[i])
			return true;
	return false;
}

static void log_slow(const struct client_op *op, uint64_t now)
{
	char volume[2 * VOLUME_ID_LEN + 1];
	const char *cause = "no answer from the worker";

	if (op->state == OP_BUDGET)
		cause = "memory budget used up";
	else if (op->state == OP_WORK)
		cause = "local disk";
	else if (!op->owner)
		cause = "no worker known";
	else if (!rpc_client_connected(op->owner->rpc))
		cause = "worker not connected";
	hash_hex(op->volume->id.bytes, VOLUME_ID_LEN, volume);
	LOG_LIMITED(LOG_WARN, "read waits",
		"volume=%s offset=%llu length=%u waited_s=%llu cause=\"%s\" last_error=%s "
		"attempts=%u",
		volume, (unsigned long long)op->offset, op->length,
		(unsigned long long)((now - op->started_ns) / CLOCK_SECOND), cause,
		op->last_error ? err_name(op->last_error) : "none", op->attempts);
}

/* A write to a log may wait: a few lines a round, and the ops cannot go while their reference is held. */
static void on_watch(void *arg)
{
	struct client *client = arg;
	struct client_op *slow[5];
	uint64_t now = clock_mono_ns();
	uint32_t n = 0;
	bool more;

	client->watch_timer = NULL;
	pthread_mutex_lock(&client->lock);
	list_for_each (node, &client->active) {
		struct client_op *op = list_entry(node, struct client_op, link);

		if (now - op->started_ns < SLOW_NS || n == ARRAY_SIZE(slow))
			break;
		if (op->logged || op->finished)
			continue;
		op->logged = true;
		op->refs++;
		slow[n++] = op;
	}
	more = !list_empty(&client->active);
	pthread_mutex_unlock(&client->lock);
	for (uint32_t i = 0; i < n; i++) {
		log_slow(slow[i], now);
		op_unref(slow[i]);
	}
	if (more)
		client->watch_timer =
			loop_timer_start(client->loop, WATCH_INTERVAL, on_watch, client);
}

/* ---- asking ------------------------------------------------------------------------------------------------ */

/* The blocks of the part that did not match here and of which no worker was told. */
static bool find_damage(struct client_op *op, uint64_t *ret_offset, uint32_t *ret_length)
{
	const struct op_part *part = current_part(op);
	struct chunk_id id = client_volume_chunk(op->volume, part->offset);
	struct client_chunk *chunk = client_chunks_get(client_of(op)->chunks, &id);
	uint32_t first = (uint32_t)(part->offset % CHUNK_BYTES) / BLOCK_BYTES;
	uint32_t n = part->length / BLOCK_BYTES;
	bool found = chunk && client_bits_any(&chunk->damaged, first, n);

	while (found && !client_bits_any(&chunk->damaged, first, 1)) {
		first++;
		n--;
	}
	while (found && !client_bits_any(&chunk->damaged, first + n - 1, 1))
		n--;
	client_chunk_unref(chunk);
	*ret_offset = align_down(part->offset, CHUNK_BYTES) + (uint64_t)first * BLOCK_BYTES;
	*ret_length = n * BLOCK_BYTES;
	return found;
}

static void clear_damage(struct client_op *op)
{
	struct chunk_id id = client_volume_chunk(op->volume, op->call.frame.offset);
	struct client_chunk *chunk = client_chunks_get(client_of(op)->chunks, &id);

	if (chunk)
		client_bits_clear(&chunk->damaged,
			(uint32_t)(op->call.frame.offset % CHUNK_BYTES) / BLOCK_BYTES,
			op->call.frame.length / BLOCK_BYTES);
	client_chunk_unref(chunk);
}

/* Checked here before anything is sized by it. */
static bool answer_fits(const struct client_op *op, const void *payload, int fd)
{
	const struct frame *reply = &op->call.reply;

	if (!payload)
		return false;
	if (reply->flags & FRAME_LOCAL)
		return op->call.frame.flags & FRAME_LOCAL_OK && fd >= 0 &&
		       reply->payload == CHUNK_BITMAP_BYTES;
	return reply->length == op->call.frame.length &&
	       reply->payload == (uint64_t)reply->length + (uint64_t)reply->checksums * 8;
}

/* The answer's memory and descriptor are in the op. */
static void start_work(struct client_op *op)
{
	struct client *client = client_of(op);
	bool local = op->fd >= 0;

	if (!local && budget_take(client->budget, BUDGET_DEMAND, op->call.reply.payload))
		op->charged = op->call.reply.payload;
	set_state(op, OP_WORK);
	op->job.run = run_job;
	/*
	 * Bytes that the budget has no room for are checked and handed over here and now: until that is done the connection
	 * takes no more of them.
	 */
	if (!local && !op->charged) {
		run_job(&op->job);
	} else if (pool_submit(client->pool, &op->job) < 0) {
		drop_answer(op);
		retry(op, -EAGAIN);
	}
}

static void refused(struct client_op *op, int status, const char *line)
{
	if (status == -EMFILE) /* no room for a descriptor here: the bytes, then */
		op->no_local = true;
	if (status == -EMFILE || worth_retrying(status)) {
		retry(op, status);
		return;
	}
	log_debug("fetch failed", "offset=%llu length=%u error=%s line=\"%s\"",
		(unsigned long long)op->offset, op->length, err_name(status), line ? line : "");
	op_end(op, status == -ESTALE ? -ESTALE : -EIO, NULL);
}

static void on_answer(struct rpc_call *call, int status)
{
	struct client_op *op = call->arg;
	_cleanup_free_ void *payload = TAKE(call->reply_payload);
	_cleanup_close_ int fd = TAKE_FD(call->reply_fd);

	if (op_over(op))
		return;
	if (op->state == OP_RECHECK && (status == 0 || !worth_retrying(status))) {
		/* Told. Whatever the worker found, this read does not rely on the file again. */
		clear_damage(op);
		op->no_local = true;
		set_state(op, OP_START);
		step(op);
	} else if (status < 0) {
		refused(op, status, payload);
	} else if (!answer_fits(op, payload, fd)) {
		retry(op, -EBADMSG);
	} else {
		op->payload = TAKE(payload);
		op->checksums = op->call.reply.checksums;
		if (op->call.reply.flags & FRAME_LOCAL)
			op->fd = TAKE_FD(fd);
		start_work(op);
	}
}

static void ask(struct client_op *op, enum frame_op frame_op, uint64_t offset, uint32_t length)
{
	struct client_volume *volume = op->volume;
	bool local = frame_op == FRAME_FETCH && op->owner->local && !op->no_local;

	op->call = (struct rpc_call){
		.frame = { .op = (uint8_t)frame_op,
			.class = FRAME_DEMAND,
			.flags = local ? FRAME_LOCAL_OK : 0,
			.volume = volume->id,
			.lineage = volume->lineage,
			.generation = volume->generation,
			.offset = offset,
			.length = length },
		.payload = NET_PAYLOAD_NONE,
		.deadline_ns = min(op->deadline_ns, clock_mono_ns() + ATTEMPT_DEADLINE),
		.on_done = on_answer,
		.arg = op,
		.reply_fd = -1,
	};
	rpc_call(op->owner->rpc, &op->call);
}

/* The next thing to do for this read; on the loop, in state START. */
static void step(struct client_op *op)
{
	struct client *client = client_of(op);
	uint64_t offset;
	uint32_t length;

	if (op_over(op))
		return;
	if (!client->watch_timer)
		client->watch_timer =
			loop_timer_start(client->loop, WATCH_INTERVAL, on_watch, client);
	if (clock_mono_ns() >= op->deadline_ns) {
		op_end(op, -EIO, NULL);
		return;
	}
	if (needs_buffer(op) && !buffer_reserve(op)) {
		wait_for_budget(op);
		return;
	}
	while (op->part < op->n_parts && current_part(op)->gap) {
		wanted(op, &offset, &length);
		memset(op->buffer + (offset - op->offset), 0, length);
		op->part++;
	}
	if (op->part == op->n_parts) {
		op_end(op, 0, op->buffer);
		return;
	}
	op->owner = client_owners_find(
		client->owners, op->volume->hash, current_part(op)->offset >> CHUNK_BITS);
	if (!op->owner) {
		retry(op, -EHOSTUNREACH);
	} else if (find_damage(op, &offset, &length)) {
		set_state(op, OP_RECHECK);
		ask(op, FRAME_RECHECK, offset, length);
	} else {
		set_state(op, OP_FETCH);
		ask(op, FRAME_FETCH, current_part(op)->offset, current_part(op)->length);
	}
}

/* ---- the answer -------------------------------------------------------------------------------------------- */

/* Every piece of the answer against the checksums that came with it, seeded as our table says; gaps and ends become zeros. */
static int check_payload(struct client_op *op)
{
	const struct op_part *part = current_part(op);
	const uint8_t *sums = op->payload + part->length;
	struct piece_walk walk;
	struct piece_span span;
	uint32_t n = 0;
	int r;

	piece_walk_init(&walk, op->volume->table, part->offset, part->length);
	while ((r = piece_walk_next(&walk, &span)) > 0) {
		uint8_t *data = op->payload + (span.offset - part->offset);
		uint64_t sum;

		if (span.offset < part->offset ||
			span.offset + span.padded > part->offset + part->length)
			return -EBADMSG;
		if (span.length) {
			if (n == op->checksums)
				return -EBADMSG;
			memcpy(&sum, sums + (size_t)n++ * 8, sizeof(sum));
			if (hash_xxh3(data, span.length, span.seed) != le64toh(sum))
				return -EBADMSG;
		}
		memset(data + span.length, 0, span.padded - span.length);
	}
	if (r < 0)
		return r;
	return n == op->checksums ? 0 : -EBADMSG;
}

static int work_bytes(struct client_op *op, const void **ret_data)
{
	struct client_counters *counters = &client_of(op)->counters;
	uint64_t from;
	uint32_t length;
	int r = check_payload(op);

	if (r < 0) {
		counter_add(&counters->mismatches, 1);
		return r;
	}
	wanted(op, &from, &length);
	*ret_data = op->payload + (from - current_part(op)->offset);
	if (op->buffer)
		memcpy(op->buffer + (from - op->offset), *ret_data, length);
	counter_add(&counters->remote_bytes, length);
	return 0;
}

static int work_local(struct client_op *op, struct io_buffer *buffer, const void **ret_data)
{
	struct client *client = client_of(op);
	struct chunk_id id = client_volume_chunk(op->volume, current_part(op)->offset);
	struct client_chunk *chunk;
	uint8_t *out = buffer->data;
	uint64_t from;
	uint32_t length;
	int r = client_chunks_install(client->chunks, &id, TAKE_FD(op->fd), op->payload, &chunk);

	if (r < 0)
		return r;
	wanted(op, &from, &length);
	if (op->buffer)
		out = op->buffer + (from - op->offset);
	r = client_local_read(op->volume, from, length, out);
	client_chunk_unref(chunk);
	if (r == 0)
		counter_add(&client->counters.local_bytes, length);
	*ret_data = out;
	return r;
}

static void after_bad_file(struct client_op *op)
{
	/* The first time the chunk may just have been replaced; then the bytes are asked for. */
	if (++op->bad_files > 1)
		op->no_local = true;
	op->last_error = op->work_status;
	counter_add(&client_of(op)->counters.retries, 1);
	set_state(op, OP_START);
	step(op);
}

/* On the loop: an I/O thread is done with an answer that did not end the read. */
static void after_work(struct loop_task *task)
{
	struct client_op *op = container_of(task, struct client_op, task);
	bool file = op->call.reply.flags & FRAME_LOCAL;

	op->task.run = run_step;
	if (op_over(op))
		return;
	if (op->work_status == 0) {
		op->part++;
		op->attempts = 0;
		set_state(op, OP_START);
		step(op);
	} else if (file) {
		after_bad_file(op);
	} else if (op->work_status == -EBADMSG && ++op->bad_answers >= BAD_ANSWERS_MAX) {
		op_end(op, -EIO, NULL);
	} else {
		retry(op, op->work_status);
	}
}

/* On an I/O thread, or on the loop for bytes that found no room. */
static void run_job(struct pool_job *job)
{
	struct client_op *op = container_of(job, struct client_op, job);
	struct client *client = client_of(op);
	struct io_buffer *buffer = NULL;
	const void *data = NULL;
	int r;

	if (op->fd >= 0) {
		buffer = buffer_take(client);
		r = work_local(op, buffer, &data);
	} else {
		r = work_bytes(op, &data);
	}
	if (r == 0 && op->part + 1 == op->n_parts) {
		op_finish(op, 0, op->buffer ? op->buffer : data);
		buffer_give(client, buffer);
		op_release(op); /* stays in state WORK: a cancel that comes now leaves it alone */
		return;
	}
	buffer_give(client, buffer);
	drop_answer(op);
	op->work_status = r;
	op->task.run = after_work;
	loop_post(client->loop, &op->task);
}

static void after_plan(struct loop_task *task)
{
	struct client_op *op = container_of(task, struct client_op, task);

	op->task.run = run_step;
	if (op_over(op))
		return;
	if (op->work_status < 0) {
		op_end(op, -EIO, NULL);
		return;
	}
	set_state(op, OP_START);
	step(op);
}

static void run_plan(struct pool_job *job)
{
	struct client_op *op = container_of(job, struct client_op, job);

	op->work_status = plan(op);
	op->task.run = after_plan;
	loop_post(client_of(op)->loop, &op->task);
}

static void run_step(struct loop_task *task)
{
	struct client_op *op = container_of(task, struct client_op, task);

	if (op->n_parts) {
		step(op);
	} else if (op->work_status < 0) { /* the table is damaged */
		op_end(op, -EIO, NULL);
	} else {
		set_state(op, OP_WORK);
		op->job.run = run_plan;
		if (pool_submit(client_of(op)->pool, &op->job) < 0)
			op_end(op, -EIO, NULL);
	}
}

/* ---- the caller's side ------------------------------------------------------------------------------------- */

void client_read(struct client_volume *volume, struct client_read *read)
{
	struct client *client = volume->client;
	struct client_op *op;

	CHECK_MAGIC(volume, CLIENT_VOLUME_MAGIC);
	ensure(read->length && read->length <= CLIENT_READ_MAX && read->on_done);
	ensure(read->offset % BLOCK_BYTES == 0 && read->length % BLOCK_BYTES == 0);
	ensure(read->offset <= UINT64_MAX - CHUNK_BYTES);
	counter_add(&client->counters.remote_reads, 1);
	counter_add(&client->counters.waiting, 1);
	list_init(&read->link);
	pthread_mutex_lock(&client->lock);
	volume->pending++;
	op = op_take_locked(client, volume, read);
	if (!op) {
		read->priv = volume;
		list_push_back(&client->overflow, &read->link);
	}
	pthread_mutex_unlock(&client->lock);
	if (!op)
		return;
	op->work_status = plan(
		op); /* here: a lookup may decode a block of the table, which the loop must not wait for */
	loop_post(client->loop, &op->task);
}

static void run_cancel(struct loop_task *task)
{
	struct client_op *op = container_of(task, struct client_op, cancel_task);

	op_finish(op, -ECANCELED, NULL);
	switch (op->state) {
	case OP_BUDGET:
		list_remove(&op->waiter);
		set_state(op, OP_ENDED);
		op_release(op);
		break;
	case OP_BACKOFF:
		loop_timer_stop(op->timer);
		set_state(op, OP_ENDED);
		op_release(op);
		break;
	case OP_RECHECK:
	case OP_FETCH:
		rpc_cancel(op->owner->rpc, &op->call);
		break;
	case OP_START: /* its task or job follows and finds it finished */
	case OP_WORK:
	case OP_ENDED:
		break;
	}
	op_unref(op);
}

static void cancel_op_locked(struct client_op *op)
{
	if (op->finished || op->cancel_posted)
		return;
	op->cancel_posted = true;
	op->refs++;
	op->cancel_task.run = run_cancel;
	loop_post(client_of(op)->loop, &op->cancel_task);
}

static void run_overflow(struct loop_task *task)
{
	struct client *client = container_of(task, struct client, overflow_task);

	for (;;) {
		struct client_volume *volume = NULL;
		struct client_read *read = NULL;
		struct list *node;

		pthread_mutex_lock(&client->lock);
		node = list_pop_front(&client->overflow_cancelled);
		if (node) {
			read = list_entry(node, struct client_read, link);
			volume = read->priv;
			read->priv = NULL;
		} else {
			client->overflow_posted = false;
		}
		pthread_mutex_unlock(&client->lock);
		if (!read)
			return;
		counter_sub(&client->counters.waiting, 1);
		read->on_done(read, -ECANCELED, NULL);
		pthread_mutex_lock(&client->lock);
		volume_unpend_locked(volume);
		pthread_mutex_unlock(&client->lock);
	}
}

static void cancel_overflow_locked(struct client *client, struct client_read *read)
{
	list_remove(&read->link);
	list_push_back(&client->overflow_cancelled, &read->link);
	if (client->overflow_posted)
		return;
	client->overflow_posted = true;
	client->overflow_task.run = run_overflow;
	loop_post(client->loop, &client->overflow_task);
}

void client_read_cancel(struct client_volume *volume, struct client_read *read)
{
	struct client *client = volume->client;

	CHECK_MAGIC(volume, CLIENT_VOLUME_MAGIC);
	pthread_mutex_lock(&client->lock);
	if (read->priv == volume)
		cancel_overflow_locked(client, read);
	else if (read->priv)
		cancel_op_locked(read->priv);
	pthread_mutex_unlock(&client->lock);
}

void client_fetch_cancel_all(struct client_volume *volume)
{
	struct client *client = volume->client;

	pthread_mutex_lock(&client->lock);
	volume->closing = true;
	list_for_each (node, &client->active) {
		struct client_op *op = list_entry(node, struct client_op, link);

		if (op->volume == volume)
			cancel_op_locked(op);
	}
	list_for_each_safe (node, &client->overflow) {
		struct client_read *read = list_entry(node, struct client_read, link);

		if (read->priv == volume)
			cancel_overflow_locked(client, read);
	}
	pthread_mutex_unlock(&client->lock);
}
