/* Windows of what lies next. See client_near.h. */
#include "client/client_near.h"
#include "base/cleanup.h"
#include "client/client_internal.h"
#include "client/client_local.h"
#include "client/client_op.h"
#include "client/client_route.h"

#include <stdlib.h>

#define WINDOW_LEAST   (256u << 10)
#define WINDOW_MOST    CLIENT_READ_MAX
#define WINDOW_OLD     CLOCK_SECOND /* unread for so long it gives way to another */
#define READ_MOST      (512u << 10) /* larger reads gain nothing */
#define BEHIND_BYTES   (1u << 20)   /* several readers take their files not quite in order: */
#define AHEAD_BYTES    (1u << 20)   /* a read so far off the furthest one goes on with its stream */
#define PASSED_BYTES   (64u << 20)  /* a stream further on than that came from elsewhere */
#define HITS_LEAST     3u           /* reads that go on with a stream before anything is fetched */
#define COLD_NS        (CLOCK_SECOND / 2) /* nothing is tried after workers had not all of a range */
#define BEGIN_LEAST    (64u << 10)        /* a read that long, at an object's begin, was cut off */
#define OBJECT_MOST    (256u << 10)       /* larger objects are asked for as they are read */
#define OBJECT_OLD     (CLOCK_SECOND / 10) /* the rest of it is not wanted */
#define OBJECTS_WASTED 4u /* of which the rest was not wanted, before that is weighed */

/* ---- windows --------------------------------------------------------------------------------- */

static void drop_locked(struct client_near_window *w)
{
	budget_give(w->client->budget, w->length);
	free(w->memory);
	w->memory = NULL;
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

		if ((w->state == NEAR_FETCHING || w->state == NEAR_READY) && w->volume == volume &&
			offset >= w->offset && offset + length <= w->offset + w->length)
			return w;
	}
	return NULL;
}

/* All that is read of it was: what lies between objects never is, and a reader may have been served otherwise. A
 * stream that was not read since the window was requested belongs to another reader and shows nothing. */
static bool is_passed_locked(const struct client_near *near, const struct client_near_window *w)
{
	uint64_t end = w->offset + w->length;

	for (uint32_t i = 0; i < CLIENT_NEAR_STREAMS; i++) {
		const struct client_near_stream *s = &near->streams[i];

		if (s->volume == w->volume && s->used > w->clock && s->next >= end + BEHIND_BYTES &&
			s->next < end + PASSED_BYTES)
			return true;
	}
	return false;
}

/* The object's that was read longest ago: what is left of it was on its way together with the rest, and gives way
 * to anything. Also tells how many windows objects have. */
static struct client_near_window *oldest_object_locked(struct client_near *near, uint32_t *ret_n)
{
	struct client_near_window *oldest = NULL;

	*ret_n = 0;
	for (uint32_t i = 0; i < CLIENT_NEAR_WINDOWS; i++) {
		struct client_near_window *w = &near->windows[i];

		if (w->state == NEAR_FREE || !w->object)
			continue;
		++*ret_n;
		if (w->state == NEAR_READY && w->refs == 0 &&
			(!oldest || w->touched_ns < oldest->touched_ns))
			oldest = w;
	}
	return oldest;
}

/* A free one, or one that is not read any more: an object's, passed, or the one that was read longest ago. NULL:
 * all are about to be read, or objects have as many as they may. */
static struct client_near_window *choose_locked(struct client_near *near, bool object)
{
	uint32_t n_objects;
	struct client_near_window *old_object = oldest_object_locked(near, &n_objects);
	struct client_near_window *oldest = NULL;
	struct client_near_window *passed = NULL;

	for (uint32_t i = 0; i < CLIENT_NEAR_WINDOWS; i++) {
		struct client_near_window *w = &near->windows[i];

		if (w->state == NEAR_FREE && (!object || n_objects < CLIENT_NEAR_OBJECTS))
			return w;
		if (w->state != NEAR_READY || w->refs > 0 || w->object || object)
			continue;
		if (!passed && is_passed_locked(near, w))
			passed = w;
		if (!oldest || w->touched_ns < oldest->touched_ns)
			oldest = w;
	}
	if (old_object)
		oldest = old_object;
	else if (passed)
		oldest = passed;
	else if (oldest && clock_mono_ns() - oldest->touched_ns < WINDOW_OLD)
		oldest = NULL;
	if (!oldest)
		return NULL;
	near->objects_wasted += oldest->object; /* the rest of it was not read */
	drop_locked(oldest);
	return oldest;
}

static void let_go(struct client_near *near, struct client_near_window *w, uint32_t read)
{
	pthread_mutex_lock(&near->lock);
	w->refs--;
	w->used += read;
	w->touched_ns = clock_mono_ns();
	if (w->refs == 0 && (w->used >= w->length || !w->volume || w->state == NEAR_FAILED))
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

/* Those that wait go on. Until each has found it, the window is given to nothing else. */
static void run_fetched(struct loop_task *task)
{
	struct client_near_window *w = container_of(task, struct client_near_window, task);
	struct client *client = w->client;
	struct client_near *near = &client->near;
	struct list waiters = LIST_INIT(waiters);
	struct list *node;

	pthread_mutex_lock(&near->lock);
	list_splice_back(&waiters, &w->waiters);
	pthread_mutex_unlock(&near->lock);
	while ((node = list_pop_front(&waiters)) != NULL) {
		near->n_waiters--;
		client_fetch_resume(list_entry(node, struct client_op, waiter));
	}
	let_go(near, w, 0);
	if (!near->timer && !near->stopped)
		near->timer = loop_timer_start(client->loop, CLIENT_NEAR_IDLE, on_idle, client);
}

static void on_fetched(struct client_read *read, int status, const void *data)
{
	struct client_near_window *w = read->arg;
	struct client *client = w->client;
	struct client_near *near = &client->near;

	if (status == 0)
		counter_add(&client->counters.near_fetches, 1);
	pthread_mutex_lock(&near->lock);
	w->touched_ns = clock_mono_ns();
	w->memory = TAKE(read->memory);
	w->data = data;
	/* One that failed is not found any more. */
	w->state = status == 0 ? NEAR_READY : NEAR_FAILED;
	if (status < 0)
		near->cold_ns = w->touched_ns + COLD_NS;
	pthread_mutex_unlock(&near->lock);
	loop_post(client->loop, &w->task);
}

static bool fetch(struct client_volume *volume, uint64_t offset, uint32_t length, bool object)
{
	struct client *client = volume->client;
	struct client_near *near = &client->near;
	struct client_near_window *w;
	bool known;

	if (!budget_take(client->budget, BUDGET_PREFETCH, length))
		return false;
	pthread_mutex_lock(&near->lock);
	known = find_locked(volume, offset, BLOCK_BYTES) != NULL;
	w = known ? NULL : choose_locked(near, object);
	if (w) {
		w->state = NEAR_FETCHING;
		w->client = client;
		w->volume = volume;
		w->offset = offset;
		w->length = length;
		w->object = object;
		w->used = 0;
		w->clock = near->clock;
		w->refs = 1; /* the task's */
	}
	pthread_mutex_unlock(&near->lock);
	if (!w) {
		budget_give(client->budget, length);
		return known; /* for another stream */
	}
	w->read = (struct client_read){
		.offset = offset, .length = length, .on_done = on_fetched, .arg = w, .peek = true
	};
	w->task.run = run_fetched;
	client_read(volume, &w->read);
	return true;
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

		/* Of several readers some are late: the others go on where it was fetched for them. */
		if (s->volume == volume && offset <= max(s->next + AHEAD_BYTES, s->fetched) &&
			offset + BEHIND_BYTES >= s->next)
			return s;
		if (s->used < oldest->used)
			oldest = s;
	}
	oldest->volume = NULL;
	return oldest;
}

static void note_locked(struct client_near *near, struct client_volume *volume, uint64_t offset,
	uint32_t length, struct client_near_stream **ret_stream)
{
	struct client_near_stream *s = find_stream_locked(near, volume, offset);
	uint64_t end = align_up(offset + length, BLOCK_BYTES);

	if (!s->volume)
		*s = (struct client_near_stream){ .volume = volume, .next = end, .fetched = end };
	else
		s->hits++;
	s->used = ++near->clock;
	s->bytes += length;
	s->next = max(s->next, end);
	s->fetched = max(s->fetched, s->next);
	*ret_stream = s;
}

/* True when something is to be fetched for it: about *ret_window bytes from *ret_start on. */
static bool due_locked(const struct client_near *near, const struct client_near_stream *s,
	uint64_t *ret_start, uint32_t *ret_window)
{
	uint64_t ahead = max(min(s->bytes, (uint64_t)CLIENT_NEAR_AHEAD), (uint64_t)WINDOW_LEAST);

	*ret_start = s->fetched;
	*ret_window = (uint32_t)min(ahead, (uint64_t)WINDOW_MOST);
	return s->hits >= HITS_LEAST && s->fetched - s->next < ahead &&
	       clock_mono_ns() >= near->cold_ns;
}

static struct client_near_stream *stream_at_locked(
	struct client_near *near, const struct client_volume *volume, uint64_t fetched)
{
	for (uint32_t i = 0; i < CLIENT_NEAR_STREAMS; i++)
		if (near->streams[i].volume == volume && near->streams[i].fetched == fetched)
			return &near->streams[i];
	return NULL;
}

/* Its fetches go on behind this one. False: another thread was first. */
static bool claim(struct client_volume *volume, uint64_t start, uint32_t length)
{
	struct client_near *near = &volume->client->near;
	struct client_near_stream *s;

	pthread_mutex_lock(&near->lock);
	s = stream_at_locked(near, volume, start);
	if (s)
		s->fetched = start + length;
	pthread_mutex_unlock(&near->lock);
	return s != NULL;
}

/* It was not fetched; maybe it can be when the next read comes. */
static void unclaim(struct client_volume *volume, uint64_t start, uint32_t length)
{
	struct client_near *near = &volume->client->near;
	struct client_near_stream *s;

	pthread_mutex_lock(&near->lock);
	s = stream_at_locked(near, volume, start + length);
	if (s)
		s->fetched = max(start, s->next);
	pthread_mutex_unlock(&near->lock);
}

/* Another node's worker is to be asked for it. */
static bool is_elsewhere(struct client_volume *volume, uint64_t start, uint32_t length)
{
	bool last;
	struct view_peer *peer = client_route_serves(volume, start >> CHUNK_BITS, &last);

	return peer && !peer->local && !client_local_present(volume, start, length);
}

/* The next window from `start` on. False: that is all for now. */
static bool fetch_next(
	struct client_volume *volume, uint64_t start, uint32_t window, uint32_t *ret_n)
{
	uint32_t n = range_from(volume, start, window);

	if (n == 0 || !claim(volume, start, n))
		return false;
	*ret_n = n;
	if (!is_elsewhere(volume, start, n) || fetch(volume, start, n, false))
		return true;
	unclaim(volume, start, n);
	return false;
}

/* ---- objects --------------------------------------------------------------------------------- */

/* True when the rests of objects are not wanted: who reads headers of 64 KiB gets no more than he asks for, but that
 * a few objects are tried now and then. That a rest is asked for before its begin happens, to a few of a hundred. */
static bool is_wasted_locked(struct client_near *near, uint64_t now)
{
	bool wasted;

	for (uint32_t i = 0; i < CLIENT_NEAR_WINDOWS; i++) {
		struct client_near_window *w = &near->windows[i];

		if (w->state != NEAR_READY || !w->object || w->refs > 0 ||
			now - w->touched_ns < OBJECT_OLD)
			continue;
		drop_locked(w);
		near->objects_wasted++;
	}
	if (near->objects_wasted < OBJECTS_WASTED)
		return false;
	wasted = near->objects_wasted >= near->objects_begun / 4;
	near->objects_wasted = 0;
	near->objects_begun = 0;
	return wasted;
}

/* True when the read may be an object's begin, of which the kernel asks for the rest at once. */
static bool may_begin_locked(
	struct client_near *near, struct client_volume *volume, uint64_t offset, uint32_t length)
{
	uint64_t now = clock_mono_ns();

	if (length < BEGIN_LEAST || length >= OBJECT_MOST ||
		now < max(near->cold_ns, near->wasted_ns) ||
		find_locked(volume, offset, BLOCK_BYTES))
		return false;
	if (!is_wasted_locked(near, now))
		return true;
	near->wasted_ns = now + COLD_NS;
	return false;
}

/* The kernel cuts a file into READs of as many pages as lie together in memory, 16 runs of them: a small object is
 * several READs, which come together. It is asked for once, and whole. */
static void fetch_object(struct client_volume *volume, uint64_t offset, uint32_t length)
{
	struct client_near *near = &volume->client->near;
	struct client_near_stream *s;
	struct table_row row;
	uint64_t whole;

	if (table_find_offset(volume->table, offset, &row) < 0 || row.offset != offset)
		return;
	whole = align_up(row.size, BLOCK_BYTES);
	if (whole <= length || whole > OBJECT_MOST ||
		!is_elsewhere(volume, offset, (uint32_t)whole) ||
		!fetch(volume, offset, (uint32_t)whole, true))
		return;
	/* A stream that it belongs to is fetched from its end on. */
	pthread_mutex_lock(&near->lock);
	near->objects_begun++;
	s = stream_at_locked(near, volume, offset + length);
	if (s)
		s->fetched = offset + whole;
	pthread_mutex_unlock(&near->lock);
}

void client_near_note(struct client_volume *volume, uint64_t offset, uint32_t length)
{
	struct client_near *near = &volume->client->near;
	struct client_near_stream *s;
	uint64_t start;
	uint32_t window;
	uint32_t n;
	bool begins;
	bool due;

	if (length > READ_MOST || (near->local && !client_route_is_elsewhere(volume)))
		return;
	pthread_mutex_lock(&near->lock);
	note_locked(near, volume, offset, length, &s);
	due = due_locked(near, s, &start, &window);
	begins = !due && may_begin_locked(near, volume, offset, length);
	pthread_mutex_unlock(&near->lock);
	if (begins)
		fetch_object(volume, offset, length);
	while (due && fetch_next(volume, start, window, &n)) {
		pthread_mutex_lock(&near->lock);
		s = stream_at_locked(near, volume, start + n);
		due = s && due_locked(near, s, &start, &window);
		pthread_mutex_unlock(&near->lock);
	}
}

/* ---- reading --------------------------------------------------------------------------------- */

bool client_borrow(struct client_volume *volume, uint64_t offset, uint32_t length,
	struct client_loan *ret_loan)
{
	struct client *client = volume->client;
	struct client_near *near = &client->near;
	struct client_near_window *w;

	CHECK_MAGIC(volume, CLIENT_VOLUME_MAGIC);
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
	counter_add(&client->counters.near_reads, 1);
	counter_add(&client->counters.near_bytes, length);
	*ret_loan = (struct client_loan){
		.data = w->data + (offset - w->offset), .length = length, .window = w
	};
	return true;
}

void client_give(struct client_loan *loan)
{
	struct client_near_window *w = TAKE(loan->window);

	let_go(&w->client->near, w, loan->length);
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
		near->n_waiters++;
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
