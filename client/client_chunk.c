/* Chunks on this node. See client_chunk.h. */
#include "base/arena.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/file.h"
#include "base/hash.h"
#include "client/client_chunk_internal.h"

#include <stdlib.h>
#include <sys/stat.h>

static uint64_t id_hash(const struct chunk_id *id)
{
	return hash_xxh3(id, sizeof(*id), 0);
}

/* ---- the table ------------------------------------------------------------------------------- */

static struct client_slot *bucket_of(const struct client_chunks *chunks, uint64_t hash)
{
	return &chunks->slots[(size_t)(hash & (chunks->buckets - 1)) * CLIENT_WAYS];
}

static bool try_ref(struct client_chunk *chunk)
{
	uint32_t refs = atomic_load_explicit(&chunk->refs, memory_order_relaxed);

	while (refs)
		if (atomic_compare_exchange_weak_explicit(&chunk->refs, &refs, refs + 1,
			    memory_order_acquire, memory_order_relaxed))
			return true;
	return false;
}

/* Without the lock: the chunk may be taken out at the same time. */
static struct client_chunk *find(struct client_chunks *chunks, const struct chunk_id *id)
{
	uint64_t hash = id_hash(id);
	struct client_slot *bucket = bucket_of(chunks, hash);

	for (uint32_t i = 0; i < CLIENT_WAYS; i++) {
		struct client_chunk *chunk;

		if (atomic_load_explicit(&bucket[i].hash, memory_order_relaxed) != hash)
			continue;
		chunk = atomic_load_explicit(&bucket[i].chunk, memory_order_acquire);
		if (!chunk || !try_ref(chunk))
			continue;
		/* Still there: so it is not a struct that is being made of it anew, be it for the
		 * same chunk. */
		if (atomic_load_explicit(&bucket[i].chunk, memory_order_acquire) == chunk &&
			chunk_id_equal(&chunk->id, id))
			return chunk;
		client_chunk_unref(chunk); /* it is another's struct by now */
	}
	return NULL;
}

static struct client_slot *slot_of_locked(
	struct client_chunks *chunks, const struct chunk_id *id, const struct client_chunk *chunk)
{
	struct client_slot *bucket = bucket_of(chunks, id_hash(id));

	for (uint32_t i = 0; i < CLIENT_WAYS; i++)
		if (atomic_load_explicit(&bucket[i].chunk, memory_order_relaxed) == chunk)
			return &bucket[i];
	return NULL;
}

/* In the cache, not referenced; or NULL. */
static struct client_chunk *find_locked(struct client_chunks *chunks, const struct chunk_id *id)
{
	struct client_slot *bucket = bucket_of(chunks, id_hash(id));

	for (uint32_t i = 0; i < CLIENT_WAYS; i++) {
		struct client_chunk *chunk =
			atomic_load_explicit(&bucket[i].chunk, memory_order_relaxed);

		if (chunk && chunk_id_equal(&chunk->id, id))
			return chunk;
	}
	return NULL;
}

void client_chunks_remove_locked(struct client_chunks *chunks, struct client_chunk *chunk)
{
	struct client_slot *slot = slot_of_locked(chunks, &chunk->id, chunk);

	ensure(slot && chunk->cached);
	atomic_store_explicit(&slot->chunk, NULL, memory_order_relaxed);
	list_remove(&chunk->link);
	chunk->cached = false;
	chunks->count--;
}

/* The chunk to give up, taken out, with the cache's reference; NULL while there is room. */
static struct client_chunk *evict_locked(struct client_chunks *chunks)
{
	if (chunks->count < chunks->max)
		return NULL;
	for (;;) {
		struct client_chunk *chunk =
			list_entry(chunks->clock.next, struct client_chunk, link);

		if (!atomic_exchange_explicit(&chunk->used, false, memory_order_relaxed)) {
			client_chunks_remove_locked(chunks, chunk);
			return chunk;
		}
		list_remove(&chunk->link);
		list_push_back(&chunks->clock, &chunk->link);
	}
}

/* Puts it into its bucket, in place of the chunk returned when there is no room: four times as many
 * as there may be would fit, so that hardly happens. */
static struct client_chunk *put_locked(struct client_chunks *chunks, struct client_chunk *chunk)
{
	struct client_slot *slot = slot_of_locked(chunks, &chunk->id, NULL);
	struct client_chunk *pushed = NULL;

	if (!slot) {
		slot = bucket_of(chunks, id_hash(&chunk->id));
		pushed = atomic_load_explicit(&slot->chunk, memory_order_relaxed);
		client_chunks_remove_locked(chunks, pushed);
	}
	chunk->cached = true;
	atomic_fetch_add_explicit(&chunk->refs, 1, memory_order_relaxed); /* the cache's */
	atomic_store_explicit(&slot->hash, id_hash(&chunk->id), memory_order_relaxed);
	atomic_store_explicit(&slot->chunk, chunk, memory_order_release);
	list_push_back(&chunks->clock, &chunk->link);
	chunks->count++;
	return pushed;
}

/* Nothing tells them apart but what each has verified so far. */
static bool alike(const struct client_chunk *a, const struct client_chunk *b)
{
	return a->file == b->file && a->place.head == b->place.head && a->map == b->map &&
	       a->slot == b->slot;
}

struct client_chunk *client_chunks_insert(struct client_chunks *chunks, struct client_chunk *chunk)
{
	struct client_chunk *old;
	struct client_chunk *evicted;
	struct client_chunk *pushed;

	pthread_mutex_lock(&chunks->lock);
	old = find_locked(chunks, &chunk->id);
	if (old && alike(old, chunk)) { /* another thread was first */
		atomic_fetch_add_explicit(&old->refs, 1, memory_order_relaxed);
		pthread_mutex_unlock(&chunks->lock);
		client_chunk_unref(chunk);
		return old;
	}
	if (old)
		client_chunks_remove_locked(chunks, old);
	evicted = evict_locked(chunks); /* before the new one, which has not been used yet */
	pushed = put_locked(chunks, chunk);
	pthread_mutex_unlock(&chunks->lock);
	client_chunk_unref(old); /* may close: not under the lock */
	client_chunk_unref(evicted);
	client_chunk_unref(pushed);
	return chunk;
}

/* ---- the cache ------------------------------------------------------------------------------- */

struct client_chunks *client_chunks_new(uint32_t max)
{
	struct client_chunks *chunks = calloc(1, sizeof(*chunks));

	ensure(max >= 1);
	if (!chunks)
		return NULL;
	pthread_mutex_init(&chunks->lock, NULL);
	list_init(&chunks->clock);
	list_init(&chunks->spare);
	chunks->max = max;
	chunks->buckets = 1;
	while (chunks->buckets < max / 2)
		chunks->buckets *= 2;
	chunks->slots =
		aligned_alloc(64, (size_t)chunks->buckets * CLIENT_WAYS * sizeof(*chunks->slots));
	if (!chunks->slots || map_init(&chunks->files, max) < 0 ||
		map_init(&chunks->files_by_id, max) < 0) {
		client_chunks_free(chunks);
		return NULL;
	}
	for (size_t i = 0; i < (size_t)chunks->buckets * CLIENT_WAYS; i++) {
		atomic_init(&chunks->slots[i].hash, 0);
		atomic_init(&chunks->slots[i].chunk, NULL);
	}
	return chunks;
}

void client_chunks_free(struct client_chunks *chunks)
{
	struct list *node;

	if (!chunks)
		return;
	while ((node = chunks->clock.next) != &chunks->clock) {
		struct client_chunk *chunk = list_entry(node, struct client_chunk, link);

		client_chunks_remove_locked(chunks, chunk);
		client_chunk_unref(chunk);
	}
	ensure(chunks->files.count == 0);
	client_map_unref(chunks, atomic_load(&chunks->map));
	while ((node = list_pop_front(&chunks->spare)) != NULL) {
		struct client_chunk *chunk = list_entry(node, struct client_chunk, link);

		arena_give(ARENA_PIECES, sizeof(*chunk));
		free(chunk);
	}
	map_release(&chunks->files_by_id);
	map_release(&chunks->files);
	pthread_mutex_destroy(&chunks->lock);
	free(chunks->slots);
	free(chunks);
}

/* What was found damaged stays absent until the worker knows, whatever its bitmap says. */
static void set_present(struct client_chunk *chunk, const uint8_t bitmap[CHUNK_BITMAP_BYTES])
{
	for (uint32_t w = 0; w < CLIENT_BITS_WORDS; w++) {
		uint64_t bits = 0;

		for (uint32_t i = 0; i < 8; i++)
			bits |= (uint64_t)bitmap[w * 8 + i] << i * 8;
		bits &= ~atomic_load_explicit(&chunk->damaged.words[w], memory_order_acquire);
		atomic_fetch_and_explicit(&chunk->verified.words[w], bits, memory_order_acq_rel);
		atomic_store_explicit(&chunk->present.words[w], bits, memory_order_release);
	}
}

/* ---- finding -------------------------------------------------------------------------------- */

/* Nothing of it went since it was looked at. */
static bool is_current(struct client_chunks *chunks, const struct client_chunk *chunk)
{
	const struct client_map *map = chunk->map;

	if (map != atomic_load_explicit(&chunks->map, memory_order_acquire))
		return false;
	return chunk->slot == CHUNK_MAP_NONE ||
	       (chunk_map_holds(map->map, chunk->slot,
			atomic_load_explicit(&chunk->seq, memory_order_acquire)) &&
		       !chunk_map_away(map->map, chunk->tier));
}

static void mark(_Atomic bool *flag)
{
	/* A store at each hit would have the line go from core to core. */
	if (!atomic_load_explicit(flag, memory_order_relaxed))
		atomic_store_explicit(flag, true, memory_order_relaxed);
}

struct client_chunk *client_chunks_get(struct client_chunks *chunks, const struct chunk_id *id)
{
	struct client_chunk *chunk = find(chunks, id);

	if (chunk && !is_current(chunks, chunk))
		chunk = client_chunk_renew(chunks, chunk);
	if (chunk) {
		mark(&chunk->used);
		mark(&chunk->touched);
	}
	return chunk;
}

/* ---- what a worker answered ------------------------------------------------------------------ */

/* The chunk in the cache if it is stored in this very file, with a reference. */
static struct client_chunk *same_file(struct client_chunks *chunks, const struct chunk_id *id,
	const struct stat *st, const struct chunk_place *place)
{
	struct client_chunk *chunk = client_chunks_get(chunks, id);

	if (chunk && chunk->file->dev == st->st_dev && chunk->file->ino == st->st_ino &&
		chunk->place.head == place->head)
		return chunk;
	client_chunk_unref(chunk);
	return NULL;
}

/* A chunk that is not known, or was in another file. `fd` is taken, also on failure. */
static int install_new(struct client_chunks *chunks, const struct chunk_id *id, int fd,
	const struct stat *st, const struct chunk_place *place, struct client_chunk **ret_chunk)
{
	_cleanup_close_ int own = fd;
	struct client_file *file;
	struct client_chunk *chunk;
	uint64_t file_id;
	int r = client_chunk_head(own, id, place, &file_id);

	if (r < 0)
		return r;
	file = client_file_get(chunks, own, st, file_id);
	if (!file)
		return -ENOMEM;
	(void)TAKE_FD(own); /* the file's now, or closed */
	chunk = client_chunk_new(id, file, place);
	if (!chunk) {
		client_file_unref(file);
		return -ENOMEM;
	}
	client_chunk_attach(chunks, chunk);
	*ret_chunk = chunk;
	return 0;
}

int client_chunks_install(struct client_chunks *chunks, const struct chunk_id *id, int fd,
	uint64_t extent_bytes, const uint8_t bitmap[CHUNK_BITMAP_BYTES],
	struct client_chunk **ret_chunk)
{
	_cleanup_close_ int own = fd;
	struct client_chunk *chunk;
	struct chunk_place place;
	struct stat st;
	int r;

	if (fstat(own, &st) != 0)
		return err_errno();
	r = S_ISREG(st.st_mode) ? client_chunk_place(id, extent_bytes, (uint64_t)st.st_size, &place)
				: -EBADMSG;
	if (r < 0)
		return r;
	chunk = same_file(chunks, id, &st, &place);
	if (!chunk) {
		r = install_new(chunks, id, TAKE_FD(own), &st, &place, &chunk);
		if (r < 0)
			return r;
		ensure(chunk);
		chunk = client_chunks_insert(chunks, chunk);
	}
	set_present(chunk, bitmap);
	*ret_chunk = chunk;
	return 0;
}

void client_chunks_drop(struct client_chunks *chunks, struct client_chunk *chunk)
{
	bool mine;

	pthread_mutex_lock(&chunks->lock);
	mine = chunk->cached;
	if (mine)
		client_chunks_remove_locked(chunks, chunk);
	pthread_mutex_unlock(&chunks->lock);
	if (mine)
		client_chunk_unref(chunk);
}

uint32_t client_chunks_count(struct client_chunks *chunks)
{
	uint32_t n;

	pthread_mutex_lock(&chunks->lock);
	n = chunks->count;
	pthread_mutex_unlock(&chunks->lock);
	return n;
}

uint32_t client_chunks_files(struct client_chunks *chunks)
{
	uint32_t n;

	pthread_mutex_lock(&chunks->lock);
	n = (uint32_t)chunks->files.count;
	pthread_mutex_unlock(&chunks->lock);
	return n;
}
