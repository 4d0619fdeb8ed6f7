/*
 * Keeps the chunk map for readers on this node (locate/chunk_map.h) in step with the chunks of a
 * set: live chunks with their clean pieces. Every change calls publish_chunk() after it was made,
 * or publish_gone() before the file goes; each looks at the chunk under the lock, so that the last
 * call leaves what is true then, whichever change came first.
 *
 * Threads: any. `publish.lock` is a leaf.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include "locate/chunk_map.h"

struct chunk;
struct tier_set;

struct publish {
	pthread_mutex_t lock;
	struct chunk_map_writer *_Atomic writer; /* NULL: there is no reader */
	uint64_t bytes;                          /* of its map */
};

void publish_init(struct publish *publish);
void publish_release(struct publish *publish);

/* What is clean of the chunk, or where it lies, changed. */
void publish_chunk(struct chunk *chunk);
/* The chunk is UNLINKING. */
void publish_gone(struct chunk *chunk);
/* Says which tiers are in service. */
void publish_tiers(struct tier_set *set);
