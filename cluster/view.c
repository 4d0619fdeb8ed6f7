/* The view: who serves a chunk, by the table in use. See view.h. */
#include "cluster/view.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "cluster/view_internal.h"

#include <stdlib.h>
#include <string.h>

#define MASTER_PATIENCE_NS (20 * CLOCK_SECOND)

/* ---- opening --------------------------------------------------------------------------------- */

static void view_free(struct view *view)
{
	struct list *node;

	if (!view)
		return;
	while ((node = list_pop_front(&view->peers)) != NULL)
		peer_free(list_entry(node, struct peer, link));
	for (uint32_t i = 0; i < PLACEMENT_MAX; i++)
		free(view->members[i]);
	free(view->slots);
	free(view->dir);
	free(view->local_worker);
	pthread_cond_destroy(&view->changed);
	pthread_mutex_destroy(&view->lock);
	view->magic = 0;
	free(view);
}

static _Atomic uint64_t *slots_new(void)
{
	_Atomic uint64_t *slots = malloc(PLACEMENT_SLOTS * sizeof(*slots));

	for (uint32_t i = 0; slots && i < PLACEMENT_SLOTS; i++)
		atomic_init(&slots[i], UINT64_MAX); /* none, four times */
	return slots;
}

static struct view *view_new(struct loop *loop, const struct view_config *config)
{
	struct view *view = calloc(1, sizeof(*view));
	pthread_condattr_t attr;

	if (!view)
		return NULL;
	view->magic = VIEW_MAGIC;
	view->loop = loop;
	view->config = *config;
	view->mend_backoff =
		(struct backoff){ .min_ns = CLOCK_SECOND, .max_ns = 32 * CLOCK_SECOND };
	atomic_init(&view->self_number, PLACEMENT_NONE);
	atomic_init(&view->hangs_ns, VIEW_HANGS);
	pthread_mutex_init(&view->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&view->changed, &attr);
	pthread_condattr_destroy(&attr);
	list_init(&view->peers);
	view->slots = slots_new();
	view->dir = config->dir ? strdup(config->dir) : NULL;
	view->local_worker = config->local_worker ? strdup(config->local_worker) : NULL;
	if (!view->slots || (config->dir && !view->dir) ||
		(config->local_worker && !view->local_worker)) {
		view_free(view);
		return NULL;
	}
	view->config.dir = view->dir;
	view->config.local_worker = view->local_worker;
	return view;
}

/* Until the master has answered, for good or ill, or the call has ended at its deadline. */
static void wait_asked(struct view *view, uint64_t deadline_ns)
{
	const struct timespec until = { .tv_sec = (time_t)(deadline_ns / CLOCK_SECOND) + 1,
		.tv_nsec = (long)(deadline_ns % CLOCK_SECOND) };

	pthread_mutex_lock(&view->lock);
	while (!view->asked &&
		pthread_cond_timedwait(&view->changed, &view->lock, &until) != ETIMEDOUT)
		;
	pthread_mutex_unlock(&view->lock);
}

int view_open(struct loop *loop, const struct view_config *config, uint64_t wait_ns,
	struct view **ret_view, struct err *e)
{
	struct view *view = view_new(loop, config);
	uint64_t deadline_ns = wait_ns ? clock_mono_ns() + wait_ns : 0;
	bool known;
	int r = 0;

	if (!view)
		return err_set(e, -ENOMEM, "no memory for the slot table");
	if (view->local_worker)
		r = view_peer_at(view, view->local_worker, NULL, &view->local, e);
	atomic_store(&view->here, view->local);
	if (r == 0 && view->dir)
		r = view_disk_load(view, e);
	if (r == 0) {
		view->pool = pool_new("view", 1, 1 + VIEW_PEERS_MAX);
		if (!view->pool)
			r = err_set(
				e, -EAGAIN, "cannot start a thread: raise the limit of processes");
	}
	if (r < 0) {
		view_free(view);
		return r;
	}
	known = view->epoch != 0;
	*ret_view = view; /* before its call-backs, which may look for it there */
	rpc_client_patience(config->master, MASTER_PATIENCE_NS);
	view_ask_begin(view, known ? 0 : deadline_ns);
	if (wait_ns && !known)
		wait_asked(view, deadline_ns);
	return 0;
}

void view_close(struct view *view)
{
	if (!view)
		return;
	CHECK_MAGIC(view, VIEW_MAGIC);
	view_ask_stop(view);
	pool_free(view->pool); /* which ends a write */
	view_disk_stop(view);
	view_free(view);
}

void view_trouble(struct view *view, struct err *ret_trouble)
{
	CHECK_MAGIC(view, VIEW_MAGIC);
	pthread_mutex_lock(&view->lock);
	*ret_trouble = view->trouble;
	pthread_mutex_unlock(&view->lock);
}

/* ---- finding --------------------------------------------------------------------------------- */

static struct peer *peer_by_number(const struct view *view, uint16_t number)
{
	if (number >= PLACEMENT_MAX)
		return NULL;
	return atomic_load_explicit(&view->numbers[number], memory_order_acquire);
}

static bool peer_serves(const struct peer *peer)
{
	return peer->pub.self || (peer_up(peer) && peer_lets(peer));
}

static bool is_among(const struct view_candidates *c, const struct peer *peer)
{
	for (uint32_t i = 0; i < c->n; i++)
		if (c->peers[i] == &peer->pub)
			return true;
	return false;
}

void view_find(struct view *view, uint64_t volume_hash, uint64_t chunk, struct view_candidates *ret)
{
	struct view_candidates c = { .slot = placement_slot_of(volume_hash, chunk) };
	struct placement_slot slot = view_slot_of(view, c.slot);
	struct peer *here = atomic_load_explicit(&view->here, memory_order_acquire);
	struct peer *down[VIEW_CANDIDATES];
	uint32_t n_down = 0;
	uint16_t numbers[VIEW_CANDIDATES];

	CHECK_MAGIC(view, VIEW_MAGIC);
	c.hot = atomic_load_explicit(&view->hot[c.slot / 64], memory_order_relaxed) &
		1ull << c.slot % 64;
	c.owner = slot.owner;
	c.previous = slot.previous;
	c.replicas[0] = slot.replicas[0];
	c.replicas[1] = slot.replicas[1];
	numbers[0] = c.owner;
	numbers[1] = c.replicas[0];
	numbers[2] = c.replicas[1];
	numbers[3] = c.previous;
	for (uint32_t i = 0; i < VIEW_CANDIDATES; i++) {
		struct peer *peer = peer_by_number(view, numbers[i]);

		if (!peer || is_among(&c, peer))
			continue;
		if (peer_serves(peer))
			c.peers[c.n++] = &peer->pub;
		else
			down[n_down++] = peer;
	}
	c.n_up = c.n;
	for (uint32_t i = 0; i < n_down; i++)
		if (!is_among(&c, down[i]))
			c.peers[c.n++] = &down[i]->pub;
	if (c.n == 0 && here) {
		c.peers[0] = &here->pub;
		c.n = c.n_up = 1;
	}
	*ret = c;
}

struct view_peer *view_peer(struct view *view, uint16_t number)
{
	struct peer *peer;

	CHECK_MAGIC(view, VIEW_MAGIC);
	peer = peer_by_number(view, number);
	return peer ? &peer->pub : NULL;
}

struct view_peer *view_local(struct view *view)
{
	struct peer *local;

	CHECK_MAGIC(view, VIEW_MAGIC);
	local = atomic_load_explicit(&view->here, memory_order_acquire);
	return local ? &local->pub : NULL;
}

uint16_t view_self(struct view *view)
{
	CHECK_MAGIC(view, VIEW_MAGIC);
	return atomic_load(&view->self_number);
}

void view_slot(struct view *view, uint32_t slot, struct placement_slot *ret_slot)
{
	CHECK_MAGIC(view, VIEW_MAGIC);
	ensure(slot < PLACEMENT_SLOTS);
	*ret_slot = view_slot_of(view, slot);
}

bool view_up(struct view *view, uint16_t number)
{
	struct peer *peer;

	CHECK_MAGIC(view, VIEW_MAGIC);
	peer = peer_by_number(view, number);
	return peer && peer_serves(peer);
}

void view_count(struct view *view, uint32_t *ret_up, uint32_t *ret_known)
{
	uint32_t up = 0;
	uint32_t known = 0;

	CHECK_MAGIC(view, VIEW_MAGIC);
	pthread_mutex_lock(&view->lock);
	for (uint32_t i = 0; i < PLACEMENT_MAX; i++) {
		const struct member *m = view->members[i];

		if (!m || m->state == CLUSTER_OUT)
			continue;
		known++;
		up += m->state != CLUSTER_DOWN;
	}
	pthread_mutex_unlock(&view->lock);
	*ret_up = up;
	*ret_known = known;
}

void view_version(struct view *view, uint64_t *ret_epoch, uint64_t *ret_sequence)
{
	CHECK_MAGIC(view, VIEW_MAGIC);
	pthread_mutex_lock(&view->lock);
	*ret_epoch = view->epoch;
	*ret_sequence = view->sequence;
	pthread_mutex_unlock(&view->lock);
}

void view_slots_version(struct view *view, uint64_t *ret_epoch, uint64_t *ret_sequence)
{
	CHECK_MAGIC(view, VIEW_MAGIC);
	pthread_mutex_lock(&view->lock);
	*ret_epoch = view->epoch;
	*ret_sequence = view->slots_sequence;
	pthread_mutex_unlock(&view->lock);
}

uint32_t view_list(struct view *view, struct view_status *statuses, uint32_t max)
{
	bool named = false;
	uint32_t n = 0;

	CHECK_MAGIC(view, VIEW_MAGIC);
	pthread_mutex_lock(&view->lock);
	for (uint32_t i = 0; i < PLACEMENT_MAX && n < max; i++) {
		struct peer *peer = view->members[i] ? view->members[i]->peer : NULL;

		if (!peer)
			continue;
		named = named || peer->pub.local;
		peer_status(peer, &statuses[n++]);
	}
	if (view->local && !named && n < max)
		peer_status(view->local, &statuses[n++]);
	pthread_mutex_unlock(&view->lock);
	return n;
}
