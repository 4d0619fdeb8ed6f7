/* Which volumes lie in extents: those of which all is to be here. See extent_internal.h. */
#include "tiers/extent_internal.h"
#include "base/hash.h"
#include "tiers/tier_set_internal.h"

#include <stdlib.h>

#define PLANS_MAX 4096u
/* A volume goes into extents when that much of what it needs would be left over besides, and stays
 * there until nothing is: at the edge it does not go to and fro. */
#define SPARE_SHARE 16u

struct extent_plan *extent_plan_find_locked(
	struct extents *extents, const struct volume_id *volume, uint64_t lineage)
{
	list_for_each (node, &extents->plans) {
		struct extent_plan *plan = list_entry(node, struct extent_plan, link);

		if (plan->lineage == lineage && volume_id_equal(&plan->volume, volume))
			return plan;
	}
	return NULL;
}

uint64_t extent_plan_bytes_locked(
	struct extents *extents, const struct volume_id *volume, uint64_t lineage)
{
	const struct extent_plan *plan = extent_plan_find_locked(extents, volume, lineage);

	return plan && plan->whole ? plan->bytes : 0;
}

void extent_plans_free(struct extents *extents)
{
	struct list *node;

	while ((node = list_pop_front(&extents->plans)))
		free(list_entry(node, struct extent_plan, link));
}

/* Tables and heads come to 0.3 %; what a filesystem adds for its own trees is of that order. */
static uint64_t need_of(uint64_t end, uint64_t used)
{
	uint64_t bytes = min(end, used);

	return bytes + bytes / 128 + CHUNK_BYTES;
}

/* Bytes that the volume may take, with those that it has. */
static uint64_t room_for(struct tier_set *set, const struct volume_id *volume)
{
	struct tier_volume_status status = { 0 };
	bool known = tier_volume_status(set, volume, &status);
	uint64_t room = known ? status.charged - min(status.held, status.charged) : 0;

	for (uint32_t i = 0; i < set->n_tiers; i++)
		if (health_get(&set->tiers[i]->health) == HEALTH_OK)
			room += tier_room(set->tiers[i]);
	return known && status.policy.quota ? min(room, status.policy.quota) : room;
}

/* Decides anew; `plan` is a copy. */
static bool is_whole(struct tier_set *set, const struct extent_plan *plan)
{
	uint64_t need = plan->need + (plan->whole ? 0 : plan->need / SPARE_SHARE);

	/* Chunks of tiers of several speeds move between these one by one. */
	return plan->wanted && !set->several && need <= room_for(set, &plan->volume);
}

static int put_locked(struct extents *extents, const struct extent_plan *wanted)
{
	struct extent_plan *plan =
		extent_plan_find_locked(extents, &wanted->volume, wanted->lineage);

	if (!plan) {
		if (extents->n_plans == PLANS_MAX)
			return -ENOSPC;
		plan = calloc(1, sizeof(*plan));
		if (!plan)
			return -ENOMEM;
		*plan = *wanted;
		list_init(&plan->link);
		list_push_back(&extents->plans, &plan->link);
		extents->n_plans++;
		return 0;
	}
	plan->bytes = wanted->bytes;
	plan->need = wanted->need;
	plan->wanted = wanted->wanted;
	plan->whole = wanted->whole;
	plan->settled = false;
	return 0;
}

struct of_volume {
	const struct volume_id *volume;
	uint64_t lineage;
	bool found;
};

static void look_whose(struct map_node *node, void *arg)
{
	const struct extent *extent = container_of(node, struct extent, by_number);
	struct of_volume *of = arg;

	of->found |= extent->lineage == of->lineage && !extent->aside &&
		     volume_id_equal(&extent->volume, of->volume);
}

/* It lay in extents before a restart. */
static bool has_extents_locked(
	struct extents *extents, const struct volume_id *volume, uint64_t lineage)
{
	struct of_volume of = { volume, lineage, false };

	map_each(&extents->by_number, look_whose, &of);
	return of.found;
}

uint64_t tier_layout_need(const struct tier_layout *layout)
{
	return need_of(layout->end, layout->used);
}

uint64_t tier_volume_room(
	struct tier_set *set, const struct volume_id *volume, uint64_t lineage, bool *ret_extents)
{
	CHECK_MAGIC(set, SET_MAGIC);
	pthread_mutex_lock(&set->extents.lock);
	*ret_extents = has_extents_locked(&set->extents, volume, lineage);
	pthread_mutex_unlock(&set->extents.lock);
	return room_for(set, volume);
}

int tier_set_layout(struct tier_set *set, const struct volume_id *volume, uint64_t lineage,
	const struct tier_layout *layout)
{
	struct extents *extents = &set->extents;
	struct extent_plan wanted = {
		.volume = *volume,
		.lineage = lineage,
		.bytes = layout->extent_bytes ? layout->extent_bytes
					      : layout_extent_bytes(layout->end),
		.need = need_of(layout->end, layout->used),
		.wanted = layout->whole,
	};
	const struct extent_plan *known;
	int r;

	CHECK_MAGIC(set, SET_MAGIC);
	ensure(extent_bytes_valid(wanted.bytes));
	pthread_mutex_lock(&extents->lock);
	known = extent_plan_find_locked(extents, volume, lineage);
	wanted.whole = known ? known->whole : has_extents_locked(extents, volume, lineage);
	pthread_mutex_unlock(&extents->lock);
	wanted.whole = is_whole(set, &wanted);
	pthread_mutex_lock(&extents->lock);
	r = put_locked(extents, &wanted);
	pthread_mutex_unlock(&extents->lock);
	space_wake(set);
	return r;
}

void extent_plan_stir_locked(
	struct extents *extents, const struct volume_id *volume, uint64_t lineage)
{
	struct extent_plan *plan = extent_plan_find_locked(extents, volume, lineage);

	if (plan)
		plan->settled = false;
}

void extent_plan_stir(struct tier_set *set, const struct volume_id *volume, uint64_t lineage)
{
	pthread_mutex_lock(&set->extents.lock);
	extent_plan_stir_locked(&set->extents, volume, lineage);
	pthread_mutex_unlock(&set->extents.lock);
}

void extent_plan_forget(struct tier_set *set, const struct volume_id *volume, uint64_t lineage)
{
	struct extents *extents = &set->extents;
	struct extent_plan *plan;

	pthread_mutex_lock(&extents->lock);
	plan = extent_plan_find_locked(extents, volume, lineage);
	if (plan) {
		list_remove(&plan->link);
		extents->n_plans--;
	}
	pthread_mutex_unlock(&extents->lock);
	free(plan);
}

/* The plan after the one of that number, as a copy. */
static bool copy_nth(struct extents *extents, uint32_t n, struct extent_plan *ret_plan)
{
	bool found = false;

	pthread_mutex_lock(&extents->lock);
	list_for_each (node, &extents->plans) {
		if (n-- > 0)
			continue;
		*ret_plan = *list_entry(node, struct extent_plan, link);
		found = true;
		break;
	}
	pthread_mutex_unlock(&extents->lock);
	return found;
}

void extent_plans_review(struct tier_set *set)
{
	struct extents *extents = &set->extents;
	struct extent_plan copy;

	for (uint32_t n = 0; copy_nth(extents, n, &copy); n++) {
		bool whole = is_whole(set, &copy);
		struct extent_plan *plan;

		if (whole == copy.whole)
			continue;
		pthread_mutex_lock(&extents->lock);
		plan = extent_plan_find_locked(extents, &copy.volume, copy.lineage);
		if (plan) {
			plan->whole = whole;
			plan->settled = false;
			plan->failed = false;
			plan->next = 0;
		}
		pthread_mutex_unlock(&extents->lock);
	}
}
