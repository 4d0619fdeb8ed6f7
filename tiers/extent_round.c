/* Chunks on their way into extents and out of them, in the background. See extent_internal.h. */
#include "tiers/extent_internal.h"
#include "tiers/relocate_internal.h"
#include "tiers/tier_set_internal.h"

/* Chunks that one round moves: 128 MiB of copies at most. */
#define ROUND_CHUNKS 8u
/* An extent is made anew when that share of its bytes is of chunks that are gone. */
#define DEAD_SHARE 4u
#define DEAD_MIN   (2ull * CHUNK_BYTES)
/* Rounds until what could not be moved is tried again. */
#define REST_ROUNDS 16u

/* One extent's chunks that are to be moved. */
struct strays {
	struct extent_plan plan; /* a copy */
	uint64_t number;         /* of the lowest extent that has any, from plan.next on */
	uint32_t n;
	struct chunk *chunks[ROUND_CHUNKS]; /* referenced */
};

static uint64_t number_of(const struct strays *s, const struct chunk *chunk)
{
	return chunk->id.chunk / (s->plan.bytes / CHUNK_BYTES);
}

static bool is_current(const struct strays *s, const struct extent *extent)
{
	return extent && !extent->aside && !extent->lost && extent->bytes == s->plan.bytes;
}

static bool is_stray(const struct strays *s, const struct chunk *chunk)
{
	if (!chunk_is_live(chunk) || chunk->id.lineage != s->plan.lineage ||
		!volume_id_equal(&chunk->id.volume, &s->plan.volume))
		return false;
	if (s->plan.whole)
		return !is_current(s, chunk->extent);
	return chunk->extent && atomic_load(&chunk->extent->holders) == 0;
}

static void find_lowest(struct map_node *node, void *arg)
{
	const struct chunk *chunk = container_of(node, struct chunk, node);
	struct strays *s = arg;

	if (is_stray(s, chunk) && number_of(s, chunk) >= s->plan.next)
		s->number = min(s->number, number_of(s, chunk));
}

static void collect(struct map_node *node, void *arg)
{
	struct chunk *chunk = container_of(node, struct chunk, node);
	struct strays *s = arg;

	if (s->n < ROUND_CHUNKS && is_stray(s, chunk) && number_of(s, chunk) == s->number)
		s->chunks[s->n++] = chunk_ref(chunk);
}

static void each_chunk(
	struct tier_set *set, void (*fn)(struct map_node *node, void *arg), struct strays *s)
{
	for (uint32_t i = 0; i < SET_SHARDS; i++) {
		struct shard *shard = &set->shards[i];

		pthread_mutex_lock(&shard->lock);
		pthread_mutex_lock(&set->extents.lock); /* what an extent is */
		map_each(&shard->map, fn, s);
		pthread_mutex_unlock(&set->extents.lock);
		pthread_mutex_unlock(&shard->lock);
	}
}

/* Pinned data does not move, unless its quota shrank: the room of evicted chunks comes free only
 * once the others have moved out of their extents. */
static bool stays_in_extents(struct tier_set *set, const struct chunk *chunk)
{
	struct tier_volume_status status;

	return tier_volume_status(set, &chunk->id.volume, &status) && status.policy.pin &&
	       !volumes_excess(chunk->space, 0);
}

static int move_in(struct tier_set *set, struct chunk *chunk)
{
	struct relocation to = { .extent = extents_join(set, &chunk->id, chunk->tier) };
	int r;

	if (!to.extent)
		return -EBUSY;
	/* The layout changed after the chunk was selected, and it is where it belongs. */
	if (to.extent == chunk->extent) {
		extent_leave(to.extent, false, 0);
		return 0;
	}
	to.tier = to.extent->tier;
	r = chunk_relocate(chunk, &to);
	if (r == 0)
		counter_add(&set->counters.into_extents, 1);
	return r;
}

/* Of a volume that is not to be here whole any more, what others own goes. */
static int move_out(struct tier_set *set, struct chunk *chunk)
{
	const struct relocation to = { .tier = chunk->tier };
	int r;

	if (chunk->class == TIER_COPY)
		return set_unlink_idle(set, chunk) ? 0 : -EBUSY;
	r = chunk_relocate(chunk, &to);
	if (r == 0)
		counter_add(&set->counters.out_of_extents, 1);
	/* The filesystem has no room for both: the whole extent goes, since nothing of it comes free before its last chunk goes. */
	else if (r == -ENOSPC && volumes_excess(chunk->space, 0))
		r = set_unlink_idle(set, chunk) ? 0 : -EBUSY;
	return r;
}

/* Moves what was collected; false when some of it stays. */
static bool move_all(struct tier_set *set, struct strays *s)
{
	bool may = s->plan.whole || s->n == 0 || !stays_in_extents(set, s->chunks[0]);
	bool all = may;

	for (uint32_t i = 0; i < s->n; i++) {
		/* Not on a disk that has trouble. */
		may = may && tier_in_service(s->chunks[i]->tier) &&
		      health_get(&s->chunks[i]->tier->health) == HEALTH_OK;
		all = all && may;
		if (may && (s->plan.whole ? move_in(set, s->chunks[i])
					  : move_out(set, s->chunks[i])) < 0)
			all = false;
		chunk_unref(s->chunks[i]);
	}
	return all;
}

/* What the round found, for the next one. */
static void note(struct tier_set *set, const struct strays *s, bool all)
{
	struct extent_plan *plan;

	pthread_mutex_lock(&set->extents.lock);
	plan = extent_plan_find_locked(&set->extents, &s->plan.volume, s->plan.lineage);
	if (plan && (plan->whole != s->plan.whole || plan->bytes != s->plan.bytes))
		plan = NULL; /* it was changed meanwhile: what was found is of another one */
	if (plan && s->number == UINT64_MAX) {     /* the end of a pass */
		plan->settled = s->plan.next == 0; /* of this pass: it looked at all extents */
		plan->rest = plan->failed ? REST_ROUNDS : 0;
		plan->next = 0;
		plan->failed = false;
	} else if (plan) {
		plan->failed |= !all;
		plan->next = all ? s->number : s->number + 1;
	}
	pthread_mutex_unlock(&set->extents.lock);
}

/* ---- extents made anew ----------------------------------------------------------------------- */

/* An extent of which much is dead, of a volume that lies in extents. */
struct search {
	struct tier_set *set;
	struct extent *found; /* joined, so that neither it nor its name goes meanwhile */
};

static void look(struct map_node *node, void *arg)
{
	struct extent *extent = container_of(node, struct extent, by_number);
	struct search *s = arg;
	uint64_t charged = atomic_load(&extent->charged);

	if (s->found || extent->state != EXTENT_LIVE || extent->aside || extent->lost ||
		atomic_load(&extent->holders))
		return;
	if (extent->dead < DEAD_MIN || extent->dead < charged / DEAD_SHARE)
		return;
	if (!tier_in_service(extent->tier) ||
		!extent_plan_bytes_locked(&s->set->extents, &extent->volume, extent->lineage))
		return;
	extent->chunks++;
	s->found = extent;
}

static void renew_one(struct tier_set *set)
{
	struct search s = { .set = set };

	pthread_mutex_lock(&set->extents.lock);
	map_each(&set->extents.by_number, look, &s);
	if (s.found)
		extent_plan_stir_locked(&set->extents, &s.found->volume, s.found->lineage);
	pthread_mutex_unlock(&set->extents.lock);
	if (!s.found)
		return;
	(void)(extent_set_aside(s.found) < 0); /* the next round tries again */
	extent_leave(s.found, false, 0);
}

/* A volume with chunks to be moved. */
static bool next_plan(struct tier_set *set, struct extent_plan *ret_plan)
{
	bool found = false;

	pthread_mutex_lock(&set->extents.lock);
	list_for_each (node, &set->extents.plans) {
		struct extent_plan *plan = list_entry(node, struct extent_plan, link);

		if (plan->settled || (plan->rest > 0 && plan->rest-- > 0))
			continue;
		*ret_plan = *plan;
		found = true;
		/* The next round looks at another one first. */
		list_remove(&plan->link);
		list_push_back(&set->extents.plans, &plan->link);
		break;
	}
	pthread_mutex_unlock(&set->extents.lock);
	return found;
}

bool extents_round(struct tier_set *set)
{
	struct strays s = { .number = UINT64_MAX };
	bool all = true;

	CHECK_MAGIC(set, SET_MAGIC);
	extent_plans_review(set);
	extents_review_exceeding(set);
	renew_one(set);
	if (!next_plan(set, &s.plan))
		return false;
	each_chunk(set, find_lowest, &s);
	if (s.number != UINT64_MAX) {
		each_chunk(set, collect, &s);
		all = move_all(set, &s);
	}
	note(set, &s, all);
	return true;
}
