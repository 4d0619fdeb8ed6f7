/*
 * Reads from their call to their end: the table of ops, those waiting for one, cancel. See
 * client_op.h, client.h.
 */
#include "client/client_op.h"
#include "client/client_back.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"

#include <stdlib.h>

#define SLOW_NS (5 * CLOCK_MS) /* longer than a disk, shorter than an origin */

#define TO(s) (1u << (s))
static const unsigned int transitions[] = {
	[OP_START] = TO(OP_BUDGET) | TO(OP_RECHECK) | TO(OP_FETCH) | TO(OP_WORK) | TO(OP_BACKOFF) |
		     TO(OP_DIRECT) | TO(OP_NEAR) | TO(OP_ENDED),
	[OP_BUDGET] = TO(OP_START) | TO(OP_ENDED),
	[OP_RECHECK] = TO(OP_START) | TO(OP_BACKOFF) | TO(OP_ENDED),
	[OP_FETCH] = TO(OP_START) | TO(OP_WORK) | TO(OP_BACKOFF) | TO(OP_ENDED),
	[OP_WORK] = TO(OP_START) | TO(OP_BACKOFF) | TO(OP_ENDED),
	[OP_NEAR] = TO(OP_START) | TO(OP_ENDED),
	[OP_DIRECT] = TO(OP_START) | TO(OP_BACKOFF) | TO(OP_ENDED),
	[OP_BACKOFF] = TO(OP_START) | TO(OP_ENDED),
	[OP_ENDED] = 0,
};

/* What it waits for in that state, as the log says it. */
static const char *const places[] = {
	[OP_START] = "turn",
	[OP_BUDGET] = "memory",
	[OP_WORK] = "disk",
	[OP_DIRECT] = "origin",
	[OP_NEAR] = "ahead",
	[OP_BACKOFF] = "pause",
	[OP_ENDED] = "end",
};

/* One that no table names has an address alone. */
static const char *name_of(const struct view_peer *peer)
{
	return *peer->name ? peer->name : peer->address;
}

static void note_place(struct client_op *op, uint64_t now)
{
	bool asking = op->state == OP_FETCH || op->state == OP_RECHECK;

	client_trace_note(&op->trace, asking ? name_of(op->owner) : places[op->state],
		asking ? op->asked_status : 0, now - op->entered_ns);
}

void client_op_set_state(struct client_op *op, enum client_op_state state)
{
	uint64_t now = clock_mono_ns();

	ensure(transitions[op->state] & TO(state));
	note_place(op, now);
	op->entered_ns = now;
	op->state = state;
}

/* ---- memory ---------------------------------------------------------------------------------- */

int client_ops_init(struct client *client, unsigned int io_threads)
{
	list_init(&client->ops_free);
	list_init(&client->active);
	list_init(&client->overflow);
	list_init(&client->overflow_cancelled);
	list_init(&client->budget_waiters);
	list_init(&client->away);
	list_init(&client->buffers);
	/* Touched page by page as reads come. */
	client->ops = calloc(CLIENT_READS, sizeof(*client->ops));
	if (!client->ops)
		return -ENOMEM;
	for (unsigned int i = 0; i < io_threads; i++) {
		struct client_buffer *buffer = calloc(1, sizeof(*buffer));

		if (!buffer)
			return -ENOMEM;
		list_push_back(&client->buffers, &buffer->link);
		buffer->data = aligned_alloc(BLOCK_BYTES, CLIENT_READ_MAX);
		if (!buffer->data)
			return -ENOMEM;
	}
	return 0;
}

void client_ops_release(struct client *client)
{
	struct list *node;

	if (!client->ops)
		return;
	while ((node = list_pop_front(&client->buffers)) != NULL) {
		struct client_buffer *buffer = list_entry(node, struct client_buffer, link);

		free(buffer->data);
		free(buffer);
	}
	free(client->ops);
	client->ops = NULL;
}

struct client_buffer *client_buffer_take(struct client *client)
{
	struct list *node;

	pthread_mutex_lock(&client->lock);
	node = list_pop_front(&client->buffers);
	pthread_mutex_unlock(&client->lock);
	ensure(node);
	return list_entry(node, struct client_buffer, link);
}

void client_buffer_give(struct client *client, struct client_buffer *buffer)
{
	if (!buffer)
		return;
	pthread_mutex_lock(&client->lock);
	list_push_front(&client->buffers, &buffer->link);
	pthread_mutex_unlock(&client->lock);
}

void client_op_drop_answer(struct client_op *op)
{
	free(op->payload);
	op->payload = NULL;
	if (op->charged)
		budget_give(client_op_client(op)->budget, op->charged);
	op->charged = 0;
	if (op->fd >= 0)
		(void)close(op->fd); /* only ever read from */
	op->fd = -1;
}

/* ---- the life of an op ----------------------------------------------------------------------- */

static void note_failed_locked(struct client *client, const struct client_op *op, uint64_t now)
{
	/* One that was short itself gives those after it nothing: they have the whole time again. */
	if (now - op->started_ns < client->read_deadline_ns / 2)
		return;
	client->failed[client->n_failed++ % CLIENT_FAILED] =
		(struct client_failed){ op->volume, op->offset, op->length, now };
}

static uint64_t patience_locked(const struct client *client, const struct client_op *op)
{
	for (uint32_t i = 0; i < CLIENT_FAILED; i++) {
		const struct client_failed *f = &client->failed[i];

		if (f->volume == op->volume && op->started_ns - f->at_ns < CLIENT_FAILED_NS &&
			op->offset < f->offset + f->length && f->offset < op->offset + op->length)
			return min(CLIENT_AGAIN_NS, client->read_deadline_ns / 4);
	}
	return client->read_deadline_ns;
}

void client_ops_forget_locked(struct client_volume *volume)
{
	struct client *client = volume->client;

	for (uint32_t i = 0; i < CLIENT_FAILED; i++)
		if (client->failed[i].volume == volume)
			client->failed[i].volume = NULL;
}

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
		.magic = CLIENT_OP_MAGIC,
		.state = OP_START,
		.volume = volume,
		.read = read,
		.offset = read->offset,
		.length = read->length,
		.exact = read->exact,
		.peek = read->peek,
		.refs = 1,
		.task.run = client_fetch_run,
		.fd = -1,
		.started_ns = clock_mono_ns(),
	};
	op->entered_ns = op->started_ns;
	op->deadline_ns = op->started_ns + patience_locked(client, op);
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

void client_op_unref(struct client_op *op)
{
	struct client_volume *volume = op->volume;
	struct client *client = volume->client;

	pthread_mutex_lock(&client->lock);
	ensure(op->magic == CLIENT_OP_MAGIC && op->refs > 0);
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

void client_op_release(struct client_op *op)
{
	client_op_drop_answer(op);
	if (op->buffer)
		budget_give(client_op_client(op)->budget, op->length);
	free(op->buffer);
	op->buffer = NULL;
	client_trace_free(TAKE(op->trace));
	client_op_unref(op);
}

/* What the bytes lie in; the budget's share of it is the new owner's affair. */
static void *take_memory(struct client_op *op)
{
	if (!op->buffer)
		return TAKE(op->payload);
	budget_give(client_op_client(op)->budget, op->length);
	return TAKE(op->buffer);
}

/* A read that took long is over: where it was meanwhile. By whom its continuation is. */
static void log_waited(struct client_op *op, int status, uint64_t took)
{
	char where[CLIENT_TRACE_TEXT];
	char volume[2 * VOLUME_ID_LEN + 1];

	note_place(op, op->started_ns + took);
	hash_hex(op->volume->id.bytes, VOLUME_ID_LEN, volume);
	LOG_LIMITED(LOG_INFO, "read waited",
		"volume=%s offset=%llu length=%u took_ms=%llu status=%s where=\"%s\"", volume,
		(unsigned long long)op->offset, op->length, (unsigned long long)(took / CLOCK_MS),
		status ? err_name(status) : "ok", client_trace_text(op->trace, where));
}

void client_op_finish(struct client_op *op, int status, const void *data)
{
	struct client *client = client_op_client(op);
	struct client_read *read = op->read;
	uint64_t took;
	bool first;

	pthread_mutex_lock(&client->lock);
	first = !op->finished;
	op->finished = true;
	if (first)
		read->priv = NULL;
	if (first && status == -EIO)
		note_failed_locked(client, op, clock_mono_ns());
	pthread_mutex_unlock(&client->lock);
	if (!first)
		return;
	counter_sub(&client->counters.waiting, 1);
	if (status < 0 && status != -ECANCELED)
		counter_add(&client->counters.failed_reads, 1);
	took = clock_mono_ns() - op->started_ns;
	if (status == 0)
		histogram_note(&client->histograms.worker, took);
	if (took > SLOW_NS)
		counter_add(&client->counters.slow_reads, 1);
	if (op->peek && status == 0)
		read->memory = take_memory(op);
	read->on_done(read, status, data);
	/* One that is cancelled may be at work on another thread. */
	if (took >= CLIENT_TRACE_SLOW && !op->peek && status != -ECANCELED)
		log_waited(op, status, took);
}

void client_op_end(struct client_op *op, int status, const void *data)
{
	client_op_finish(op, status, data);
	client_op_set_state(op, OP_ENDED);
	client_op_release(op);
}

bool client_op_over(struct client_op *op)
{
	struct client *client = client_op_client(op);
	bool over;

	pthread_mutex_lock(&client->lock);
	over = op->finished || op->volume->closing;
	pthread_mutex_unlock(&client->lock);
	if (over)
		client_op_end(op, -ECANCELED, NULL);
	return over;
}

/* ---- the caller's side ----------------------------------------------------------------------- */

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
	read->volume = volume;
	read->memory = NULL;
	list_init(&read->link);
	pthread_mutex_lock(&client->lock);
	op = op_take_locked(client, volume, read);
	if (!op && !read->peek) {
		read->priv = volume;
		list_push_back(&client->overflow, &read->link);
	}
	if (op || !read->peek)
		volume->pending++;
	pthread_mutex_unlock(&client->lock);
	if (!op && read->peek) {
		/* Those that have an op may be waiting for it: it must not wait for one of theirs. */
		counter_sub(&client->counters.waiting, 1);
		read->on_done(read, -ECANCELED, NULL);
	}
	if (!op)
		return;
	/* Here: a lookup may decode a block of the table, which the loop must not wait for. */
	op->work_status = client_plan(op);
	loop_post(client->loop, &op->task);
}

static void run_cancel(struct loop_task *task)
{
	struct client_op *op = container_of(task, struct client_op, cancel_task);

	client_op_finish(op, -ECANCELED, NULL);
	switch (op->state) {
	case OP_BUDGET:
	case OP_NEAR:
		if (op->state == OP_NEAR)
			client_op_client(op)->near.n_waiters--;
		list_remove(&op->waiter);
		client_op_set_state(op, OP_ENDED);
		client_op_release(op);
		break;
	case OP_BACKOFF:
		client_back_leave(op);
		client_op_set_state(op, OP_ENDED);
		client_op_release(op);
		break;
	case OP_RECHECK:
	case OP_FETCH:
		rpc_cancel(op->owner->rpc, &op->call);
		break;
	case OP_DIRECT:
		client_direct_cancel(op);
		break;
	case OP_START: /* its task or job follows and finds it finished */
	case OP_WORK:
	case OP_ENDED:
		break;
	}
	client_op_unref(op);
}

static void cancel_op_locked(struct client_op *op)
{
	if (op->finished || op->cancel_posted)
		return;
	op->cancel_posted = true;
	op->refs++;
	op->cancel_task.run = run_cancel;
	loop_post(client_op_client(op)->loop, &op->cancel_task);
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

void client_ops_cancel_all(struct client_volume *volume)
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
