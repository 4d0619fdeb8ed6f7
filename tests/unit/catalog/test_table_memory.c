/* Object tables and listings in little memory: refused when they are opened, or slower; never wrong
 * afterwards, and nothing stays charged. */
#include "tests/unit/catalog/fixture.h"
#include "base/arena.h"
#include "base/units.h"

#include <errno.h>

#define FILES 40000u /* some sixty blocks of 32 KiB */

static const char *path;

static void key_of(unsigned int i, char out[64])
{
	(void)snprintf(out, 64, "directory-%03u/name-%08u-%08x", i / 100, i, i * 2654435761u);
}

static int setup(void **state)
{
	struct listing *l = listing_new(64 * MiB);
	struct generation_stats stats;
	char key[64];
	int r = fixture_setup(state);

	for (unsigned int i = 0; i < FILES; i++) {
		key_of(i, key);
		fixture_add(l, key, 4096 + i, "d41d8cd98f00b204e9800998ecf8427e");
	}
	table_unref(fixture_build(NULL, l, "table", &stats));
	path = strdup(fixture_path("table"));
	return r;
}

static uint64_t used(enum arena_user user)
{
	struct arena_use use;

	arena_use(user, &use);
	return use.used;
}

static void bound(uint64_t bytes)
{
	assert_int_equal(used(ARENA_TABLES), 0);
	arena_open(1 * GiB, NULL);
	arena_share(ARENA_TABLES, 0, bytes);
	assert_int_equal(arena_start_done("--memory", NULL), 0);
}

/* What it takes for as long as it is open. */
static uint64_t table_bytes(void)
{
	struct table *t;
	uint64_t bytes;

	bound(0);
	t = fixture_open(path);
	assert_int_equal(table_reserve(t, NULL), 0);
	bytes = used(ARENA_TABLES);
	assert_int_equal(table_reserve(t, NULL), 0); /* once */
	assert_int_equal(used(ARENA_TABLES), bytes);
	table_unref(t);
	return bytes;
}

static void find_all(struct table *t)
{
	struct table_row row;
	struct table_row there;
	char key[64];

	for (unsigned int i = 0; i < FILES; i += 37) {
		key_of(i, key);
		assert_int_equal(table_find_key(t, key, (uint32_t)strlen(key), &row), 0);
		assert_int_equal(row.size, 4096 + i);
		assert_int_equal(table_find_offset(t, row.offset, &there), 0);
		assert_string_equal(there.key, key);
	}
}

static void no_room_for_its_index(void **state)
{
	struct table *t = NULL;
	struct err e = ERR_INIT;

	(void)state;
	bound(1000);
	assert_int_equal(table_open(open(path, O_RDONLY | O_CLOEXEC), &t, &e), -ENOMEM);
	assert_non_null(strstr(e.text, "give more --memory"));
	assert_null(t);
	assert_int_equal(used(ARENA_TABLES), 0);
}

static void no_room_for_its_order(void **state)
{
	struct table_row row;
	struct err e = ERR_INIT;
	struct table *t;

	(void)state;
	bound(table_bytes() - 1);
	t = fixture_open(path);
	assert_int_equal(table_reserve(t, &e), -ENOMEM);
	assert_non_null(strstr(e.text, "give more --memory"));
	assert_int_equal(table_find_offset(t, 0, &row), -ENOMEM);
	table_unref(t);
	assert_int_equal(used(ARENA_TABLES), 0);
}

/* Room for the order and a few blocks: each is read again and again, and all is found. */
static void no_room_for_its_blocks(void **state)
{
	static const uint64_t more[] = { 100 * KiB, 400 * KiB };

	(void)state;
	for (unsigned int i = 0; i < ARRAY_SIZE(more); i++) {
		uint64_t most = table_bytes() + more[i];
		struct table *t;

		bound(most);
		t = fixture_open(path);
		assert_int_equal(table_reserve(t, NULL), 0);
		find_all(t);
		assert_true(used(ARENA_TABLES) <= most);
		find_all(t);
		table_unref(t);
		assert_int_equal(used(ARENA_TABLES), 0);
	}
}

/* The second of two listings has what the first left, and both are whole. */
static void listings_share(void **state)
{
	struct listing *listings[3];
	uint64_t before = used(ARENA_LISTING);
	char key[64];

	(void)state;
	arena_open(64 * MiB, NULL);
	assert_int_equal(arena_start_done("--memory", NULL), 0);
	for (unsigned int i = 0; i < ARRAY_SIZE(listings); i++) {
		listings[i] = listing_new(40 * MiB);
		assert_int_equal(listing_spill_to(listings[i], fixture_dir, UINT64_MAX), 0);
	}
	assert_true(used(ARENA_LISTING) - before <= 64 * MiB);
	assert_true(used(ARENA_LISTING) - before > 40 * MiB);
	for (unsigned int i = 0; i < ARRAY_SIZE(listings); i++) {
		for (unsigned int k = 0; k < FILES; k++) {
			key_of(k, key);
			fixture_add(listings[i], key, k, "tag");
		}
		assert_int_equal(listing_count(listings[i]), FILES);
		listing_free(listings[i]);
	}
	assert_int_equal(used(ARENA_LISTING), before);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_room_for_its_index),
		cmocka_unit_test(no_room_for_its_order),
		cmocka_unit_test(no_room_for_its_blocks),
		cmocka_unit_test(listings_share),
	};

	return cmocka_run_group_tests(tests, setup, fixture_teardown);
}
