/* What a scrub needs of the tiers: the chunks in order, and how much is not verified. See tiers.h. */
#include "tiers/tier_set_internal.h"

#include <string.h>

/* The ids found so far, in order, at most `max`: the lowest that come after `after`. */
struct listed {
	const struct chunk_id *after; /* NULL: all come after it */
	bool unverified;
	struct chunk_id *ids;
	uint32_t n;
	uint32_t max;
};

int chunk_id_compare(const struct chunk_id *a, const struct chunk_id *b)
{
	int r = memcmp(a->volume.bytes, b->volume.bytes, VOLUME_ID_LEN);

	if (r != 0)
		return r;
	if (a->lineage != b->lineage)
		return a->lineage < b->lineage ? -1 : 1;
	return a->chunk == b->chunk ? 0 : a->chunk < b->chunk ? -1 : 1;
}

static void list_one(struct map_node *node, void *arg)
{
	const struct chunk *chunk = container_of(node, struct chunk, node);
	struct listed *l = arg;
	uint32_t low = 0;
	uint32_t high = l->n;

	if (!chunk_is_live(chunk) || (l->after && chunk_id_compare(&chunk->id, l->after) <= 0) ||
		(l->unverified && atomic_load(&chunk->unverified_blocks) == 0))
		return;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (chunk_id_compare(&l->ids[middle], &chunk->id) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == l->max)
		return;
	if (l->n < l->max)
		l->n++;
	memmove(&l->ids[low + 1], &l->ids[low], (l->n - 1 - low) * sizeof(*l->ids));
	l->ids[low] = chunk->id;
}

uint32_t tier_set_list(struct tier_set *set, const struct chunk_id *after, bool unverified,
	struct chunk_id *ret_ids, uint32_t max)
{
	struct listed l = { .after = after, .unverified = unverified, .ids = ret_ids, .max = max };

	CHECK_MAGIC(set, SET_MAGIC);
	for (uint32_t i = 0; max && i < SET_SHARDS; i++) {
		pthread_mutex_lock(&set->shards[i].lock);
		map_each(&set->shards[i].map, list_one, &l);
		pthread_mutex_unlock(&set->shards[i].lock);
	}
	return l.n;
}

static void add_unverified(struct map_node *node, void *arg)
{
	const struct chunk *chunk = container_of(node, struct chunk, node);

	if (chunk_is_live(chunk))
		*(uint64_t *)arg += (uint64_t)atomic_load(&chunk->unverified_blocks) * BLOCK_BYTES;
}

uint64_t tier_set_unverified(struct tier_set *set)
{
	uint64_t bytes = 0;

	CHECK_MAGIC(set, SET_MAGIC);
	for (uint32_t i = 0; i < SET_SHARDS; i++) {
		pthread_mutex_lock(&set->shards[i].lock);
		map_each(&set->shards[i].map, add_unverified, &bytes);
		pthread_mutex_unlock(&set->shards[i].lock);
	}
	return bytes;
}
