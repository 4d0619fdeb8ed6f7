/* Whom a read asks. See client_route.h. */
#include "client/client_route.h"
#include "client/client_internal.h"

bool client_route_is_elsewhere(const struct client_volume *volume)
{
	return clock_mono_ns() < atomic_load(&volume->elsewhere_ns);
}

void client_route_elsewhere(struct client_volume *volume)
{
	atomic_store(&volume->elsewhere_ns, clock_mono_ns() + CLIENT_ELSEWHERE);
}

/* The one to ask next by the route, passing over those that cannot be reached from here. */
static bool pick(struct client_route *r, struct view *view)
{
	while (r->route.to != PLACEMENT_NONE) {
		r->peer = view_peer(view, r->route.to);
		r->last = r->route.last;
		r->cached = r->route.cached;
		if (r->peer)
			return true;
		route_next(&r->route, ROUTE_DEAD, PLACEMENT_NONE);
	}
	r->peer = NULL;
	return false;
}

/* How many of the slot's replicas have copies. */
static uint32_t copies_of(const struct client_volume *volume, const struct view_candidates *c)
{
	uint32_t copies = atomic_load_explicit(&volume->copies, memory_order_relaxed);

	if (c->hot || copies == COPIES_EVERYWHERE)
		return ARRAY_SIZE(c->replicas);
	return copies >= 2 && copies <= COPIES_MAX ? copies - 1 : 0;
}

static void spread(
	struct client_route *r, const struct client_volume *volume, const struct view_candidates *c)
{
	struct view *view = volume->client->view;
	uint32_t n = copies_of(volume, c);
	uint64_t chance = clock_mono_ns() >> 10;
	struct view_peer *other = NULL;

	if (n == 0 || c->n_up < 2 || c->peers[0]->number != c->owner)
		return;
	for (uint32_t i = 0; i < n && !other; i++) {
		uint16_t number = c->replicas[(i + chance) % n];

		for (uint32_t k = 1; k < c->n_up; k++)
			if (c->peers[k]->number == number)
				other = c->peers[k];
	}
	if (!other || view_less_loaded(view, c->peers[0], other) != other)
		return;
	r->route.to = other->number;
	r->spread = true;
}

struct view_peer *client_route_keeper(const struct client_volume *volume, uint64_t chunk)
{
	uint64_t word = atomic_load_explicit(&volume->keepers, memory_order_relaxed);
	struct view *view = volume->client->view;

	for (uint32_t i = 0; i < CLIENT_KEEPERS; i++) {
		struct view_peer *peer =
			view_peer(view, (uint16_t)(word >> (chunk + i) % CLIENT_KEEPERS * 16));

		if (peer && view_usable(view, peer))
			return peer;
	}
	return NULL;
}

/* Numbers of whom a read may ask. With no worker of the slot up, one that keeps the whole volume is the first. */
static uint32_t candidates_of(const struct client_volume *volume, const struct view_candidates *c,
	uint64_t chunk, uint16_t numbers[ROUTE_CANDIDATES])
{
	const struct view_peer *keeper = c->n_up ? NULL : client_route_keeper(volume, chunk);
	uint32_t n = 0;

	if (keeper)
		numbers[n++] = keeper->number;
	for (uint32_t i = 0; i < c->n && n < ROUTE_CANDIDATES; i++)
		if (c->peers[i] != keeper)
			numbers[n++] = c->peers[i]->number;
	return n;
}

/* By the slot's entry. */
static bool by_slot(
	struct client_route *r, const struct client_volume *volume, const struct view_candidates *c)
{
	struct view *view = volume->client->view;
	uint16_t numbers[ROUTE_CANDIDATES];
	uint32_t n = candidates_of(volume, c, r->chunk, numbers);

	r->local = false;
	r->hurry = n > 1 || volume->origin.allowed;
	if (n == 0)
		return false;
	if (numbers[0] == PLACEMENT_NONE) { /* this node's, which the table does not name */
		r->route = (struct route){ .to = PLACEMENT_NONE, .self = PLACEMENT_NONE };
		r->peer = c->peers[0];
		return true;
	}
	route_begin(&r->route, numbers, n, c->owner, PLACEMENT_NONE);
	spread(r, volume, c);
	return pick(r, view);
}

bool client_route_begin(struct client_route *r, struct client_volume *volume, uint64_t chunk)
{
	struct view *view = volume->client->view;
	struct view_peer *local = view_local(view);
	struct view_candidates c;

	*r = (struct client_route){ .chunk = chunk };
	view_find(view, volume->hash, chunk, &c);
	if (!local || c.n == 0 || local == c.peers[0] || client_route_is_elsewhere(volume) ||
		!view_usable(view, local))
		return by_slot(r, volume, &c);
	r->local = true;
	r->hurry = true;
	r->peer = local;
	return true;
}

bool client_route_slot(struct client_route *r, struct client_volume *volume, uint64_t chunk)
{
	struct view_candidates c;

	*r = (struct client_route){ .chunk = chunk };
	view_find(volume->client->view, volume->hash, chunk, &c);
	return by_slot(r, volume, &c);
}

/* This node's worker does not do: those of the slot. */
static bool leave_local(struct client_route *r, struct client_volume *volume)
{
	struct view_candidates c;

	view_find(volume->client->view, volume->hash, r->chunk, &c);
	return by_slot(r, volume, &c);
}

static bool go_on(struct client_route *r, struct client_volume *volume, enum route_outcome outcome,
	uint16_t x)
{
	if (r->local)
		return leave_local(r, volume);
	if (r->route.n == 0) /* the only one */
		return false;
	route_next(&r->route, outcome, x);
	return pick(r, volume->client->view);
}

bool client_route_dead(struct client_route *r, struct client_volume *volume)
{
	return go_on(r, volume, ROUTE_DEAD, PLACEMENT_NONE);
}

bool client_route_miss(struct client_route *r, struct client_volume *volume)
{
	return go_on(r, volume, ROUTE_MISS, PLACEMENT_NONE);
}

bool client_route_back(struct client_route *r, struct client_volume *volume)
{
	struct view_candidates c;

	if (!r->spread)
		return false;
	view_find(volume->client->view, volume->hash, r->chunk, &c);
	r->spread = false;
	r->route.to = c.owner;
	return pick(r, volume->client->view);
}

bool client_route_moved(
	struct client_route *r, struct client_volume *volume, uint16_t x, uint16_t flags)
{
	struct view *view = volume->client->view;

	if (flags & FRAME_MOVED)
		view_stale(view);
	if (r->local) {
		client_route_elsewhere(volume);
		if (!leave_local(r, volume))
			return false;
	} else if (r->route.n == 0) {
		return false;
	} else if (!(flags & FRAME_LAST)) {
		route_next(&r->route, flags & FRAME_MOVED ? ROUTE_MOVED : ROUTE_HERD, x);
		return pick(r, view);
	}
	/* A full owner says who keeps it instead, once. */
	if (flags & FRAME_LAST && r->route.n && r->route.hops < ROUTE_HOPS && view_peer(view, x)) {
		r->route.hops = ROUTE_HOPS;
		r->route.to = x;
		r->route.last = true;
	} else if (flags & FRAME_LAST && r->route.n) {
		route_next(&r->route, ROUTE_DEAD, PLACEMENT_NONE);
	}
	return pick(r, view);
}

struct view_peer *client_route_serves(struct client_volume *volume, uint64_t chunk, bool *ret_last)
{
	struct view *view = volume->client->view;
	struct view_peer *local = view_local(view);
	struct view_candidates c;

	view_find(view, volume->hash, chunk, &c);
	*ret_last = false;
	if (local && c.n && local != c.peers[0] && !client_route_is_elsewhere(volume) &&
		view_usable(view, local))
		return local;
	if (c.n == 0 || c.peers[0]->self)
		return NULL;
	*ret_last = c.owner != PLACEMENT_NONE && c.peers[0]->number != c.owner;
	return c.peers[0];
}
