/* All tiers of a worker: the map of chunks, admission, dropping. See tiers.h,
 * tier_set_internal.h. */
#include "tiers/tier_set_internal.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/crash_point.h"
#include "base/hash.h"
#include "base/units.h"
#include "tiers/disk.h"
#include "tiers/move_internal.h"

#include <stdio.h>
#include <stdlib.h>

#define BOUNCES_KEPT      8u /* while no call uses them */
#define SHARD_BUCKETS_MIN 1024u
#define SHARD_BUCKETS_MAX 65536u           /* 64 TiB in 16 MiB chunks */
#define WORKS(n_tiers)    ((n_tiers) + 2u) /* a prober of each, the clock, space */

uint64_t set_hash(const struct chunk_id *id)
{
	return hash_xxh3(id, sizeof(*id), 0); /* no padding: 16 + 8 + 8 bytes */
}

struct shard *set_shard(struct tier_set *set, uint64_t hash)
{
	return &set->shards[hash >> 58]; /* the map uses the low bits */
}

struct chunk *set_find_locked(struct shard *shard, const struct chunk_id *id, uint64_t hash)
{
	for (struct map_node *n = map_first(&shard->map, hash); n; n = map_next_same(n)) {
		struct chunk *chunk = container_of(n, struct chunk, node);

		if (chunk_id_equal(&chunk->id, id))
			return chunk;
	}
	return NULL;
}

void set_insert_locked(struct shard *shard, struct chunk *chunk, uint64_t hash)
{
	map_insert(&shard->map, &chunk->node, hash);
}

bool tier_chunk_holds(
	struct tier_set *set, const struct chunk_id *id, uint32_t offset, uint32_t length)
{
	uint64_t hash = set_hash(id);
	struct shard *shard = set_shard(set, hash);
	struct chunk *chunk;
	bool holds;

	CHECK_MAGIC(set, SET_MAGIC);
	pthread_mutex_lock(&shard->lock);
	chunk = set_find_locked(shard, id, hash);
	holds = chunk && chunk_is_live(chunk) && chunk_present(chunk, offset, length);
	pthread_mutex_unlock(&shard->lock);
	return holds;
}

void set_wake_waiters(struct tier_set *set)
{
	for (uint32_t i = 0; i < SET_SHARDS; i++) {
		pthread_mutex_lock(&set->shards[i].lock);
		pthread_cond_broadcast(&set->shards[i].settled);
		pthread_mutex_unlock(&set->shards[i].lock);
	}
	pthread_mutex_lock(&set->extents.lock);
	pthread_cond_broadcast(&set->extents.settled);
	pthread_mutex_unlock(&set->extents.lock);
}

struct chunk *tier_chunk_find(struct tier_set *set, const struct chunk_id *id)
{
	uint64_t hash = set_hash(id);
	struct shard *shard = set_shard(set, hash);
	struct chunk *chunk;

	CHECK_MAGIC(set, SET_MAGIC);
	pthread_mutex_lock(&shard->lock);
	chunk = set_find_locked(shard, id, hash);
	if (chunk && (!chunk_is_live(chunk) || !tier_in_service(chunk->tier)))
		chunk = NULL;
	if (chunk)
		chunk_ref(chunk);
	pthread_mutex_unlock(&shard->lock);
	return chunk;
}

bool set_is_stalled(const struct chunk *chunk)
{
	const struct tier *to = atomic_load(&chunk->moving);

	return !tier_in_service(chunk->tier) || (to && !tier_in_service(to));
}

uint64_t tier_chunk_file(struct tier_set *set, const struct chunk_id *id, bool *ret_stalled)
{
	uint64_t hash = set_hash(id);
	struct shard *shard = set_shard(set, hash);
	const struct chunk *chunk;
	uint64_t file = 0;

	CHECK_MAGIC(set, SET_MAGIC);
	pthread_mutex_lock(&shard->lock);
	chunk = set_find_locked(shard, id, hash);
	if (chunk && chunk_is_live(chunk))
		file = chunk->extent ? chunk->extent->file : chunk->file;
	*ret_stalled = chunk && set_is_stalled(chunk);
	pthread_mutex_unlock(&shard->lock);
	return file;
}

/* ---- removal --------------------------------------------------------------------------------- */

/* False when somebody else unlinks it or, with `idle`, when it is written or moved. */
static bool begin_unlink(struct chunk *chunk, bool idle)
{
	bool mine;

	pthread_mutex_lock(&chunk->lock);
	mine = idle ? chunk_is_idle(chunk) : chunk_is_live(chunk);
	if (mine)
		chunk_set_state_locked(chunk, CHUNK_UNLINKING);
	pthread_mutex_unlock(&chunk->lock);
	return mine;
}

/* Its file is gone and no move is under way: its name is free. */
static bool end_locked(struct shard *shard, struct chunk *chunk)
{
	bool ended = chunk->unlinked && !atomic_load(&chunk->moving);

	if (ended) {
		chunk_set_state_locked(chunk, CHUNK_GONE);
		map_remove(&shard->map, &chunk->node);
	}
	pthread_cond_broadcast(&shard->settled);
	return ended;
}

/* The unlinker and the mover each come here once; the second one ends the chunk. */
static void leave_chunk(struct tier_set *set, struct chunk *chunk, bool unlinked)
{
	struct shard *shard = set_shard(set, chunk->node.hash);
	bool ended;

	pthread_mutex_lock(&shard->lock);
	pthread_mutex_lock(&chunk->lock);
	if (unlinked)
		chunk->unlinked = true;
	else
		atomic_store(&chunk->moving, NULL);
	ended = end_locked(shard, chunk);
	pthread_mutex_unlock(&chunk->lock);
	pthread_mutex_unlock(&shard->lock);
	if (!ended)
		return;
	chunk_leave_extent(chunk);
	chunk_unref(chunk); /* the set's; charged until the last one */
}

void set_end_move(struct tier_set *set, struct chunk *chunk)
{
	leave_chunk(set, chunk, false);
}

static void unlink_chunk(struct tier_set *set, struct chunk *chunk)
{
	publish_gone(chunk);
	volumes_unqueue(&set->volumes, chunk);
	/* The index first: a file without a row is found again, a row without a file only looks
	 * odd. */
	(void)tier_index_remove(chunk->tier, &chunk->id);
	CRASH_POINT("chunk.unlisted");
	chunk_unlink_file(chunk);
	CRASH_POINT("chunk.unlinked");
	chunk_hold(chunk);
	leave_chunk(set, chunk, true);
}

bool set_unlink(struct tier_set *set, struct chunk *chunk)
{
	bool mine = begin_unlink(chunk, false);

	if (mine)
		unlink_chunk(set, chunk);
	return mine;
}

bool set_unlink_idle(struct tier_set *set, struct chunk *chunk)
{
	bool mine = begin_unlink(chunk, true);

	if (mine)
		unlink_chunk(set, chunk);
	return mine;
}

struct selection {
	const struct volume_id *volume;
	uint64_t lineage;
	struct list chosen; /* chunks, referenced */
	uint64_t bytes;
};

static bool of_volume(const struct selection *s, const struct chunk *chunk)
{
	return chunk_is_live(chunk) && chunk->id.lineage == s->lineage &&
	       volume_id_equal(&chunk->id.volume, s->volume);
}

static void collect_of_volume(struct map_node *node, void *arg)
{
	struct chunk *chunk = container_of(node, struct chunk, node);
	struct selection *s = arg;

	/* A link in use: another drop has the chunk. */
	if (of_volume(s, chunk) && list_empty(&chunk->link))
		list_push_back(&s->chosen, &chunk_ref(chunk)->link);
}

/* The chunk that a move has put in the place of this one, referenced; NULL: none has. */
static struct chunk *moved_to(struct tier_set *set, struct chunk *chunk)
{
	struct shard *shard = set_shard(set, chunk->node.hash);
	struct chunk *copy = NULL;

	pthread_mutex_lock(&shard->lock);
	if (chunk->moved)
		copy = set_find_locked(shard, &chunk->id, chunk->node.hash);
	if (copy)
		chunk_ref(copy);
	pthread_mutex_unlock(&shard->lock);
	return copy;
}

static uint64_t drop_one(struct tier_set *set, struct chunk *chosen)
{
	struct chunk *chunk = chunk_ref(chosen);
	uint64_t dropped = 0;

	while (chunk) {
		struct chunk *copy = NULL;
		uint64_t charged;

		pthread_mutex_lock(&chunk->lock);
		charged = chunk->charged;
		pthread_mutex_unlock(&chunk->lock);
		if (set_unlink(set, chunk))
			dropped = charged;
		else
			copy = moved_to(set, chunk);
		chunk_unref(chunk);
		chunk = copy;
	}
	return dropped;
}

uint64_t tier_set_drop(struct tier_set *set, const struct volume_id *volume, uint64_t lineage,
	bool (*keep)(void *arg, uint64_t chunk), void *arg)
{
	struct selection s = { .volume = volume, .lineage = lineage };

	CHECK_MAGIC(set, SET_MAGIC);
	for (uint32_t i = 0; i < SET_SHARDS; i++) {
		struct shard *shard = &set->shards[i];

		list_init(&s.chosen);
		pthread_mutex_lock(&shard->lock);
		map_each(&shard->map, collect_of_volume, &s);
		pthread_mutex_unlock(&shard->lock);
		list_for_each_safe (node, &s.chosen) {
			struct chunk *chunk = list_entry(node, struct chunk, link);

			if (!keep || !keep(arg, chunk->id.chunk))
				s.bytes += drop_one(set, chunk);
			pthread_mutex_lock(&shard->lock);
			list_remove(&chunk->link);
			pthread_mutex_unlock(&shard->lock);
			chunk_unref(chunk);
		}
	}
	if (!keep)
		extent_plan_forget(set, volume, lineage);
	return s.bytes;
}

/* ---- status ---------------------------------------------------------------------------------- */

static void add_volume_bytes(struct map_node *node, void *arg)
{
	struct chunk *chunk = container_of(node, struct chunk, node);
	struct selection *s = arg;

	if (of_volume(s, chunk))
		s->bytes += chunk_present_bytes(chunk);
}

uint64_t tier_set_volume_bytes(
	struct tier_set *set, const struct volume_id *volume, uint64_t lineage)
{
	struct selection s = { .volume = volume, .lineage = lineage };

	CHECK_MAGIC(set, SET_MAGIC);
	for (uint32_t i = 0; i < SET_SHARDS; i++) {
		pthread_mutex_lock(&set->shards[i].lock);
		map_each(&set->shards[i].map, add_volume_bytes, &s);
		pthread_mutex_unlock(&set->shards[i].lock);
	}
	return s.bytes;
}

static void add_copy_bytes(struct map_node *node, void *arg)
{
	struct chunk *chunk = container_of(node, struct chunk, node);
	struct selection *s = arg;

	if (of_volume(s, chunk) && chunk->class == TIER_COPY)
		s->bytes += chunk_present_bytes(chunk);
}

uint64_t tier_set_copy_bytes(struct tier_set *set, const struct volume_id *volume, uint64_t lineage)
{
	struct selection s = { .volume = volume, .lineage = lineage };

	CHECK_MAGIC(set, SET_MAGIC);
	for (uint32_t i = 0; i < SET_SHARDS; i++) {
		pthread_mutex_lock(&set->shards[i].lock);
		map_each(&set->shards[i].map, add_copy_bytes, &s);
		pthread_mutex_unlock(&set->shards[i].lock);
	}
	return s.bytes;
}

uint32_t tier_set_count(const struct tier_set *set)
{
	return set->n_tiers;
}

/* Other files leave it less than its capacity. */
static void tell_full(const struct tier *tier, char why[WATCH_TEXT])
{
	uint64_t used = atomic_load(&tier->used);
	char now[16];
	char most[16];

	if (atomic_load(&tier->inodes_short))
		(void)snprintf(
			why, WATCH_TEXT, "its filesystem has no inodes left: remove other files");
	else if (used + TIER_ADMIT_BYTES <= tier->capacity && tier_room(tier) < TIER_ADMIT_BYTES)
		(void)snprintf(why, WATCH_TEXT,
			"its filesystem is full, and the cache has %s of the %s that it may have: "
			"free some space, or give a smaller --cache-size",
			units_size(used, now, sizeof(now)),
			units_size(tier->capacity, most, sizeof(most)));
}

void tier_set_status(struct tier_set *set, uint32_t tier, struct tier_status *ret_status)
{
	const struct tier *t;

	CHECK_MAGIC(set, SET_MAGIC);
	ensure(tier < set->n_tiers);
	t = set->tiers[tier];
	*ret_status = (struct tier_status){
		.path = t->path,
		.capacity = t->capacity,
		.used = atomic_load(&t->used),
		.chunks = atomic_load(&t->chunks),
		.data_bytes = atomic_load(&t->blocks) * BLOCK_BYTES,
		.held = atomic_load(&t->held),
		.kind = t->kind,
		.swaps = t->swaps,
		.extents = extents_count(set, t),
	};
	ret_status->state = watch_state(&set->watch, t, ret_status->why);
	if (!ret_status->why[0])
		tell_full(t, ret_status->why);
}

static const struct counter_info counter_table[] = {
#define ROW(symbol, name, kind, unit, help) \
	COUNTER_ROW(tier_counters, symbol, name, kind, unit, help)
	TIER_COUNTERS(ROW)
#undef ROW
};

const struct counter_info *tier_counter_table(uint32_t *ret_n)
{
	*ret_n = ARRAY_SIZE(counter_table);
	return counter_table;
}

const struct histogram_info *tier_histogram_table(uint32_t *ret_n)
{
#define ROW(...) HISTOGRAM_ROW(tier_histograms, __VA_ARGS__)
	static const struct histogram_info table[] = { TIER_HISTOGRAMS(ROW) };
#undef ROW

	*ret_n = ARRAY_SIZE(table);
	return table;
}

const struct tier_histograms *tier_set_histograms(const struct tier_set *set)
{
	return &set->histograms;
}

const struct tier_counters *tier_set_counters(const struct tier_set *set)
{
	CHECK_MAGIC(set, SET_MAGIC);
	return &set->counters;
}

/* ---- opening and closing --------------------------------------------------------------------- */

DEFINE_CLEANUP(struct tier_set *, tier_set_free);

static uint64_t clamp_buckets(uint64_t n)
{
	return min(max(n, (uint64_t)SHARD_BUCKETS_MIN), (uint64_t)SHARD_BUCKETS_MAX);
}

static int init_shards(struct tier_set *set, const struct tier_config *configs, uint32_t n)
{
	uint64_t chunks = 0;
	int r = 0;

	for (uint32_t i = 0; i < n; i++)
		chunks += configs[i].capacity / CHUNK_FILE_BYTES * 2;
	for (uint32_t i = 0; i < SET_SHARDS; i++) {
		struct shard *shard = &set->shards[i];

		pthread_mutex_init(&shard->lock, NULL);
		pthread_cond_init(&shard->settled, NULL);
		if (r == 0)
			r = map_init(&shard->map, clamp_buckets(chunks / SET_SHARDS));
	}
	return r;
}

static void queue_one(struct map_node *node, void *arg)
{
	struct chunk *chunk = container_of(node, struct chunk, node);

	chunk->read_at = 1; /* before everything that is read from now on */
	volumes_queue(arg, chunk);
}

/* What was found is evicted like all other chunks. */
static void queue_all(struct tier_set *set)
{
	for (uint32_t i = 0; i < SET_SHARDS; i++)
		map_each(&set->shards[i].map, queue_one, &set->volumes);
}

/* Before chunks are found, so that those in fast tiers are found first. */
static void add_kind(struct tier_set *set, struct tier *tier)
{
	set->several |= tier->number && tier->kind != set->tiers[0]->kind;
	set->slowest = max(set->slowest, tier->kind);
	move_open(tier);
}

void tier_set_runs(struct tier_set *set,
	int (*next_run)(
		void *arg, const struct chunk_id *id, uint32_t offset, struct piece_run *ret_run),
	void *arg)
{
	CHECK_MAGIC(set, SET_MAGIC);
	set->next_run_arg = arg;
	set->next_run = next_run;
}

int tier_set_open(
	const struct tier_config *configs, uint32_t n, struct tier_set **ret_set, struct err *e)
{
	_cleanup_(tier_set_free_p) struct tier_set *set = NULL;
	int r = 0;

	if (n > SET_TIERS_MAX)
		return err_set(e, -EINVAL, "%u tiers: give at most %u", n, SET_TIERS_MAX);
	set = calloc(1, sizeof(*set));
	if (!set)
		return err_set(e, -ENOMEM, "no memory for the tiers");
	set->magic = SET_MAGIC;
	descriptor_cache_init(&set->descriptors, 0);
	buffers_init(&set->bounce, BOUNCES_KEPT * CHUNK_IO_BYTES);
	watch_init(&set->watch);
	publish_init(&set->publish);
	r = volumes_init(&set->volumes, n);
	if (extents_init(&set->extents) < 0)
		r = -ENOMEM;
	if (init_shards(set, configs, n) < 0 || r < 0) /* both, for tier_set_free() */
		r = -ENOMEM;
	if (r < 0)
		return err_set(e, r, "no memory for the map of chunks");
	for (uint32_t i = 0; r == 0 && i < n; i++) {
		struct tier_config config = configs[i];

		if (config.kind == TIER_RAM) { /* every boot finds it empty */
			config.create = true;
			config.remembered = NULL;
		}
		r = tier_open(&config, &set->counters, &set->tiers[i], e);
		if (r == 0)
			set->tiers[i]->number = set->n_tiers++;
	}
	for (uint32_t i = 0; r == 0 && i < n; i++)
		add_kind(set, set->tiers[i]);
	for (uint32_t i = 0; r == 0 && i < n; i++)
		r = recover_tier(set, set->tiers[i], e);
	for (uint32_t i = 0; r == 0 && i < n; i++)
		counter_add(&set->counters.capacity, set->tiers[i]->capacity);
	if (r < 0)
		return r;
	queue_all(set);
	set->pool = pool_new("tier", WORKS(n), WORKS(n));
	if (!set->pool)
		return err_set(e, -EAGAIN,
			"cannot start a thread: raise the limit on processes (ulimit -u)");
	space_start(set);
	watch_start(&set->watch, set);
	*ret_set = TAKE(set);
	return 0;
}

static void free_chunk(struct map_node *node, void *arg)
{
	struct chunk *chunk = container_of(node, struct chunk, node);

	(void)arg;
	ensure(atomic_load(&chunk->refs) == 1); /* the set's: every caller gave his back */
	volumes_unqueue(&chunk->set->volumes, chunk);
	chunk_unref(chunk);
}

void tier_set_free(struct tier_set *set)
{
	if (!set)
		return;
	CHECK_MAGIC(set, SET_MAGIC);
	watch_stop(&set->watch);
	space_stop(set);
	pool_free(set->pool);
	for (uint32_t i = 0; i < SET_SHARDS; i++) {
		map_each(&set->shards[i].map, free_chunk, NULL);
		map_release(&set->shards[i].map);
		pthread_cond_destroy(&set->shards[i].settled);
		pthread_mutex_destroy(&set->shards[i].lock);
	}
	extents_release(&set->extents);
	for (uint32_t i = 0; i < set->n_tiers; i++)
		tier_free(set->tiers[i]);
	volumes_release(&set->volumes);
	buffers_release(&set->bounce);
	watch_release(&set->watch);
	publish_release(&set->publish);
	descriptor_cache_release(&set->descriptors);
	set->magic = 0;
	free(set);
}
