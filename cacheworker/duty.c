/* Duties by the view. See duty.h. */
#include "cacheworker/duty.h"
#include "cacheworker/copies.h"
#include "cacheworker/former.h"

/* Of a worker: may he be asked now, or by the master's word alone? */
typedef bool is_up_fn(struct worker *w, uint16_t number);

static bool is_up(struct worker *w, uint16_t number)
{
	return number != PLACEMENT_NONE && view_up(w->view, number);
}

static bool is_called_up(struct worker *w, uint16_t number)
{
	const struct view_peer *peer = number == PLACEMENT_NONE ? NULL : view_peer(w->view, number);

	return peer && !view_down(peer);
}

static struct placement_slot slot_of(const struct view_candidates *c)
{
	return (struct placement_slot){ .owner = c->owner,
		.previous = c->previous,
		.replicas = { c->replicas[0], c->replicas[1] } };
}

static void find(struct worker *w, const struct volume_id *volume, uint64_t chunk,
	struct view_candidates *ret_candidates)
{
	view_find(w->view, placement_volume_hash(volume), chunk, ret_candidates);
}

static void find_duty(struct worker *w, const struct volume_id *volume, uint64_t chunk,
	uint16_t flags, is_up_fn *up, struct duty *ret_duty)
{
	struct view_candidates c;
	struct duty_ask ask;

	find(w, volume, chunk, &c);
	ask = (struct duty_ask){
		.self = view_self(w->view),
		.slot = slot_of(&c),
		.up = { .owner_up = up(w, c.owner),
			.previous_up = up(w, c.previous),
			.replica_up = { up(w, c.replicas[0]), up(w, c.replicas[1]) } },
		.whole = worker_keeps_whole(w, volume),
		.copies = (uint8_t)worker_copies(w, volume),
		.hot = c.hot,
		.peer = flags & FRAME_PEER,
		.last = flags & FRAME_LAST,
	};
	*ret_duty = duty_of(&ask);
}

void worker_duty(struct worker *w, const struct volume_id *volume, uint64_t chunk, uint16_t flags,
	struct duty *ret_duty)
{
	find_duty(w, volume, chunk, flags, is_up, ret_duty);
}

bool worker_keeps_copy(struct worker *w, const struct volume_id *volume, uint64_t chunk)
{
	struct duty duty;

	find_duty(w, volume, chunk, 0, is_called_up, &duty);
	return duty.kind == DUTY_COPY;
}

enum tier_class worker_class(struct worker *w, const struct volume_id *volume, uint64_t chunk)
{
	uint16_t self = view_self(w->view);
	struct view_candidates c;

	find(w, volume, chunk, &c);
	return self == PLACEMENT_NONE || c.owner == PLACEMENT_NONE || c.owner == self ? TIER_OWNED
										      : TIER_COPY;
}

uint32_t worker_slot(const struct volume_id *volume, uint64_t chunk)
{
	return placement_slot_of(placement_volume_hash(volume), chunk);
}

/* Who owned it and does so again is its owner. */
static uint32_t add_holder(struct worker *w, uint16_t number, enum holder_kind kind, uint16_t owner,
	struct holder *out, uint32_t n)
{
	const struct view_peer *peer = number == PLACEMENT_NONE ? NULL : view_peer(w->view, number);

	if (!peer || peer->self || n == DUTY_HOLDERS_MAX)
		return n;
	for (uint32_t i = 0; i < n; i++)
		if (out[i].number == number)
			return n;
	out[n] = (struct holder){ .number = number, .kind = number == owner ? HOLDER_OWNER : kind };
	return n + 1;
}

static uint32_t add_keepers(struct worker *w, const struct volume_id *volume, uint64_t chunk,
	uint16_t owner, struct holder *out, uint32_t n)
{
	uint16_t keepers[COPIES_KEEPERS];
	uint32_t n_keepers = copies_keepers(w, volume, keepers);
	uint32_t end = min(n + DUTY_KEEPERS, DUTY_HOLDERS_MAX);

	for (uint32_t i = 0; i < n_keepers && n < end; i++) {
		uint16_t number = keepers[(chunk + i) % n_keepers];
		const struct view_peer *peer = view_peer(w->view, number);

		if (peer && !view_down(peer))
			n = add_holder(w, number, HOLDER_KEEPER, owner, out, n);
	}
	return n;
}

uint32_t worker_holders(struct worker *w, const struct volume_id *volume, uint64_t chunk,
	struct holder out[DUTY_HOLDERS_MAX])
{
	uint16_t former[FORMER_EACH];
	struct view_candidates c;
	uint32_t n_former;
	uint32_t n = 0;

	if (view_self(w->view) == PLACEMENT_NONE) /* one of them may be this worker */
		return 0;
	find(w, volume, chunk, &c);
	n = add_holder(w, c.previous, HOLDER_FORMER, c.owner, out, n);
	n_former = former_of(w, c.slot, former);
	for (uint32_t i = 0; i < n_former; i++)
		n = add_holder(w, former[i], HOLDER_FORMER, c.owner, out, n);
	/* Of a deputy: who gave the owner up may not have seen yet that it is back. */
	n = add_holder(w, c.owner, HOLDER_OWNER, c.owner, out, n);
	for (uint32_t i = 0; i < ARRAY_SIZE(c.replicas); i++)
		n = add_holder(w, c.replicas[i], HOLDER_REPLICA, c.owner, out, n);
	return add_keepers(w, volume, chunk, c.owner, out, n);
}

void worker_route(struct worker *w, const struct volume_id *volume, uint64_t chunk,
	struct route *ret_route, uint16_t *ret_owner)
{
	uint16_t numbers[VIEW_CANDIDATES];
	struct view_candidates c;

	find(w, volume, chunk, &c);
	for (uint32_t i = 0; i < c.n; i++)
		numbers[i] = c.peers[i]->number;
	route_begin(ret_route, numbers, c.n, c.owner, view_self(w->view));
	*ret_owner = c.owner;
}
