/*
 * What a read does next: asks the owner, waits, takes the answer, goes on. See client_op.h for the
 * states.
 */
#include "client/client_ask.h"
#include "client/client_back.h"
#include "client/client_op.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/deadline.h"
#include "base/hash.h"
#include "base/log.h"
#include "client/client_holds.h"
#include "proto/held.h"

#include <stdlib.h>
#include <string.h>

#define BUDGET_INTERVAL  (5 * CLOCK_MS)
#define WATCH_INTERVAL   (250 * CLOCK_MS)
#define SLOW_NS          (10 * CLOCK_SECOND) /* a read that waits this long is logged */
#define BAD_ANSWERS_MAX  5                   /* answers whose bytes do not match, then -EIO */
#define REFRESH_ATTEMPTS 2            /* failures after which the slots are asked for again */
#define HERE_BYTES       (256u << 10) /* answers up to that are checked on the loop ... */
#define HERE_READS       4u           /* ... while no more reads are in flight: done_here() */

static void step(struct client_op *op);
static void ask_next(struct client_op *op);
static void run_job(struct pool_job *job);

/* ---- waiting --------------------------------------------------------------------------------- */

static bool needs_buffer(const struct client_op *op)
{
	return !op->buffer && (op->n_parts > 1 || op->parts[0].gap || op->no_worker);
}

static bool buffer_reserve(struct client_op *op)
{
	struct budget *budget = client_op_client(op)->budget;

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
		client_op_set_state(op, OP_START);
		step(op);
	}
	if (!list_empty(&client->budget_waiters) && !client->budget_timer)
		client->budget_timer =
			loop_timer_start(client->loop, BUDGET_INTERVAL, on_budget_timer, client);
}

/* In order of arrival: others use the budget too and do not tell us, so we look. */
static void wait_for_budget(struct client_op *op)
{
	struct client *client = client_op_client(op);

	client_op_set_state(op, OP_BUDGET);
	list_push_back(&client->budget_waiters, &op->waiter);
	if (!client->budget_timer)
		client->budget_timer =
			loop_timer_start(client->loop, BUDGET_INTERVAL, on_budget_timer, client);
}

/* The reader gets EIO. */
static void give_up(struct client_op *op)
{
	uint32_t known;
	uint32_t up;

	view_count(client_op_client(op)->view, &up, &known);
	LOG_LIMITED(LOG_ERROR, "read failed",
		"offset=%llu length=%u waited_s=%llu last_error=%s workers_up=%u workers=%u "
		"next=\"the reader gets EIO: see cachectl worker list\"",
		(unsigned long long)op->offset, op->length,
		(unsigned long long)((clock_mono_ns() - op->started_ns) / CLOCK_SECOND),
		op->last_error ? err_name(op->last_error) : "none", up, known);
	client_op_end(op, -EIO, NULL);
}

static void retry(struct client_op *op, int error)
{
	struct client *client = client_op_client(op);
	uint64_t now = clock_mono_ns();

	if (op->peek) {
		client_op_end(op, -ECANCELED, NULL);
		return;
	}
	op->last_error = error;
	op->no_recheck = false;
	op->attempts++;
	counter_add(&client->counters.retries, 1);
	if (op->attempts >= REFRESH_ATTEMPTS)
		view_stale(client->view);
	if (now >= op->deadline_ns) {
		give_up(op);
		return;
	}
	client_back_wait(op, error, now);
}

/* What another attempt may cure. Everything else is the worker's last word. */
static bool worth_retrying(int status)
{
	static const int codes[] = { EAGAIN, EBUSY, ENOMEM, ENOBUFS, ENODATA, EBADMSG };

	for (size_t i = 0; i < ARRAY_SIZE(codes); i++)
		if (status == -codes[i])
			return true;
	return client_back_is_away(status);
}

/* On the loop. */
static void log_slow(const struct client_op *op, uint64_t now)
{
	char volume[2 * VOLUME_ID_LEN + 1];
	const char *cause = "no answer from the worker: its log has the origin's cause";
	const char *why = "";

	if (op->state == OP_BUDGET) {
		cause = "memory budget used up";
	} else if (op->state == OP_WORK) {
		cause = "local disk";
	} else if (op->state == OP_DIRECT) {
		cause = "no answer from the origin";
	} else if (op->state == OP_NEAR) {
		cause = "read ahead: no answer from the worker";
	} else if (!op->owner) {
		cause = "no worker known";
	} else if (!rpc_client_connected(op->owner->rpc)) {
		cause = "no worker answers";
		why = rpc_client_trouble(op->owner->rpc); /* a token that has expired, say */
	}
	hash_hex(op->volume->id.bytes, VOLUME_ID_LEN, volume);
	LOG_LIMITED(LOG_WARN, "read waits",
		"volume=%s offset=%llu length=%u waited_s=%llu cause=\"%s%s%s\" last_error=%s "
		"attempts=%u",
		volume, (unsigned long long)op->offset, op->length,
		(unsigned long long)((now - op->started_ns) / CLOCK_SECOND), cause,
		*why ? ": " : "", why, op->last_error ? err_name(op->last_error) : "none",
		op->attempts);
}

/* A write to a log may wait: a few lines a round, and the ops cannot go while their reference is
 * held. */
static void on_watch(void *arg)
{
	struct client *client = arg;
	struct client_op *slow[5];
	uint64_t now;
	uint32_t n = 0;
	bool more;

	client->watch_timer = NULL;
	pthread_mutex_lock(&client->lock);
	now = clock_mono_ns(); /* under the lock: no read began later */
	list_for_each (node, &client->active) {
		struct client_op *op = list_entry(node, struct client_op, link);

		client_ask_watch(op);
		if (now - op->started_ns < SLOW_NS || n == ARRAY_SIZE(slow))
			continue;
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
		client_op_unref(slow[i]);
	}
	if (more)
		client->watch_timer =
			loop_timer_start(client->loop, WATCH_INTERVAL, on_watch, client);
}

void client_fetch_stop(void *arg)
{
	struct client *client = arg;

	loop_timer_stop(client->budget_timer);
	loop_timer_stop(client->watch_timer);
	loop_timer_stop(client->wake_timer);
	client_holds_stop(client);
	client_near_stop(client);
	client->budget_timer = NULL;
	client->watch_timer = NULL;
	client->wake_timer = NULL;
}

/* ---- asking ---------------------------------------------------------------------------------- */

/* The blocks of the part that did not match here and which no worker knows of. */
static bool find_damage(struct client_op *op, uint64_t *ret_offset, uint32_t *ret_length)
{
	const struct client_part *part = client_plan_part(op);
	struct chunk_id id = client_volume_chunk(op->volume, part->offset);
	struct client_chunk *chunk = client_chunks_get(client_op_client(op)->chunks, &id);
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
	struct client_chunk *chunk = client_chunks_get(client_op_client(op)->chunks, &id);

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
		       reply->payload == CHUNK_BITMAP_BYTES + HELD_ENTRY_BYTES;
	return reply->length == op->call.frame.length &&
	       reply->payload == (uint64_t)reply->length + (uint64_t)reply->checksums * 8;
}

/*
 * What is small costs less than waking another thread for it, and what comes behind it hardly waits; with
 * many reads in flight other threads are awake, and more than this one can do is to be done. Reads that wait for
 * what others asked for are not counted.
 */
static bool done_here(const struct client_op *op)
{
	const struct client *client = client_op_client(op);

	return op->call.reply.payload <= HERE_BYTES &&
	       counter_get(&client->counters.waiting) <= HERE_READS + client->near.n_waiters;
}

/* The answer's memory and descriptor are in the op. */
static void start_work(struct client_op *op)
{
	struct client *client = client_op_client(op);
	bool local = op->fd >= 0;

	if (!local && budget_take(client->budget, BUDGET_DEMAND, op->call.reply.payload))
		op->charged = op->call.reply.payload;
	client_op_set_state(op, OP_WORK);
	op->job.run = run_job;
	/*
	 * Bytes that the budget has no room for are checked and handed over here and now, too:
	 * until that is done the connection takes no more of them.
	 */
	if (!local && (!op->charged || done_here(op))) {
		run_job(&op->job);
	} else if (pool_submit(client->pool, &op->job) < 0) {
		client_op_drop_answer(op);
		retry(op, -EAGAIN);
	}
}

static void ask_again(struct client_op *op)
{
	client_op_set_state(op, OP_START);
	ask_next(op);
}

/* To whom the route says now; true: somebody is asked. */
static void ask_along(struct client_op *op, bool found, int status)
{
	if (!found) {
		client_direct_down(op->volume);
		retry(op, status);
		return;
	}
	op->last_error = status;
	ask_again(op);
}

/* No answer came, and there may be others. True: it was seen to. */
static bool passed_on(struct client_op *op, int status)
{
	struct client *client = client_op_client(op);
	bool answered = op->call.reply.flags & FRAME_REPLY;

	if (op->state != OP_FETCH || op->call.frame.op == FRAME_FILE)
		return false;
	if (answered && status == -EREMOTE) {
		counter_add(&client->counters.moved, 1);
		ask_along(op,
			client_route_moved(&op->route, op->volume,
				(uint16_t)min(op->call.reply.extent, (uint64_t)PLACEMENT_NONE),
				op->call.reply.flags),
			status);
		return true;
	}
	if (op->route.cached && (status == -ENODATA || !answered)) {
		ask_along(op, client_route_miss(&op->route, op->volume), status);
		return true;
	}
	if (!client_ask_unanswered(op, status))
		return false;
	counter_add(&client->counters.passed_on, 1);
	view_stale(client->view);
	ask_along(op, client_route_dead(&op->route, op->volume), status);
	return true;
}

static void refused(struct client_op *op, int status, const char *line)
{
	if (op->peek) {
		if ((status == -ENODATA || status == -EREMOTE) &&
			client_route_back(&op->route, op->volume) && !op->route.peer->local)
			ask_again(op);
		else
			client_op_end(op, -ECANCELED, NULL);
		return;
	}
	if (passed_on(op, status))
		return;
	if (status == -EMFILE) /* no room for a descriptor here: the bytes, then */
		op->no_local = true;
	if (op->call.frame.op == FRAME_FILE) { /* it went since, or cannot be had that way */
		op->no_file = true;
		client_op_set_state(op, OP_START);
		step(op);
		return;
	}
	if (status == -EMFILE || worth_retrying(status)) {
		retry(op, status);
		return;
	}
	log_debug("fetch failed", "offset=%llu length=%u error=%s line=\"%s\"",
		(unsigned long long)op->offset, op->length, err_name(status), line ? line : "");
	client_op_end(op, status == -ESTALE ? -ESTALE : -EIO, NULL);
}

/* True when a RECHECK reached the worker: what it found, damage or nothing, is an answer too. */
static bool reached(int status)
{
	return status == -EBADMSG || status == -ENODATA || !worth_retrying(status);
}

static void on_answer(struct rpc_call *call, int status)
{
	struct client_op *op = call->arg;
	_cleanup_free_ void *payload = NULL;
	_cleanup_close_ int fd = -1;

	status = client_ask_ended(op, status);
	payload = TAKE(call->reply_payload);
	fd = TAKE_FD(call->reply_fd);
	if (client_op_over(op))
		return;
	if (op->state == OP_RECHECK && reached(status)) {
		/* Reported. Whatever the worker found, this read does not rely on the file again. */
		if (op->owner->local)
			clear_damage(op);
		op->no_local = true;
		client_op_set_state(op, OP_START);
		step(op);
	} else if (op->state == OP_RECHECK && client_ask_unanswered(op, status)) {
		/* Others may have the bytes, and it hears of it the next time. */
		op->no_local = true;
		op->no_recheck = true;
		client_op_set_state(op, OP_START);
		step(op);
	} else if (status < 0) {
		refused(op, status, payload);
	} else if (!answer_fits(op, payload, fd)) {
		retry(op, -EBADMSG);
	} else {
		client_direct_up(op->volume);
		op->payload = TAKE(payload);
		op->checksums = op->call.reply.checksums;
		if (op->call.reply.flags & FRAME_LOCAL)
			op->fd = TAKE_FD(fd);
		start_work(op);
	}
}

/* Then the owner is looked up again. */
static uint64_t attempt_deadline(const struct client_op *op, enum frame_op frame_op)
{
	uint64_t now = clock_mono_ns();

	if (frame_op == FRAME_FETCH_CACHED)
		return deadline_earlier(op->deadline_ns, now + DEADLINE_PROMPT_NS);
	return deadline_share(op->deadline_ns, now, DEADLINE_ATTEMPTS, DEADLINE_PROMPT_NS);
}

static void ask(struct client_op *op, enum frame_op frame_op, uint64_t offset, uint32_t length)
{
	struct client_volume *volume = op->volume;
	bool routed = frame_op == FRAME_FETCH || frame_op == FRAME_FETCH_CACHED;
	bool local = (routed || frame_op == FRAME_FILE) && op->owner->local && !op->no_local &&
		     atomic_load(&volume->client->hanging) <= 0;

	client_ask(op,
		(struct rpc_call){
			.frame = { .op = (uint8_t)frame_op,
				.class = FRAME_DEMAND,
				.flags = (uint16_t)((local ? FRAME_LOCAL_OK : 0) |
						    (op->exact ? FRAME_EXACT : 0) |
						    (routed && op->route.last ? FRAME_LAST : 0)),
				.volume = volume->id,
				.lineage = volume->lineage,
				.generation = volume->generation,
				.offset = offset,
				.length = length },
			.payload = NET_PAYLOAD_NONE,
			.deadline_ns = attempt_deadline(op, frame_op),
			.until_ns = op->deadline_ns,
			/* Of a file, or of damage, its worker alone knows; of the bytes others do. */
			.hurry = routed ? op->route.hurry : true,
			.on_done = on_answer,
			.arg = op,
			.reply_fd = -1,
		});
}

/* The worker that the route names. */
static void ask_next(struct client_op *op)
{
	const struct client_part *part = client_plan_part(op);

	op->owner = op->route.peer;
	if (op->doubted) { /* it sends what is stored there, and compares on request */
		op->doubted = false;
		client_op_set_state(op, OP_RECHECK);
		ask(op, FRAME_RECHECK, part->offset, part->length);
		return;
	}
	client_op_set_state(op, OP_FETCH);
	ask(op, op->route.cached || op->peek ? FRAME_FETCH_CACHED : FRAME_FETCH, part->offset,
		part->length);
}

/* The worker of this node, when its map has the part in a file that is not open here. */
static struct view_peer *find_file(struct client_op *op)
{
	const struct client_part *part = client_plan_part(op);
	struct client *client = client_op_client(op);
	struct chunk_id id = client_volume_chunk(op->volume, part->offset);
	uint64_t file = 0;

	if (op->no_local || op->no_file || atomic_load(&client->hanging) > 0 ||
		!client_chunks_have(client->chunks, &id,
			(uint32_t)(part->offset % CHUNK_BYTES) / BLOCK_BYTES,
			part->length / BLOCK_BYTES, &file) ||
		!file)
		return NULL;
	return view_local(client->view);
}

/* Asks for the part: its file, or the owner of the chunk for the range. */
static void ask_for_part(struct client_op *op)
{
	const struct client_part *part = client_plan_part(op);
	struct view_peer *holder = op->peek ? NULL : find_file(op);

	if (op->peek) {
		if (client_route_slot(&op->route, op->volume, part->offset >> CHUNK_BITS) &&
			!op->route.peer->local)
			ask_next(op);
		else
			client_op_end(op, -ECANCELED, NULL);
		return;
	}
	if (holder) {
		op->owner = holder;
		client_op_set_state(op, OP_FETCH);
		ask(op, FRAME_FILE, part->offset, part->length);
	} else if (client_route_begin(&op->route, op->volume, part->offset >> CHUNK_BITS)) {
		ask_next(op);
	} else {
		op->owner = NULL;
		client_direct_down(op->volume);
		retry(op, -EHOSTUNREACH);
	}
}

static void after_direct(struct client_op *op)
{
	if (client_op_over(op))
		return;
	if (op->work_status == -ESTALE) {
		client_op_end(op, -ESTALE, NULL);
	} else if (op->work_status < 0) {
		retry(op, op->work_status);
	} else {
		op->part++;
		op->attempts = 0;
		client_op_set_state(op, OP_START);
		step(op);
	}
}

/* The next thing to do for this read; on the loop, in state START. */
static void step(struct client_op *op)
{
	struct client *client = client_op_client(op);
	uint64_t offset;
	uint32_t length;

	if (client_op_over(op))
		return;
	op->owner = NULL; /* it may go once no request is sent to it */
	op->backs = client->backs;
	if (!client->watch_timer)
		client->watch_timer =
			loop_timer_start(client->loop, WATCH_INTERVAL, on_watch, client);
	client_holds_start(client);
	if (clock_mono_ns() >= op->deadline_ns) {
		give_up(op);
		return;
	}
	op->no_worker =
		op->part < op->n_parts &&
		client_direct_wanted(op->volume, client_plan_part(op)->offset >> CHUNK_BITS);
	if (client_near_serve(op))
		return;
	if (needs_buffer(op) && !buffer_reserve(op)) {
		if (op->peek)
			client_op_end(op, -ECANCELED, NULL);
		else
			wait_for_budget(op);
		return;
	}
	while (op->part < op->n_parts && client_plan_part(op)->gap) {
		client_plan_wanted(op, &offset, &length);
		memset(op->buffer + (offset - op->offset), 0, length);
		op->part++;
	}
	if (op->part == op->n_parts) {
		client_op_end(op, 0, op->buffer);
		return;
	}
	if (op->no_worker && client_direct_read(op, after_direct) == 0) {
		client_op_set_state(op, OP_DIRECT);
		return;
	}
	op->owner = view_local(client->view);
	if (op->owner && !op->no_recheck && find_damage(op, &offset, &length)) {
		client_op_set_state(op, OP_RECHECK);
		ask(op, FRAME_RECHECK, offset, length);
	} else {
		ask_for_part(op);
	}
}

/* ---- the answer ------------------------------------------------------------------------------ */

static void after_bad_file(struct client_op *op)
{
	/* The first time the chunk may just have been replaced; then the bytes are asked for. */
	if (++op->bad_files > 1)
		op->no_local = true;
	op->last_error = op->work_status;
	counter_add(&client_op_client(op)->counters.retries, 1);
	client_op_set_state(op, OP_START);
	step(op);
}

/* On the loop: an I/O thread is done with an answer that did not end the read. */
static void after_work(struct loop_task *task)
{
	struct client_op *op = container_of(task, struct client_op, task);
	bool file = op->call.reply.flags & FRAME_LOCAL;

	op->task.run = client_fetch_run;
	if (client_op_over(op))
		return;
	if (op->work_status == 0) {
		op->part++;
		op->attempts = 0;
		client_op_set_state(op, OP_START);
		step(op);
	} else if (file) {
		after_bad_file(op);
	} else if (op->work_status == -EBADMSG && ++op->bad_answers >= BAD_ANSWERS_MAX) {
		client_op_end(op, -EIO, NULL);
	} else {
		op->doubted = op->work_status == -EBADMSG;
		retry(op, op->work_status);
	}
}

/* On an I/O thread, or on the loop for bytes that found no room. */
static void run_job(struct pool_job *job)
{
	struct client_op *op = container_of(job, struct client_op, job);
	struct client *client = client_op_client(op);
	struct client_buffer *buffer = NULL;
	const void *data = NULL;
	int r;

	if (op->fd >= 0)
		buffer = client_buffer_take(client);
	r = client_answer_work(op, buffer, &data);
	if (r == 0 && op->part + 1 == op->n_parts) {
		client_op_finish(op, 0, op->buffer ? op->buffer : data);
		client_buffer_give(client, buffer);
		client_op_release(
			op); /* stays in state WORK: a cancel that comes now leaves it alone */
		return;
	}
	client_buffer_give(client, buffer);
	client_op_drop_answer(op);
	op->work_status = r;
	op->task.run = after_work;
	loop_post(client->loop, &op->task);
}

/* The table is damaged, or an object is not in it any more. */
static void end_unplanned(struct client_op *op)
{
	client_op_end(op, op->work_status == -ESTALE ? -ESTALE : -EIO, NULL);
}

static void after_plan(struct loop_task *task)
{
	struct client_op *op = container_of(task, struct client_op, task);

	op->task.run = client_fetch_run;
	if (client_op_over(op))
		return;
	if (op->work_status < 0) {
		end_unplanned(op);
		return;
	}
	client_op_set_state(op, OP_START);
	step(op);
}

static void run_plan(struct pool_job *job)
{
	struct client_op *op = container_of(job, struct client_op, job);

	op->work_status = client_plan(op);
	op->task.run = after_plan;
	loop_post(client_op_client(op)->loop, &op->task);
}

void client_fetch_resume(struct client_op *op)
{
	client_op_set_state(op, OP_START);
	step(op);
}

void client_fetch_run(struct loop_task *task)
{
	struct client_op *op = container_of(task, struct client_op, task);

	if (op->n_parts) {
		step(op);
	} else if (op->work_status < 0) {
		end_unplanned(op);
	} else {
		client_op_set_state(op, OP_WORK);
		op->job.run = run_plan;
		if (pool_submit(client_op_client(op)->pool, &op->job) < 0)
			client_op_end(op, -EIO, NULL);
	}
}
