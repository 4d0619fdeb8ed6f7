/* Room, in the background. See space_internal.h. */
#include "tiers/space_internal.h"
#include "base/clock.h"
#include "tiers/evict_internal.h"
#include "tiers/move_internal.h"
#include "tiers/tier_set_internal.h"

#include <time.h>

#define ROUND_EVERY_S 1
#define ROUND_EVICT   16u /* chunks that one round unlinks for one reason */
#define ROUND_VOLUMES 16u /* volumes over their quota that one round looks at */

void space_init(struct space *space)
{
	pthread_condattr_t attr;

	pthread_mutex_init(&space->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&space->changed, &attr);
	pthread_condattr_destroy(&attr);
}

void space_release(struct space *space)
{
	pthread_cond_destroy(&space->changed);
	pthread_mutex_destroy(&space->lock);
}

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

static bool next_round(struct space *space)
{
	struct timespec until;
	bool stopping;

	(void)clock_gettime(CLOCK_MONOTONIC, &until); /* cannot fail for this clock */
	until.tv_sec += ROUND_EVERY_S;
	pthread_mutex_lock(&space->lock);
	while (!space->stopping && !space->poked)
		if (pthread_cond_timedwait(&space->changed, &space->lock, &until) == ETIMEDOUT)
			break;
	space->poked = false;
	stopping = space->stopping;
	pthread_mutex_unlock(&space->lock);
	return !stopping;
}

static void *run(void *arg)
{
	struct tier_set *set = arg;

	while (next_round(&set->space))
		space_round(set);
	return NULL;
}

int space_start(struct tier_set *set)
{
	if (pthread_create(&set->space.thread, NULL, run, set) != 0)
		return -EAGAIN;
	(void)pthread_setname_np(set->space.thread, "tier-space"); /* for people */
	set->space.running = true;
	return 0;
}

void space_stop(struct tier_set *set)
{
	if (!set->space.running)
		return;
	pthread_mutex_lock(&set->space.lock);
	set->space.stopping = true;
	pthread_cond_signal(&set->space.changed);
	pthread_mutex_unlock(&set->space.lock);
	(void)pthread_join(set->space.thread, NULL); /* ours, and joined once */
	set->space.running = false;
}

void space_wake(struct tier_set *set)
{
	pthread_mutex_lock(&set->space.lock);
	set->space.poked = true;
	pthread_cond_signal(&set->space.changed);
	pthread_mutex_unlock(&set->space.lock);
}
