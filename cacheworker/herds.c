/* Many workers that want one chunk. See herds.h. */
#include "cacheworker/herds.h"
#include "base/clock.h"
#include "base/cleanup.h"
#include "base/hash.h"
#include "cacheworker/worker.h"
#include "cluster/view.h"

#include <stdlib.h>

struct herd_chunk {
	struct map_node node;
	struct list link;    /* herds.by_use */
	struct list waiting; /* herds.waiting */
	struct chunk_id id;
	uint32_t tickets; /* of them */
	struct herd herd;
};

struct herd_ticket {
	struct worker *worker;
	struct list link;         /* herds.tickets */
	struct herd_chunk *chunk; /* NULL: it was sent here, or hangs */
	bool counted;             /* in herds.tickets */
	struct herd_request request;
	uint64_t began_ns;
};

static uint64_t id_hash(const struct chunk_id *id)
{
	return hash_xxh3(id, sizeof(*id), 0);
}

static struct herd_chunk *find_locked(struct herds *herds, const struct chunk_id *id)
{
	for (struct map_node *node = map_first(&herds->chunks, id_hash(id)); node;
		node = map_next_same(node)) {
		struct herd_chunk *chunk = container_of(node, struct herd_chunk, node);

		if (chunk_id_equal(&chunk->id, id))
			return chunk;
	}
	return NULL;
}

static void forget_locked(struct herds *herds, struct herd_chunk *chunk)
{
	map_remove(&herds->chunks, &chunk->node);
	list_remove(&chunk->link);
	list_remove(&chunk->waiting);
	free(chunk);
}

/* Room for one more: the one used longest ago goes, unless all are in use. */
static bool make_room_locked(struct herds *herds)
{
	if (herds->chunks.count < HERDS_MAX)
		return true;
	list_for_each (node, &herds->by_use) {
		struct herd_chunk *chunk = list_entry(node, struct herd_chunk, link);

		if (chunk->tickets == 0 && chunk->herd.waiting == 0) {
			forget_locked(herds, chunk);
			return true;
		}
	}
	return false;
}

/* No reader is sent to a worker that does not answer. */
static bool is_up(void *arg, uint16_t worker)
{
	struct worker *w = arg;

	return view_up(w->view, worker);
}

static struct herd_chunk *get_locked(struct worker *w, const struct chunk_id *id)
{
	struct herds *herds = &w->herds;
	struct herd_chunk *chunk = find_locked(herds, id);

	if (chunk) {
		list_remove(&chunk->link);
	} else {
		chunk = make_room_locked(herds) ? calloc(1, sizeof(*chunk)) : NULL;
		if (!chunk)
			return NULL;
		chunk->id = *id;
		list_init(&chunk->waiting);
		herd_init(&chunk->herd, is_up, w);
		map_insert(&herds->chunks, &chunk->node, id_hash(id));
	}
	list_push_back(&herds->by_use, &chunk->link);
	return chunk;
}

/* ---- answers under way ----------------------------------------------------------------------- */

/* `chunk` and `request` are NULL for one that was sent here. */
static void ticket_begin_locked(
	struct herd_ticket *ticket, struct herd_chunk *chunk, const struct herd_request *request)
{
	struct herds *herds = &ticket->worker->herds;

	if (chunk) {
		ticket->request = *request;
		ticket->chunk = chunk;
		chunk->tickets++;
	}
	ticket->began_ns = clock_mono_ns();
	ticket->counted = true;
	list_push_back(&herds->tickets, &ticket->link);
	herds->giving++;
}

/* Its place is free. Returns its chunk, or NULL. */
static struct herd_chunk *ticket_end_locked(struct herd_ticket *ticket)
{
	struct herd_chunk *chunk = ticket->chunk;

	if (ticket->counted)
		ticket->worker->herds.giving--;
	list_remove(&ticket->link);
	ticket->counted = false;
	ticket->chunk = NULL;
	if (chunk)
		chunk->tickets--;
	return chunk;
}

/* Those that hang are not counted, so that others are served. */
static void drop_hanging_locked(struct herds *herds, uint64_t now)
{
	list_for_each_safe (node, &herds->tickets) {
		struct herd_ticket *ticket = list_entry(node, struct herd_ticket, link);
		struct herd_chunk *chunk;

		if (now - ticket->began_ns < herds->patience_ns)
			return;
		chunk = ticket_end_locked(ticket);
		if (chunk)
			herd_failed(&chunk->herd);
	}
}

static struct herd_ticket *ticket_new(struct worker *w)
{
	struct herd_ticket *ticket = calloc(1, sizeof(*ticket));

	if (ticket) {
		ticket->worker = w;
		list_init(&ticket->link);
	}
	return ticket;
}

/* ---- those who wait -------------------------------------------------------------------------- */

/* Takes those off that need not wait any longer. */
static void look_locked(struct herd_chunk *chunk, uint64_t now, struct list *ready)
{
	enum herd_answer answer;
	struct herd_wait *node;
	uint16_t worker = PLACEMENT_NONE;

	while ((node = herd_next(&chunk->herd, now, &answer, &worker)) != NULL) {
		struct herds_wait *wait = container_of(node, struct herds_wait, wait);

		wait->answer = answer;
		wait->worker = worker;
		if (answer == HERD_SERVE)
			ticket_begin_locked(wait->ticket, chunk, &node->request);
		list_push_back(ready, &node->link);
	}
	if (chunk->herd.waiting == 0)
		list_remove(&chunk->waiting);
}

static void tell(struct list *ready)
{
	struct list *node;

	while ((node = list_pop_front(ready)) != NULL) {
		struct herds_wait *wait = list_entry(node, struct herds_wait, wait.link);

		if (wait->answer != HERD_SERVE)
			free(TAKE(wait->ticket));
		wait->go(wait);
	}
}

static void on_timer(void *arg);

/* On the loop: looks again as long as anybody waits. */
static void watch(struct worker *w)
{
	struct herds *herds = &w->herds;
	struct list ready = LIST_INIT(ready);
	bool at_once = false;
	uint64_t now;

	herds->timer = loop_timer_start(w->loop, HERD_LOOK_NS, on_timer, w);
	pthread_mutex_lock(&herds->lock);
	now = clock_mono_ns(); /* under the lock: it never goes back */
	drop_hanging_locked(herds, now);
	list_for_each_safe (node, &herds->waiting)
		look_locked(list_entry(node, struct herd_chunk, waiting), now, &ready);
	herds->watched = !list_empty(&herds->waiting);
	if (!herds->watched)
		loop_timer_stop(TAKE(herds->timer));
	else
		at_once = !herds->timer; /* no memory for one */
	pthread_mutex_unlock(&herds->lock);
	if (at_once)
		loop_post(w->loop, &herds->task);
	tell(&ready);
}

static void on_timer(void *arg)
{
	struct worker *w = arg;

	w->herds.timer = NULL;
	watch(w);
}

static void on_task(struct loop_task *task)
{
	watch(container_of(task, struct worker, herds.task));
}

/* True when the loop is to be notified. */
static bool park_locked(struct herds *herds, struct herd_chunk *chunk, struct herds_wait *wait)
{
	bool watched = herds->watched;

	herd_park(&chunk->herd, &wait->wait);
	list_remove(&chunk->waiting);
	list_push_back(&herds->waiting, &chunk->waiting);
	herds->watched = true;
	return !watched;
}

enum herd_answer herds_ask(struct worker *w, const struct chunk_id *id,
	const struct herd_request *request, struct herds_wait *wait,
	struct herd_ticket **ret_ticket, uint16_t *ret_worker)
{
	struct herds *herds = &w->herds;
	struct list ready = LIST_INIT(ready);
	struct herd_ticket *ticket = ticket_new(w);
	enum herd_answer answer = HERD_SERVE;
	struct herd_chunk *chunk;
	bool watch_them = false;
	uint64_t now;

	*ret_ticket = NULL;
	if (!ticket)
		return HERD_SERVE;
	pthread_mutex_lock(&herds->lock);
	now = clock_mono_ns();
	chunk = get_locked(w, id);
	if (chunk)
		answer = herd_ask(&chunk->herd, request, now, ret_worker);
	if (chunk && answer == HERD_SERVE) {
		ticket_begin_locked(ticket, chunk, request);
		*ret_ticket = TAKE(ticket);
	}
	if (answer == HERD_WAIT) {
		wait->wait.request = *request;
		wait->ticket = TAKE(ticket);
		watch_them = park_locked(herds, chunk, wait);
	}
	if (chunk)
		look_locked(chunk, now, &ready);
	pthread_mutex_unlock(&herds->lock);
	if (watch_them)
		loop_post(w->loop, &herds->task);
	free(ticket);
	tell(&ready);
	return answer;
}

bool herds_give(struct worker *w, struct herd_ticket **ret_ticket)
{
	struct herds *herds = &w->herds;
	struct herd_ticket *ticket = ticket_new(w);
	bool gives;

	*ret_ticket = NULL;
	pthread_mutex_lock(&herds->lock);
	if (herds->giving >= HERD_GIVES)
		drop_hanging_locked(herds, clock_mono_ns());
	gives = ticket && herds->giving < HERD_GIVES;
	if (gives) {
		ticket_begin_locked(ticket, NULL, NULL);
		*ret_ticket = TAKE(ticket);
	}
	pthread_mutex_unlock(&herds->lock);
	free(ticket);
	return gives;
}

void herds_leave(struct herd_ticket *ticket, bool served)
{
	struct list ready = LIST_INIT(ready);
	struct herd_chunk *chunk;
	struct herds *herds;
	uint64_t now;

	if (!ticket)
		return;
	herds = &ticket->worker->herds;
	pthread_mutex_lock(&herds->lock);
	now = clock_mono_ns();
	chunk = ticket_end_locked(ticket);
	if (chunk && served) {
		herd_served(&chunk->herd, &ticket->request, now - ticket->began_ns, now);
		look_locked(chunk, now, &ready);
	} else if (chunk) {
		/* A request that is answered may fail at once as well, and so on: that is left to the loop. */
		herd_failed(&chunk->herd);
	}
	pthread_mutex_unlock(&herds->lock);
	free(ticket);
	tell(&ready);
}

int herds_init(struct worker *w)
{
	pthread_mutex_init(&w->herds.lock, NULL);
	list_init(&w->herds.by_use);
	list_init(&w->herds.waiting);
	list_init(&w->herds.tickets);
	w->herds.task.run = on_task;
	w->herds.patience_ns = HERDS_PATIENCE_NS;
	return map_init(&w->herds.chunks, HERDS_MAX);
}

static void stop_on_loop(void *arg)
{
	struct worker *w = arg;

	loop_timer_stop(TAKE(w->herds.timer));
}

void herds_close(struct worker *w)
{
	if (w->loop)
		loop_call(w->loop, stop_on_loop, w);
}

void herds_release(struct worker *w)
{
	list_for_each_safe (node, &w->herds.by_use)
		forget_locked(&w->herds, list_entry(node, struct herd_chunk, link));
	map_release(&w->herds.chunks);
	pthread_mutex_destroy(&w->herds.lock);
}
