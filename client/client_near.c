/* Windows of what lies next. See client_near.h. */
#include "client/client_near.h"
#include "client/client_internal.h"
#include "client/client_local.h"
#include "client/client_op.h"
#include "client/client_route.h"

#include <stdlib.h>
#include <string.h>

#define WINDOW_LEAST (256u << 10)
#define WINDOW_MOST  CLIENT_READ_MAX
#define READ_MOST    (512u << 10) /* larger reads gain nothing */
#define BEHIND_BYTES (1u << 20)   /* several readers take their files not quite in order */
#define AHEAD_BYTES  (256u << 10)
#define HITS_LEAST   3u
#define COLD_NS      (CLOCK_SECOND / 2)

/* ---- windows --------------------------------------------------------------------------------- */

static void drop_locked(struct client_near_window *w)
{
	budget_give(w->client->budget, w->length);
	free(w->data);
	w->data = NULL;
	w->volume = NULL;
	w->state = NEAR_FREE;
}

static struct client_near_window *find_locked(
	struct client_volume *volume, uint64_t offset, uint32_t length)
{
	struct client_near *near = &volume->client->near;

	for (uint32_t i = 0; i < CLIENT_NEAR_WINDOWS; i++) {
		struct client_near_window *w = &near->windows[i];

		if (w->state != NEAR_FREE && w->volume == volume && offset >= w->offset &&
			offset + length <= w->offset + w->length)
			return w;
	}
	return NULL;
}

/* A free one, or the one that was read longest ago. */
static struct client_near_window *choose_locked(struct client_near *near)
{
	struct client_near_window *oldest = NULL;

	for (uint32_t i = 0; i < CLIENT_NEAR_WINDOWS; i++) {
		struct client_near_window *w = &near->windows[i];

		if (w->state == NEAR_FREE)
			return w;
		if (w->state == NEAR_READY && w->refs == 0 &&
			(!oldest || w->touched_ns < oldest->touched_ns))
			oldest = w;
	}
	if (oldest)
		drop_locked(oldest);
	return oldest;
}

static void let_go(struct client_near *near, struct client_near_window *w, uint32_t read)
{
	pthread_mutex_lock(&near->lock);
	w->refs--;
	w->used += read;
	w->touched_ns = clock_mono_ns();
	if (w->refs == 0 && (w->used >= w->length || !w->volume))
		drop_locked(w);
	pthread_mutex_unlock(&near->lock);
}

static void on_idle(void *arg)
{
	struct client *client = arg;
	struct client_near *near = &client->near;
	uint64_t now = clock_mono_ns();
	bool any = false;

	near->timer = NULL;
	pthread_mutex_lock(&near->lock);
	for (uint32_t i = 0; i < CLIENT_NEAR_WINDOWS; i++) {
		struct client_near_window *w = &near->windows[i];

		if (w->state == NEAR_READY && w->refs == 0 &&
			now - w->touched_ns >= CLIENT_NEAR_IDLE)
			drop_locked(w);
		any = any || w->state != NEAR_FREE;
	}
	pthread_mutex_unlock(&near->lock);
	if (any && !near->stopped)
		near->timer = loop_timer_start(client->loop, CLIENT_NEAR_IDLE, on_idle, client);
}

/* ---- fetching -------------------------------------------------------------------------------- */

static void run_fetched(struct loop_task *task)
{
	struct client_near_window *w = container_of(task, struct client_near_window, task);
	struct client *client = w->client;
	struct client_near *near = &client->near;
	struct list waiters = LIST_INIT(waiters);
	struct list *node;

	pthread_mutex_lock(&near->lock);
	list_splice_back(&waiters, &w->waiters);
	if (w->status == 0 && w->volume) {
		w->state = NEAR_READY;
		w->touched_ns = clock_mono_ns();
	} else {
		drop_locked(w);
	}
	pthread_mutex_unlock(&near->lock);
	while ((node = list_pop_front(&waiters)) != NULL)
		client_fetch_resume(list_entry(node, struct client_op, waiter));
	if (!near->timer && !near->stopped)
		near->timer = loop_timer_start(client->loop, CLIENT_NEAR_IDLE, on_idle, client);
}

static void on_fetched(struct client_read *read, int status, const void *data)
{
	struct client_near_window *w = read->arg;
	struct client *client = w->client;

	w->status = status;
	if (status == 0) {
		memcpy(w->data, data, w->length);
		counter_add(&client->counters.near_fetches, 1);
	} else {
		pthread_mutex_lock(&client->near.lock);
		client->near.cold_ns = clock_mono_ns() + COLD_NS;
		pthread_mutex_unlock(&client->near.lock);
	}
	loop_post(client->loop, &w->task);
}

static void fetch(struct client_volume *volume, uint64_t offset, uint32_t length)
{
	struct client *client = volume->client;
	struct client_near *near = &client->near;
	struct client_near_window *w;

	if (!budget_take(client->budget, BUDGET_PREFETCH, length))
		return;
	pthread_mutex_lock(&near->lock);
	w = choose_locked(near);
	if (w) {
		w->state = NEAR_FETCHING;
		w->client = client;
		w->volume = volume;
		w->offset = offset;
		w->length = length;
		w->used = 0;
		w->data = aligned_alloc(BLOCK_BYTES, length);
		if (!w->data) {
			drop_locked(w);
			w = NULL;
		}
	} else {
		budget_give(client->budget, length);
	}
	pthread_mutex_unlock(&near->lock);
	if (!w)
		return;
	w->read = (struct client_read){
		.offset = offset, .length = length, .on_done = on_fetched, .arg = w, .peek = true
	};
	w->task.run = run_fetched;
	client_read(volume, &w->read);
}

/* From the end of one object to that of another, in one chunk; 0: there is nothing to fetch. */
static uint32_t range_from(struct client_volume *volume, uint64_t start, uint32_t window)
{
	uint64_t end = min(start + window, align_down(start, CHUNK_BYTES) + CHUNK_BYTES);
	struct table_row row;

	end = min(end, align_up(table_info(volume->table)->end, BLOCK_BYTES));
	if (end <= start)
		return 0;
	if (table_find_offset(volume->table, end, &row) == 0 && row.offset > start &&
		row.offset < end)
		end = row.offset;
	return (uint32_t)(end - start);
}

/* ---- streams --------------------------------------------------------------------------------- */

static struct client_near_stream *find_stream_locked(
	struct client_near *near, const struct client_volume *volume, uint64_t offset)
{
	struct client_near_stream *oldest = &near->streams[0];

	for (uint32_t i = 0; i < CLIENT_NEAR_STREAMS; i++) {
		struct client_near_stream *s = &near->streams[i];

		if (s->volume == volume && offset <= s->next + AHEAD_BYTES &&
			offset + BEHIND_BYTES >= s->next)
			return s;
		if (s->used < oldest->used)
			oldest = s;
	}
	oldest->volume = NULL;
	return oldest;
}

/* True when something is to be fetched from *ret_start on. */
static bool note_locked(struct client_near *near, struct client_volume *volume, uint64_t offset,
	uint32_t length, uint64_t *ret_start, uint32_t *ret_window)
{
	struct client_near_stream *s = find_stream_locked(near, volume, offset);
	uint64_t end = align_up(offset + length, BLOCK_BYTES);

	s->used = ++near->clock;
	if (!s->volume) {
		*s = (struct client_near_stream){ .volume = volume,
			.next = end,
			.fetched = end,
			.window = WINDOW_LEAST,
			.used = near->clock };
		return false;
	}
	s->hits++;
	s->next = max(s->next, end);
	s->fetched = max(s->fetched, s->next);
	if (s->hits < HITS_LEAST || clock_mono_ns() < near->cold_ns ||
		s->fetched - s->next >= s->window)
		return false;
	*ret_start = s->fetched;
	*ret_window = s->window;
	return true;
}

/* The next fetch of the stream begins behind this one. False: another thread was first. */
static bool claim(struct client_volume *volume, uint64_t start, uint32_t length)
{
	struct client_near *near = &volume->client->near;
	bool mine = false;

	pthread_mutex_lock(&near->lock);
	for (uint32_t i = 0; i < CLIENT_NEAR_STREAMS && !mine; i++) {
		struct client_near_stream *s = &near->streams[i];

		if (s->volume != volume || s->fetched != start)
			continue;
		s->fetched = start + length;
		s->window = min(2 * s->window, WINDOW_MOST);
		mine = true;
	}
	pthread_mutex_unlock(&near->lock);
	return mine;
}

void client_near_note(struct client_volume *volume, uint64_t offset, uint32_t length)
{
	struct client_near *near = &volume->client->near;
	struct view_peer *peer;
	uint64_t start = 0;
	uint32_t window = 0;
	uint32_t n;
	bool due;
	bool last;

	if (length > READ_MOST || (near->local && !client_route_is_elsewhere(volume)))
		return;
	pthread_mutex_lock(&near->lock);
	due = note_locked(near, volume, offset, length, &start, &window);
	pthread_mutex_unlock(&near->lock);
	if (!due)
		return;
	n = range_from(volume, start, window);
	peer = client_route_serves(volume, start >> CHUNK_BITS, &last);
	if (n == 0 || !claim(volume, start, n) || !peer || peer->local ||
		client_local_present(volume, start, n))
		return;
	fetch(volume, start, n);
}

/* ---- reading --------------------------------------------------------------------------------- */

bool client_near_read(struct client_volume *volume, uint64_t offset, uint32_t length, void *buf)
{
	struct client *client = volume->client;
	struct client_near *near = &client->near;
	struct client_near_window *w;

	if (near->local && !client_route_is_elsewhere(volume))
		return false;
	pthread_mutex_lock(&near->lock);
	w = find_locked(volume, offset, length);
	if (w && w->state == NEAR_READY)
		w->refs++;
	else
		w = NULL;
	pthread_mutex_unlock(&near->lock);
	if (!w)
		return false;
	memcpy(buf, w->data + (offset - w->offset), length);
	let_go(near, w, length);
	counter_add(&client->counters.near_reads, 1);
	counter_add(&client->counters.near_bytes, length);
	return true;
}

bool client_near_serve(struct client_op *op)
{
	struct client *client = client_op_client(op);
	struct client_near *near = &client->near;
	struct client_near_window *w;
	bool ready = false;

	if (op->peek || op->part > 0)
		return false;
	pthread_mutex_lock(&near->lock);
	w = find_locked(op->volume, op->offset, op->length);
	if (w && w->state == NEAR_READY) {
		w->refs++;
		ready = true;
	} else if (w) {
		client_op_set_state(op, OP_NEAR);
		list_push_back(&w->waiters, &op->waiter);
	}
	pthread_mutex_unlock(&near->lock);
	if (!ready)
		return w != NULL;
	counter_add(&client->counters.near_reads, 1);
	counter_add(&client->counters.near_bytes, op->length);
	client_op_finish(op, 0, w->data + (op->offset - w->offset));
	let_go(near, w, op->length);
	client_op_set_state(op, OP_ENDED);
	client_op_release(op);
	return true;
}

/* ---- life ------------------------------------------------------------------------------------ */

void client_near_init(struct client *client, bool local)
{
	struct client_near *near = &client->near;

	pthread_mutex_init(&near->lock, NULL);
	near->local = local;
	for (uint32_t i = 0; i < CLIENT_NEAR_WINDOWS; i++)
		list_init(&near->windows[i].waiters);
}

void client_near_stop(struct client *client)
{
	client->near.stopped = true;
	loop_timer_stop(client->near.timer);
	client->near.timer = NULL;
}

void client_near_release(struct client *client)
{
	struct client_near *near = &client->near;

	for (uint32_t i = 0; i < CLIENT_NEAR_WINDOWS; i++)
		if (near->windows[i].state != NEAR_FREE)
			drop_locked(&near->windows[i]);
	pthread_mutex_destroy(&near->lock);
}

void client_near_forget(struct client_volume *volume)
{
	struct client_near *near = &volume->client->near;

	pthread_mutex_lock(&near->lock);
	for (uint32_t i = 0; i < CLIENT_NEAR_STREAMS; i++)
		if (near->streams[i].volume == volume)
			near->streams[i] = (struct client_near_stream){ .volume = NULL };
	for (uint32_t i = 0; i < CLIENT_NEAR_WINDOWS; i++) {
		struct client_near_window *w = &near->windows[i];

		if (w->volume != volume)
			continue;
		w->volume = NULL; /* one whose end is on its way to the loop goes there */
		if (w->state == NEAR_READY && w->refs == 0)
			drop_locked(w);
	}
	pthread_mutex_unlock(&near->lock);
}
