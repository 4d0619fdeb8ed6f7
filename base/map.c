/* Intrusive hash table. See map.h. */
#include "base/map.h"

#include <errno.h>
#include <stdlib.h>

int map_init(struct map *m, size_t expected)
{
	size_t n = 16;

	while (n < expected && n < (1ull << 32))
		n *= 2;
	*m = (struct map){ .buckets = calloc(n, sizeof(*m->buckets)), .mask = n - 1 };
	return m->buckets ? 0 : -ENOMEM;
}

void map_release(struct map *m)
{
	free(m->buckets);
	*m = (struct map){ 0 };
}

void map_insert(struct map *m, struct map_node *node, uint64_t hash)
{
	struct map_node **b = &m->buckets[hash & m->mask];

	node->hash = hash;
	node->next = *b;
	*b = node;
	m->count++;
}

void map_remove(struct map *m, struct map_node *node)
{
	struct map_node **p = &m->buckets[node->hash & m->mask];

	while (*p && *p != node)
		p = &(*p)->next;
	ensure(*p == node);
	*p = node->next;
	node->next = NULL;
	m->count--;
}

struct map_node *map_first(const struct map *m, uint64_t hash)
{
	struct map_node *n = m->buckets ? m->buckets[hash & m->mask] : NULL;

	while (n && n->hash != hash)
		n = n->next;
	return n;
}

struct map_node *map_next_same(const struct map_node *node)
{
	struct map_node *n = node->next;

	while (n && n->hash != node->hash)
		n = n->next;
	return n;
}

void map_each(struct map *m, void (*fn)(struct map_node *node, void *arg), void *arg)
{
	for (size_t i = 0; m->buckets && i <= m->mask; i++) {
		struct map_node *next;

		for (struct map_node *n = m->buckets[i]; n; n = next) {
			next = n->next;
			fn(n, arg);
		}
	}
}
