/* Intrusive doubly linked list, after the kernel's: the head is a node; an unlinked node points to
 * itself. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include "base/check.h"

struct list {
	struct list *prev;
	struct list *next;
};

#define LIST_INIT(head)                          \
	{                                        \
		.prev = &(head), .next = &(head) \
	}

static inline void list_init(struct list *node)
{
	node->prev = node;
	node->next = node;
}

static inline bool list_empty(const struct list *head)
{
	return head->next == head;
}

static inline void list_insert_before(struct list *at, struct list *node)
{
	node->prev = at->prev;
	node->next = at;
	at->prev->next = node;
	at->prev = node;
}

static inline void list_push_back(struct list *head, struct list *node)
{
	list_insert_before(head, node);
}

static inline void list_push_front(struct list *head, struct list *node)
{
	list_insert_before(head->next, node);
}

/* Unlinks a node, which may be unlinked already. */
static inline void list_remove(struct list *node)
{
	node->prev->next = node->next;
	node->next->prev = node->prev;
	list_init(node);
}

/* The first node, unlinked; NULL from an empty list. */
static inline struct list *list_pop_front(struct list *head)
{
	struct list *node = head->next;

	if (node == head)
		return NULL;
	list_remove(node);
	return node;
}

/* Moves all nodes of `from` to the end of `to`; `from` is empty afterwards. */
static inline void list_splice_back(struct list *to, struct list *from)
{
	if (list_empty(from))
		return;
	from->next->prev = to->prev;
	to->prev->next = from->next;
	from->prev->next = to;
	to->prev = from->prev;
	list_init(from);
}

#define list_entry(node, type, member) container_of(node, type, member)
#define list_for_each(node, head) \
	for (struct list *node = (head)->next; node != (head); node = node->next)
/* The current node may be unlinked or freed in the body. */
#define list_for_each_safe(node, head)                                                    \
	for (struct list *node = (head)->next, *node##_next = node->next; node != (head); \
		node = node##_next, node##_next = node->next)
