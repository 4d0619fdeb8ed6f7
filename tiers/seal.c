/* Extents that are verified and stay so. See seal.h. */
#include "tiers/seal.h"
#include "base/clock.h"
#include "tiers/tier_set_internal.h"

#include <stdlib.h>

bool tier_seal_bytes_valid(uint64_t extent_bytes)
{
	return extent_bytes_valid(extent_bytes);
}

uint64_t tier_seal_extent_bytes(
	struct tier_set *set, const struct volume_id *volume, uint64_t lineage)
{
	uint64_t bytes;

	CHECK_MAGIC(set, SET_MAGIC);
	pthread_mutex_lock(&set->extents.lock);
	bytes = extent_plan_bytes_locked(&set->extents, volume, lineage);
	pthread_mutex_unlock(&set->extents.lock);
	return bytes;
}

struct extent *tier_seal_find(
	struct tier_set *set, const struct volume_id *volume, uint64_t lineage, uint64_t number)
{
	struct extent *extent;

	CHECK_MAGIC(set, SET_MAGIC);
	pthread_mutex_lock(&set->extents.lock);
	extent = extent_find_locked(&set->extents, volume, lineage, number);
	if (extent && (extent->state != EXTENT_LIVE || extent->lost))
		extent = NULL;
	if (extent)
		(void)extent_ref(extent);
	pthread_mutex_unlock(&set->extents.lock);
	return extent;
}

struct extent *tier_seal_ref(struct extent *extent)
{
	return extent_ref(extent);
}

void tier_seal_unref(struct extent *extent)
{
	extent_unref(extent);
}

void tier_seal_facts(const struct extent *extent, struct tier_seal_facts *ret_facts)
{
	CHECK_MAGIC(extent, EXTENT_MAGIC);
	*ret_facts = (struct tier_seal_facts){
		.file = extent->file,
		.bytes = extent->bytes,
		.damages = atomic_load(&extent->damages),
		.changes = atomic_load(&extent->changes),
		.written = atomic_load(&extent->written),
		.out = health_get(&extent->tier->health) == HEALTH_OUT,
		.memory = extent->tier->kind == TIER_RAM,
	};
}

uint64_t tier_seal_damages(const struct tier_set *set)
{
	CHECK_MAGIC(set, SET_MAGIC);
	return atomic_load(&set->extents.damages);
}

void tier_seal_hold(struct extent *extent)
{
	CHECK_MAGIC(extent, EXTENT_MAGIC);
	atomic_fetch_add(&extent->holders, 1);
}

void tier_seal_let_go(struct extent *extent)
{
	struct tier_set *set = extent->set;

	CHECK_MAGIC(extent, EXTENT_MAGIC);
	ensure(atomic_fetch_sub(&extent->holders, 1) > 0);
	extent_plan_stir(set, &extent->volume, extent->lineage); /* what stayed for it may move */
}

bool tier_seal_is_held(const struct chunk *chunk)
{
	CHECK_MAGIC(chunk, CHUNK_MAGIC);
	return chunk->extent && atomic_load(&chunk->extent->holders) > 0;
}

/* ---- marks ----------------------------------------------------------------------------------- */

static uint32_t *mark_of_locked(struct extent *extent, const struct chunk *chunk)
{
	return &extent->marks[chunk->id.chunk % (extent->bytes / CHUNK_BYTES)];
}

bool tier_seal_has(const struct extent *extent, const struct chunk *chunk)
{
	CHECK_MAGIC(chunk, CHUNK_MAGIC);
	return chunk->extent == extent && chunk_is_live(chunk);
}

/* Damage and writes in one number. */
uint64_t tier_seal_begin(const struct chunk *chunk)
{
	CHECK_MAGIC(chunk, CHUNK_MAGIC);
	return (uint64_t)atomic_load(&chunk->damages) << 32 | atomic_load(&chunk->writes);
}

/* What stands for a number of writes; 0 is no mark. */
static uint32_t mark_for(uint64_t begun)
{
	uint32_t writes = (uint32_t)begun;

	return writes == UINT32_MAX ? UINT32_MAX : writes + 1;
}

bool tier_seal_end(struct extent *extent, const struct chunk *chunk, uint64_t begun)
{
	bool good;

	CHECK_MAGIC(extent, EXTENT_MAGIC);
	pthread_mutex_lock(&extent->set->extents.lock);
	if (!extent->marks)
		extent->marks = calloc(extent->bytes / CHUNK_BYTES, sizeof(*extent->marks));
	/* Both are noted under the lock: what comes later takes the mark away. */
	good = extent->marks && tier_seal_has(extent, chunk) &&
	       atomic_load(&chunk->damages) == begun >> 32;
	if (good)
		*mark_of_locked(extent, chunk) = mark_for(begun);
	pthread_mutex_unlock(&extent->set->extents.lock);
	return good;
}

enum tier_seal_mark tier_seal_mark(struct extent *extent, const struct chunk *chunk)
{
	enum tier_seal_mark mark = TIER_SEAL_NONE;

	pthread_mutex_lock(&extent->set->extents.lock);
	if (extent->marks && tier_seal_has(extent, chunk) && *mark_of_locked(extent, chunk))
		mark = *mark_of_locked(extent, chunk) == mark_for(tier_seal_begin(chunk))
			       ? TIER_SEAL_FRESH
			       : TIER_SEAL_THERE;
	pthread_mutex_unlock(&extent->set->extents.lock);
	return mark;
}

void extent_unmark(struct chunk *chunk, bool damaged)
{
	struct extent *extent = chunk->extent;

	if (!extent)
		return;
	pthread_mutex_lock(&extent->set->extents.lock);
	if (extent->marks)
		*mark_of_locked(extent, chunk) = 0;
	if (damaged) {
		atomic_fetch_add(&chunk->damages, 1);
		atomic_fetch_add(&extent->damages, 1);
		atomic_fetch_add(&extent->set->extents.damages, 1);
	}
	atomic_fetch_add(&extent->changes, 1);
	pthread_mutex_unlock(&extent->set->extents.lock);
}

/* ---- its descriptor -------------------------------------------------------------------------- */

int tier_seal_open_fd(struct extent *extent, int *ret_fd)
{
	struct gate_call call;
	int fd = -EIO;
	int r;

	CHECK_MAGIC(extent, EXTENT_MAGIC);
	if (health_get(&extent->tier->health) == HEALTH_OUT)
		return -EIO;
	r = gate_enter(&extent->tier->gate, GATE_READ, &call);
	if (r < 0)
		return r;
	r = extent_pin(extent);
	if (r == 0) {
		fd = chunk_fds_reopen(&extent->descriptor.fds, 0);
		extent_unpin(extent);
	}
	gate_leave(&extent->tier->gate, &call);
	if (r < 0)
		return r;
	if (fd == -ENOENT)
		extent_lose(extent);
	if (fd < 0)
		return fd;
	*ret_fd = fd;
	return 0;
}
