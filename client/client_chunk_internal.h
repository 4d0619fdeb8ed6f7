/*
 * What the files of the chunk cache share. See client_chunk.h.
 *
 *	client_chunk.c		the cache: finding, taking in, throwing out
 *	client_chunk_map.c	the worker's chunk map
 *	client_chunk_file.c	open files, and the life of a chunk's struct
 *	client_chunk_hold.c	what workers learn of open files
 *	client_chunk_table.c	piece tables
 *
 * A struct client_chunk is never given back to the allocator while the cache lives: one whose last
 * reference went is used again. So who found its address in the table may look at `refs`, and takes
 * a reference unless there is none; then the id says whether it is still the chunk that he wants.
 *
 * Locks: `lock` is a leaf. Finding takes none.
 */
#pragma once

#include <pthread.h>
#include <sys/stat.h>
#include "client/client_chunk.h"
#include "locate/chunk_map.h"

#define CLIENT_WAYS 8u /* slots of a bucket: two cache lines */

/* Past it a worker learns of a closed descriptor when the connection ends. */
#define CLIENT_RELEASED_MAX 8192u

/* A worker's map, shared by the chunks found in it. */
struct client_map {
	struct chunk_map *map;
	struct view_peer *owner;
	uint32_t refs; /* under the cache's lock */
};

/* An open file, shared by the chunks of an extent. */
struct client_file {
	struct map_node node;  /* in client_chunks.files */
	struct map_node by_id; /* in client_chunks.files_by_id */
	struct client_chunks *chunks;
	uint32_t refs; /* under the cache's lock */
	int fd;
	dev_t dev;
	ino_t ino;
	uint64_t bytes;
	uint64_t id; /* as its heads say */
	/* A hold of one of its chunks that is not in the cache any more: it is that of the chunks
	 * without one. Under the cache's lock: */
	struct view_peer *owner;
	uint64_t hold;
};

/* A descriptor that was closed. */
struct client_released {
	struct view_peer *owner;
	uint64_t number;
};

struct client_slot {
	_Atomic uint64_t hash;
	struct client_chunk *_Atomic chunk;
};

struct client_chunks {
	struct client_slot *slots; /* changed under the lock, read without */
	uint32_t buckets;          /* a power of two */
	struct client_map *_Atomic map;
	pthread_mutex_t lock;
	struct map files;
	struct map files_by_id;
	struct list clock; /* second chance: oldest first, used ones go round once more */
	struct list spare; /* structs without a reference */
	struct client_released released[CLIENT_RELEASED_MAX]; /* not reported to a worker yet */
	uint32_t n_released;
	uint32_t count;
	uint32_t max;
};

/* The file that `fd` is open on; `fd` is taken on success, closed when it was known already. */
struct client_file *client_file_get(
	struct client_chunks *chunks, int fd, const struct stat *st, uint64_t id);
/* The file of that id, with a reference more, or NULL. */
struct client_file *client_file_find_locked(struct client_chunks *chunks, uint64_t id);
void client_file_unref(struct client_file *file);

/* Where the chunk is stored in a file of so many bytes. -EBADMSG: in none such. */
int client_chunk_place(const struct chunk_id *id, uint64_t extent_bytes, uint64_t file_bytes,
	struct chunk_place *ret_place) __must_check;
/* Reads its head: -EBADMSG when it is not that chunk's. */
int client_chunk_head(int fd, const struct chunk_id *id, const struct chunk_place *place,
	uint64_t *ret_file) __must_check;

/* With one reference; takes that of the file. NULL without memory. */
struct client_chunk *client_chunk_new(
	const struct chunk_id *id, struct client_file *file, const struct chunk_place *place);

/* NULL is allowed. */
void client_map_unref(struct client_chunks *chunks, struct client_map *map);
/* Finds a chunk in the map that is not known here yet. */
void client_chunk_attach(struct client_chunks *chunks, struct client_chunk *chunk);
/*
 * The chunk as the map of today has it, in place of one that does not go with it; NULL: the cache
 * does not know it any more, or for now. Takes the reference.
 */
struct client_chunk *client_chunk_renew(struct client_chunks *chunks, struct client_chunk *chunk);

void client_chunk_table_free(struct client_piece_table *table); /* NULL is allowed */

/*
 * Into the cache, in place of another of its id. Returns it, or one that is just like it and was
 * there already: then the caller's reference is to that.
 */
struct client_chunk *client_chunks_insert(struct client_chunks *chunks, struct client_chunk *chunk);
/* The cache's reference becomes the caller's. */
void client_chunks_remove_locked(struct client_chunks *chunks, struct client_chunk *chunk);

/* The file behind the number is closed, which is to be reported to a worker. */
void client_released_add_locked(
	struct client_chunks *chunks, struct view_peer *owner, uint64_t number);
/* The last reference to the chunk is gone. */
void client_chunk_release_hold(struct client_chunk *chunk);
