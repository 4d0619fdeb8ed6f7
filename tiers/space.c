/* Room, in the background. See space_internal.h. */
#include "tiers/space_internal.h"
#include "base/clock.h"
#include "tiers/evict_internal.h"
#include "tiers/move_internal.h"
#include "tiers/tier_set_internal.h"

#define ROUND_EVERY   CLOCK_SECOND
#define ROUND_EVICT   16u /* chunks that one round unlinks for one reason */
#define ROUND_VOLUMES 16u /* volumes over their quota that one round looks at */

/* Somebody else filled the filesystem: what may go, goes, down to the low mark. */
static void relieve(struct tier_set *set, struct tier *tier)
{
	const struct evict_for watermark = { 0 };
	uint64_t freed = 0;

	if (gate_is_stalled(&tier->gate))
		return; /* the thread would hang with it, and no other tier be relieved */
	tier_refresh_space(tier, false);
	for (uint32_t i = 0; i < ROUND_EVICT; i++) {
		uint64_t soon = tier_soon(tier); /* before the other, as in evict_quota() */
		uint64_t missing = tier_missing(tier);

		if (missing <= soon + freed || (freed = evict_one(set, &watermark, tier)) == 0)
			break;
		tier_refresh_space(tier, true);
	}
}

/* Volumes over their quota, each with one chunk more, so that they stay. */
static uint32_t find_over(struct volumes *volumes, struct volume_space *found[ROUND_VOLUMES])
{
	uint32_t n = 0;

	pthread_mutex_lock(&volumes->lock);
	list_for_each (node, &volumes->all) {
		struct volume_space *space = list_entry(node, struct volume_space, link);

		if (n < ROUND_VOLUMES && volumes_excess(space, 0)) {
			space->chunks++;
			found[n++] = space;
		}
	}
	pthread_mutex_unlock(&volumes->lock);
	return n;
}

static bool meet_quotas(struct tier_set *set)
{
	struct volume_space *over[ROUND_VOLUMES];
	uint32_t n = find_over(&set->volumes, over);
	bool more = false;

	for (uint32_t i = 0; i < n; i++) {
		struct evict_for why = { .space = over[i], .shrink = true };

		/* Not met: what is left is held by readers, or busy, or comes next round. */
		more |= evict_quota(set, &why, 0, ROUND_EVICT) < 0 &&
			atomic_load(&over[i]->charged) >
				atomic_load(&over[i]->quota) + atomic_load(&over[i]->held);
		volumes_leave(&set->volumes, over[i]);
	}
	return more;
}

void space_round(struct tier_set *set)
{
	for (uint32_t i = 0; i < set->n_tiers; i++)
		relieve(set, set->tiers[i]);
	for (uint32_t i = 0; i < ROUND_EVICT && meet_quotas(set); i++)
		;
	(void)extents_round(set); /* the rest with the next one */
	if (set->several)
		(void)move_round(set);
}

static uint64_t run(void *arg)
{
	space_round(arg);
	return ROUND_EVERY;
}

void space_start(struct tier_set *set)
{
	set->space = (struct periodic_work){ .name = "tier-space", .run = run, .arg = set };
	periodic_start(set->pool, &set->space, ROUND_EVERY);
}

void space_stop(struct tier_set *set)
{
	periodic_stop(&set->space);
}

void space_wake(struct tier_set *set)
{
	periodic_poke(&set->space);
}
