/*
 * The objects of a source in memory: an arena of objects and an array of pointers to them, sorted
 * once at the end. About 80 bytes an object with names of 28 bytes, the array for sorting included.
 */
#include "catalog/catalog_internal.h"
#include "base/cleanup.h"
#include "base/units.h"

#include <stdlib.h>

#define LISTING_MAGIC 0x4c495354u /* "LIST" */
#define ARENA_BYTES   (256 * KiB)
#define FIRST_OBJECTS 1024u

struct arena {
	struct arena *next;
	uint64_t used;
	char bytes[ARENA_BYTES] __attribute__((aligned(8)));
};

struct listing {
	uint32_t magic;
	uint64_t max_memory;
	uint64_t memory; /* charged: arenas, the array, and a second one for sorting */
	uint64_t count;
	uint64_t cap;
	struct listing_object **objects;
	struct arena *arenas;
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

void listing_free(struct listing *l)
{
	if (!l)
		return;
	CHECK_MAGIC(l, LISTING_MAGIC);
	while (l->arenas) {
		struct arena *a = l->arenas;

		l->arenas = a->next;
		free(a);
	}
	free(l->objects);
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

static int arena_take(struct listing *l, size_t bytes, struct listing_object **ret_object)
{
	struct arena *a = l->arenas;

	bytes = align_up(bytes, _Alignof(struct listing_object));
	if (!a || bytes > ARENA_BYTES - a->used) {
		int r = charge(l, sizeof(*a));

		if (r < 0)
			return r;
		a = malloc(sizeof(*a));
		if (!a)
			return -ENOMEM;
		a->next = l->arenas;
		a->used = 0;
		l->arenas = a;
	}
	*ret_object = (struct listing_object *)(void *)(a->bytes + a->used);
	a->used += bytes;
	return 0;
}

int listing_add(struct listing *l, const char *key, uint32_t key_len, uint64_t size,
	int64_t mtime_ns, const char *tag, uint32_t tag_len)
{
	struct listing_object *object = NULL;
	struct tag_packed packed;
	int r;

	CHECK_MAGIC(l, LISTING_MAGIC);
	if (key_len == 0 || key_len > LIMIT_KEY_BYTES || memchr(key, 0, key_len) ||
		tag_len > LIMIT_TAG_BYTES || memchr(tag, 0, tag_len))
		return -EINVAL;
	if (l->count >= LIMIT_FILES)
		return -E2BIG;
	if (l->count == l->cap && (r = objects_grow(l)) < 0)
		return r;
	tag_pack(tag, tag_len, &packed);
	r = arena_take(l, offsetof(struct listing_object, bytes) + key_len + packed.len, &object);
	if (r < 0)
		return r;
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
	return l->count;
}

const struct listing_object *listing_get(const struct listing *l, uint64_t number)
{
	return l->objects[number];
}

static int object_compare(const void *a, const void *b, const void *arg)
{
	const struct listing_object *x = *(struct listing_object *const *)a;
	const struct listing_object *y = *(struct listing_object *const *)b;

	(void)arg;
	return key_compare(x->bytes, x->key_len, y->bytes, y->key_len);
}

int listing_sort(struct listing *l)
{
	uint64_t kept = 0;
	int r;

	CHECK_MAGIC(l, LISTING_MAGIC);
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
