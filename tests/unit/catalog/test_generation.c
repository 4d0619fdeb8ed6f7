/*
 * Generations against a model: random buckets that change, 30 generations each, and after every
 * one: the live rows are the bucket's, what did not change kept its offset, no offset ever means
 * another (key, tag), the hashes chain, and the guard lets each generation follow each earlier one.
 * Then: what the guard must refuse.
 */
#include "tests/unit/catalog/fixture.h"
#include "catalog/catalog_internal.h"

#define MODEL_KEYS        400
#define MODEL_GENERATIONS 30
#define MODEL_GIVEN       100000

struct model_object {
	bool present;
	uint64_t size;
	uint32_t tag;
	int64_t mtime_ns;
	uint64_t offset; /* in the last generation; valid with `laid_tag` */
	uint32_t laid_tag;
	uint64_t laid_size;
	bool laid; /* was live in the last generation */
};

/* What an offset was given to, for ever. */
struct given {
	uint64_t offset;
	uint64_t size;
	uint32_t key;
	uint32_t tag;
};

struct model {
	uint64_t seed;
	struct model_object objects[MODEL_KEYS];
	struct given given[MODEL_GIVEN];
	uint32_t n_given;
	uint64_t moved; /* bytes, by cleaning */
};

static uint32_t model_key(char *out, size_t size, uint32_t k)
{
	/* Neighbours in the order of bytes, directories and markers among them. */
	return (uint32_t)snprintf(out, size,
		k % 17 == 0 ? "d%u/"
		: k % 5     ? "d%u/k-%u"
			    : "d%u/k/%u",
		k % 23, k);
}

static uint32_t model_tag(char *out, size_t size, uint32_t tag)
{
	return (uint32_t)snprintf(out, size, tag % 3 ? "\"%032x\"" : "v%u", tag);
}

static void model_change(struct model *m, uint32_t percent)
{
	for (uint32_t k = 0; k < MODEL_KEYS; k++) {
		struct model_object *o = &m->objects[k];

		if (fixture_random(&m->seed) % 100 >= percent)
			continue;
		switch (fixture_random(&m->seed) % 4) {
		case 0:
			o->present = false;
			break;
		case 1: /* comes back as it was, or for the first time */
			o->present = true;
			break;
		case 2:
			o->present = true;
			o->mtime_ns++;
			break;
		default:
			o->present = true;
			o->tag =
				(uint32_t)(fixture_random(&m->seed) % 5); /* few: old tags return */
			o->size = (o->tag * 7919 + k * 31) % 3 == 0
					  ? 0
					  : (uint64_t)(o->tag + 1) * (k * 4000 + 1);
			break;
		}
	}
}

static bool model_is_directory(uint32_t k)
{
	return k % 17 == 0;
}

static struct listing *model_listing(struct model *m)
{
	struct listing *l = listing_new(16 << 20);

	for (uint32_t i = 0; i < MODEL_KEYS; i++) {
		uint32_t k = (uint32_t)((uint64_t)i * 7 % MODEL_KEYS);
		struct model_object *o = &m->objects[k];
		char key[64];
		char tag[64];
		uint32_t key_len = model_key(key, sizeof(key), k);
		uint32_t tag_len = model_tag(tag, sizeof(tag), o->tag);

		if (o->present)
			assert_int_equal(
				listing_add(l, key, key_len, o->size, o->mtime_ns, tag, tag_len),
				0);
	}
	return l;
}

/* Records that `offset` belongs to (key, tag); it must not have belonged to another, nor overlap
 * one. */
static void model_give(struct model *m, const struct table_row *row, uint32_t key, uint32_t tag)
{
	uint64_t end = layout_after(row->offset, row->size);

	for (uint32_t i = 0; i < m->n_given; i++) {
		const struct given *g = &m->given[i];

		if (g->offset == row->offset && g->key == key && g->tag == tag &&
			g->size == row->size)
			return;
		if (row->offset < layout_after(g->offset, g->size) && g->offset < end)
			fail_msg("offset %lu given to key %u tag %u and to key %u tag %u",
				row->offset, g->key, g->tag, key, tag);
	}
	assert_true(m->n_given < MODEL_GIVEN);
	m->given[m->n_given++] = (struct given){ row->offset, row->size, key, tag };
}

static uint32_t row_tag_number(const struct table_row *row)
{
	return row->tag[0] == 'v' ? (uint32_t)strtoul(row->tag + 1, NULL, 10)
				  : (uint32_t)strtoul(row->tag + 1, NULL, 16);
}

static uint32_t row_key_number(const struct table_row *row)
{
	const char *p = row->key + row->key_len;

	while (p[-1] >= '0' && p[-1] <= '9')
		p--;
	return (uint32_t)strtoul(p, NULL, 10);
}

/* Unchanged and yet elsewhere: at the end, and the old place is a tombstone of the same bytes. */
static void model_check_moved(
	struct table *t, uint64_t prev_end, uint64_t old, const struct table_row *row)
{
	static struct table_row dead;
	static struct table_row twin;
	uint32_t at = 0;
	bool found = false;

	assert_true(row->offset >= prev_end);
	assert_int_equal(table_find_offset(t, old, &dead), 0);
	assert_true(dead.flags & ROW_DEAD);
	assert_int_equal(dead.died, table_info(t)->id.generation);
	assert_string_equal(dead.tag, row->tag);
	while (table_find_twin(t, row, &at, &twin) == 0)
		found |= twin.offset == old;
	assert_true(found);
}

static void model_check_live(
	struct model *m, struct table *t, uint64_t prev_end, struct generation_stats *expected)
{
	static struct table_row row;
	uint64_t moved = 0;
	uint64_t live = 0;

	memset(expected, 0, sizeof(*expected));
	for (uint32_t k = 0; k < MODEL_KEYS; k++) {
		struct model_object *o = &m->objects[k];
		char key[64];
		uint32_t len = model_key(key, sizeof(key), k);
		bool same = o->laid && o->laid_tag == o->tag &&
			    o->laid_size == (model_is_directory(k) ? 0 : o->size);
		int r = table_find_key(t, key, len, &row);

		if (model_is_directory(k) && k >= 23 * 17)
			continue; /* the same marker's key as another's */
		assert_int_equal(r, o->present ? 0 : -ENOENT);
		expected->removed += o->laid && !o->present;
		if (!o->present) {
			o->laid = false;
			continue;
		}
		live++;
		expected->kept += same;
		expected->changed += o->laid && !same;
		expected->added += !o->laid;
		assert_int_equal(row.size, model_is_directory(k) ? 0 : o->size);
		assert_int_equal(row.flags, model_is_directory(k) ? ROW_DIRECTORY : 0);
		assert_int_equal(row.mtime_ns, o->mtime_ns);
		assert_int_equal(row_tag_number(&row), o->tag);
		if (same && row.offset != o->offset) {
			model_check_moved(t, prev_end, o->offset, &row);
			expected->cleaned++;
			moved += align_up(row.size, BLOCK_BYTES);
		}
		o->laid = true;
		o->offset = row.offset;
		o->laid_tag = o->tag;
		o->laid_size = row.size;
	}
	assert_int_equal(table_info(t)->rows - table_info(t)->dead_rows, live);
	assert_true(moved <= table_info(t)->live_bytes / 7 + MODEL_KEYS * BLOCK_BYTES / 7);
	m->moved += moved;
}

/* All rows, dead ones too: the offsets, and finding each by its offset. */
static void model_check_rows(struct model *m, struct table *t)
{
	struct table_cursor cursor = { 0 };
	static struct table_row row;
	static struct table_row found;

	assert_int_equal(table_check(t), 0);
	while (table_next(t, &cursor, &row) == 0) {
		if (!row_has_bytes(&row)) {
			assert_false(row.flags & ROW_DEAD);
			continue;
		}
		assert_true(layout_after(row.offset, row.size) <= table_info(t)->end);
		model_give(m, &row, row_key_number(&row), row_tag_number(&row));
		assert_int_equal(table_find_offset(t, row.offset + row.size - 1, &found), 0);
		assert_int_equal(found.ordinal, row.ordinal);
		assert_string_equal(found.key, row.key);
	}
	table_cursor_release(&cursor);
}

static void model_run(uint64_t seed)
{
	struct model *m = calloc(1, sizeof(*m));
	struct table *tables[MODEL_GENERATIONS] = { NULL };
	int n = 0;

	assert_non_null(m);
	m->seed = seed;
	for (uint32_t k = 0; k < MODEL_KEYS; k++)
		m->objects[k] =
			(struct model_object){ .size = k, .tag = k % 5, .mtime_ns = 1000 + k };
	for (int i = 0; i < MODEL_GENERATIONS; i++) {
		struct generation_stats stats;
		struct generation_stats expected;
		struct table *prev = n ? tables[n - 1] : NULL;
		struct table *t;
		struct err e = ERR_INIT;
		char name[32];

		model_change(m, i == 0 ? 100 : i % 4 == 3 ? 60 : 8);
		for (uint32_t k = 0; k < MODEL_KEYS; k++) /* one object per marker's key */
			if (model_is_directory(k) && k >= 23 * 17)
				m->objects[k].present = false;
		snprintf(name, sizeof(name), "model-%d", i);
		t = fixture_build(prev, model_listing(m), name, &stats);
		if (!t)
			continue;
		assert_int_equal(table_info(t)->id.generation, n + 1);
		if (prev) {
			assert_int_equal(table_info(t)->id.lineage, table_info(prev)->id.lineage);
			assert_memory_equal(table_info(t)->id.prev_hash, table_info(prev)->id.hash,
				SHA256_BYTES);
			assert_true(table_info(t)->end >= table_info(prev)->end);
		}
		model_check_live(m, t, prev ? table_info(prev)->end : 0, &expected);
		assert_memory_equal(&stats, &expected, sizeof(stats));
		model_check_rows(m, t);
		for (int k = 0; k < n; k++) {
			if (generation_check_successor(tables[k], t, &e) != 0)
				fail_msg("generation %d after %d: %s", n + 1, k + 1, e.text);
			assert_int_equal(generation_check_successor(t, tables[k], &e), -ESTALE);
		}
		assert_null(
			fixture_build(t, model_listing(m), "same", &stats)); /* nothing differs */
		tables[n++] = t;
	}
	assert_true(n > MODEL_GENERATIONS / 2);
	assert_true(m->moved > 0);
	for (int k = 0; k < n; k++)
		table_unref(tables[k]);
	free(m);
}

static void model(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 5; seed++)
		model_run(seed * 1000003);
}

/* Removed and put back with its tag: the old offset, whose bytes may still be cached. */
static void returned_object(void **state)
{
	struct listing *l = listing_new(1 << 20);
	struct generation_stats stats;
	struct table *t[4];
	struct table_row row;
	uint64_t offset;

	(void)state;
	fixture_add(l, "a", 5000, "1");
	fixture_add(l, "b", 5000, "1");
	t[0] = fixture_build(NULL, l, "r0", NULL);
	assert_int_equal(table_find_key(t[0], "b", 1, &row), 0);
	offset = row.offset;
	l = listing_new(1 << 20);
	fixture_add(l, "a", 5000, "1");
	t[1] = fixture_build(t[0], l, "r1", &stats);
	assert_int_equal(stats.removed, 1);
	assert_int_equal(table_find_key(t[1], "b", 1, &row), -ENOENT);
	assert_int_equal(table_find_offset(t[1], offset, &row), 0);
	assert_int_equal(row.flags, ROW_DEAD);
	l = listing_new(1 << 20);
	fixture_add(l, "a", 5000, "2");
	fixture_add(l, "b", 5000, "1");
	t[2] = fixture_build(t[1], l, "r2", &stats);
	assert_int_equal(stats.added, 1);
	assert_int_equal(stats.changed, 1);
	assert_int_equal(table_find_key(t[2], "b", 1, &row), 0);
	assert_int_equal(row.offset, offset);
	assert_int_equal(table_info(t[2])->end, table_info(t[0])->end + 8192);
	for (int i = 0; i < 3; i++)
		table_unref(t[i]);
}

/* An object rewritten without end keeps its newest VERSIONS_MAX tombstones. */
static void many_versions(void **state)
{
	struct table *prev = NULL;
	struct table_row row;

	(void)state;
	for (int i = 0; i < 80; i++) {
		struct listing *l = listing_new(1 << 20);
		struct table *t;
		char tag[16];

		snprintf(tag, sizeof(tag), "%d", i);
		fixture_add(l, "k", 4096, tag);
		t = fixture_build(prev, l, "versions", NULL);
		if (prev)
			assert_int_equal(generation_check_successor(prev, t, NULL), 0);
		table_unref(prev);
		prev = t;
	}
	assert_int_equal(table_info(prev)->dead_rows, VERSIONS_MAX);
	assert_int_equal(table_info(prev)->end, 80 * 4096);
	assert_int_equal(table_find_offset(prev, 78 * 4096, &row), 0);
	assert_string_equal(row.tag, "78");
	assert_int_equal(table_find_offset(prev, 0, &row), -ENOENT);
	table_unref(prev);
}

/* ---- forgeries: valid tables that must not follow -------------------------------------------- */

static struct table *forge(
	const struct generation_id *id, uint64_t end, const struct table_row *rows, int n)
{
	struct table_writer *w = table_writer_new();
	struct generation_id copy = *id;

	assert_int_equal(table_writer_open(w, fixture_path("forged"), NULL), 0);
	for (int i = 0; i < n; i++)
		assert_int_equal(table_writer_add(w, &rows[i], NULL), 0);
	assert_int_equal(table_writer_finish(w, &copy, end, NULL), 0);
	table_writer_free(w);
	return fixture_open(fixture_path("forged"));
}

static struct table_row forged_row(const char *key, uint64_t offset, uint64_t size, const char *tag)
{
	struct table_row row = { .offset = offset, .size = size, .mtime_ns = 1700000000123000000 };

	row.key_len = (uint16_t)strlen(key);
	row.tag_len = (uint8_t)strlen(tag);
	memcpy(row.key, key, row.key_len);
	memcpy(row.tag, tag, row.tag_len);
	return row;
}

static void refused(struct table *old, struct table *next, const char *words)
{
	struct err e = ERR_INIT;

	assert_int_equal(generation_check_successor(old, next, &e), -ESTALE);
	if (!strstr(e.text, words))
		fail_msg("\"%s\" does not say \"%s\"", e.text, words);
	table_unref(next);
}

static void forgeries(void **state)
{
	struct listing *l = listing_new(1 << 20);
	static struct table_row rows[3];
	struct generation_id id;
	struct generation_id other;
	struct table *old;
	struct table *next;
	struct err e = ERR_INIT;

	(void)state;
	fixture_add(l, "a", 5000, "1");
	fixture_add(l, "b", 5000, "1");
	old = fixture_build(NULL, l, "forge-old", NULL);
	id = table_info(old)->id;
	id.generation = 2;
	memcpy(id.prev_hash, table_info(old)->id.hash, SHA256_BYTES);

	rows[0] = forged_row("a", 0, 5000, "1");
	rows[1] = forged_row("b", 8192, 5000, "1");
	rows[2] = forged_row("c", 16384, 100, "1");
	next = forge(&id, 20480, rows, 3);
	assert_int_equal(generation_check_successor(old, next, &e), 0);
	table_unref(next);

	other = id;
	other.lineage ^= 1;
	refused(old, forge(&other, 20480, rows, 3), "lineage");
	other = id;
	other.volume.bytes[0] ^= 1;
	refused(old, forge(&other, 20480, rows, 3), "another source");
	other = id;
	other.generation = 1;
	refused(old, forge(&other, 20480, rows, 3), "seen already");
	other = id;
	other.prev_hash[5] ^= 1;
	refused(old, forge(&other, 20480, rows, 3), "does not follow");

	rows[1] = forged_row("b", 8192, 5000, "2"); /* another tag at the same offset */
	refused(old, forge(&id, 20480, rows, 3), "offset 8192 again, to b");
	rows[1] = forged_row("b", 8192, 5001, "1"); /* another size */
	refused(old, forge(&id, 20480, rows, 3), "offset 8192 again");
	rows[1] = forged_row("bb", 8192, 5000, "1"); /* another key */
	refused(old, forge(&id, 20480, rows, 3), "offset 8192 again");
	rows[1] = forged_row("b", 12288, 100, "2"); /* in the middle of the old b */
	refused(old, forge(&id, 20480, rows, 3), "offset 12288 again");
	rows[0] = forged_row("a", 8192, 5000, "1"); /* swapped */
	rows[1] = forged_row("b", 0, 5000, "1");
	refused(old, forge(&id, 20480, rows, 3), "again, to");

	rows[0] = forged_row("a", 0, 5000, "1"); /* two new rows that share bytes */
	rows[1] = forged_row("c", 16384, 5000, "1");
	rows[2] = forged_row("d", 20480, 5000, "1");
	next = forge(&id, 40960, rows, 3);
	assert_int_equal(generation_check_successor(old, next, &e), -EBADMSG);
	table_unref(next);
	table_unref(old);
}

/* Rows that no table may have: refused when the block is read. */
static void invalid_rows(void **state)
{
	static struct table_row rows[2];
	struct generation_id id = { .volume = fixture_volume, .lineage = 1, .generation = 1 };
	struct table *t;

	(void)state;
	for (int i = 0; i < 7; i++) {
		rows[0] = forged_row("a", 0, 5000, "1");
		rows[1] = forged_row("b", 8192, 5000, "1");
		switch (i) {
		case 0:
			rows[1].key[0] = 'A'; /* out of order */
			break;
		case 1:
			rows[1].key[0] = 'a'; /* two live rows of one key */
			break;
		case 2:
			rows[1].offset = 1 << 30; /* past the end */
			break;
		case 3:
			rows[1].flags = ROW_DIRECTORY; /* without a '/' */
			break;
		case 4:
			rows[1].size = UINT64_MAX - 4096;
			break;
		case 5:
			rows[1].offset = CHUNK_BYTES - 4096; /* across a chunk */
			break;
		default:
			rows[0].flags = ROW_DEAD; /* live after dead */
			rows[1].key[0] = 'a';
			break;
		}
		t = forge(&id, 2 * CHUNK_BYTES, rows, 2);
		if (table_check(t) != -EBADMSG)
			fail_msg("case %d was taken", i);
		table_unref(t);
	}
}

static void refuses_other_volume(void **state)
{
	struct listing *l = listing_new(1 << 20);
	struct volume_id other;
	struct table *t;
	struct err e = ERR_INIT;

	(void)state;
	fixture_add(l, "a", 1, "1");
	t = fixture_build(NULL, l, "vol", NULL);
	l = listing_new(1 << 20);
	volume_id_of_source("s3://other", &other);
	assert_int_equal(
		generation_build(&other, t, l, fixture_path("vol2"), NULL, NULL, &e), -EINVAL);
	assert_int_equal(access(fixture_path("vol2"), F_OK), -1);
	assert_int_equal(access(fixture_path("vol2.new"), F_OK), -1);
	assert_int_equal(
		generation_build(&fixture_volume, t, l, "/nonexistent/t", NULL, NULL, &e), -ENOENT);
	assert_non_null(strstr(e.text, "/nonexistent/t"));
	listing_free(l);
	l = listing_new(1 << 20);
	fixture_add(l, "huge", UINT64_MAX, "1");
	assert_int_equal(
		generation_build(&fixture_volume, t, l, fixture_path("vol2"), NULL, NULL, &e),
		-EFBIG);
	listing_free(l);
	table_unref(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(model),
		cmocka_unit_test(returned_object),
		cmocka_unit_test(many_versions),
		cmocka_unit_test(forgeries),
		cmocka_unit_test(invalid_rows),
		cmocka_unit_test(refuses_other_volume),
	};

	return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
