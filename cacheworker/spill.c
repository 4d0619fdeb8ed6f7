/* What has no room here goes to others. See spill.h. */
#include "cacheworker/spill.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/deadline.h"
#include "base/hash.h"
#include "cacheworker/worker.h"
#include "cluster/view.h"

#include <stdlib.h>

#define AGAIN_NS CLOCK_SECOND

static void on_answer(struct rpc_call *call, int status)
{
	struct spill_room *room = container_of(call, struct spill_room, call);
	struct spill *spill = &room->worker->spill;

	pthread_mutex_lock(&spill->lock);
	room->asking = false;
	room->known = true;
	room->room = status == 0 && call->reply.extent > 0;
	pthread_mutex_unlock(&spill->lock);
	rpc_call_release(call);
}

/* The place of what that worker said; NULL: another's answer is due there. */
static struct spill_room *room_locked(
	struct worker *w, const struct volume_id *volume, uint16_t number)
{
	uint64_t hash = hash_xxh3(volume, sizeof(*volume), number);
	struct spill_room *room = &w->spill.rooms[hash % SPILL_ROOMS];

	if (room->number == number && volume_id_equal(&room->volume, volume))
		return room;
	if (room->asking)
		return NULL;
	*room = (struct spill_room){ .volume = *volume, .number = number, .worker = w };
	return room;
}

static void ask_locked(struct spill_room *room, struct view_peer *peer)
{
	room->asking = true;
	room->asked_ns = clock_mono_ns();
	room->call = (struct rpc_call){
		.frame = { .op = FRAME_ROOM, .volume = room->volume },
		.payload = NET_PAYLOAD_NONE,
		.deadline_ns = room->asked_ns + DEADLINE_PROMPT_NS,
		.hurry = true,
		.on_done = on_answer,
		.reply_fd = -1,
	};
	rpc_call(peer->rpc, &room->call);
}

/* Has it room, as far as is known? */
static bool has_room(struct worker *w, const struct volume_id *volume, struct view_peer *peer)
{
	struct spill_room *room;
	bool has = false;

	pthread_mutex_lock(&w->spill.lock);
	room = room_locked(w, volume, peer->number);
	if (room && !room->asking &&
		(room->asked_ns == 0 || clock_mono_ns() - room->asked_ns > AGAIN_NS))
		ask_locked(room, peer);
	if (room)
		has = !room->known || room->room;
	pthread_mutex_unlock(&w->spill.lock);
	return has;
}

static struct spill_place *place_locked(struct worker *w, const struct chunk_id *id)
{
	return &w->spill.places[hash_xxh3(id, sizeof(*id), 0) % SPILL_PLACES];
}

/* Where it went before; PLACEMENT_NONE: nowhere. */
static uint16_t spilled_to(struct worker *w, const struct chunk_id *id)
{
	uint16_t number = PLACEMENT_NONE;
	const struct spill_place *place;

	pthread_mutex_lock(&w->spill.lock);
	place = place_locked(w, id);
	if (place->known && chunk_id_equal(&place->id, id))
		number = place->number;
	pthread_mutex_unlock(&w->spill.lock);
	return number;
}

static void keep_place(struct worker *w, const struct chunk_id *id, uint16_t number)
{
	pthread_mutex_lock(&w->spill.lock);
	*place_locked(w, id) = (struct spill_place){ .id = *id, .number = number, .known = true };
	pthread_mutex_unlock(&w->spill.lock);
	barren_forget(&w->pulls.barren, id);
}

/* One of the slot's list that can be asked. */
static struct view_peer *candidate(struct worker *w, uint16_t number)
{
	struct view_peer *peer = number == PLACEMENT_NONE ? NULL : view_peer(w->view, number);

	return peer && !peer->self && view_up(w->view, number) ? peer : NULL;
}

static uint16_t choose(struct worker *w, const struct chunk_id *id)
{
	uint16_t before = spilled_to(w, id);
	struct view_candidates c;

	view_find(w->view, placement_volume_hash(&id->volume), id->chunk, &c);
	for (uint32_t i = 0; i < ARRAY_SIZE(c.replicas); i++)
		if (c.replicas[i] == before && candidate(w, before))
			return before;
	for (uint32_t i = 0; i < ARRAY_SIZE(c.replicas); i++) {
		struct view_peer *peer = candidate(w, c.replicas[i]);

		if (peer && has_room(w, &id->volume, peer))
			return peer->number;
	}
	return PLACEMENT_NONE;
}

bool spill_to(struct worker *w, const struct chunk_id *id, uint16_t *ret_number)
{
	uint16_t number;

	if (atomic_load(&w->others) == 0 || atomic_load(&w->closing) ||
		!tier_volume_full(w->tiers, &id->volume, TIER_WANT_READ))
		return false;
	number = choose(w, id);
	if (number == PLACEMENT_NONE)
		return false;
	keep_place(w, id, number);
	*ret_number = number;
	return true;
}

void spill_answer(struct worker *w, struct rpc_request *request)
{
	bool full = tier_volume_full(w->tiers, &request->frame.volume, TIER_WANT_FILL);
	const struct frame reply = { .extent = full ? 0 : 1 };

	rpc_reply(request, 0, &reply, NET_PAYLOAD_NONE);
}

int spill_init(struct worker *w)
{
	pthread_mutex_init(&w->spill.lock, NULL);
	w->spill.rooms = calloc(SPILL_ROOMS, sizeof(*w->spill.rooms));
	w->spill.places = calloc(SPILL_PLACES, sizeof(*w->spill.places));
	return w->spill.rooms && w->spill.places ? 0 : -ENOMEM;
}

void spill_release(struct worker *w)
{
	free(TAKE(w->spill.rooms));
	free(TAKE(w->spill.places));
	pthread_mutex_destroy(&w->spill.lock);
}
