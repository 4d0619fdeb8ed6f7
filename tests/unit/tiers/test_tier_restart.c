/*
 * A restart with 100 GiB worth of chunks: what is found again, and how long until the first read.
 * The files' data are holes, which read as zeros; heads, tables and index are what a tier has.
 * Times are said, not judged.
 */
#include "tests/unit/tiers/tier_fixture.h"
#include "base/hash.h"
#include "base/piece.h"
#include "tiers/index_internal.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CHUNKS 640u /* ten times slower */
#else
#define CHUNKS 6400u
#endif
#define CAPACITY (200ull * GiB)
#define PIECES   (CHUNK_BYTES / PIECE_BYTES)
#define SEED     4711u
#define FILE_ID  0x1122334400000000ull

/* The table of a chunk that is one object of zeros. */
static void table_make(uint8_t table[CHUNK_TABLE_BYTES])
{
	static const uint8_t zeros[PIECE_BYTES];

	memset(table, 0, CHUNK_TABLE_BYTES);
	for (uint32_t i = 0; i < PIECES; i++) {
		struct piece_entry entry = {
			.xxh3 = hash_xxh3(zeros, PIECE_BYTES, piece_seed(SEED, i)),
			.length = PIECE_BYTES,
		};

		piece_entry_encode(&entry, table + (size_t)i * CHUNK_PIECE_STRIDE);
	}
}

static void file_make(int chk, uint64_t number, const uint8_t table[CHUNK_TABLE_BYTES])
{
	struct chunk_head head = { .id = chunk_number(number), .file_id = FILE_ID + number };
	struct chunk_fds fds = CHUNK_FDS_NONE;

	assert_int_equal(chunk_file_create(chk, &head, &fds), 0);
	assert_int_equal(pwrite(fds.buffered, table, CHUNK_TABLE_BYTES, CHUNK_TABLE_OFFSET),
		CHUNK_TABLE_BYTES);
	assert_int_equal(chunk_file_set_complete(&fds, true), 0);
	chunk_fds_close(&fds);
}

static void chk_path(struct fixture *f, char out[400])
{
	(void)snprintf(out, 400, "%s/chk", f->path);
}

static void index_path(struct fixture *f, char out[400])
{
	(void)snprintf(out, 400, "%s/index", f->path);
}

static void rows_make(struct fixture *f, bool complete)
{
	struct identity identity;
	struct index *index;
	char path[400];

	assert_int_equal(identity_load(f->path, &identity, NULL), 0);
	index_path(f, path);
	assert_int_equal(index_rocksdb_open(path, &index, NULL), 0);
	for (uint64_t i = 0; i < CHUNKS; i++) {
		struct index_row row = { .id = chunk_number(i),
			.file = FILE_ID + i,
			.boot = identity.boot,
			.complete = complete };

		assert_int_equal(index->ops->put(index, &row), 0);
	}
	index->ops->close(index);
}

/* A tier that was closed. */
static void tier_make(struct fixture *f)
{
	static uint8_t table[CHUNK_TABLE_BYTES];
	char path[400];
	int chk;

	f->capacity = CAPACITY;
	fixture_open(f);
	fixture_close(f);
	table_make(table);
	chk_path(f, path);
	chk = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(chk >= 0);
	for (uint64_t i = 0; i < CHUNKS; i++)
		file_make(chk, i, table);
	assert_int_equal(syncfs(chk), 0); /* what is not on the disk yet stays in memory */
	close(chk);
	rows_make(f, true);
}

/* The kernel forgets a file that is on the disk. */
static void forget_file(const char *path, void *arg)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	(void)arg;
	assert_true(fd >= 0);
	(void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED); /* the test is the same without */
	close(fd);
}

static void first_read(struct fixture *f, uint64_t number)
{
	struct piece_run run = run_of(CHUNK_BYTES / 2, UNIT_BYTES, SEED);
	struct chunk_id id = chunk_number(number);
	struct chunk *chunk = tier_chunk_find(f->set, &id);
	uint8_t *out = malloc(UNIT_BYTES);

	assert_non_null(out);
	assert_non_null(chunk);
	run.first_piece = PIECES / 2;
	memset(out, 0xff, UNIT_BYTES);
	assert_int_equal(chunk_read(chunk, &run, out), 0);
	for (uint32_t i = 0; i < UNIT_BYTES; i++)
		assert_int_equal(out[i], 0);
	chunk_unref(chunk);
	free(out);
}

/* Opens, reads once, and counts: `lost` chunks are not there, `unverified` says of all others
 * whether they are to be checked yet. */
static void restart(struct fixture *f, const char *what, uint64_t lost, bool unverified)
{
	uint64_t bytes = (CHUNKS - lost) * CHUNK_BYTES;
	uint64_t began;
	uint64_t opened;
	uint64_t read;

	(void)each_chunk_file(f, forget_file, NULL);
	began = clock_mono_ns();
	fixture_open(f);
	opened = clock_mono_ns();
	first_read(f, CHUNKS / 2);
	read = clock_mono_ns();
	print_message("%s: %u chunks open in %.3f s, first read %.3f s later\n", what, CHUNKS,
		(double)(opened - began) / 1e9, (double)(read - opened) / 1e9);
	assert_int_equal(counter_get(&tier_set_counters(f->set)->adopted), CHUNKS - lost);
	assert_int_equal(status_of(f).chunks, CHUNKS - lost);
	assert_int_equal(status_of(f).data_bytes, bytes);
	assert_true(bytes * 1000 >= 999ull * CHUNKS * CHUNK_BYTES);
	assert_int_equal(tier_set_unverified(f->set), unverified ? bytes - UNIT_BYTES : 0);
	assert_int_equal(each_chunk_file(f, NULL, NULL), CHUNKS - lost);
	fixture_close(f);
}

static void damage_one(const char *path, void *arg)
{
	uint32_t *left = arg;

	if (*left == 0)
		return;
	assert_int_equal(chmod(path, 0600), 0);
	if (--*left % 2)
		flip_byte(path, CHUNK_HEAD_OFFSET + 9);
	else
		assert_int_equal(truncate(path, CHUNK_TABLE_OFFSET), 0);
}

static void test_restarts(void **state)
{
	enum { LOST = CHUNKS / 640 / 2 }; /* less than one of a thousand */
	struct fixture *f = *state;
	uint32_t left = LOST;
	char path[400];

	tier_make(f);
	restart(f, "closed", 0, false);
	restart(f, "closed again", 0, false);
	rows_make(f, false);
	restart(f, "killed, every table to be read", 0, false);
	rows_make(f, true);
	another_boot(f);
	restart(f, "another boot", 0, true);
	index_path(f, path);
	fixture_remove_tree(path);
	restart(f, "index lost", 0, true);
	restart(f, "index made again", 0, true);
	(void)each_chunk_file(f, damage_one, &left);
	restart(f, "a few damaged", LOST, true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_restarts, fixture_setup, fixture_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
