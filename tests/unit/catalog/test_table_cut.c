/* Tables that are cut to a part of their source: rows, offsets, what they are compared by. */
#include "tests/unit/catalog/fixture.h"
#include "base/cleanup.h"

#include <stdlib.h>

DEFINE_CLEANUP(struct table *, table_unref);

static const char *const keys[] = { "a", "a/1", "a/2", "a/b/3", "ab/4", "b/5", "c/6" };
static const struct key_prefixes part_a = { .n = 1, .all = { { "a/", 2 } } };
static const struct key_prefixes part_ac = { .n = 2, .all = { { "a/", 2 }, { "c/", 2 } } };

/* With one object more in each generation, and `left_out` not there any more. */
static struct table *build(struct table *prev, const char *name, const char *added, int left_out)
{
	struct listing *l = listing_new(1 << 20);

	for (int i = 0; i < (int)(sizeof(keys) / sizeof(keys[0])); i++)
		if (i != left_out)
			fixture_add(l, keys[i], 5000, "1");
	if (added)
		fixture_add(l, added, 6000, "1");
	return fixture_build(prev, l, name, NULL);
}

static struct table *cut(
	struct table *whole, const struct key_prefixes *part, const char *name, uint8_t *ret_hash)
{
	struct err e = ERR_INIT;

	assert_int_equal(table_cut(whole, part, fixture_path(name), ret_hash, &e), 0);
	return fixture_open(fixture_path(name));
}

/* As a mount takes it. */
static struct table *taken(struct table *whole, const struct key_prefixes *part, const char *name)
{
	uint8_t hash[SHA256_BYTES];
	struct table *table = cut(whole, part, name, hash);

	assert_int_equal(
		table_take_cut(table, &table_info(whole)->id, hash, key_prefixes_hash(part)), 0);
	return table;
}

/* The rows of `table` are those of `whole` that are in `part`. */
static void check_rows(struct table *whole, struct table *table, const struct key_prefixes *part)
{
	_cleanup_(table_cursor_release) struct table_cursor all = { 0 };
	_cleanup_(table_cursor_release) struct table_cursor some = { 0 };
	_cleanup_free_ struct table_row *a = malloc(sizeof(*a));
	_cleanup_free_ struct table_row *b = malloc(sizeof(*b));
	uint64_t end = 0;

	assert_true(a && b);
	while (table_next(whole, &all, a) == 0) {
		if (!key_prefixes_have(part, a->key, a->key_len))
			continue;
		assert_int_equal(table_next(table, &some, b), 0);
		assert_string_equal(a->key, b->key);
		assert_true(a->offset == b->offset && a->size == b->size && a->flags == b->flags);
		assert_true(a->died == b->died && a->mtime_ns == b->mtime_ns);
		assert_int_equal(table_find_offset(table, a->offset, b), 0);
		end = a->offset + 8192 > end ? a->offset + 8192 : end;
	}
	assert_int_equal(table_next(table, &some, b), -ENOENT);
	assert_true(table_info(table)->end == end);
	assert_true(table_info(table)->built_at == table_info(whole)->built_at);
}

static void rows(void **state)
{
	const struct key_prefixes none = { 0 };
	_cleanup_(table_unref_p) struct table *first = build(NULL, "rows-1", NULL, -1);
	_cleanup_(table_unref_p) struct table *whole = build(first, "rows-2", "a/7", 2);
	_cleanup_(table_unref_p) struct table *a = taken(whole, &part_a, "rows-a");
	_cleanup_(table_unref_p) struct table *ac = taken(whole, &part_ac, "rows-ac");
	_cleanup_(table_unref_p) struct table *empty = taken(whole, &none, "rows-none");

	(void)state;
	check_rows(whole, a, &part_a);
	check_rows(whole, ac, &part_ac);
	assert_int_equal(table_info(a)->live_files, 3);
	assert_int_equal(table_info(a)->dead_rows, 1); /* older generations name it */
	assert_int_equal(table_info(empty)->rows, 0);
	assert_int_equal(table_info(empty)->end, 0);
}

/* The same part of the same table is the same file: its pieces may come from two that were made. */
static void same_bytes(void **state)
{
	_cleanup_(table_unref_p) struct table *whole = build(NULL, "same", NULL, -1);
	uint8_t one[SHA256_BYTES];
	uint8_t two[SHA256_BYTES];
	uint8_t other[SHA256_BYTES];

	(void)state;
	table_unref(cut(whole, &part_a, "same-1", one));
	table_unref(cut(whole, &part_a, "same-2", two));
	table_unref(cut(whole, &part_ac, "same-3", other));
	assert_memory_equal(one, two, sizeof(one));
	assert_memory_not_equal(one, other, sizeof(one));
	assert_memory_not_equal(one, table_info(whole)->id.hash, sizeof(one));
}

/* It goes by the id of its generation, and only when it is the table that was announced. */
static void identity(void **state)
{
	_cleanup_(table_unref_p) struct table *whole = build(NULL, "id", NULL, -1);
	const struct generation_id id = table_info(whole)->id;
	struct generation_id later = id;
	uint8_t hash[SHA256_BYTES];
	_cleanup_(table_unref_p) struct table *a = cut(whole, &part_a, "id-a", hash);

	(void)state;
	assert_int_equal(table_take_cut(a, &id, id.hash, 7), -EBADMSG);
	later.generation++;
	assert_int_equal(table_take_cut(a, &later, hash, 7), -EBADMSG);
	assert_int_equal(table_info(a)->part, 0);
	assert_int_equal(table_take_cut(a, &id, hash, 7), 0);
	assert_int_equal(table_info(a)->part, 7);
	assert_memory_equal(&table_info(a)->id, &id, sizeof(id));
}

/* A mount compares generations of its part, of another part, and of the whole. */
static void successors(void **state)
{
	_cleanup_(table_unref_p) struct table *first = build(NULL, "next-1", NULL, -1);
	_cleanup_(table_unref_p) struct table *second = build(first, "next-2", "a/7", 2);
	_cleanup_(table_unref_p) struct table *strange = build(NULL, "next-3", "a/7", 2);
	_cleanup_(table_unref_p) struct table *old = taken(first, &part_a, "next-1a");
	_cleanup_(table_unref_p) struct table *next = taken(second, &part_a, "next-2a");
	_cleanup_(table_unref_p) struct table *wider = taken(second, &part_ac, "next-2ac");
	_cleanup_(table_unref_p) struct table *other = taken(strange, &part_a, "next-3a");
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(generation_check_successor(old, next, &e), 0);
	assert_int_equal(generation_check_successor(old, wider, &e), 0);
	assert_int_equal(generation_check_successor(old, second, &e), 0);
	assert_int_equal(generation_check_successor(first, next, &e), 0);
	assert_int_equal(generation_check_successor(next, old, &e), -ESTALE);
	assert_int_equal(generation_check_successor(old, other, &e), -ESTALE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rows),
		cmocka_unit_test(same_bytes),
		cmocka_unit_test(identity),
		cmocka_unit_test(successors),
	};

	return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
