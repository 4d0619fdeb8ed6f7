/*
 * Descriptors of chunk files, opened on demand and kept in an LRU bounded from RLIMIT_NOFILE. A
 * descriptor in use is pinned; more files than the bound are open only while that many threads do
 * I/O at once.
 *
 * `struct descriptor` embeds into its chunk, or into its extent, whose chunks share it. Threads:
 * any; files are opened and closed outside the lock.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/list.h"
#include "tiers/chunk_file_internal.h"

struct descriptor {
	struct list link; /* in the LRU while open and not pinned */
	struct chunk_fds fds;
	uint32_t pins;
	bool opening; /* one thread opens or closes, the others wait */
};

struct descriptor_cache {
	pthread_mutex_t lock; /* also of every descriptor's fields */
	pthread_cond_t opened;
	struct list lru; /* least recently used first */
	uint32_t open;   /* files */
	uint32_t max;
};

/* `max_files` 0: LIMIT_CHUNK_FDS or a quarter of RLIMIT_NOFILE in descriptors, two a file. */
void descriptor_cache_init(struct descriptor_cache *cache, uint32_t max_files);
void descriptor_cache_release(struct descriptor_cache *cache); /* all descriptors closed */

void descriptor_init(struct descriptor *d);
/* Takes over the files of a chunk just made; unpinned afterwards. */
void descriptor_adopt(struct descriptor_cache *cache, struct descriptor *d, struct chunk_fds *fds);
/* Opens by `open_file` when needed, pins; its error. */
int descriptor_pin(struct descriptor_cache *cache, struct descriptor *d,
	int (*open_file)(void *arg, struct chunk_fds *ret_fds), void *arg) __must_check;
/* Pins it when it is open: -EAGAIN when it is not, or is being opened. Never waits for the disk. */
int descriptor_pin_open(struct descriptor_cache *cache, struct descriptor *d) __must_check;
void descriptor_unpin(struct descriptor_cache *cache, struct descriptor *d);
/* Closes a descriptor that is not pinned. */
void descriptor_close(struct descriptor_cache *cache, struct descriptor *d);
