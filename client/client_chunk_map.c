/* The worker's chunk map and the chunks known here. See client_chunk_internal.h. */
#include "client/client_chunk_internal.h"

#include <errno.h>
#include <stdlib.h>

/* ---- maps ------------------------------------------------------------------------------------ */

/* With a reference more, or NULL. */
static struct client_map *get_locked(struct client_chunks *chunks)
{
	struct client_map *map = atomic_load_explicit(&chunks->map, memory_order_relaxed);

	if (map)
		map->refs++;
	return map;
}

void client_map_unref(struct client_chunks *chunks, struct client_map *map)
{
	bool last;

	if (!map)
		return;
	pthread_mutex_lock(&chunks->lock);
	last = --map->refs == 0;
	pthread_mutex_unlock(&chunks->lock);
	if (!last)
		return;
	chunk_map_close(map->map);
	free(map);
}

int client_chunks_set_map(
	struct client_chunks *chunks, struct chunk_map *map, struct view_peer *owner)
{
	struct client_map *fresh = calloc(1, sizeof(*fresh));
	struct client_map *old;

	if (!fresh)
		return -ENOMEM;
	*fresh = (struct client_map){ .map = map, .owner = owner, .refs = 1 };
	pthread_mutex_lock(&chunks->lock);
	old = atomic_exchange_explicit(&chunks->map, fresh, memory_order_acq_rel);
	pthread_mutex_unlock(&chunks->lock);
	client_map_unref(chunks, old); /* chunks found in it may be in use */
	return 0;
}

uint64_t client_chunks_map_start(struct client_chunks *chunks)
{
	struct client_map *map;
	uint64_t start;

	pthread_mutex_lock(&chunks->lock);
	map = atomic_load_explicit(&chunks->map, memory_order_relaxed);
	start = map ? chunk_map_start(map->map) : 0;
	pthread_mutex_unlock(&chunks->lock);
	return start;
}

uint64_t client_chunks_capacity(struct client_chunks *chunks)
{
	struct client_map *map;
	uint64_t capacity;

	pthread_mutex_lock(&chunks->lock);
	map = atomic_load_explicit(&chunks->map, memory_order_relaxed);
	capacity = map ? chunk_map_capacity(map->map) : 0;
	pthread_mutex_unlock(&chunks->lock);
	return capacity;
}

/* ---- what the map says ----------------------------------------------------------------------- */

void client_chunk_refresh(struct client_chunk *chunk)
{
	uint64_t seq = atomic_load_explicit(&chunk->seq, memory_order_acquire);
	uint64_t bits[CHUNK_MAP_WORDS];

	if (chunk->slot == CHUNK_MAP_NONE ||
		!chunk_map_load(chunk->map->map, chunk->slot, seq, bits))
		return;
	for (uint32_t w = 0; w < CHUNK_MAP_WORDS; w++)
		atomic_fetch_or_explicit(&chunk->present.words[w],
			bits[w] & ~atomic_load_explicit(
					  &chunk->damaged.words[w], memory_order_acquire),
			memory_order_acq_rel);
}

static bool same_place(const struct client_chunk *chunk, const struct chunk_map_row *row)
{
	struct chunk_place place;

	return row->file == chunk->file->id &&
	       client_chunk_place(&chunk->id, row->extent, chunk->file->bytes, &place) == 0 &&
	       place.head == chunk->place.head;
}

/* Some of it was dropped: what was verified of the rest stays so. False: it changes right now. */
static bool catch_up(struct client_chunk *chunk, uint64_t seq)
{
	uint64_t bits[CHUNK_MAP_WORDS];

	if (!chunk_map_load(chunk->map->map, chunk->slot, seq, bits))
		return false;
	for (uint32_t w = 0; w < CHUNK_MAP_WORDS; w++) {
		atomic_fetch_and_explicit(&chunk->present.words[w], bits[w], memory_order_acq_rel);
		atomic_fetch_and_explicit(&chunk->verified.words[w], bits[w], memory_order_acq_rel);
	}
	atomic_store_explicit(&chunk->seq, seq, memory_order_release);
	return true;
}

void client_chunk_verified(
	struct client_chunk *chunk, uint64_t seq, uint32_t block, uint32_t blocks)
{
	client_bits_set(&chunk->verified, block, blocks);
	/* Only now: who dropped it changed the map first, and catch_up() of another reader may have
	 * cleared the bit before it was set. */
	if (chunk->slot != CHUNK_MAP_NONE && !chunk_map_holds(chunk->map->map, chunk->slot, seq))
		client_bits_clear(&chunk->verified, block, blocks);
}

/* The same chunk in the same file under another map, with what is known of it. */
static struct client_chunk *successor(struct client_chunks *chunks, struct client_chunk *old,
	struct client_map *map, uint32_t slot, const struct chunk_map_row *row, uint64_t seq)
{
	struct client_chunk *chunk = client_chunk_new(&old->id, old->file, &old->place);

	if (!chunk)
		return NULL;
	pthread_mutex_lock(&chunks->lock);
	old->file->refs++;
	map->refs++;
	chunk->hold = old->hold;
	chunk->owner = old->owner;
	chunk->let_go = old->let_go;
	old->hold = 0;
	pthread_mutex_unlock(&chunks->lock);
	chunk->map = map;
	chunk->slot = slot;
	chunk->tier = slot == CHUNK_MAP_NONE ? 0 : row->tier;
	atomic_store(&chunk->verified_ns, atomic_load(&old->verified_ns));
	atomic_store(&chunk->seq, seq);
	for (uint32_t w = 0; w < CLIENT_BITS_WORDS; w++) {
		chunk->present.words[w] = atomic_load(&old->present.words[w]);
		chunk->verified.words[w] = atomic_load(&old->verified.words[w]);
		chunk->damaged.words[w] = atomic_load(&old->damaged.words[w]);
	}
	return chunk;
}

/*
 * The chunk as the map of today has it, in place of one that does not go with it; NULL: the cache
 * does not know it any more, or for now. Takes the reference.
 */
struct client_chunk *client_chunk_renew(struct client_chunks *chunks, struct client_chunk *chunk)
{
	uint32_t slot = CHUNK_MAP_NONE;
	struct client_chunk *fresh = NULL;
	struct client_map *map;
	struct chunk_map_row row;
	uint64_t seq = 0;
	bool same;

	pthread_mutex_lock(&chunks->lock);
	map = get_locked(chunks);
	pthread_mutex_unlock(&chunks->lock);
	ensure(map); /* there is no way back to none */
	if (chunk->map == map && chunk_map_away(map->map, chunk->tier)) {
		client_map_unref(chunks, map);
		client_chunk_unref(chunk);
		return NULL;
	}
	slot = chunk_map_find(map->map, &chunk->id, &row, &seq);
	same = slot != CHUNK_MAP_NONE && same_place(chunk, &row);
	if (same && chunk->map == map && chunk->slot == slot) {
		if (catch_up(chunk, seq))
			fresh = chunk;
	} else if (same || (slot == CHUNK_MAP_NONE && chunk->slot == slot)) {
		fresh = successor(chunks, chunk, map, slot, &row, seq);
		if (fresh && same && !catch_up(fresh, seq)) {
			client_chunk_unref(fresh);
			fresh = NULL;
		}
		if (fresh)
			fresh = client_chunks_insert(chunks, fresh);
	} else {
		client_chunks_drop(chunks, chunk);
	}
	if (fresh != chunk)
		client_chunk_unref(chunk);
	client_map_unref(chunks, map);
	return fresh;
}

/* The map has it no more, or in another file; that of a worker that was started anew, too: nobody
 * there counts the descriptor. */
static bool has_left(const struct client_map *map, const struct client_chunk *chunk)
{
	struct chunk_map_row row;
	uint64_t seq;

	if (chunk->slot == CHUNK_MAP_NONE)
		return false;
	if (chunk->map == map && chunk_map_holds(map->map, chunk->slot,
					 atomic_load_explicit(&chunk->seq, memory_order_acquire)))
		return false;
	return chunk_map_find(map->map, &chunk->id, &row, &seq) == CHUNK_MAP_NONE ||
	       !same_place(chunk, &row);
}

void client_chunks_sweep(struct client_chunks *chunks)
{
	struct list gone = LIST_INIT(gone); /* with the cache's references */
	struct client_map *map;
	struct list *node;

	pthread_mutex_lock(&chunks->lock);
	map = atomic_load_explicit(&chunks->map, memory_order_relaxed);
	list_for_each_safe (at, &chunks->clock) {
		struct client_chunk *chunk = list_entry(at, struct client_chunk, link);

		if (!map || !has_left(map, chunk))
			continue;
		client_chunks_remove_locked(chunks, chunk);
		list_push_back(&gone, &chunk->link);
	}
	pthread_mutex_unlock(&chunks->lock);
	while ((node = list_pop_front(&gone)) != NULL)
		client_chunk_unref(list_entry(node, struct client_chunk, link));
}

/* Takes the references of file and map. */
static struct client_chunk *open_in(struct client_map *map, struct client_file *file, uint32_t slot,
	const struct chunk_map_row *row, uint64_t seq)
{
	struct client_chunks *chunks = file->chunks;
	struct client_chunk *chunk = NULL;
	struct chunk_place place;
	uint64_t id;

	if (client_chunk_place(&row->id, row->extent, file->bytes, &place) == 0 &&
		client_chunk_head(file->fd, &row->id, &place, &id) == 0 && id == file->id)
		chunk = client_chunk_new(&row->id, file, &place);
	if (!chunk) {
		client_file_unref(file);
		client_map_unref(chunks, map);
		return NULL;
	}
	chunk->map = map;
	chunk->slot = slot;
	chunk->tier = row->tier;
	atomic_store(&chunk->seq, seq);
	client_chunk_refresh(chunk);
	chunk = client_chunks_insert(chunks, chunk);
	atomic_store_explicit(&chunk->touched, true, memory_order_relaxed);
	return chunk;
}

struct client_chunk *client_chunks_open(struct client_chunks *chunks, const struct chunk_id *id)
{
	struct client_file *file = NULL;
	struct client_map *map;
	struct chunk_map_row row;
	uint32_t slot;
	uint64_t seq;

	if (!atomic_load_explicit(&chunks->map, memory_order_relaxed))
		return NULL;
	pthread_mutex_lock(&chunks->lock);
	map = get_locked(chunks);
	slot = chunk_map_find(map->map, id, &row, &seq);
	if (slot != CHUNK_MAP_NONE && !chunk_map_away(map->map, row.tier))
		file = client_file_find_locked(chunks, row.file);
	pthread_mutex_unlock(&chunks->lock);
	if (file)
		return open_in(map, file, slot, &row, seq);
	client_map_unref(chunks, map);
	return NULL;
}

static bool all_set(const uint64_t bits[CHUNK_MAP_WORDS], uint32_t block, uint32_t blocks)
{
	for (uint32_t w = block / 64; w * 64 < block + blocks; w++) {
		uint64_t mask = client_bits_mask(w, block, blocks);

		if ((bits[w] & mask) != mask)
			return false;
	}
	return true;
}

/* The same of a chunk that is not in the cache. */
static bool map_has(struct client_chunks *chunks, const struct chunk_id *id, uint32_t block,
	uint32_t blocks, uint64_t *ret_file)
{
	struct client_file *file = NULL;
	uint64_t bits[CHUNK_MAP_WORDS];
	struct client_map *map;
	struct chunk_map_row row;
	bool has = false;
	uint32_t slot;
	uint64_t seq;

	pthread_mutex_lock(&chunks->lock);
	map = get_locked(chunks);
	if (map) {
		slot = chunk_map_find(map->map, id, &row, &seq);
		has = slot != CHUNK_MAP_NONE && !chunk_map_away(map->map, row.tier) &&
		      chunk_map_load(map->map, slot, seq, bits) && all_set(bits, block, blocks);
	}
	if (has)
		file = client_file_find_locked(chunks, row.file);
	pthread_mutex_unlock(&chunks->lock);
	if (has)
		*ret_file = file ? 0 : row.file;
	if (file)
		client_file_unref(file);
	client_map_unref(chunks, map);
	return has;
}

bool client_chunks_have(struct client_chunks *chunks, const struct chunk_id *id, uint32_t block,
	uint32_t blocks, uint64_t *ret_file)
{
	struct client_chunk *chunk = client_chunks_get(chunks, id);
	bool has;

	if (!chunk)
		return map_has(chunks, id, block, blocks, ret_file);
	if (!client_bits_all(&chunk->present, block, blocks))
		client_chunk_refresh(chunk);
	has = client_bits_all(&chunk->present, block, blocks);
	client_chunk_unref(chunk);
	*ret_file = 0;
	return has;
}

/* Finds the chunk in the map. */
void client_chunk_attach(struct client_chunks *chunks, struct client_chunk *chunk)
{
	struct chunk_map_row row;
	uint64_t seq = 0;
	uint32_t slot;

	pthread_mutex_lock(&chunks->lock);
	chunk->map = get_locked(chunks);
	pthread_mutex_unlock(&chunks->lock);
	if (!chunk->map)
		return;
	slot = chunk_map_find(chunk->map->map, &chunk->id, &row, &seq);
	if (slot == CHUNK_MAP_NONE || !same_place(chunk, &row))
		return;
	chunk->slot = slot;
	chunk->tier = row.tier;
	atomic_store(&chunk->seq, seq);
}
