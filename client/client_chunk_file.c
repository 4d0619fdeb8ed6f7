/* Open files, and the life of a chunk's struct. See client_chunk_internal.h. */
#include "base/arena.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "client/client_chunk_internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- files ----------------------------------------------------------------------------------- */

static uint64_t inode_hash(const struct stat *st)
{
	const uint64_t key[2] = { st->st_dev, st->st_ino };

	return hash_xxh3(key, sizeof(key), 0);
}

static uint64_t id_hash(uint64_t id)
{
	return hash_xxh3(&id, sizeof(id), 0);
}

/* The file of that inode with a reference more, or NULL. An inode number is not reused while we
 * hold it open. */
static struct client_file *find_inode_locked(struct client_chunks *chunks, const struct stat *st)
{
	struct map_node *node = map_first(&chunks->files, inode_hash(st));

	for (; node; node = map_next_same(node)) {
		struct client_file *file = container_of(node, struct client_file, node);

		if (file->dev == st->st_dev && file->ino == st->st_ino) {
			file->refs++;
			return file;
		}
	}
	return NULL;
}

struct client_file *client_file_find_locked(struct client_chunks *chunks, uint64_t id)
{
	struct map_node *node = map_first(&chunks->files_by_id, id_hash(id));

	for (; node; node = map_next_same(node)) {
		struct client_file *file = container_of(node, struct client_file, by_id);

		if (file->id == id) {
			file->refs++;
			return file;
		}
	}
	return NULL;
}

struct client_file *client_file_get(
	struct client_chunks *chunks, int fd, const struct stat *st, uint64_t id)
{
	struct client_file *fresh = calloc(1, sizeof(*fresh));
	struct client_file *file;

	if (!fresh)
		return NULL;
	*fresh = (struct client_file){
		.chunks = chunks,
		.refs = 1,
		.fd = fd,
		.dev = st->st_dev,
		.ino = st->st_ino,
		.bytes = (uint64_t)st->st_size,
		.id = id,
	};
	pthread_mutex_lock(&chunks->lock);
	file = find_inode_locked(chunks, st);
	if (!file) {
		map_insert(&chunks->files, &fresh->node, inode_hash(st));
		map_insert(&chunks->files_by_id, &fresh->by_id, id_hash(id));
	}
	pthread_mutex_unlock(&chunks->lock);
	if (!file)
		return fresh;
	(void)close(fd); /* only ever read from */
	free(fresh);
	return file;
}

void client_file_unref(struct client_file *file)
{
	struct client_chunks *chunks = file->chunks;
	bool last;

	pthread_mutex_lock(&chunks->lock);
	last = --file->refs == 0;
	if (last) {
		map_remove(&chunks->files, &file->node);
		map_remove(&chunks->files_by_id, &file->by_id);
		client_released_add_locked(chunks, file->owner, file->hold);
	}
	pthread_mutex_unlock(&chunks->lock);
	if (!last)
		return;
	(void)close(file->fd); /* only ever read from */
	free(file);
}

/* ---- what lies in them ----------------------------------------------------------------------- */

/*
 * Where the chunk lies in the file. Nothing that the worker says is a place by itself: it follows
 * from the chunk's number and the length that the file really has.
 */
int client_chunk_place(const struct chunk_id *id, uint64_t extent_bytes, uint64_t file_bytes,
	struct chunk_place *ret_place)
{
	if (extent_bytes == 0) {
		if (file_bytes < CHUNK_FILE_BYTES)
			return -EBADMSG;
		*ret_place = CHUNK_PLACE_OWN;
		return 0;
	}
	if (!extent_bytes_valid(extent_bytes) || file_bytes != extent_file_bytes(extent_bytes))
		return -EBADMSG;
	*ret_place = extent_place(extent_bytes, id->chunk);
	return 0;
}

int client_chunk_head(
	int fd, const struct chunk_id *id, const struct chunk_place *place, uint64_t *ret_file)
{
	_Alignas(BLOCK_BYTES) uint8_t block[CHUNK_HEAD_BYTES];
	struct chunk_head head = { 0 };
	int r = file_pread_exact(fd, block, sizeof(block), place->head);

	if (r == 0)
		r = chunk_head_decode(block, &head);
	if (r < 0)
		return r;
	*ret_file = head.file_id;
	return chunk_id_equal(&head.id, id) ? 0 : -EBADMSG;
}

/* ---- structs --------------------------------------------------------------------------------- */

/* One that was used before, or NULL. Its `refs` are 0, and others may be looking at them. */
static struct client_chunk *take_spare(struct client_chunks *chunks)
{
	struct client_chunk *chunk = NULL;
	struct list *node;

	pthread_mutex_lock(&chunks->lock);
	node = list_pop_front(&chunks->spare);
	pthread_mutex_unlock(&chunks->lock);
	if (node)
		chunk = list_entry(node, struct client_chunk, link);
	return chunk;
}

struct client_chunk *client_chunk_new(
	const struct chunk_id *id, struct client_file *file, const struct chunk_place *place)
{
	const size_t kept = offsetof(struct client_chunk, id);
	struct client_chunk *chunk = take_spare(file->chunks);

	if (chunk) {
		memset((char *)chunk + kept, 0, sizeof(*chunk) - kept);
	} else {
		chunk = calloc(1, sizeof(*chunk));
		if (!chunk)
			return NULL;
		arena_must(ARENA_PIECES, sizeof(*chunk)); /* the cache bounds how many */
	}
	chunk->magic = CLIENT_CHUNK_MAGIC;
	chunk->id = *id;
	chunk->file = file;
	chunk->fd = file->fd;
	chunk->place = *place;
	chunk->slot = CHUNK_MAP_NONE;
	atomic_init(&chunk->verified_ns, clock_mono_ns());
	list_init(&chunk->link);
	/* A holder of a later reference sees all of this. */
	atomic_store_explicit(&chunk->refs, 1, memory_order_release);
	return chunk;
}

void client_chunk_unref(struct client_chunk *chunk)
{
	struct client_chunks *chunks;

	if (!chunk)
		return;
	CHECK_MAGIC(chunk, CLIENT_CHUNK_MAGIC);
	if (atomic_fetch_sub_explicit(&chunk->refs, 1, memory_order_acq_rel) != 1)
		return;
	chunks = chunk->file->chunks;
	client_chunk_release_hold(chunk);
	chunk->magic = 0;
	client_chunk_table_free(atomic_load_explicit(&chunk->table, memory_order_acquire));
	client_file_unref(chunk->file);
	client_map_unref(chunks, chunk->map);
	pthread_mutex_lock(&chunks->lock);
	list_push_back(&chunks->spare, &chunk->link);
	pthread_mutex_unlock(&chunks->lock);
}
