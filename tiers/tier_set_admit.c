/* Admission: whether a new chunk is taken, and by which tier. See tiers.h. */
#include "tiers/evict_internal.h"
#include "tiers/tier_set_internal.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/crash_point.h"
#include "tiers/disk.h"
#include "tiers/move_internal.h"

static uint64_t max_chunks(const struct tier *tier)
{
	return max(tier->capacity / TIER_BYTES_PER_CHUNK, TIER_CHUNKS_MIN);
}

/* In service, and not short of anything but room. */
static bool takes_chunks(const struct tier *tier)
{
	return health_get(&tier->health) == HEALTH_OK && tier_in_service(tier) &&
	       !atomic_load(&tier->inodes_short) && atomic_load(&tier->chunks) < max_chunks(tier);
}

static bool may_admit(const struct tier *tier)
{
	return takes_chunks(tier) && tier_room(tier) >= TIER_ADMIT_BYTES;
}

/* True when some tier is in service. */
static bool look_at_tiers(struct tier_set *set)
{
	bool in_service = false;

	for (uint32_t i = 0; i < set->n_tiers; i++) {
		struct tier *tier = set->tiers[i];

		if (!tier_in_service(tier))
			continue;
		in_service = true;
		tier_refresh_space(tier, false);
	}
	return in_service;
}

/* Room for a whole chunk in a fast tier, so that what begins there ends there. */
static bool is_roomy(const struct tier_set *set, const struct tier *tier)
{
	return may_admit(tier) &&
	       (tier->kind == set->slowest ||
		       tier_room(tier) >= CHUNK_FILE_BYTES + move_reserve(set, tier));
}

static bool better(const struct tier *a, const struct tier *b)
{
	return a->kind != b->kind ? a->kind < b->kind : tier_room(a) > tier_room(b);
}

/* The fastest tier with room, of several the one with the most; or NULL. */
static struct tier *roomy_tier(struct tier_set *set)
{
	struct tier *best = NULL;

	for (uint32_t i = 0; i < set->n_tiers; i++) {
		struct tier *tier = set->tiers[i];

		if (is_roomy(set, tier) && (!best || better(tier, best)))
			best = tier;
	}
	return best;
}

/* A tier of that kind where something else goes for the new chunk, or NULL. */
static struct tier *cleared_tier_of(
	struct tier_set *set, const struct evict_for *why, enum tier_kind kind)
{
	for (uint32_t i = 0; i < set->n_tiers; i++) {
		struct tier *tier = set->tiers[i];

		if (tier->kind != kind || health_get(&tier->health) != HEALTH_OK)
			continue;
		if (!takes_chunks(tier) && !evict_one(set, why, tier))
			continue;
		if (evict_room(set, why, tier, TIER_ADMIT_BYTES, EVICT_INLINE) == 0 &&
			may_admit(tier))
			return tier;
	}
	return NULL;
}

/* The slowest first: what is in a fast tier moves down before it goes. */
static struct tier *cleared_tier(struct tier_set *set, const struct evict_for *why)
{
	struct tier *tier = NULL;

	for (int kind = (int)set->slowest; !tier && kind >= 0; kind--)
		tier = cleared_tier_of(set, why, (enum tier_kind)kind);
	return tier;
}

/* -ENOSPC; -EIO when no tier is in service. */
static int choose_tier(struct tier_set *set, const struct evict_for *why, enum tier_want want,
	struct tier **ret_tier)
{
	const uint64_t need = TIER_ADMIT_BYTES;
	struct tier *tier;

	if (!look_at_tiers(set))
		return -EIO;
	if (evict_quota(set, why, need, want == TIER_WANT_FILL ? 0 : EVICT_INLINE) < 0) {
		counter_add(&set->counters.over_quota, 1);
		return -ENOSPC;
	}
	tier = roomy_tier(set);
	if (!tier && want != TIER_WANT_FILL)
		tier = cleared_tier(set, why);
	if (!tier)
		return -ENOSPC;
	*ret_tier = tier;
	return 0;
}

/* ---- reservations of a chunk ----------------------------------------------------------------- */

/* It moves out of an extent of a volume over its quota: the extent's file, which is larger, goes with its last chunk. Until then the
 * tier's capacity does not bind the copies, since evicting for them would take more than the excess. */
static bool makes_room(const struct chunk *chunk)
{
	return chunk->leaves && !chunk->extent && volumes_excess(chunk->space, 0);
}

/* -EBUSY: the bytes of another extent exceed the capacity already. */
static int reserve_in_tier(struct chunk *chunk, uint64_t bytes, uint64_t at_least)
{
	int r = tier_reserve(chunk->tier, bytes, at_least);

	if (r != -ENOSPC || !makes_room(chunk))
		return r;
	if (!extent_may_exceed(chunk->leaves))
		return -EBUSY;
	return tier_reserve_past_capacity(chunk->tier, bytes, at_least);
}

static int try_reserve(struct chunk *chunk, uint64_t bytes, uint64_t at_least)
{
	int r = 0;

	if (chunk->replaces)
		volumes_settle(chunk->space, 0, bytes);
	else
		r = volumes_reserve(chunk->space, bytes);
	if (r < 0)
		return r;
	r = reserve_in_tier(chunk, bytes, at_least);
	if (r < 0)
		volumes_settle(chunk->space, bytes, 0);
	return r;
}

int chunk_reserve(struct chunk *chunk, uint64_t bytes, uint64_t at_least)
{
	const struct evict_for why = { .space = chunk->space, .class = chunk->class };
	int r = try_reserve(chunk, bytes, at_least);

	if (r != -ENOSPC || makes_room(chunk))
		return r;
	if (!chunk->replaces && evict_quota(chunk->set, &why, bytes, EVICT_INLINE) < 0)
		return -ENOSPC;
	if (evict_room(chunk->set, &why, chunk->tier, bytes + at_least, EVICT_INLINE) < 0)
		return -ENOSPC;
	return try_reserve(chunk, bytes, at_least);
}

/* ---- new chunks ------------------------------------------------------------------------------ */

/* Makes the chunk's file, charges it, tells the index. */
static int make_file_inside(struct tier_set *set, struct chunk *chunk)
{
	const uint64_t reserved = 2ull * CHUNK_HEAD_BYTES;
	struct chunk_head head = { .id = chunk->id };
	struct chunk_fds fds = CHUNK_FDS_NONE;
	struct tier *tier = chunk->tier;
	uint64_t began = clock_mono_ns();
	uint64_t allocated = CHUNK_HEAD_BYTES;
	struct index_row row;
	int r;

	if (chunk->extent)
		return chunk_make_in_extent(chunk);
	r = chunk_reserve(chunk, reserved, TIER_ADMIT_BYTES - reserved);
	if (r < 0)
		return r;
	do {
		chunk->file = head.file_id = tier_new_file_id(tier);
		r = chunk_file_create(tier->chk_fd, &head, &fds);
	} while (r == -EEXIST);
	CRASH_POINT("chunk.made");
	r = tier_io(tier, r, began);
	if (r < 0) {
		chunk_settle(chunk, reserved, 0);
		if (r == -ENOSPC)
			tier_refresh_space(tier, true);
		return r;
	}
	if (chunk_file_allocated(&fds, &allocated) < 0)
		allocated = CHUNK_HEAD_BYTES;
	chunk_settle(chunk, reserved, allocated);
	descriptor_adopt(&set->descriptors, &chunk->descriptor, &fds);
	row = chunk_row(chunk);
	r = tier_index_put(tier, &row);
	CRASH_POINT("chunk.listed");
	if (r < 0) {
		char path[FILE_NAME_BYTES];

		file_id_path(chunk->file, path);
		(void)disk_unlink(tier->chk_fd, path, 0); /* empty; the next start would adopt it */
	}
	return r;
}

static int make_file(struct tier_set *set, struct chunk *chunk)
{
	struct gate_call call;
	int r = gate_enter(&chunk->tier->gate, GATE_WRITE, &call);

	if (r < 0)
		return r;
	r = make_file_inside(set, chunk);
	gate_leave(&chunk->tier->gate, &call);
	return r;
}

/* Makes the file of a chunk that is in the map as CREATING; on failure takes it out again. */
static int finish_creating(struct tier_set *set, struct shard *shard, struct chunk *chunk)
{
	int r = make_file(set, chunk);

	pthread_mutex_lock(&shard->lock);
	pthread_mutex_lock(&chunk->lock);
	chunk_set_state_locked(chunk, r == 0 ? CHUNK_FILLING : CHUNK_GONE);
	pthread_mutex_unlock(&chunk->lock);
	if (r < 0)
		map_remove(&shard->map, &chunk->node);
	else
		volumes_queue(&set->volumes, chunk);
	pthread_cond_broadcast(&shard->settled);
	pthread_mutex_unlock(&shard->lock);
	if (r < 0) {
		chunk_leave_extent(chunk);
		chunk_unref(chunk); /* the set's */
	}
	return r;
}

/*
 * The chunk, live and referenced; or NULL, and no other thread makes, moves or removes it. One that
 * a stalled disk holds up comes as it is.
 */
static struct chunk *find_settled_locked(
	struct shard *shard, const struct chunk_id *id, uint64_t hash)
{
	for (;;) {
		struct chunk *chunk = set_find_locked(shard, id, hash);

		if (!chunk)
			return NULL;
		if (chunk_is_live(chunk) || set_is_stalled(chunk))
			return chunk_ref(chunk);
		pthread_cond_wait(&shard->settled, &shard->lock);
	}
}

static struct chunk *find_settled(struct tier_set *set, const struct chunk_id *id)
{
	uint64_t hash = set_hash(id);
	struct shard *shard = set_shard(set, hash);
	struct chunk *chunk;

	pthread_mutex_lock(&shard->lock);
	chunk = find_settled_locked(shard, id, hash);
	pthread_mutex_unlock(&shard->lock);
	return chunk;
}

/* The extent for a new chunk, joined, when it is to lie in one; that may be in another tier. */
static struct extent *join_extent(
	struct tier_set *set, const struct chunk_id *id, struct tier **tier)
{
	/* Chunks of tiers of several speeds move one by one: none lies in an extent. */
	struct extent *extent = set->several ? NULL : extents_join(set, id, *tier);

	if (extent && extent->tier != *tier && !may_admit(extent->tier)) {
		extent_leave(extent, false, 0);
		return NULL;
	}
	if (extent)
		*tier = extent->tier;
	return extent;
}

/* The chunk in that tier, or in another where it turned up meanwhile. */
static int make_chunk(struct tier_set *set, struct tier *tier, const struct chunk_id *id,
	const struct tier_admission *how, struct chunk **ret_chunk)
{
	uint64_t hash = set_hash(id);
	struct shard *shard = set_shard(set, hash);
	struct extent *extent = join_extent(set, id, &tier);
	struct chunk *chunk;
	bool fresh;
	int r;

	pthread_mutex_lock(&shard->lock);
	chunk = find_settled_locked(shard, id, hash);
	fresh = !chunk;
	if (fresh) {
		chunk = chunk_new(set, tier, id);
		if (chunk) {
			if (extent)
				chunk_set_extent(chunk, TAKE(extent));
			chunk->class = how->class;
			chunk->unread = how->want != TIER_WANT_READ;
			set_insert_locked(shard, chunk, hash);
		}
	}
	pthread_mutex_unlock(&shard->lock);
	if (extent)
		extent_leave(extent, false, 0); /* nothing was made in it */
	if (!chunk)
		return -ENOMEM;
	if (fresh) {
		chunk_ref(chunk); /* the caller's */
		r = finish_creating(set, shard, chunk);
		if (r < 0) {
			chunk_unref(chunk);
			return r;
		}
	}
	*ret_chunk = chunk;
	return 0;
}

static int admit_new(struct tier_set *set, const struct chunk_id *id,
	const struct tier_admission *how, struct chunk **ret_chunk)
{
	struct evict_for why = { .class = how->class };
	struct tier *tier;
	int r;

	why.space = volumes_join(&set->volumes, &id->volume);
	if (!why.space)
		return -ENOMEM;
	r = choose_tier(set, &why, how->want, &tier);
	if (r == 0)
		r = make_chunk(set, tier, id, how, ret_chunk);
	else if (r == -ENOSPC)
		counter_add(&set->counters.refused, 1);
	volumes_leave(&set->volumes, why.space);
	return r;
}

int tier_chunk_admit_as(struct tier_set *set, const struct chunk_id *id,
	const struct tier_admission *how, struct chunk **ret_chunk)
{
	struct chunk *chunk;
	int r = 0;

	CHECK_MAGIC(set, SET_MAGIC);
	chunk = find_settled(set, id);
	if (!chunk)
		r = admit_new(set, id, how, &chunk);
	if (r < 0)
		return r;
	if (!tier_in_service(chunk->tier) || (!chunk_is_live(chunk) && set_is_stalled(chunk))) {
		chunk_unref(chunk);
		return -EIO;
	}
	*ret_chunk = chunk;
	return 0;
}

int tier_chunk_admit(struct tier_set *set, const struct chunk_id *id, struct chunk **ret_chunk)
{
	static const struct tier_admission how = { .class = TIER_OWNED, .want = TIER_WANT_READ };

	return tier_chunk_admit_as(set, id, &how, ret_chunk);
}

/* ---- is there room? -------------------------------------------------------------------------- */

static bool tiers_have_room(struct tier_set *set, uint64_t bytes)
{
	for (uint32_t i = 0; i < set->n_tiers; i++) {
		if (may_admit(set->tiers[i]) && tier_room(set->tiers[i]) >= bytes)
			return true;
	}
	return false;
}

bool tier_set_full(struct tier_set *set)
{
	CHECK_MAGIC(set, SET_MAGIC);
	return !tiers_have_room(set, TIER_ADMIT_BYTES);
}

static bool quota_is_full(const struct volume_space *space, uint64_t bytes)
{
	uint64_t quota = atomic_load(&space->quota);

	return quota && atomic_load(&space->charged) + bytes > quota;
}

/* Neighbours go where a whole chunk fits. With less they would take the place of the chunk that was
 * evicted for one unit, or be fetched for nothing (docs/decisions/fill-policy.md). */
bool tier_volume_full(struct tier_set *set, const struct volume_id *volume, enum tier_want want)
{
	uint64_t bytes = want == TIER_WANT_FILL ? CHUNK_FILE_BYTES : TIER_ADMIT_BYTES;
	struct evict_for why = { .class = TIER_OWNED };
	bool full;

	why.space = volumes_join(&set->volumes, volume);
	if (!why.space)
		return true;
	why.own_only = quota_is_full(why.space, bytes);
	full = why.own_only || !tiers_have_room(set, bytes);
	if (full && want != TIER_WANT_FILL)
		full = !evict_possible(set, &why);
	volumes_leave(&set->volumes, why.space);
	return full;
}
