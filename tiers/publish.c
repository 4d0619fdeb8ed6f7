/* The chunk map of a set. See publish_internal.h. */
#include "tiers/publish_internal.h"
#include "tiers/tier_set_internal.h"

/* More than there are whole chunks: one that fills has an entry, however little there is of it. */
#define SLOTS_PER_CHUNK 4u

void publish_init(struct publish *publish)
{
	pthread_mutex_init(&publish->lock, NULL);
	atomic_init(&publish->writer, NULL);
}

void publish_release(struct publish *publish)
{
	chunk_map_writer_free(atomic_load(&publish->writer));
	pthread_mutex_destroy(&publish->lock);
}

static struct chunk_map_writer *writer_of(const struct publish *publish)
{
	return atomic_load_explicit(&publish->writer, memory_order_acquire);
}

static void put_locked(struct chunk_map_writer *writer, const struct chunk *chunk)
{
	uint64_t clean[CHUNK_MAP_WORDS];
	struct chunk_map_row row = {
		.id = chunk->id,
		.file = chunk->file,
		.extent = chunk->extent ? chunk->extent->bytes : 0,
		.tier = chunk->tier->number,
	};

	/* Bits leave `present` first, so one that is in neither any more does not look clean. */
	for (uint32_t w = 0; w < CHUNK_MAP_WORDS; w++) {
		uint64_t unverified = atomic_load(&chunk->unverified[w]);

		clean[w] = atomic_load(&chunk->present[w]) & ~unverified;
	}
	(void)chunk_map_put(writer, &row, clean); /* full: readers ask */
}

void publish_chunk(struct chunk *chunk)
{
	struct publish *publish = &chunk->set->publish;
	struct chunk_map_writer *writer = writer_of(publish);

	if (!writer)
		return;
	pthread_mutex_lock(&publish->lock);
	if (chunk_is_live(chunk))
		put_locked(writer, chunk);
	pthread_mutex_unlock(&publish->lock);
}

void publish_gone(struct chunk *chunk)
{
	struct publish *publish = &chunk->set->publish;
	struct chunk_map_writer *writer = writer_of(publish);

	if (!writer)
		return;
	pthread_mutex_lock(&publish->lock);
	chunk_map_remove(writer, &chunk->id);
	pthread_mutex_unlock(&publish->lock);
}

void publish_tiers(struct tier_set *set)
{
	struct publish *publish = &set->publish;
	struct chunk_map_writer *writer = writer_of(publish);
	uint64_t capacity = 0;
	uint64_t away = 0;

	if (!writer)
		return;
	for (uint32_t i = 0; i < set->n_tiers; i++)
		if (tier_in_service(set->tiers[i]))
			capacity += set->tiers[i]->capacity;
		else
			away |= 1ull << set->tiers[i]->number;
	pthread_mutex_lock(&publish->lock);
	chunk_map_set_away(writer, away);
	chunk_map_set_capacity(writer, capacity);
	pthread_mutex_unlock(&publish->lock);
}

static void publish_found(struct map_node *node, void *arg)
{
	(void)arg;
	publish_chunk(container_of(node, struct chunk, node));
}

/* ---- the map in tiers.h ---------------------------------------------------------------------- */

int tier_set_publish(struct tier_set *set, uint64_t bytes)
{
	struct chunk_map_writer *writer;
	uint64_t wanted = 0;
	uint32_t slots;
	int r;

	CHECK_MAGIC(set, SET_MAGIC);
	ensure(!writer_of(&set->publish));
	for (uint32_t i = 0; i < set->n_tiers; i++)
		wanted += set->tiers[i]->capacity / CHUNK_BYTES * SLOTS_PER_CHUNK;
	wanted = min(wanted, (uint64_t)CHUNK_MAP_SLOTS_MAX);
	slots = chunk_map_slots(min(bytes, chunk_map_bytes((uint32_t)wanted)));
	r = chunk_map_writer_new(slots, &writer);
	if (r < 0)
		return r;
	set->publish.bytes = chunk_map_bytes(slots);
	atomic_store_explicit(&set->publish.writer, writer, memory_order_release);
	publish_tiers(set);
	for (uint32_t i = 0; i < SET_SHARDS; i++) {
		struct shard *shard = &set->shards[i];

		pthread_mutex_lock(&shard->lock);
		map_each(&shard->map, publish_found, NULL);
		pthread_mutex_unlock(&shard->lock);
	}
	return 0;
}

uint64_t tier_map_start(const struct tier_set *set)
{
	const struct chunk_map_writer *writer = writer_of(&set->publish);

	return writer ? chunk_map_writer_start(writer) : 0;
}

int tier_map_fd(const struct tier_set *set, int *ret_fd)
{
	const struct chunk_map_writer *writer = writer_of(&set->publish);

	ensure(writer);
	return chunk_map_writer_fd(writer, ret_fd);
}

void tier_map_note_read(struct tier_set *set, uint32_t slot, uint64_t bytes)
{
	const struct chunk_map_writer *writer = writer_of(&set->publish);
	struct chunk *chunk;
	struct chunk_id id;

	if (!writer || !chunk_map_chunk_at(writer, slot, &id))
		return;
	chunk = tier_chunk_find(set, &id);
	if (!chunk)
		return;
	chunk_note_read(chunk);
	chunk_unref(chunk);
	tier_volume_asked(set, &id.volume, 0, bytes);
}

void tier_map_use(const struct tier_set *set, struct tier_map_use *ret_use)
{
	const struct chunk_map_writer *writer = writer_of(&set->publish);
	struct chunk_map_use use = { 0 };

	if (writer)
		chunk_map_writer_use(writer, &use);
	*ret_use = (struct tier_map_use){
		.bytes = set->publish.bytes,
		.chunks = use.used,
		.max = use.max,
		.refused = use.refused,
	};
}
