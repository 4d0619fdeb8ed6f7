/* The hash table: equal hashes, long chains, removal while walking. */
#include "base/map.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

struct item {
	struct map_node node;
	unsigned int key;
};

static struct item *find(const struct map *m, unsigned int key, uint64_t hash)
{
	for (struct map_node *n = map_first(m, hash); n; n = map_next_same(n)) {
		struct item *item = container_of(n, struct item, node);

		if (item->key == key)
			return item;
	}
	return NULL;
}

static void equal_hashes_are_all_found(void **state)
{
	struct item items[3] = { { .key = 0 }, { .key = 1 }, { .key = 2 } };
	struct item neighbour = { .key = 9 };
	struct map m;

	(void)state;
	assert_int_equal(map_init(&m, 1), 0);
	for (unsigned int i = 0; i < 3; i++) {
		map_insert(&m, &items[i].node, 5);
		if (i == 1) /* same bucket, another hash, in the middle of the chain */
			map_insert(&m, &neighbour.node, 5 + (1ull << 40));
	}
	for (unsigned int i = 0; i < 3; i++)
		assert_ptr_equal(find(&m, i, 5), &items[i]);
	assert_null(find(&m, 9, 5));
	assert_ptr_equal(find(&m, 9, 5 + (1ull << 40)), &neighbour);
	assert_null(map_first(&m, 6));

	map_remove(&m, &items[1].node);
	assert_null(find(&m, 1, 5));
	assert_ptr_equal(find(&m, 0, 5), &items[0]);
	assert_ptr_equal(find(&m, 2, 5), &items[2]);
	assert_int_equal(m.count, 3);
	map_release(&m);
	assert_null(map_first(&m, 5)); /* a released map is an empty one */
}

static void more_than_expected_fits(void **state)
{
	static struct item items[5000];
	struct map m;

	(void)state;
	assert_int_equal(map_init(&m, 100), 0);
	assert_int_equal(m.mask + 1, 128);
	for (unsigned int i = 0; i < ARRAY_SIZE(items); i++) {
		items[i].key = i;
		map_insert(&m, &items[i].node, i * 0x9e3779b97f4a7c15ull);
	}
	assert_int_equal(m.count, ARRAY_SIZE(items));
	for (unsigned int i = 0; i < ARRAY_SIZE(items); i += 2)
		map_remove(&m, &items[i].node);
	for (unsigned int i = 0; i < ARRAY_SIZE(items); i++)
		assert_ptr_equal(find(&m, i, i * 0x9e3779b97f4a7c15ull), i % 2 ? &items[i] : NULL);
	assert_int_equal(m.count, ARRAY_SIZE(items) / 2);
	map_release(&m);
}

struct walk {
	struct map *map;
	unsigned int sum;
};

static void drop(struct map_node *node, void *arg)
{
	struct item *item = container_of(node, struct item, node);
	struct walk *walk = arg;

	walk->sum += item->key;
	map_remove(walk->map, node);
	test_free(item);
}

static void a_walk_may_free_what_it_is_given(void **state)
{
	struct map m;
	struct walk walk = { .map = &m };

	(void)state;
	assert_int_equal(map_init(&m, 16), 0);
	for (unsigned int i = 1; i <= 100; i++) {
		struct item *item = test_malloc(sizeof(*item));

		item->key = i;
		map_insert(&m, &item->node, i % 7);
	}
	map_each(&m, drop, &walk);
	assert_int_equal(walk.sum, 5050);
	assert_int_equal(m.count, 0);
	map_release(&m);
	map_each(&m, drop, &walk);
	assert_int_equal(walk.sum, 5050);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(equal_hashes_are_all_found),
		cmocka_unit_test(more_than_expected_fits),
		cmocka_unit_test(a_walk_may_free_what_it_is_given),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
