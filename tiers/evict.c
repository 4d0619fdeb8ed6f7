/* Which chunk goes. See evict_internal.h. */
#include "tiers/evict_internal.h"
#include "tiers/tier_set_internal.h"

#define EVICT_TRIES 8u    /* chunks at the head of a queue that are looked at, some of them busy */
#define HELD_TRIES  4096u /* the same, of chunks that a kernel has in a device: they go to its end */
/* A volume must be worth that many times as much as one of the same priority to push it out: two
 * that are read alike leave each other alone. */
#define EVICT_WORTH 4u

struct rank {
	int32_t priority;
	uint64_t value;
	uint64_t read_at;
};

static bool rank_less(const struct rank *a, const struct rank *b)
{
	if (a->priority != b->priority)
		return a->priority < b->priority;
	if (a->value != b->value)
		return a->value < b->value;
	return a->read_at < b->read_at;
}

/* Worth less than EVICT_WORTH times, without overflow. */
static bool worth_less(uint64_t value, uint64_t than)
{
	return value < than / EVICT_WORTH;
}

static bool may_take_own(
	const struct evict_for *why, const struct volume_space *from, enum space_queue queue)
{
	bool lru = from->policy.evict == TIER_EVICT_LRU;

	if (why->shrink)
		return true;
	if (queue == QUEUE_COPY)
		return lru || why->class == TIER_OWNED;
	return lru && (queue == QUEUE_UNREAD || why->class == TIER_OWNED);
}

static bool may_take_locked(const struct evict_for *why, const struct volume_space *from,
	enum space_queue queue, uint64_t now)
{
	const struct volume_space *to = why->space;

	if (to == from)
		return may_take_own(why, from, queue);
	if (why->shrink || why->own_only || from->policy.pin)
		return false;
	if (!to)
		return queue == QUEUE_COPY || from->policy.evict == TIER_EVICT_LRU;
	if (queue == QUEUE_COPY && why->class == TIER_OWNED)
		return true; /* its owner has it: no other has what would have no room */
	if (from->policy.priority != to->policy.priority)
		return from->policy.priority < to->policy.priority &&
		       (queue != QUEUE_OWNED || why->class == TIER_OWNED);
	if (queue != QUEUE_OWNED)
		return true;
	return why->class == TIER_OWNED &&
	       worth_less(volumes_value_locked(from, now), volumes_value_locked(to, now));
}

struct search {
	const struct evict_for *why;
	const struct tier *tier; /* NULL: any */
	uint64_t now;
	struct chunk *best;
	struct rank rank;
};

/* What a kernel has in a device goes only for what an operator said. */
static bool may_take_held(const struct evict_for *why, const struct volume_space *from)
{
	return why->shrink || (why->space && why->space != from &&
				      from->policy.priority < why->space->policy.priority);
}

/* The first chunk of a queue that may go now, or NULL. */
static struct chunk *head_locked(
	const struct search *s, struct list *queue, uint64_t older_than, bool take_held)
{
	uint32_t tries = 0;
	uint32_t held = 0;

	list_for_each_safe (node, queue) {
		struct chunk *chunk = list_entry(node, struct chunk, queued);

		if (chunk->read_at > older_than || tries == EVICT_TRIES || held == HELD_TRIES)
			break;
		if (!take_held && chunk->extent && atomic_load(&chunk->extent->holders)) {
			held++;
			if (chunk->read_at < s->now) {
				chunk->read_at = s->now;
				list_remove(node);
				list_push_back(queue, node);
			}
			continue;
		}
		tries++;
		if (chunk_is_idle(chunk))
			return chunk;
	}
	return NULL;
}

static void look_locked(
	struct search *s, struct volume_space *space, uint32_t tier, enum space_queue queue)
{
	bool unread = queue == QUEUE_UNREAD || queue == QUEUE_UNREAD_COPY;
	bool fresh_stays = unread && !s->why->shrink;
	uint64_t grace = s->now > EVICT_GRACE_NS ? s->now - EVICT_GRACE_NS : 0;
	struct rank rank = { .priority = space->policy.priority };
	struct chunk *chunk;

	if (list_empty(&space->queues[tier][queue]) ||
		!may_take_locked(s->why, space, unread ? QUEUE_UNREAD : queue, s->now))
		return;
	chunk = head_locked(s, &space->queues[tier][queue], fresh_stays ? grace : UINT64_MAX,
		may_take_held(s->why, space));
	if (!chunk)
		return;
	rank.read_at = chunk->read_at;
	if (queue == QUEUE_OWNED)
		rank.value = volumes_value_locked(space, s->now);
	if (s->best && !rank_less(&rank, &s->rank))
		return;
	s->best = chunk;
	s->rank = rank;
}

/* For a smaller quota all copies go first: where it leaves no room for the whole volume, copies that stay are dropped later
 * anyway. */
static const enum space_queue orders[][SPACE_QUEUES] = {
	{ QUEUE_UNREAD_COPY, QUEUE_UNREAD, QUEUE_COPY, QUEUE_OWNED },
	{ QUEUE_UNREAD_COPY, QUEUE_COPY, QUEUE_UNREAD, QUEUE_OWNED },
};

/* The chunk that goes first, referenced. None of a disk that hangs: unlinking would hang, too. */
static struct chunk *find_victim(
	struct tier_set *set, const struct evict_for *why, const struct tier *tier)
{
	struct volumes *volumes = &set->volumes;
	struct search s = { .why = why, .tier = tier, .now = volumes->clock() };
	const enum space_queue *order = orders[why->shrink];

	pthread_mutex_lock(&volumes->lock);
	for (int q = 0; !s.best && q < SPACE_QUEUES; q++) {
		list_for_each (node, &volumes->all) {
			struct volume_space *space = list_entry(node, struct volume_space, link);

			for (uint32_t t = 0; t < volumes->n_tiers; t++) {
				if ((!tier || tier->number == t) &&
					!gate_is_stalled(&set->tiers[t]->gate))
					look_locked(&s, space, t, order[q]);
			}
		}
	}
	if (s.best)
		chunk_ref(s.best);
	pthread_mutex_unlock(&volumes->lock);
	return s.best;
}

static uint64_t charge_of(struct chunk *chunk)
{
	uint64_t charged;

	pthread_mutex_lock(&chunk->lock);
	charged = chunk->charged;
	pthread_mutex_unlock(&chunk->lock);
	return charged;
}

static uint64_t unlink_counted(struct tier_set *set, struct chunk *chunk)
{
	uint64_t charged = charge_of(chunk);

	if (!set_unlink_idle(set, chunk))
		return 0; /* it became busy */
	counter_add(&set->counters.evicted, 1);
	counter_add(&set->counters.evicted_bytes, charged);
	atomic_fetch_add(&chunk->space->evicted, charged);
	return max(charged, (uint64_t)BLOCK_BYTES);
}

/* An extent's file goes with its last chunk: the others follow the first. With a copy only copies: what
 * is owned moves to another file, once much of this one is dead. */
static uint64_t unlink_rest(struct tier_set *set, const struct chunk *first)
{
	const struct extent *extent = first->extent;
	uint64_t n = extent->bytes / CHUNK_BYTES;
	struct chunk_id id = first->id;
	uint64_t bytes = 0;

	for (uint64_t i = 0; i < n; i++) {
		struct chunk *chunk;

		id.chunk = extent->number * n + i;
		chunk = tier_chunk_find(set, &id);
		if (chunk && chunk->extent == extent &&
			(chunk->class == TIER_COPY || first->class == TIER_OWNED))
			bytes += unlink_counted(set, chunk);
		chunk_unref(chunk);
	}
	return bytes;
}

uint64_t evict_one(struct tier_set *set, const struct evict_for *why, const struct tier *tier)
{
	for (uint32_t i = 0; i < EVICT_TRIES; i++) {
		struct chunk *chunk = find_victim(set, why, tier);
		uint64_t bytes = chunk ? unlink_counted(set, chunk) : 0;

		/* For a quota no more goes than the excess: what is left of the extent moves out of it (extents_round()). */
		if (bytes && chunk->extent && !why->shrink)
			bytes += unlink_rest(set, chunk);
		if (!chunk || bytes) {
			chunk_unref(chunk);
			return bytes;
		}
		chunk_unref(chunk); /* another one, then */
	}
	return 0;
}

int evict_room(struct tier_set *set, const struct evict_for *why, struct tier *tier, uint64_t need,
	uint32_t most)
{
	for (uint32_t i = 0;; i++) {
		uint64_t soon = tier_soon(tier); /* as in evict_quota() */
		uint64_t room = tier_room(tier);

		soon = max(soon, tier_soon(tier));
		if (room >= need)
			return 0;
		if (room + soon >= need || i == most || !evict_one(set, why, tier))
			return -ENOSPC;
	}
}

/* Bytes that come free without another eviction. A quota that shrank counts those in extents, too: the rest moves out of these. */
static uint64_t coming_free(const struct evict_for *why)
{
	return why->shrink ? atomic_load(&why->space->held) : volumes_soon(why->space);
}

int evict_quota(struct tier_set *set, const struct evict_for *why, uint64_t need, uint32_t most)
{
	struct volume_space *space = why->space;

	for (uint32_t i = 0;; i++) {
		/*
		 * Read before the excess: bytes that come free leave the charge first and the held bytes last, so those that are
		 * not held any more are not in the excess either. And after it: another thread may unlink what a reader holds.
		 */
		uint64_t soon = coming_free(why);
		uint64_t excess = volumes_excess(space, need);
		struct evict_for own = *why;

		soon = max(soon, coming_free(why));
		if (!excess)
			return 0;
		/* Over its quota already: space_round() evicts for that, and no more than the excess. */
		if (!why->shrink && volumes_excess(space, 0))
			return -ENOSPC;
		if (excess <= soon || i == most)
			return -ENOSPC;
		own.own_only = true;
		if (!evict_one(set, &own, NULL))
			return -ENOSPC;
	}
}

bool evict_possible(struct tier_set *set, const struct evict_for *why)
{
	struct chunk *chunk = find_victim(set, why, NULL);

	chunk_unref(chunk);
	return chunk != NULL;
}
