/* Volumes: policies, charges, queues. See policy_internal.h. */
#include "tiers/policy_internal.h"
#include "base/clock.h"
#include "base/hash.h"
#include "tiers/tier_set_internal.h"

#include <stdlib.h>

#define VOLUMES_EXPECTED 1024u
#define VALUE_SCALE      1024u
/* Most that is looked through for the place of a chunk that comes from another tier. */
#define QUEUE_SEARCH 64u

/* ---- heat ------------------------------------------------------------------------------------ */

uint64_t heat_get(const struct heat *heat, uint64_t now)
{
	uint64_t age = now > heat->at ? now - heat->at : 0;
	uint64_t halves = age / HEAT_HALF_LIFE_NS;
	uint64_t value = halves < 64 ? heat->value >> halves : 0;
	uint64_t rest = age % HEAT_HALF_LIFE_NS / (HEAT_HALF_LIFE_NS / 1024); /* of 1024 */

	/* Straight between two halves. */
	return value - (value / 2048 * rest + value % 2048 * rest / 2048);
}

static void heat_add(struct heat *heat, uint64_t now, uint64_t n)
{
	heat->value = heat_get(heat, now) + n;
	heat->at = max(heat->at, now);
}

/* ---- the table ------------------------------------------------------------------------------- */

static uint64_t id_hash(const struct volume_id *id)
{
	return hash_xxh3(id, sizeof(*id), 0);
}

int volumes_init(struct volumes *volumes, uint32_t n_tiers)
{
	pthread_mutex_init(&volumes->lock, NULL);
	list_init(&volumes->all);
	volumes->n_tiers = n_tiers;
	volumes->clock = clock_mono_ns;
	return map_init(&volumes->map, VOLUMES_EXPECTED);
}

void volumes_release(struct volumes *volumes)
{
	struct list *node;

	while (volumes->all.next && (node = list_pop_front(&volumes->all)))
		free(list_entry(node, struct volume_space, link));
	map_release(&volumes->map);
	pthread_mutex_destroy(&volumes->lock);
}

/* NULL when nothing is known of it. */
static struct volume_space *find_locked(struct volumes *volumes, const struct volume_id *id)
{
	for (struct map_node *n = map_first(&volumes->map, id_hash(id)); n; n = map_next_same(n)) {
		struct volume_space *space = container_of(n, struct volume_space, node);

		if (volume_id_equal(&space->id, id))
			return space;
	}
	return NULL;
}

static void forget_locked(struct volumes *volumes, struct volume_space *space)
{
	map_remove(&volumes->map, &space->node);
	list_remove(&space->link);
	volumes->n--;
	free(space);
}

/* Volumes that were only asked about go when the table is full. */
static bool make_place_locked(struct volumes *volumes)
{
	if (volumes->n < VOLUMES_MAX)
		return true;
	list_for_each (node, &volumes->all) {
		struct volume_space *space = list_entry(node, struct volume_space, link);

		if (space->chunks == 0 && !space->has_policy) {
			forget_locked(volumes, space);
			return true;
		}
	}
	return false;
}

static struct volume_space *get_locked(struct volumes *volumes, const struct volume_id *id)
{
	struct volume_space *space = find_locked(volumes, id);

	if (space || !make_place_locked(volumes))
		return space;
	space = calloc(1, sizeof(*space) + volumes->n_tiers * sizeof(space->queues[0]));
	if (!space)
		return NULL;
	space->id = *id;
	for (uint32_t t = 0; t < volumes->n_tiers; t++) {
		for (uint32_t q = 0; q < SPACE_QUEUES; q++)
			list_init(&space->queues[t][q]);
	}
	map_insert(&volumes->map, &space->node, id_hash(id));
	list_push_back(&volumes->all, &space->link);
	volumes->n++;
	return space;
}

struct volume_space *volumes_join(struct volumes *volumes, const struct volume_id *id)
{
	struct volume_space *space;

	pthread_mutex_lock(&volumes->lock);
	space = get_locked(volumes, id);
	if (space)
		space->chunks++;
	pthread_mutex_unlock(&volumes->lock);
	return space;
}

void volumes_leave(struct volumes *volumes, struct volume_space *space)
{
	pthread_mutex_lock(&volumes->lock);
	ensure(space->chunks > 0);
	space->chunks--;
	pthread_mutex_unlock(&volumes->lock);
}

/* ---- queues ---------------------------------------------------------------------------------- */

static struct list *queue_of(const struct chunk *chunk)
{
	enum space_queue q;

	if (chunk->class == TIER_COPY)
		q = chunk->unread ? QUEUE_UNREAD_COPY : QUEUE_COPY;
	else
		q = chunk->unread ? QUEUE_UNREAD : QUEUE_OWNED;
	return &chunk->space->queues[chunk->tier->number][q];
}

static void queue_locked(struct volumes *volumes, struct chunk *chunk)
{
	struct list *queue;
	struct list *at;

	if (chunk->read_at == 0)
		chunk->read_at = volumes->clock();
	queue = queue_of(chunk);
	at = queue;
	for (uint32_t i = 0; i < QUEUE_SEARCH && at->prev != queue; i++) {
		if (list_entry(at->prev, struct chunk, queued)->read_at <= chunk->read_at)
			break;
		at = at->prev;
	}
	list_insert_before(at, &chunk->queued);
}

void volumes_queue(struct volumes *volumes, struct chunk *chunk)
{
	pthread_mutex_lock(&volumes->lock);
	queue_locked(volumes, chunk);
	pthread_mutex_unlock(&volumes->lock);
}

void volumes_unqueue(struct volumes *volumes, struct chunk *chunk)
{
	pthread_mutex_lock(&volumes->lock);
	list_remove(&chunk->queued);
	pthread_mutex_unlock(&volumes->lock);
}

void volumes_reclass(struct volumes *volumes, struct chunk *chunk, enum tier_class class)
{
	pthread_mutex_lock(&volumes->lock);
	chunk->class = class;
	if (!list_empty(&chunk->queued)) { /* else on its way in or out */
		list_remove(&chunk->queued);
		queue_locked(volumes, chunk);
	}
	pthread_mutex_unlock(&volumes->lock);
}

void volumes_read(struct volumes *volumes, struct chunk *chunk)
{
	uint64_t now = volumes->clock();

	pthread_mutex_lock(&volumes->lock);
	/* One pass over a chunk is one read, in however many requests. */
	if (chunk->heat.value == 0 || now >= chunk->heat.at + HEAT_GRAIN_NS)
		heat_add(&chunk->heat, now, HEAT_OF_A_READ);
	chunk->read_at = now;
	chunk->unread = false;
	if (!list_empty(&chunk->queued)) { /* not on its way in or out */
		list_remove(&chunk->queued);
		list_push_back(queue_of(chunk), &chunk->queued);
	}
	pthread_mutex_unlock(&volumes->lock);
}

void volumes_move_heat(struct volumes *volumes, const struct chunk *from, struct chunk *to)
{
	pthread_mutex_lock(&volumes->lock);
	to->heat = from->heat;
	to->read_at = from->read_at;
	to->unread = from->unread;
	pthread_mutex_unlock(&volumes->lock);
}

void chunk_note_read(struct chunk *chunk)
{
	CHECK_MAGIC(chunk, CHUNK_MAGIC);
	volumes_read(&chunk->set->volumes, chunk);
}

enum tier_class chunk_class(const struct chunk *chunk)
{
	CHECK_MAGIC(chunk, CHUNK_MAGIC);
	return chunk->class;
}

void chunk_set_class(struct chunk *chunk, enum tier_class class)
{
	CHECK_MAGIC(chunk, CHUNK_MAGIC);
	volumes_reclass(&chunk->set->volumes, chunk, class);
}

/* ---- charges --------------------------------------------------------------------------------- */

int volumes_reserve(struct volume_space *space, uint64_t bytes)
{
	uint64_t quota = atomic_load(&space->quota);
	uint64_t charged = atomic_load(&space->charged);

	do {
		if (quota && (charged > quota || bytes > quota - charged))
			return -ENOSPC;
	} while (!atomic_compare_exchange_weak(&space->charged, &charged, charged + bytes));
	return 0;
}

uint64_t volumes_room(const struct volume_space *space)
{
	uint64_t quota = atomic_load(&space->quota);
	uint64_t charged = atomic_load(&space->charged);

	if (!quota)
		return UINT64_MAX;
	return quota - min(charged, quota);
}

void volumes_settle(struct volume_space *space, uint64_t reserved, uint64_t charged)
{
	atomic_fetch_add(&space->charged, charged - reserved); /* modulo 2^64 */
}

uint64_t volumes_excess(const struct volume_space *space, uint64_t need)
{
	uint64_t quota = atomic_load(&space->quota);
	uint64_t charged = atomic_load(&space->charged) + need;

	return quota && charged > quota ? charged - quota : 0;
}

uint64_t volumes_soon(const struct volume_space *space)
{
	uint64_t held = atomic_load(&space->held);

	return held - min(atomic_load(&space->buried), held);
}

uint64_t volumes_value_locked(const struct volume_space *space, uint64_t now)
{
	uint64_t bytes = space->size ? space->size : atomic_load(&space->charged);
	uint64_t asked = heat_get(&space->asked, now);

	bytes = max(bytes, (uint64_t)CHUNK_BYTES);
	return asked < UINT64_MAX / VALUE_SCALE ? asked * VALUE_SCALE / bytes : asked / bytes;
}

/* ---- what the worker says -------------------------------------------------------------------- */

int tier_set_policy(
	struct tier_set *set, const struct volume_id *volume, const struct tier_policy *policy)
{
	static const struct tier_policy none;
	struct volumes *volumes = &set->volumes;
	struct volume_space *space;

	CHECK_MAGIC(set, SET_MAGIC);
	pthread_mutex_lock(&volumes->lock);
	space = get_locked(volumes, volume);
	if (space) {
		space->policy = *policy;
		atomic_store(&space->quota, policy->quota);
		space->has_policy = policy->quota || policy->priority || policy->pin ||
				    policy->evict != none.evict;
	}
	pthread_mutex_unlock(&volumes->lock);
	if (!space)
		return -ENOMEM;
	space_wake(set); /* a quota that shrank */
	return 0;
}

void tier_volume_asked(
	struct tier_set *set, const struct volume_id *volume, uint64_t size, uint64_t bytes)
{
	struct volumes *volumes = &set->volumes;
	uint64_t now = volumes->clock();
	struct volume_space *space;

	CHECK_MAGIC(set, SET_MAGIC);
	pthread_mutex_lock(&volumes->lock);
	space = get_locked(volumes, volume);
	if (space) { /* without memory it is only less well known */
		space->size = size ? size : space->size;
		heat_add(&space->asked, now, bytes);
	}
	pthread_mutex_unlock(&volumes->lock);
}

bool tier_volume_status(
	struct tier_set *set, const struct volume_id *volume, struct tier_volume_status *ret_status)
{
	struct volumes *volumes = &set->volumes;
	struct volume_space *space;

	CHECK_MAGIC(set, SET_MAGIC);
	pthread_mutex_lock(&volumes->lock);
	space = find_locked(volumes, volume);
	if (space)
		*ret_status = (struct tier_volume_status){
			.policy = space->policy,
			.charged = atomic_load(&space->charged),
			.held = atomic_load(&space->held),
			.evicted = atomic_load(&space->evicted),
			.chunks = space->chunks,
			.changes = atomic_load(&space->changes),
		};
	pthread_mutex_unlock(&volumes->lock);
	return space != NULL;
}
