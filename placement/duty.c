/* Duties and routes. See duty.h. */
#include "placement/duty.h"

#include <assert.h>

uint16_t duty_serves(const struct placement_slot *slot, const struct duty_states *up)
{
	if (slot->owner != PLACEMENT_NONE && up->owner_up)
		return slot->owner;
	for (uint32_t i = 0; i < ARRAY_SIZE(slot->replicas); i++) {
		if (slot->replicas[i] != PLACEMENT_NONE && up->replica_up[i])
			return slot->replicas[i];
	}
	return slot->previous != PLACEMENT_NONE && up->previous_up ? slot->previous
								   : PLACEMENT_NONE;
}

/* Does this worker keep a copy of a chunk that another serves? */
static bool keeps_copy(const struct duty_ask *ask)
{
	if (ask->whole)
		return true;
	if (ask->self == PLACEMENT_NONE) /* as a slot says that has fewer replicas */
		return false;
	for (uint32_t i = 0; i < ARRAY_SIZE(ask->slot.replicas); i++) {
		if (ask->slot.replicas[i] == ask->self)
			return ask->hot || i + 1 < ask->copies;
	}
	return false;
}

struct duty duty_of(const struct duty_ask *ask)
{
	struct duty d = { .serves = duty_serves(&ask->slot, &ask->up) };

	d.owned = ask->self != PLACEMENT_NONE && ask->self == ask->slot.owner;
	/* Whom the master takes for down, and who is asked all the same, is up. */
	if (d.owned)
		d.serves = ask->self;
	d.moved = d.serves != PLACEMENT_NONE && d.serves != ask->self;
	if (!d.moved || ask->last)
		d.kind = DUTY_OWNER;
	else if (!ask->peer && keeps_copy(ask))
		d.kind = DUTY_COPY;
	else
		d.kind = DUTY_NONE;
	return d;
}

/* ---- where a request goes -------------------------------------------------------------------- */

static int candidate_index(const struct route *route, uint16_t number)
{
	for (uint32_t i = 0; i < route->n; i++) {
		if (route->candidates[i] == number)
			return (int)i;
	}
	return -1;
}

static bool is_dead(const struct route *route, uint16_t number)
{
	int i = candidate_index(route, number);

	if (i >= 0)
		return route->dead >> i & 1;
	for (uint32_t k = 0; k < route->n_failed; k++) {
		if (route->failed[k] == number)
			return true;
	}
	return false;
}

/* The best that is left ends it. */
static void take_last(struct route *route)
{
	route->last = true;
	route->to = route->self;
	for (uint32_t i = 0; i < route->n; i++) {
		if (!(route->dead >> i & 1)) {
			route->to = route->candidates[i];
			return;
		}
	}
}

void route_begin(
	struct route *route, const uint16_t *candidates, uint32_t n, uint16_t owner, uint16_t self)
{
	*route = (struct route){ .self = self, .to = self };
	assert(n <= ROUTE_CANDIDATES);
	for (uint32_t i = 0; i < n; i++)
		route->candidates[route->n++] = candidates[i];
	if (n == 0)
		return;
	route->to = candidates[0];
	route->last = candidates[0] != owner;
}

static void note_dead(struct route *route)
{
	int i = candidate_index(route, route->to);

	if (i >= 0)
		route->dead |= (uint8_t)(1u << i);
	else if (route->n_failed < ROUTE_HOPS)
		route->failed[route->n_failed++] = route->to;
}

/* Back to the owner that sent the request away. It may name another, whose guess is newer, as long as that
 * is followed: then it ends the request. */
static void come_back(struct route *route)
{
	route->cached = false;
	route->last = route->hops >= ROUTE_HOPS;
	route->to = route->back;
}

void route_next(struct route *route, enum route_outcome outcome, uint16_t x)
{
	if (route->cached) {
		if (outcome == ROUTE_DEAD)
			note_dead(route);
		come_back(route);
		return;
	}
	if (outcome == ROUTE_HERD && (x == route->self || is_dead(route, x))) {
		route->last = true; /* the same one again */
		return;
	}
	/* FRAME_LAST is never sent away; a peer that does it all the same counts as dead. */
	if (outcome == ROUTE_DEAD || outcome == ROUTE_MISS || route->last) {
		note_dead(route);
		take_last(route);
		return;
	}
	if (x == route->self && x != PLACEMENT_NONE) {
		route->to = x;
		route->last = true;
		return;
	}
	if (x == PLACEMENT_NONE || x == route->to || is_dead(route, x) ||
		++route->hops > ROUTE_HOPS) {
		take_last(route);
		return;
	}
	route->cached = outcome == ROUTE_HERD;
	route->back = route->to;
	route->to = x;
}
