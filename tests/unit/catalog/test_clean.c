/*
 * Cleaning and forgetting over many generations: dead bytes stay bounded, tables do not grow, what
 * is retained is named, and every guard accepts what was built.
 */
#include "tests/unit/catalog/fixture.h"
#include "catalog/catalog_internal.h"
#include "catalog/clean.h"

#define CHUNK_OBJECTS 64u /* of 256 KiB fill a chunk */
#define CHUNKS        24u
#define OBJECTS       (CHUNKS * CHUNK_OBJECTS)
#define OBJECT_BYTES  (CHUNK_BYTES / CHUNK_OBJECTS)
#define GENERATIONS   20u

static void put_key(char out[16], uint32_t i)
{
	(void)snprintf(out, 16, "k%06u", i);
}

static struct listing *list(const uint32_t *versions)
{
	struct listing *l = listing_new(16 << 20);

	for (uint32_t i = 0; i < OBJECTS; i++) {
		char key[16];
		char tag[16];

		put_key(key, i);
		(void)snprintf(tag, sizeof(tag), "%u", versions[i]);
		fixture_add(l, key, OBJECT_BYTES, tag);
	}
	return l;
}

/* What a worker that read everything holds: the chunks in which one of the generations names a row;
 * and how many of those bytes are named. */
static uint64_t held_bytes(struct table *t, const struct generation_retained *retained, uint32_t n,
	uint64_t *ret_named)
{
	static bool chunks[64 * CHUNKS];
	struct table_cursor cursor = { 0 };
	static struct table_row row;
	uint64_t held = 0;

	assert_true(table_info(t)->end / CHUNK_BYTES < ARRAY_SIZE(chunks));
	memset(chunks, 0, sizeof(chunks));
	*ret_named = 0;
	while (table_next(t, &cursor, &row) == 0)
		if (row_has_bytes(&row) && generation_names(retained, n, &row)) {
			chunks[row.offset / CHUNK_BYTES] = true;
			*ret_named += row.size;
		}
	table_cursor_release(&cursor);
	for (uint64_t at = 0; at < table_info(t)->end; at += CHUNK_BYTES)
		if (chunks[at / CHUNK_BYTES])
			held += min(table_info(t)->end - at, (uint64_t)CHUNK_BYTES);
	return held;
}

/* Every live row of `old` lies in `t`, at the same offset. */
static void check_retained(struct table *old, struct table *t)
{
	struct table_cursor cursor = { 0 };
	static struct table_row row;
	static struct table_row now;

	while (table_next(old, &cursor, &row) == 0) {
		if (row.flags & ROW_DEAD)
			continue;
		assert_int_equal(table_find_offset(t, row.offset, &now), 0);
		assert_int_equal(now.offset, row.offset);
		assert_string_equal(now.key, row.key);
		assert_string_equal(now.tag, row.tag);
	}
	table_cursor_release(&cursor);
}

/* A tenth changes each time; the first generation stays mounted when `mounted`. */
static void run_generations(uint64_t seed, bool mounted)
{
	static uint32_t versions[OBJECTS];
	struct table *first;
	struct table *prev;
	uint64_t held = 0;
	uint64_t named = 0;
	uint64_t cleaned = 0;

	memset(versions, 0, sizeof(versions));
	first = prev = fixture_build(NULL, list(versions), "clean-1", NULL);
	for (uint32_t i = 2; i <= GENERATIONS; i++) {
		struct generation_retained retained[2] = { { i - 1, table_info(prev)->end },
			{ 1, table_info(first)->end } };
		uint32_t n = mounted ? 2 : 1;
		struct generation_stats stats;
		struct err e = ERR_INIT;
		struct listing *l;
		struct table *t;
		char name[32];

		for (uint32_t k = 0; k < OBJECTS / 10; k++)
			versions[fixture_random(&seed) % OBJECTS]++;
		(void)snprintf(name, sizeof(name), "clean-%u", i);
		l = list(versions);
		assert_int_equal(generation_build_retained(&fixture_volume, prev, retained, n, l,
					 fixture_path(name), NULL, &stats, &e),
			0);
		listing_free(l);
		t = fixture_open(fixture_path(name));
		if (generation_check_successor(prev, t, &e) < 0)
			fail_msg("generation %u: %s", i, e.text);
		assert_int_equal(generation_check_successor(first, t, &e), 0);
		check_retained(prev, t);
		if (mounted)
			check_retained(first, t);
		assert_true(stats.cleaned * CLEAN_SHARE <= OBJECTS);
		assert_int_equal(stats.kept + stats.changed, OBJECTS);
		cleaned += stats.cleaned;
		retained[1] = (struct generation_retained){ i, table_info(t)->end };
		held = held_bytes(t, retained, 2, &named);
		if (prev != first)
			table_unref(prev);
		prev = t;
	}
	assert_true(cleaned > OBJECTS / 2);
	print_message("held %lu, named %lu, live %lu MiB; cleaned %lu of %u objects\n", held >> 20,
		named >> 20, table_info(prev)->live_bytes >> 20, cleaned, OBJECTS);
	assert_true((held - named) * 100 < 20 * held);
	assert_true((held - table_info(prev)->live_bytes) * 100 < 35 * held);
	/* A tombstone is one generation's change and cleaning, and what the first names. */
	assert_true(table_info(prev)->dead_rows <= OBJECTS / 4 + (mounted ? OBJECTS : 0));
	table_unref(prev);
	table_unref(first);
}

static void bounded(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 3; seed++)
		run_generations(seed * 7919, false);
}

static void with_an_old_mount(void **state)
{
	(void)state;
	run_generations(42, true);
}

/* The same listing after the same generation is the same table. */
static void deterministic(void **state)
{
	static uint32_t versions[OBJECTS];
	struct table *t[2];
	struct table *first = fixture_build(NULL, list(versions), "d1", NULL);

	(void)state;
	for (uint32_t i = 0; i < OBJECTS; i += 2)
		versions[i]++;
	for (int k = 0; k < 2; k++) {
		struct generation_stats stats;

		t[k] = fixture_build(first, list(versions), k ? "d2" : "d3", &stats);
		assert_int_equal(stats.cleaned, 3 * CHUNK_OBJECTS / 2); /* what fits a seventh */
	}
	for (uint32_t i = 0; i < OBJECTS; i++) {
		static struct table_row a;
		static struct table_row b;
		char key[16];

		put_key(key, i);
		assert_int_equal(table_find_key(t[0], key, 7, &a), 0);
		assert_int_equal(table_find_key(t[1], key, 7, &b), 0);
		assert_int_equal(a.offset, b.offset);
	}
	for (int k = 0; k < 2; k++)
		table_unref(t[k]);
	table_unref(first);
}

/* What clean_choose() takes, over chunks with so many live blocks. */
static void choose(void **state)
{
	struct clean c;

	(void)state;
	assert_int_equal(clean_init(&c, 5ull * CHUNK_BYTES + 1), 0);
	clean_live(&c, 0, CHUNK_BYTES);    /* full */
	clean_live(&c, CHUNK_BYTES, 4096); /* one block */
	clean_live(&c, 2ull * CHUNK_BYTES, CHUNK_BYTES / 2);
	clean_live(&c, 3ull * CHUNK_BYTES, 8192);
	clean_live(&c, 4ull * CHUNK_BYTES, CHUNK_BYTES * 3 / 4); /* a quarter dead stays */
	clean_live(&c, 5ull * CHUNK_BYTES, 1);                   /* being filled */
	clean_choose(&c);
	assert_int_equal(c.chosen, 2); /* the half dead one is more than the budget */
	assert_false(clean_take(&c, 0, CHUNK_BYTES));
	assert_true(clean_take(&c, CHUNK_BYTES, 4096));
	assert_false(clean_take(&c, 2ull * CHUNK_BYTES, CHUNK_BYTES / 2));
	assert_true(clean_take(&c, 3ull * CHUNK_BYTES, 8192));
	assert_false(clean_take(&c, 4ull * CHUNK_BYTES, 4096));
	assert_false(clean_take(&c, 5ull * CHUNK_BYTES, 1));
	clean_release(&c);
	/* An object of many chunks stays with its dead end; one of less than a chunk goes. */
	assert_int_equal(clean_init(&c, 40ull * CHUNK_BYTES), 0);
	clean_live(&c, CHUNK_BYTES / 8 * 7ull, 20ull * CHUNK_BYTES);
	clean_live(&c, 30ull * CHUNK_BYTES - 4096, 1 << 20 | 4096);
	clean_choose(&c);
	assert_false(clean_take(&c, CHUNK_BYTES / 8 * 7ull, 20ull * CHUNK_BYTES));
	assert_true(clean_take(&c, 30ull * CHUNK_BYTES - 4096, 1 << 20 | 4096));
	clean_release(&c);
	/* So large that it is left alone. */
	assert_int_equal(clean_init(&c, CLEAN_VOLUME_MAX + 1), 0);
	clean_live(&c, 0, 4096);
	clean_choose(&c);
	assert_false(clean_take(&c, 0, 4096));
	clean_release(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bounded),
		cmocka_unit_test(with_an_old_mount),
		cmocka_unit_test(deterministic),
		cmocka_unit_test(choose),
	};

	return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
