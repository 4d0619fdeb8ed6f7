/* Object tables: round trips, look-ups by key and offset, damage. */
#include "tests/unit/catalog/fixture.h"
#include "catalog/catalog_internal.h"
#include "catalog/table_format.h"

#include <pthread.h>

static void tags_round_trip(void **state)
{
	static const char *const tags[] = { "", "x", "\"\"", "\"",
		"d41d8cd98f00b204e9800998ecf8427e", "\"d41d8cd98f00b204e9800998ecf8427e\"",
		"D41D8CD98F00B204E9800998ECF8427E", "d41d8cd98f00b204e9800998ecf8427e-12",
		"\"d41d8cd98f00b204e9800998ecf8427e-10000\"", "d41d8cd98f00b204e9800998ecf8427e-0",
		"d41d8cd98f00b204e9800998ecf8427e-", "d41d8cd98f00b204e9800998ecf8427e-012",
		"d41d8cd98f00b204e9800998ecf8427e-99999999999",
		"W/\"d41d8cd98f00b204e9800998ecf8427e\"", "d41d8cd98f00b204e9800998ecf8427e-1x",
		"d41d8cd98f00b204e9800998ecf8427", "d41d8cd98f00b204e9800998ecf8427e0",
		"\"d41d8cd98f00b204e9800998ecf8427e", "inode 12 99 1700000000",
		"d41d8cd98f00b204e9800998ecf8427e-999999999" };
	char longest[LIMIT_TAG_BYTES + 1];

	(void)state;
	memset(longest, 'q', sizeof(longest));
	longest[LIMIT_TAG_BYTES] = '\0';
	for (size_t i = 0; i <= ARRAY_SIZE(tags); i++) {
		const char *tag = i < ARRAY_SIZE(tags) ? tags[i] : longest;
		struct tag_packed packed;
		const uint8_t *p = packed.bytes;
		char out[LIMIT_TAG_BYTES + 1];
		uint8_t len;

		tag_pack(tag, (uint32_t)strlen(tag), &packed);
		assert_true(packed.len <= TAG_PACKED_MAX);
		assert_int_equal(tag_unpack(&p, packed.bytes + packed.len, out, &len), 0);
		assert_ptr_equal(p, packed.bytes + packed.len);
		assert_string_equal(out, tag);
		assert_int_equal(len, strlen(tag));
		for (uint8_t cut = 0; cut < packed.len; cut++) {
			p = packed.bytes;
			assert_int_equal(tag_unpack(&p, packed.bytes + cut, out, &len), -EBADMSG);
		}
	}
	struct tag_packed md5;

	tag_pack(tags[4], 32, &md5);
	assert_int_equal(md5.len, 17);
}

static void layout_rule(void **state)
{
	(void)state;
	assert_int_equal(layout_place(0, 1), 0);
	assert_int_equal(layout_place(4096, UNIT_BYTES), 4096);
	assert_int_equal(layout_place(4096, UNIT_BYTES + 1), PIECE_BYTES);
	/* up to 1 MiB: never across a chunk */
	assert_int_equal(
		layout_place(CHUNK_BYTES - UNIT_BYTES, UNIT_BYTES), CHUNK_BYTES - UNIT_BYTES);
	assert_int_equal(layout_place(CHUNK_BYTES - UNIT_BYTES + 4096, UNIT_BYTES), CHUNK_BYTES);
	assert_int_equal(layout_place(CHUNK_BYTES - 4096, 4097), CHUNK_BYTES);
	/* above: across chunks as it comes, across a GiB from a multiple of 1 MiB */
	assert_int_equal(
		layout_place(CHUNK_BYTES - PIECE_BYTES, 2 * UNIT_BYTES), CHUNK_BYTES - PIECE_BYTES);
	assert_int_equal(layout_place(EXTENT_MIN - PIECE_BYTES, 2 * UNIT_BYTES), EXTENT_MIN);
	assert_int_equal(layout_place(EXTENT_MIN - 3 * UNIT_BYTES + PIECE_BYTES, 3 * UNIT_BYTES),
		EXTENT_MIN - 2 * UNIT_BYTES);
}

static void listing_refuses(void **state)
{
	struct listing *l = listing_new(1 << 20);
	char key[LIMIT_KEY_BYTES + 2];
	int r = 0;

	(void)state;
	memset(key, 'k', sizeof(key));
	assert_int_equal(listing_add(l, "", 0, 1, 0, "t", 1), -EINVAL);
	assert_int_equal(listing_add(l, "a\0b", 3, 1, 0, "t", 1), -EINVAL);
	assert_int_equal(listing_add(l, key, LIMIT_KEY_BYTES + 1, 1, 0, "t", 1), -EINVAL);
	assert_int_equal(listing_add(l, "a", 1, 1, 0, key, LIMIT_TAG_BYTES + 1), -EINVAL);
	assert_int_equal(listing_count(l), 0);
	assert_int_equal(listing_add(l, key, LIMIT_KEY_BYTES, 1, 0, key, LIMIT_TAG_BYTES), 0);
	for (int i = 0; i < 100000 && r == 0; i++)
		r = listing_add(l, key, LIMIT_KEY_BYTES, 1, 0, "t", 1);
	assert_int_equal(r, -E2BIG);
	assert_true(listing_count(l) > 500 && listing_count(l) < 1024);
	listing_free(l);
}

/* Keys that share prefixes, sizes of every kind, any order of arrival, one key twice. */
static void round_trip(void **state)
{
	enum { N = 20000 };
	struct listing *l = listing_new(64 << 20);
	struct generation_stats stats;
	struct table_cursor cursor = { 0 };
	struct table_row row;
	struct table_row found;
	struct table *t;
	char prev[LIMIT_KEY_BYTES + 1] = "";
	uint64_t end = 0;
	uint64_t bytes = 0;

	(void)state;
	for (uint32_t i = 0; i < N; i++) {
		uint32_t k = (uint32_t)((uint64_t)i * 7919 % N);
		uint64_t size = k % 10 == 0 ? 0 : k % 1000 == 7 ? 5000000 + k : (uint64_t)k * 37;
		char key[64];
		char tag[64];

		snprintf(key, sizeof(key), "train/class-%03u/image_%08u.jpg", k / 100, k);
		snprintf(tag, sizeof(tag), "\"%032x\"", k);
		assert_int_equal(listing_add(l, key, (uint32_t)strlen(key), size,
					 1700000000000000000 + (int64_t)k * 1000003, tag,
					 (uint32_t)strlen(tag)),
			0);
		bytes += size;
	}
	fixture_add(l, "train/class-000/image_00000001.jpg", 99, "last one wins");
	assert_int_equal(
		listing_add(l, "train/class-000/image_00000001.jpg", 34, 50, 1, "older", 5), 0);
	bytes += 99 - 37;
	t = fixture_build(NULL, l, "t", &stats);
	assert_int_equal(stats.added, N);
	assert_int_equal(table_info(t)->rows, N);
	assert_int_equal(table_info(t)->live_files, N);
	assert_int_equal(table_info(t)->live_bytes, bytes);
	for (uint32_t k = 0; k < N; k++) {
		assert_int_equal(table_next(t, &cursor, &row), 0);
		assert_int_equal(row.ordinal, k);
		assert_true(strcmp(prev, row.key) < 0);
		snprintf(prev, sizeof(prev), "%s", row.key);
		assert_int_equal(strtoul(row.key + 22, NULL, 10), k);
		if (k != 1)
			assert_int_equal(row.mtime_ns, 1700000000000000000 + (int64_t)k * 1000003);
		assert_int_equal(table_find_key(t, row.key, row.key_len, &found), 0);
		assert_int_equal(found.ordinal, k);
		assert_string_equal(found.tag, row.tag);
		if (row.size == 0)
			continue;
		assert_int_equal(row.offset, layout_place(end, row.size));
		end = layout_after(row.offset, row.size);
		assert_int_equal(table_find_offset(t, row.offset, &found), 0);
		assert_int_equal(found.ordinal, k);
		assert_int_equal(table_find_offset(t, end - 1, &found), 0);
		assert_int_equal(found.ordinal, k);
		assert_int_equal(table_next_offset(t, row.offset, &found), 0);
		assert_int_equal(found.ordinal, k);
	}
	assert_int_equal(table_next(t, &cursor, &row), -ENOENT);
	table_cursor_release(&cursor);
	assert_int_equal(table_info(t)->end, end);
	assert_int_equal(table_find_offset(t, end, &row), -ENOENT);
	assert_int_equal(table_find_offset(t, UINT64_MAX, &row), -ENOENT);
	assert_int_equal(table_next_offset(t, UINT64_MAX, &row), -ENOENT);
	assert_int_equal(table_next_offset(t, end, &row), -ENOENT);
	assert_int_equal(table_find_key(t, "train", 5, &row), -ENOENT);
	assert_int_equal(table_find_key(t, "zzz", 3, &row), -ENOENT);
	assert_int_equal(table_find_key(t, "train/class-000/image_00000001.jp", 33, &row), -ENOENT);
	assert_int_equal(table_find_key(t, "train/class-000/image_00000001.jpg", 34, &row), 0);
	assert_string_equal(row.tag, "last one wins");
	table_unref(t);
}

static void empty_table(void **state)
{
	struct table *t = fixture_build(NULL, listing_new(1 << 20), "empty", NULL);
	struct table_cursor cursor = { 0 };
	struct table_row row;

	(void)state;
	assert_int_equal(table_info(t)->rows, 0);
	assert_int_equal(table_next(t, &cursor, &row), -ENOENT);
	assert_int_equal(table_find_key(t, "a", 1, &row), -ENOENT);
	assert_int_equal(table_find_offset(t, 0, &row), -ENOENT);
	assert_int_equal(table_next_offset(t, 0, &row), -ENOENT);
	table_unref(t);
}

/* All rows as text, or the error met. */
static int table_text(const char *path, struct buf *out)
{
	struct table *t;
	struct table_cursor cursor = { 0 };
	struct table_row row;
	int r = table_open(open(path, O_RDONLY | O_CLOEXEC), &t, NULL);

	buf_clear(out);
	if (r < 0)
		return r;
	r = table_check(t);
	while (r == 0 && (r = table_next(t, &cursor, &row)) == 0)
		assert_int_equal(buf_printf(out, "%s %lu %lu %ld %u %s\n", row.key, row.offset,
					 row.size, row.mtime_ns, row.flags, row.tag),
			0);
	table_cursor_release(&cursor);
	table_unref(t);
	return r == -ENOENT ? 0 : r;
}

/* Whatever byte is changed, wherever the file is cut: an error or the same rows. */
static void damage(void **state)
{
	struct listing *l = listing_new(1 << 20);
	struct buf file = BUF_INIT(1 << 20);
	struct buf good = BUF_INIT(1 << 20);
	struct buf bad = BUF_INIT(1 << 20);
	const char *path = fixture_path("damaged");
	struct table *t;

	(void)state;
	for (int i = 0; i < 40; i++) {
		char key[32];

		snprintf(key, sizeof(key), "d%d/f%d", i % 3, i);
		fixture_add(l, key, (uint64_t)i * 1000, "\"d41d8cd98f00b204e9800998ecf8427e\"");
	}
	t = fixture_build(NULL, l, "good", NULL);
	table_unref(t);
	assert_int_equal(file_read_all(fixture_path("good"), &file), 0);
	assert_int_equal(table_text(fixture_path("good"), &good), 0);
	assert_true(good.len > 1000);
	for (size_t i = 0; i < file.len; i++) {
		uint8_t was = (uint8_t)file.data[i];
		static const uint8_t flips[] = { 0x01, 0x80, 0xff };

		for (size_t k = 0; k < ARRAY_SIZE(flips); k++) {
			int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
			int r;

			file.data[i] = (char)(was ^ flips[k]);
			assert_int_equal(file_pwrite_exact(fd, file.data, file.len, 0), 0);
			close(fd);
			r = table_text(path, &bad);
			if (r != -EBADMSG && r != -EPROTONOSUPPORT) {
				assert_int_equal(r, 0);
				assert_string_equal(buf_str(&bad), buf_str(&good));
				fail_msg("byte %zu is not covered by any check", i);
			}
			file.data[i] = (char)was;
		}
	}
	for (size_t len = 0; len < file.len; len++) {
		int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

		assert_int_equal(file_pwrite_exact(fd, file.data, len, 0), 0);
		close(fd);
		assert_int_equal(table_text(path, &bad), -EBADMSG);
	}
	buf_release(&file);
	buf_release(&good);
	buf_release(&bad);
}

/* Past the checksums: whatever a row's bytes are, decoding stays inside and gives valid rows. */
static void hostile_rows(void **state)
{
	uint64_t seed = 42;

	(void)state;
	for (int i = 0; i < 200000; i++) {
		uint8_t bytes[64];
		struct row_base base = { 0 };
		static struct table_row row;
		struct table_row first = { .key_len = 3,
			.key = "abc",
			.size = 5000,
			.mtime_ns = 77,
			.tag = "t",
			.tag_len = 1 };
		size_t n = row_encode(&first, "", 0, &base, bytes);
		const uint8_t *p = bytes;
		size_t len = n + fixture_random(&seed) % (sizeof(bytes) - n);

		for (size_t k = i % 2 ? n : 0; k < len; k++)
			if (k >= n || fixture_random(&seed) % 4 == 0)
				bytes[k] = (uint8_t)(fixture_random(&seed) >>
						     (fixture_random(&seed) % 8));
		base = (struct row_base){ 0 };
		row.key_len = 0;
		while (p < bytes + len && row_decode(&p, bytes + len, &base, &row) == 0) {
			assert_in_range(row.key_len, 1, LIMIT_KEY_BYTES);
			assert_int_equal(strlen(row.key), row.key_len);
			assert_true(row.size <= VOLUME_MAX_BYTES);
			assert_true(row.offset <= VOLUME_MAX_BYTES - row.size);
		}
	}
}

/* Threads that read one table, more blocks of it than its cache holds. */
struct reader {
	struct table *table;
	uint64_t seed;
	uint64_t wrong;
};

static void *reader_run(void *arg)
{
	struct reader *r = arg;
	struct table_row row;
	struct table_row again;

	for (int i = 0; i < 5000; i++) {
		uint64_t offset = fixture_random(&r->seed) % (table_info(r->table)->end - 200000);

		if (table_next_offset(r->table, offset, &row) < 0 || row.offset < offset ||
			table_find_key(r->table, row.key, row.key_len, &again) < 0 ||
			again.ordinal != row.ordinal || again.offset != row.offset ||
			strcmp(again.tag, row.tag) != 0)
			r->wrong++;
	}
	return NULL;
}

static void read_by_threads(const char *path)
{
	struct reader readers[4];
	pthread_t threads[4];
	struct table *t = fixture_open(path);

	for (int i = 0; i < 4; i++) {
		readers[i] = (struct reader){ .table = table_ref(t), .seed = 1000 + (uint64_t)i };
		assert_int_equal(pthread_create(&threads[i], NULL, reader_run, &readers[i]), 0);
	}
	table_unref(t);
	for (int i = 0; i < 4; i++) {
		pthread_join(threads[i], NULL);
		assert_int_equal(readers[i].wrong, 0);
		table_unref(readers[i].table);
	}
}

#ifdef __SANITIZE_THREAD__
#define MILLION 100000 /* the threads come after it */
#else
#define MILLION 1000000
#endif

static void one_million(void **state)
{
	enum { N = MILLION, FINDS = 10000 };
	struct listing *l = listing_new(1ull << 30);
	uint64_t seed = 7;
	uint64_t t0 = clock_mono_ns();
	uint64_t t1;
	uint64_t t2;
	struct table *t;
	static struct table_row row;
	uint64_t sum = 0;

	(void)state;
	for (uint32_t i = 0; i < N; i++) {
		char key[64];
		char tag[64];

		snprintf(
			key, sizeof(key), "train/n%08u/%08u.JPEG", i / 1300 * 17, i); /* 28 bytes */
		snprintf(tag, sizeof(tag), "%016lx%016lx", fixture_random(&seed),
			fixture_random(&seed));
		assert_int_equal(
			listing_add(l, key, (uint32_t)strlen(key),
				90000 + fixture_random(&seed) % 40000,
				1700000000000000000 +
					(int64_t)(fixture_random(&seed) % 100000000) * 1000000,
				tag, 32),
			0);
	}
	t1 = clock_mono_ns();
	t = fixture_build(NULL, l, "million", NULL);
	t2 = clock_mono_ns();
	print_message("%d rows: listed in %.2f s, table in %.2f s, %.1f bytes a row\n", N,
		(double)(t1 - t0) / 1e9, (double)(t2 - t1) / 1e9,
		(double)table_info(t)->table_bytes / N);
	assert_true(table_info(t)->table_bytes < 60ull * N);
	t1 = clock_mono_ns();
	assert_int_equal(table_find_offset(t, 0, &row), 0);
	t2 = clock_mono_ns();
	print_message("offset index in %.2f s\n", (double)(t2 - t1) / 1e9);
	for (int pass = 0; pass < 2; pass++) {
		t1 = clock_mono_ns();
		for (int i = 0; i < FINDS; i++) {
			assert_int_equal(
				table_next_offset(t,
					fixture_random(&seed) % (table_info(t)->end - 200000),
					&row),
				0);
			sum += row.ordinal;
		}
		t2 = clock_mono_ns();
		print_message("random find by offset: %.2f us (%lu)\n",
			(double)(t2 - t1) / 1e3 / FINDS, sum % 10);
	}
	table_unref(t);
	read_by_threads(fixture_path("million"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tags_round_trip),
		cmocka_unit_test(layout_rule),
		cmocka_unit_test(listing_refuses),
		cmocka_unit_test(round_trip),
		cmocka_unit_test(empty_table),
		cmocka_unit_test(damage),
		cmocka_unit_test(hostile_rows),
		cmocka_unit_test(one_million),
	};

	return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
