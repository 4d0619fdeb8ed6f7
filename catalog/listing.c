/*
 * The objects of a source: an arena of objects and an array of pointers to them, sorted once at the
 * end. About 80 bytes an object with names of 28 bytes, the array for sorting included. When the
 * memory is full, and there is a directory for that, they go to disk as a sorted run (spill.h), and
 * the memory is filled again.
 */
#include "catalog/catalog_internal.h"
#include "catalog/spill.h"
#include "base/arena.h"
#include "base/cleanup.h"
#include "base/units.h"

#include <stdlib.h>

#define LISTING_MAGIC 0x4c495354u /* "LIST" */
#define ARENA_BYTES   (256 * KiB)
#define FIRST_OBJECTS 1024u
#define RESERVE_LEAST (4 * MiB)

struct arena {
	struct arena *next;
	uint64_t used;
	char bytes[ARENA_BYTES] __attribute__((aligned(8)));
};

struct listing {
	uint32_t magic;
	uint64_t max_memory;
	uint64_t reserved; /* of the process' arena */
	uint64_t memory;   /* charged: arenas, the array, and a second one for sorting */
	uint64_t count;    /* in memory */
	uint64_t cap;
	struct listing_object **objects;
	struct arena *arenas;
	struct arena *spare;   /* emptied by a spill */
	struct spill *spill;   /* NULL: what does not fit is refused */
	uint64_t spilled;      /* objects that went to disk */
	struct err spill_line; /* of the spill that failed */
	uint64_t next;         /* in memory: of listing_next() */
};

struct listing *listing_new(uint64_t max_memory)
{
	struct listing *l = calloc(1, sizeof(*l));

	if (!l)
		return NULL;
	l->magic = LISTING_MAGIC;
	l->max_memory = max_memory;
	return l;
}

/* Half as much for as long as the process' memory has no more; the rest goes to disk. */
static void reserve(struct listing *l)
{
	while (l->max_memory > RESERVE_LEAST &&
		!arena_take(ARENA_LISTING, BUDGET_DEMAND, l->max_memory))
		l->max_memory = max(l->max_memory / 2, RESERVE_LEAST);
	if (l->max_memory <= RESERVE_LEAST)
		arena_must(ARENA_LISTING, l->max_memory);
	l->reserved = l->max_memory;
}

int listing_spill_to(struct listing *l, const char *directory, uint64_t max_bytes)
{
	CHECK_MAGIC(l, LISTING_MAGIC);
	ensure(!l->spill);
	l->spill = spill_new(directory, max_bytes);
	if (!l->spill)
		return -ENOMEM;
	reserve(l);
	return 0;
}

static void arenas_free(struct arena **list)
{
	while (*list) {
		struct arena *a = *list;

		*list = a->next;
		free(a);
	}
}

static void memory_free(struct listing *l)
{
	arenas_free(&l->arenas);
	arenas_free(&l->spare);
	free(l->objects);
	l->objects = NULL;
	l->count = 0;
	l->cap = 0;
	l->memory = 0;
}

void listing_free(struct listing *l)
{
	if (!l)
		return;
	CHECK_MAGIC(l, LISTING_MAGIC);
	memory_free(l);
	spill_free(l->spill);
	arena_give(ARENA_LISTING, l->reserved);
	l->magic = 0;
	free(l);
}

static int charge(struct listing *l, uint64_t bytes)
{
	if (bytes > l->max_memory - l->memory)
		return -E2BIG;
	l->memory += bytes;
	return 0;
}

static int objects_grow(struct listing *l)
{
	uint64_t cap = l->cap ? l->cap + l->cap / 2 : FIRST_OBJECTS;
	struct listing_object **objects;
	int r = charge(l, 2 * (cap - l->cap) * sizeof(*objects));

	if (r < 0)
		return r;
	objects = realloc(l->objects, cap * sizeof(*objects));
	if (!objects)
		return -ENOMEM;
	l->objects = objects;
	l->cap = cap;
	return 0;
}

/* A spare one, else a new one. */
static int arena_new(struct listing *l, struct arena **ret_arena)
{
	struct arena *a = l->spare;
	int r;

	if (a) {
		l->spare = a->next;
		*ret_arena = a;
		return 0;
	}
	r = charge(l, sizeof(*a));
	if (r < 0)
		return r;
	a = malloc(sizeof(*a));
	if (!a)
		return -ENOMEM;
	*ret_arena = a;
	return 0;
}

static int arena_cut(struct listing *l, size_t bytes, struct listing_object **ret_object)
{
	struct arena *a = l->arenas;

	bytes = align_up(bytes, _Alignof(struct listing_object));
	if (!a || bytes > ARENA_BYTES - a->used) {
		int r = arena_new(l, &a);

		if (r < 0)
			return r;
		a->next = l->arenas;
		a->used = 0;
		l->arenas = a;
	}
	*ret_object = (struct listing_object *)(void *)(a->bytes + a->used);
	a->used += bytes;
	return 0;
}

static int object_compare(const void *a, const void *b, const void *arg)
{
	const struct listing_object *x = *(struct listing_object *const *)a;
	const struct listing_object *y = *(struct listing_object *const *)b;

	(void)arg;
	return key_compare(x->bytes, x->key_len, y->bytes, y->key_len);
}

/* What is in memory: by key, one object a key. */
static int memory_sort(struct listing *l)
{
	uint64_t kept = 0;
	int r;

	r = sort_runs(l->objects, l->count, sizeof(*l->objects), object_compare, NULL);
	if (r < 0)
		return r;
	for (uint64_t i = 0; i < l->count; i++) {
		struct listing_object *object = l->objects[i];

		if (kept == 0 || object_compare(&l->objects[kept - 1], &object, NULL) != 0)
			l->objects[kept++] = object;
		else if (object->mtime_ns >= l->objects[kept - 1]->mtime_ns)
			l->objects[kept - 1] = object;
	}
	l->count = kept;
	return 0;
}

/* What is in memory goes to disk; the memory stays, empty. */
static int memory_spill(struct listing *l)
{
	uint64_t added = l->count;
	int r = memory_sort(l);

	if (r < 0)
		return r;
	r = spill_add(l->spill, l->objects, l->count);
	if (r == -EOVERFLOW)
		return err_set(&l->spill_line, r,
			"the listing exceeds its space limit in %s: mount a prefix of the source, "
			"or give the master more --listing-disk",
			spill_directory(l->spill));
	if (r < 0 && r != -ENOMEM)
		return err_set(&l->spill_line, r,
			"cannot write a listing that does not fit the memory to %s: %s: check the "
			"disk of the cache, or give more --memory",
			spill_directory(l->spill), err_str(r));
	if (r < 0)
		return r;
	l->spilled += added;
	l->count = 0;
	while (l->arenas) {
		struct arena *a = l->arenas;

		l->arenas = a->next;
		a->next = l->spare;
		l->spare = a;
	}
	return 0;
}

/* Room for an object of `bytes`, and for its pointer. */
static int object_take(struct listing *l, size_t bytes, struct listing_object **ret_object)
{
	int r = l->count == l->cap ? objects_grow(l) : 0;

	return r < 0 ? r : arena_cut(l, bytes, ret_object);
}

int listing_add(struct listing *l, const char *key, uint32_t key_len, uint64_t size,
	int64_t mtime_ns, const char *tag, uint32_t tag_len)
{
	struct listing_object *object = NULL;
	struct tag_packed packed;
	size_t bytes;
	int r;

	CHECK_MAGIC(l, LISTING_MAGIC);
	if (key_len == 0 || key_len > LIMIT_KEY_BYTES || memchr(key, 0, key_len) ||
		tag_len > LIMIT_TAG_BYTES || memchr(tag, 0, tag_len))
		return -EINVAL;
	if (listing_count(l) >= LIMIT_FILES)
		return -E2BIG;
	tag_pack(tag, tag_len, &packed);
	bytes = offsetof(struct listing_object, bytes) + key_len + packed.len;
	r = object_take(l, bytes, &object);
	if (r == -E2BIG && l->spill && l->count > 0) {
		r = memory_spill(l);
		if (r == 0)
			r = object_take(l, bytes, &object);
	}
	if (r < 0)
		return r;
	ensure(object);
	object->size = key[key_len - 1] == '/' ? 0 : size; /* a marker's bytes have no name */
	object->mtime_ns = mtime_ns;
	object->key_len = (uint16_t)key_len;
	object->tag_len = packed.len;
	memcpy(object->bytes, key, key_len);
	memcpy(object->bytes + key_len, packed.bytes, packed.len);
	l->objects[l->count++] = object;
	return 0;
}

uint64_t listing_count(const struct listing *l)
{
	CHECK_MAGIC(l, LISTING_MAGIC);
	return l->spilled + l->count;
}

bool listing_spill_failed(const struct listing *l, struct err *e)
{
	CHECK_MAGIC(l, LISTING_MAGIC);
	if (l->spill_line.code && e)
		*e = l->spill_line;
	return l->spill_line.code != 0;
}

int listing_sort(struct listing *l)
{
	int r = 0;

	CHECK_MAGIC(l, LISTING_MAGIC);
	if (l->spilled == 0) {
		r = memory_sort(l);
	} else if (l->count > 0) {
		r = memory_spill(l);
		memory_free(l);
	}
	return r < 0 ? r : listing_rewind(l);
}

int listing_rewind(struct listing *l)
{
	l->next = 0;
	return l->spilled ? spill_rewind(l->spill) : 0;
}

int listing_next(struct listing *l, const struct listing_object **ret_object)
{
	if (l->spilled)
		return spill_next(l->spill, ret_object);
	if (l->next == l->count)
		return -ENOENT;
	*ret_object = l->objects[l->next++];
	return 0;
}
