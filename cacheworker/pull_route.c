/* Where a pull goes next: who serves the chunk, or who may have it. See pull.h. */
#include "cacheworker/pull_internal.h"

#include <errno.h>

#define STEPS_MAX 32u /* requests of one pull */

bool pull_no_answer(int status)
{
	switch (-status) {
	case ECONNRESET:
	case ECONNREFUSED:
	case ECONNABORTED:
	case ENOTCONN:
	case EPIPE:
	case ETIMEDOUT:
	case EHOSTUNREACH:
	case EHOSTDOWN:
	case ENETUNREACH:
	case ENETDOWN:
	case ENOENT: /* no such socket */
	case EPROTO:
	case EPROTONOSUPPORT:
		return true;
	default:
		return false;
	}
}

void pull_end_here(struct pull *p)
{
	struct worker *w = p->worker;

	pthread_mutex_lock(&w->flights.lock);
	p->copy = false;
	for (uint32_t i = 0; i < p->n; i++)
		p->flights[i]->ends = true;
	pthread_mutex_unlock(&w->flights.lock);
}

bool pull_given_up(struct pull *p)
{
	bool is;

	pthread_mutex_lock(&p->worker->flights.lock);
	is = p->given_up;
	pthread_mutex_unlock(&p->worker->flights.lock);
	return is;
}

struct view_peer *pull_next_server(struct pull *p)
{
	struct worker *w = p->worker;

	while (!pull_given_up(p) && p->steps++ < STEPS_MAX) {
		struct view_peer *peer;

		if (p->route.to == PLACEMENT_NONE || p->route.to == p->route.self)
			return NULL;
		peer = view_peer(w->view, p->route.to);
		if (peer && !peer->self)
			return peer;
		route_next(&p->route, ROUTE_DEAD, PLACEMENT_NONE);
	}
	return NULL;
}

/* Is it asked now? One that is passed by may be worth waiting for (p->owed). */
static bool is_asked(struct pull *p, const struct view_peer *peer, enum holder_kind kind)
{
	struct worker *w = p->worker;
	bool waits = pull_may_wait(p, peer, kind);

	switch (barren_word_of(&w->pulls.barren, &p->id, peer->number, p->offset, p->length)) {
	case BARREN_EMPTY:
		return false;
	case BARREN_SILENT:
		if (!waits)
			return false;
		break;
	case BARREN_UNKNOWN:
	default:
		break;
	}
	if (view_usable(w->view, peer))
		return true;
	p->owed |= waits;
	/* Its breaker lets one through now and then; who is down may be back before the master says so. */
	return waits ? view_lets(peer) : kind == HOLDER_OWNER;
}

struct view_peer *pull_next_holder(struct pull *p)
{
	struct worker *w = p->worker;

	if (!p->sought)
		p->n_holders = worker_holders(w, &p->id.volume, p->id.chunk, p->holders);
	p->sought = true;
	while (p->next < p->n_holders) {
		const struct holder *holder = &p->holders[p->next++];
		struct view_peer *peer = view_peer(w->view, holder->number);

		if (peer && !peer->self && is_asked(p, peer, holder->kind))
			return peer;
	}
	return NULL;
}

bool pull_owner_is_owed(struct pull *p)
{
	const struct view_peer *owner = p->owner == PLACEMENT_NONE || p->route.to == p->owner
						? NULL
						: view_peer(p->worker->view, p->owner);

	return owner && !owner->self && !p->route.cached && !pull_given_up(p) &&
	       !view_usable(p->worker->view, owner) && pull_may_wait(p, owner, HOLDER_OWNER);
}

void pull_begin(struct pull *p)
{
	struct worker *w = p->worker;
	struct duty duty;

	p->sought = p->owed = p->coming = p->direct = p->busy = false;
	p->next = p->steps = 0;
	if (!p->copy)
		return;
	worker_duty(w, &p->id.volume, p->id.chunk, 0, &duty);
	if (duty.kind == DUTY_OWNER)
		pull_end_here(p);
	else
		worker_route(w, &p->id.volume, p->id.chunk, &p->route, &p->owner);
}

/* A full owner: another keeps what it has no room for. */
static void follow_spill(struct pull *p, uint16_t number)
{
	if (p->route.last || number == PLACEMENT_NONE) {
		route_next(&p->route, ROUTE_DEAD, PLACEMENT_NONE);
		return;
	}
	p->route.to = number;
	p->route.last = true;
}

bool pull_sent_on(struct pull *p, int status)
{
	const struct frame *reply = &p->call.reply;
	uint16_t number = (uint16_t)min(reply->extent, (uint64_t)PLACEMENT_NONE);

	if (status == -EREMOTE && reply->flags & FRAME_LAST) {
		follow_spill(p, number);
	} else if (status == -EREMOTE && reply->flags & FRAME_MOVED) {
		view_stale(p->worker->view);
		route_next(&p->route, ROUTE_MOVED, number);
	} else if (status == -EREMOTE) {
		route_next(&p->route, ROUTE_HERD, number);
	} else if (p->route.cached) {
		route_next(&p->route, pull_no_answer(status) ? ROUTE_DEAD : ROUTE_MISS,
			PLACEMENT_NONE);
	} else if (pull_no_answer(status) || status == -ECANCELED || status == -ENODATA ||
		   status == -EOPNOTSUPP || status == -EACCES || status == -EBADMSG) {
		route_next(&p->route, ROUTE_DEAD, PLACEMENT_NONE);
	} else {
		return false;
	}
	return true;
}
