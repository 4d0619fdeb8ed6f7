/* Which lineages of a volume have chunks. See tiers.h. */
#include "tiers/tier_set_internal.h"

struct lineages {
	const struct volume_id *volume;
	uint64_t *out;
	uint32_t n;
	uint32_t max;
};

static void collect_lineage(struct map_node *node, void *arg)
{
	const struct chunk *chunk = container_of(node, struct chunk, node);
	struct lineages *l = arg;

	if (!chunk_is_live(chunk) || !volume_id_equal(&chunk->id.volume, l->volume))
		return;
	for (uint32_t i = 0; i < l->n; i++)
		if (l->out[i] == chunk->id.lineage)
			return;
	if (l->n < l->max)
		l->out[l->n++] = chunk->id.lineage;
}

uint32_t tier_set_lineages(
	struct tier_set *set, const struct volume_id *volume, uint64_t *out, uint32_t max)
{
	struct lineages l = { .volume = volume, .out = out, .max = max };

	CHECK_MAGIC(set, SET_MAGIC);
	for (uint32_t i = 0; i < SET_SHARDS; i++) {
		pthread_mutex_lock(&set->shards[i].lock);
		map_each(&set->shards[i].map, collect_lineage, &l);
		pthread_mutex_unlock(&set->shards[i].lock);
	}
	return l.n;
}
