/* Many workers that want one chunk. See herds.h. */
#include "cacheworker/herds.h"
#include "base/clock.h"
#include "base/cleanup.h"
#include "base/hash.h"
#include "cacheworker/worker.h"
#include "cluster/view.h"

#include <stdlib.h>

#define LOOK_NS (5 * CLOCK_MS) /* for those whose time has come */

struct herd_chunk {
	struct map_node node;
	struct list link; /* herds.by_use */
	struct chunk_id id;
	uint32_t tickets;
	struct herd herd;
};

struct herd_ticket {
	struct worker *worker;
	struct herd_chunk *chunk;
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
	free(chunk);
}

/* Room for one more: the one used longest ago goes, unless all are in use. */
static bool make_room_locked(struct herds *herds)
{
	if (herds->chunks.count < HERDS_MAX)
		return true;
	list_for_each (node, &herds->by_use) {
		struct herd_chunk *chunk = list_entry(node, struct herd_chunk, link);

		if (chunk->tickets == 0) {
			forget_locked(herds, chunk);
			return true;
		}
	}
	return false;
}

static struct herd_chunk *get_locked(struct herds *herds, const struct chunk_id *id)
{
	struct herd_chunk *chunk = find_locked(herds, id);

	if (chunk) {
		list_remove(&chunk->link);
	} else {
		chunk = make_room_locked(herds) ? calloc(1, sizeof(*chunk)) : NULL;
		if (!chunk)
			return NULL;
		chunk->id = *id;
		herd_init(&chunk->herd);
		map_insert(&herds->chunks, &chunk->node, id_hash(id));
	}
	list_push_back(&herds->by_use, &chunk->link);
	return chunk;
}

/* ---- those who wait -------------------------------------------------------------------------- */

static void tell(struct list *ready)
{
	struct list *node;

	while ((node = list_pop_front(ready)) != NULL) {
		struct herd_wait *wait = list_entry(node, struct herd_wait, link);

		wait->go(wait);
	}
}

static void on_timer(void *arg);

/* On the loop: looks again as long as anybody waits. */
static void watch(struct worker *w)
{
	struct herds *herds = &w->herds;
	struct list ready = LIST_INIT(ready);
	uint64_t now = clock_mono_ns();

	herds->timer = loop_timer_start(w->loop, LOOK_NS, on_timer, w);
	pthread_mutex_lock(&herds->lock);
	list_for_each_safe (node, &herds->waiting) {
		struct herd_wait *wait = list_entry(node, struct herd_wait, link);

		if (herds->timer && wait->until_ns > now) /* without one nobody may stay */
			continue;
		list_remove(node);
		list_push_back(&ready, node);
	}
	herds->watched = herds->timer && !list_empty(&herds->waiting);
	if (!herds->watched)
		loop_timer_stop(TAKE(herds->timer));
	pthread_mutex_unlock(&herds->lock);
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

/* Nobody is sent to one that does not answer. */
static enum herd_answer ask_locked(struct worker *w, struct herd *herd,
	const struct herd_request *request, uint64_t now, uint16_t *ret_worker,
	uint64_t *ret_wait_ns)
{
	enum herd_answer answer;

	while ((answer = herd_ask(herd, request, now, ret_worker, ret_wait_ns)) == HERD_ASK &&
		!view_up(w->view, *ret_worker))
		herd_forget(herd, *ret_worker);
	return answer;
}

enum herd_answer herds_ask(struct worker *w, const struct chunk_id *id,
	const struct herd_request *request, struct herd_wait *wait, struct herd_ticket **ret_ticket,
	uint16_t *ret_worker)
{
	struct herds *herds = &w->herds;
	struct herd_ticket *ticket = calloc(1, sizeof(*ticket));
	enum herd_answer answer = HERD_SERVE;
	uint64_t now = clock_mono_ns();
	struct herd_chunk *chunk;
	uint64_t wait_ns = 0;
	bool watch_them = false;

	*ret_ticket = NULL;
	if (!ticket)
		return HERD_SERVE;
	pthread_mutex_lock(&herds->lock);
	chunk = get_locked(herds, id);
	if (chunk)
		answer = ask_locked(w, &chunk->herd, request, now, ret_worker, &wait_ns);
	if (chunk && answer == HERD_SERVE) {
		*ticket = (struct herd_ticket){ w, chunk, *request, now };
		chunk->tickets++;
		*ret_ticket = TAKE(ticket);
	}
	if (answer == HERD_WAIT) {
		wait->id = *id;
		wait->until_ns = now + wait_ns;
		list_push_back(&herds->waiting, &wait->link);
		watch_them = !herds->watched;
		herds->watched = true;
	}
	pthread_mutex_unlock(&herds->lock);
	if (watch_them)
		loop_post(w->loop, &herds->task);
	free(ticket);
	return answer;
}

void herds_leave(struct herd_ticket *ticket, bool served)
{
	struct list ready = LIST_INIT(ready);
	uint64_t now = clock_mono_ns();
	struct herd_chunk *chunk;
	struct herds *herds;

	if (!ticket)
		return;
	herds = &ticket->worker->herds;
	chunk = ticket->chunk;
	pthread_mutex_lock(&herds->lock);
	if (served)
		herd_served(&chunk->herd, &ticket->request, now - ticket->began_ns, now);
	else
		herd_failed(&chunk->herd);
	chunk->tickets--;
	list_for_each_safe (node, &herds->waiting) {
		struct herd_wait *wait = list_entry(node, struct herd_wait, link);

		if (!chunk_id_equal(&wait->id, &chunk->id))
			continue;
		list_remove(node);
		list_push_back(&ready, node);
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
	w->herds.task.run = on_task;
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
