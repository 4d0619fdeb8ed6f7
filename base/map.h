/*
 * Intrusive hash table with chaining: the caller embeds `struct map_node` and compares keys itself.
 *
 * The number of buckets is set at map_init from the maximum number of entries and never changes, so
 * no insertion allocates. Not thread-safe: the owner's lock covers it.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include "base/check.h"

struct map_node {
	struct map_node *next;
	uint64_t hash;
};

struct map {
	struct map_node **buckets;
	size_t mask; /* buckets - 1 */
	size_t count;
};

/* Room for about `expected` entries (more only makes chains longer). -ENOMEM. */
int map_init(struct map *m, size_t expected) __must_check;
void map_release(struct map *m); /* entries are the caller's */

void map_insert(
	struct map *m, struct map_node *node, uint64_t hash); /* duplicates are the caller's care */
void map_remove(struct map *m, struct map_node *node);        /* must be in the map */

/* First node with that hash, then the following ones; NULL at the end. */
struct map_node *map_first(const struct map *m, uint64_t hash);
struct map_node *map_next_same(const struct map_node *node);

/* Calls fn for every node; fn may remove and free the node it is given. */
void map_each(struct map *m, void (*fn)(struct map_node *node, void *arg), void *arg);
