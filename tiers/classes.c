/* Why chunks are here, said anew as slots move, and kept over a restart. See tiers.h. */
#include "tiers/chunk_internal.h"
#include "tiers/policy_internal.h"
#include "tiers/tier_internal.h"
#include "tiers/tier_set_internal.h"

#define KEPT_AT_ONCE 64u /* chunks, from one look at a shard to the next */

struct classify {
	struct tier_set *set;
	enum tier_class (*which)(void *arg, const struct tier_chunk_look *look);
	void *arg;
	uint64_t changed;
};

static void classify_one(struct map_node *node, void *arg)
{
	struct chunk *chunk = container_of(node, struct chunk, node);
	struct classify *c = arg;
	struct tier_chunk_look look = { .id = chunk->id, .class = chunk->class };
	enum tier_class class;

	if (!chunk_is_live(chunk))
		return;
	look.bytes = chunk_present_bytes(chunk);
	class = c->which(c->arg, &look);
	if (class == look.class)
		return;
	volumes_reclass(&c->set->volumes, chunk, class);
	c->changed++;
}

uint64_t tier_set_classify(struct tier_set *set,
	enum tier_class (*which)(void *arg, const struct tier_chunk_look *look), void *arg)
{
	struct classify c = { .set = set, .which = which, .arg = arg };

	CHECK_MAGIC(set, SET_MAGIC);
	for (uint32_t i = 0; i < SET_SHARDS; i++) {
		pthread_mutex_lock(&set->shards[i].lock);
		map_each(&set->shards[i].map, classify_one, &c);
		pthread_mutex_unlock(&set->shards[i].lock);
	}
	return c.changed;
}

struct unkept {
	struct chunk *chunks[KEPT_AT_ONCE];
	uint32_t n;
};

static void collect_unkept(struct map_node *node, void *arg)
{
	struct chunk *chunk = container_of(node, struct chunk, node);
	struct unkept *u = arg;

	if (u->n < KEPT_AT_ONCE && chunk_is_live(chunk) && chunk->kept_class != chunk->class)
		u->chunks[u->n++] = chunk_ref(chunk);
}

/* As when a chunk becomes complete: a row may pass another thread's, which the next start finds out. */
static bool keep(struct chunk *chunk)
{
	enum tier_class before = chunk->kept_class;
	struct index_row row = chunk_row(chunk);
	int r = tier_index_put(chunk->tier, &row);

	if (r < 0)
		atomic_store(&chunk->kept_class, before);
	return r == 0;
}

uint64_t tier_set_keep_classes(struct tier_set *set)
{
	uint64_t kept = 0;

	CHECK_MAGIC(set, SET_MAGIC);
	for (uint32_t i = 0; i < SET_SHARDS;) {
		struct unkept u = { .n = 0 };
		bool all = true;

		pthread_mutex_lock(&set->shards[i].lock);
		map_each(&set->shards[i].map, collect_unkept, &u);
		pthread_mutex_unlock(&set->shards[i].lock);
		for (uint32_t k = 0; k < u.n; k++) {
			all = keep(u.chunks[k]) && all;
			chunk_unref(u.chunks[k]);
		}
		kept += u.n;
		i += u.n < KEPT_AT_ONCE || !all; /* what its tier does not take now, later */
	}
	return kept;
}
