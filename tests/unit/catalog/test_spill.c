/* Listings that do not fit their memory: the same table, byte for byte, as from memory; a disk that
 * refuses, a disk that changes what was written. */
#include "tests/unit/catalog/fixture.h"
#include "catalog/spill.h"
#include "catalog/table_format.h"

#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define MEMORY_LEAST (300u << 10) /* one arena and the pointers of its objects */
#define KEYS         12000u

/* `KEYS` objects of a source that changes with `state`: most keys once, some several times. */
static int listing_fill(struct listing *l, uint64_t state, uint32_t tags)
{
	for (uint32_t i = 0; i < KEYS; i++) {
		uint32_t k = (uint32_t)(fixture_random(&state) % (KEYS + KEYS / 2));
		char key[200];
		char tag[40];
		int key_len = snprintf(key, sizeof(key), "d%u/%.*s%x%s", k % 17, (int)(k % 120),
			"0123456789012345678901234567890123456789012345678901234567890123456789"
			"01234567890123456789012345678901234567890123456789",
			k, k % 101 ? "" : "/");
		int tag_len = snprintf(tag, sizeof(tag), "%u", i % tags);
		int r = listing_add(l, key, (uint32_t)key_len, fixture_random(&state) % 3000000,
			(int64_t)(fixture_random(&state) % 5), tag, (uint32_t)tag_len);

		if (r < 0)
			return r;
	}
	return 0;
}

static struct listing *listing_of(uint64_t memory, uint64_t state)
{
	struct listing *l = listing_new(memory);

	assert_non_null(l);
	assert_int_equal(listing_spill_to(l, fixture_dir, UINT64_MAX), 0);
	assert_int_equal(listing_fill(l, state, 1000), 0);
	assert_int_equal(listing_count(l), KEYS);
	return l;
}

/* The file, without what differs from run to run: the time, the first lineage, the hash of both. */
static char *table_bytes(const char *path, size_t *ret_len)
{
	struct buf b = BUF_INIT(64 << 20);
	struct table_header h;

	assert_int_equal(file_read_all(path, &b), 0);
	assert_true(b.len > sizeof(h));
	memcpy(&h, b.data, sizeof(h));
	h.built_at = 0;
	h.lineage = 0;
	memset(h.hash, 0, sizeof(h.hash));
	memset(h.prev_hash, 0, sizeof(h.prev_hash));
	memcpy(b.data, &h, sizeof(h));
	*ret_len = b.len;
	return b.data;
}

static void tables_equal(const char *one, const char *other)
{
	size_t len[2];
	char *bytes[2] = { table_bytes(one, &len[0]), table_bytes(other, &len[1]) };

	assert_int_equal(len[0], len[1]);
	assert_memory_equal(bytes[0], bytes[1], len[0]);
	free(bytes[0]);
	free(bytes[1]);
}

static unsigned int names_in_directory(void)
{
	DIR *dir = opendir(fixture_dir);
	const struct dirent *entry;
	unsigned int n = 0;

	assert_non_null(dir);
	while ((entry = readdir(dir)))
		n += strncmp(entry->d_name, "spill.", 6) == 0;
	closedir(dir);
	return n;
}

static unsigned int descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned int n = 0;

	assert_non_null(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

/* Two generations from memory, and the same from every size of memory. */
static void same_bytes(void **state)
{
	uint64_t random = 99;
	struct table *first = fixture_build(NULL, listing_of(1ull << 30, 1), "one", NULL);
	struct table *second = fixture_build(first, listing_of(1ull << 30, 2), "two", NULL);
	unsigned int before = descriptors();

	(void)state;
	assert_true(table_info(second)->dead_rows > 1000);
	for (uint32_t i = 0; i < 12; i++) {
		uint64_t memory = MEMORY_LEAST + fixture_random(&random) % (1u << 20);
		struct table *t;

		t = fixture_build(NULL, listing_of(memory, 1), "one.spilled", NULL);
		tables_equal(fixture_path("one"), fixture_path("one.spilled"));
		table_unref(t);
		t = fixture_build(first, listing_of(memory, 2), "two.spilled", NULL);
		tables_equal(fixture_path("two"), fixture_path("two.spilled"));
		table_unref(t);
	}
	assert_null(fixture_build(second, listing_of(MEMORY_LEAST, 2), "again", NULL));
	assert_int_equal(names_in_directory(), 0);
	assert_int_equal(descriptors(), before);
	table_unref(first);
	table_unref(second);
}

/* A listing keeps to its memory, however many objects there are. */
static void memory_bounded(void **state)
{
	struct listing *small = listing_new(MEMORY_LEAST);
	struct listing *l = listing_of(MEMORY_LEAST, 3);

	(void)state;
	assert_int_equal(listing_fill(small, 3, 1), -E2BIG);
	assert_true(listing_count(small) < KEYS / 3);
	assert_false(listing_spill_failed(small, NULL));
	listing_free(small);
	listing_free(l);
}

static struct listing_object *object_new(uint32_t number, int64_t mtime_ns, uint32_t run)
{
	struct listing_object *o = calloc(1, sizeof(*o) + 32);

	assert_non_null(o);
	o->key_len = (uint16_t)snprintf(o->bytes, 32, "%08u", number);
	o->mtime_ns = mtime_ns;
	o->size = run;
	o->tag_len = 1;
	o->bytes[o->key_len] = 'x';
	return o;
}

/* More runs than are kept: three levels of them, every key in several runs. */
static void many_runs(void **state)
{
	enum { RUNS = 600, EACH = 20, SPREAD = 1000 };
	struct spill *s = spill_new(fixture_dir, UINT64_MAX);
	static uint32_t newest_run[SPREAD];
	static int64_t newest[SPREAD];
	const struct listing_object *o;
	uint64_t random = 5;
	uint32_t seen = 0;
	uint32_t keys = 0;

	(void)state;
	for (uint32_t run = 1; run <= RUNS; run++) {
		struct listing_object *objects[EACH];
		uint32_t number = (uint32_t)(fixture_random(&random) % (SPREAD - 2 * EACH));

		for (uint32_t i = 0; i < EACH; i++, number += 1 + run % 2) {
			int64_t mtime_ns = (int64_t)(fixture_random(&random) % 3) + 1;

			objects[i] = object_new(number, mtime_ns, run);
			keys += newest[number] == 0;
			if (mtime_ns >= newest[number]) {
				newest[number] = mtime_ns;
				newest_run[number] = run;
			}
		}
		assert_int_equal(spill_add(s, objects, EACH), 0);
		for (uint32_t i = 0; i < EACH; i++)
			free(objects[i]);
	}
	for (uint32_t pass = 0; pass < 2; pass++) {
		assert_int_equal(spill_rewind(s), 0);
		for (seen = 0; spill_next(s, &o) == 0; seen++) {
			uint32_t number = (uint32_t)strtoul(o->bytes, NULL, 10);

			assert_int_equal(o->key_len, 8);
			assert_int_equal(o->mtime_ns, newest[number]);
			assert_int_equal(o->size, newest_run[number]);
			assert_int_equal(o->bytes[8], 'x');
		}
		assert_int_equal(seen, keys);
	}
	assert_true(descriptors() < 3 * SPILL_FAN + 16);
	spill_free(s);
}

/* The longest keys and tags there are, a few to a block. */
static void longest_keys(void **state)
{
	enum { N = 700 };
	struct listing *l = listing_new(MEMORY_LEAST);
	char key[LIMIT_KEY_BYTES];
	char tag[LIMIT_TAG_BYTES];
	struct table_row row;
	struct table *t;

	(void)state;
	memset(key, 'k', sizeof(key));
	memset(tag, 'q', sizeof(tag));
	assert_int_equal(listing_spill_to(l, fixture_dir, UINT64_MAX), 0);
	for (uint32_t i = 0; i < N; i++) {
		char number[8];

		snprintf(number, sizeof(number), "%04u", (i * 31) % N);
		memcpy(key + (i % 2 ? 0 : LIMIT_KEY_BYTES - 4), number, 4);
		memcpy(tag + LIMIT_TAG_BYTES - 4, number, 4);
		assert_int_equal(listing_add(l, key, sizeof(key), i + 1, 0, tag, sizeof(tag)), 0);
		memset(key, 'k', sizeof(key));
	}
	t = fixture_build(NULL, l, "longest", NULL);
	assert_int_equal(table_info(t)->live_files, N);
	memcpy(key, "0031", 4);
	memcpy(tag + LIMIT_TAG_BYTES - 4, "0031", 4);
	assert_int_equal(table_find_key(t, key, sizeof(key), &row), 0);
	assert_int_equal(row.size, 2);
	assert_memory_equal(row.tag, tag, sizeof(tag));
	table_unref(t);
}

/* No room on the disk: one line that says where, and nothing stays. */
static void disk_refuses(void **state)
{
	struct rlimit limit;
	struct rlimit small;
	struct err e = ERR_INIT;
	struct listing *l = listing_new(MEMORY_LEAST);
	void (*old)(int) = signal(SIGXFSZ, SIG_IGN);
	unsigned int before = descriptors();

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
	small = limit;
	small.rlim_cur = SPILL_BLOCK_BYTES;
	assert_int_equal(listing_spill_to(l, fixture_dir, UINT64_MAX), 0);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	assert_int_equal(listing_fill(l, 1, 10), -EFBIG);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	signal(SIGXFSZ, old);
	assert_true(listing_spill_failed(l, &e));
	assert_int_equal(e.code, -EFBIG);
	assert_non_null(strstr(e.text, fixture_dir));
	assert_non_null(strstr(e.text, "check the disk of the cache"));
	listing_free(l);
	assert_int_equal(names_in_directory(), 0);
	assert_int_equal(descriptors(), before);

	l = listing_new(MEMORY_LEAST);
	assert_int_equal(listing_spill_to(l, "/nowhere/at/all", UINT64_MAX), 0);
	assert_int_equal(listing_fill(l, 1, 10), -ENOENT);
	assert_true(listing_spill_failed(l, &e));
	assert_non_null(strstr(e.text, "/nowhere/at/all"));
	listing_free(l);
}

/* Bytes of the files of this process that have no name. */
static uint64_t bytes_on_disk(void)
{
	DIR *dir = opendir("/proc/self/fd");
	const struct dirent *entry;
	uint64_t bytes = 0;

	assert_non_null(dir);
	while ((entry = readdir(dir))) {
		char path[PATH_MAX];
		char to[PATH_MAX];
		struct stat st;
		ssize_t len;

		snprintf(path, sizeof(path), "/proc/self/fd/%s", entry->d_name);
		len = readlink(path, to, sizeof(to) - 1);
		to[max(len, (ssize_t)0)] = '\0';
		if (strstr(to, "spill.") && stat(path, &st) == 0)
			bytes += (uint64_t)st.st_size;
	}
	closedir(dir);
	return bytes;
}

/* A listing that has no end stops at the bytes that it may have, runs that are being merged included. */
static void disk_bounded(void **state)
{
	enum { MOST = 40 * SPILL_BLOCK_BYTES };
	struct listing *l = listing_new(MEMORY_LEAST);
	struct err e = ERR_INIT;
	uint64_t random = 7;
	uint64_t most = 0;
	uint32_t added = 0;
	int r = 0;

	(void)state;
	assert_int_equal(listing_spill_to(l, fixture_dir, MOST), 0);
	while (r == 0) {
		char key[LIMIT_KEY_BYTES];
		uint64_t bits = fixture_random(&random);

		for (uint32_t i = 0; i < sizeof(key); i++)
			key[i] = (char)('a' + (bits >> i % 60) % 16);
		r = listing_add(l, key, sizeof(key), 1, 0, "", 0);
		if (++added % 100 == 0)
			most = max(most, bytes_on_disk());
		assert_true(added < 100000);
	}
	assert_int_equal(r, -EOVERFLOW);
	assert_true(listing_spill_failed(l, &e));
	assert_non_null(strstr(e.text, "--listing-disk"));
	assert_in_range(max(most, bytes_on_disk()), MOST / 4, MOST);
	listing_free(l);
	assert_int_equal(bytes_on_disk(), 0);
}

/* Changes one byte of a file of this process that has no name. */
static void damage(uint64_t offset)
{
	DIR *dir = opendir("/proc/self/fd");
	const struct dirent *entry;
	unsigned int n = 0;

	assert_non_null(dir);
	while ((entry = readdir(dir))) {
		char path[PATH_MAX];
		char to[PATH_MAX];
		ssize_t len;
		int fd = (int)strtol(entry->d_name, NULL, 10);
		uint8_t byte;

		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		len = readlink(path, to, sizeof(to) - 1);
		if (len <= 0)
			continue;
		to[len] = '\0';
		if (!strstr(to, "spill.") || n++)
			continue;
		assert_int_equal(pread(fd, &byte, 1, (off_t)offset), 1);
		byte ^= 0x10;
		assert_int_equal(pwrite(fd, &byte, 1, (off_t)offset), 1);
	}
	closedir(dir);
	assert_true(n > 0);
}

static void disk_changes_bytes(void **state)
{
	static const uint64_t places[] = { 3, 9, 16, 100, SPILL_BLOCK_BYTES - 1 };

	(void)state;
	for (uint32_t i = 0; i < ARRAY_SIZE(places); i++) {
		struct listing *l = listing_of(MEMORY_LEAST, 1);
		struct err e = ERR_INIT;

		damage(places[i]);
		assert_int_equal(generation_build(&fixture_volume, NULL, l, fixture_path("damaged"),
					 NULL, NULL, &e),
			-EBADMSG);
		assert_true(e.text[0]);
		assert_int_equal(access(fixture_path("damaged"), F_OK), -1);
		assert_int_equal(access(fixture_path("damaged.new"), F_OK), -1);
		listing_free(l);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(same_bytes),
		cmocka_unit_test(memory_bounded),
		cmocka_unit_test(many_runs),
		cmocka_unit_test(longest_keys),
		cmocka_unit_test(disk_refuses),
		cmocka_unit_test(disk_bounded),
		cmocka_unit_test(disk_changes_bytes),
	};

	return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
