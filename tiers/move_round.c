/* Which chunks move. See move_internal.h. */
#include "tiers/move_internal.h"
#include "tiers/tier_set_internal.h"

#define LOOK_AT 16u /* chunks at the end of a queue that are compared */
/* What a copy of a chunk may take in addition to its charge. */
#define MOVE_SLACK_BYTES (256ull << 10)

uint64_t move_reserve(const struct tier_set *set, const struct tier *tier)
{
	if (tier->kind == set->slowest)
		return 0;
	return min(2 * (uint64_t)CHUNK_FILE_BYTES, tier->capacity / 4);
}

static uint64_t charged(struct chunk *chunk)
{
	uint64_t bytes;

	pthread_mutex_lock(&chunk->lock);
	bytes = chunk->charged;
	pthread_mutex_unlock(&chunk->lock);
	return bytes + MOVE_SLACK_BYTES;
}

static bool takes_moves(const struct tier *tier)
{
	return tier_in_service(tier) && health_get(&tier->health) == HEALTH_OK &&
	       !atomic_load(&tier->inodes_short) && tier->move_fd >= 0;
}

/* A tier with room for `need` bytes, NULL: none. The nearest slower one; without one, and with
 * `any`, another. */
static struct tier *find_room(
	struct tier_set *set, const struct tier *from, uint64_t need, bool any)
{
	struct tier *best = NULL;

	for (uint32_t i = 0; i < set->n_tiers; i++) {
		struct tier *tier = set->tiers[i];
		bool slower = tier->kind > from->kind;

		if (tier == from || !takes_moves(tier) || (!slower && !any) ||
			tier_room(tier) < need + move_reserve(set, tier))
			continue;
		if (!best || (slower && (best->kind <= from->kind || tier->kind < best->kind)))
			best = tier;
	}
	return best;
}

int move_spill(struct chunk *chunk, uint64_t need)
{
	struct tier_set *set = chunk->set;
	struct tier *to;
	int r;

	if (chunk->extent)
		return -ENOSPC;
	/* Another thread made room meanwhile; or it is the quota that has none, here as there. */
	if (tier_room(chunk->tier) >= need + MOVE_SLACK_BYTES)
		return volumes_room(chunk->space) >= need ? -EAGAIN : -ENOSPC;
	to = find_room(set, chunk->tier, charged(chunk) + need, true);
	if (!to)
		return -ENOSPC;
	r = chunk_begin_spill(chunk, to);
	if (r == 0)
		r = move_begun(set, chunk, to);
	if (r == 0)
		counter_add(&set->counters.demoted, 1);
	return r == 0 || r == -EAGAIN || r == -EBUSY ? -EAGAIN : -ENOSPC;
}

struct choice {
	bool hottest; /* else the coldest */
	uint64_t now;
	struct chunk *chunk;
	uint64_t heat;
};

static void consider(struct choice *c, struct chunk *chunk)
{
	uint64_t heat = heat_get(&chunk->heat, c->now);

	if (chunk->extent || !chunk_is_idle(chunk))
		return;
	if (c->chunk && (c->hottest ? heat <= c->heat : heat >= c->heat))
		return;
	c->chunk = chunk;
	c->heat = heat;
}

static void consider_queue(struct choice *c, struct list *queue)
{
	struct list *node = c->hottest ? queue->prev : queue->next;

	for (uint32_t i = 0; i < LOOK_AT && node != queue; i++) {
		consider(c, list_entry(node, struct chunk, queued));
		node = c->hottest ? node->prev : node->next;
	}
}

/* The hottest or coldest of those at the end of each queue of the tier, referenced. */
static struct chunk *choose(
	struct tier_set *set, const struct tier *tier, bool hottest, uint64_t *ret_heat)
{
	struct volumes *volumes = &set->volumes;
	struct choice c = { .hottest = hottest, .now = volumes->clock() };

	pthread_mutex_lock(&volumes->lock);
	list_for_each (node, &volumes->all) {
		struct volume_space *space = list_entry(node, struct volume_space, link);

		for (int q = 0; q < SPACE_QUEUES; q++)
			consider_queue(&c, &space->queues[tier->number][q]);
	}
	if (c.chunk) {
		chunk_ref(c.chunk);
		*ret_heat = c.heat;
	}
	pthread_mutex_unlock(&volumes->lock);
	return c.chunk;
}

/* The coldest chunk goes down. Bytes; 0: it cannot. */
static uint64_t demote_one(struct tier_set *set, struct tier *tier)
{
	uint64_t heat;
	struct chunk *chunk = choose(set, tier, false, &heat);
	struct tier *to = chunk ? find_room(set, tier, charged(chunk), false) : NULL;
	uint64_t bytes = 0;

	if (to && move_chunk(set, chunk, to) == 0) {
		bytes = chunk_present_bytes(chunk) + BLOCK_BYTES;
		counter_add(&set->counters.demoted, 1);
	}
	chunk_unref(chunk);
	return bytes;
}

/* Worth being there, and there is room, or will be when a colder one goes. */
static bool deserves(struct tier_set *set, struct tier *fast, struct chunk *chunk, uint64_t heat)
{
	uint64_t need = charged(chunk);
	struct chunk *coldest;
	uint64_t cold = 0;

	if (heat < MOVE_HOT_READS * HEAT_OF_A_READ * 9 / 10 || tier_room(fast) < need)
		return false;
	if (tier_room(fast) >= need + move_reserve(set, fast))
		return true;
	coldest = choose(set, fast, false, &cold);
	chunk_unref(coldest);
	return coldest && heat > MOVE_HOTTER * cold;
}

/* The hottest chunk of a slower tier goes up. Bytes; 0: none is worth it. */
static uint64_t promote_one(struct tier_set *set, struct tier *fast)
{
	struct chunk *best = NULL;
	uint64_t best_heat = 0;
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < set->n_tiers; i++) {
		struct tier *tier = set->tiers[i];
		struct chunk *chunk = NULL;
		uint64_t heat = 0;

		if (tier->kind > fast->kind && tier_in_service(tier))
			chunk = choose(set, tier, true, &heat);
		if (chunk && (!best || heat > best_heat)) {
			chunk_unref(best);
			best = chunk;
			best_heat = heat;
		} else {
			chunk_unref(chunk);
		}
	}
	if (best && deserves(set, fast, best, best_heat) && move_chunk(set, best, fast) == 0) {
		bytes = chunk_present_bytes(best) + BLOCK_BYTES;
		counter_add(&set->counters.promoted, 1);
	}
	chunk_unref(best);
	return bytes;
}

uint64_t move_round(struct tier_set *set)
{
	uint64_t moved = 0;

	for (uint32_t i = 0; i < set->n_tiers; i++) {
		struct tier *tier = set->tiers[i];
		uint64_t n = 1;

		if (tier->kind == set->slowest || !takes_moves(tier))
			continue;
		while (n && moved < MOVE_ROUND_BYTES) {
			n = tier_room(tier) < move_reserve(set, tier) ? demote_one(set, tier) : 0;
			if (!n)
				n = promote_one(set, tier);
			moved += n;
		}
	}
	return moved;
}
