/* The cache of chunk files alone: its bound, references across eviction, files that are refused. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/file.h"
#include "cluster/view.h"
#include "proto/held.h"
#include "client/client_chunk.h"

static char dir[64];

static struct chunk_id id_of(uint64_t chunk)
{
	return (struct chunk_id){ .volume = { { 9, 8, 7 } }, .lineage = 5, .chunk = chunk };
}

/* A chunk file with one entry, for block 342, which lies over two blocks of the table's area. */
static int make_file(uint64_t chunk, uint64_t head_chunk)
{
	static unsigned int number;
	char path[128];
	uint8_t head[CHUNK_HEAD_BYTES];
	uint8_t entry[CHUNK_ENTRY_BYTES];
	int fd;

	snprintf(path, sizeof(path), "%s/%u", dir, number++);
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	chunk_head_encode(&(struct chunk_head){ .id = id_of(head_chunk), .file_id = number }, head);
	piece_entry_encode(&(struct piece_entry){ .xxh3 = chunk + 1000, .length = 4096 }, entry);
	assert_int_equal(ftruncate(fd, CHUNK_FILE_BYTES), 0);
	assert_int_equal(file_pwrite_exact(fd, head, sizeof(head), CHUNK_HEAD_OFFSET), 0);
	assert_int_equal(file_pwrite_exact(fd, entry, sizeof(entry),
				 CHUNK_TABLE_OFFSET + 341u * CHUNK_ENTRY_BYTES),
		0);
	assert_int_equal(unlink(path), 0);
	return fd;
}

static int open_fds(void)
{
	int n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void test_bound(void **state)
{
	struct client_chunks *chunks = client_chunks_new(4);
	uint8_t bitmap[CHUNK_BITMAP_BYTES] = { 0 };
	struct client_chunk *held = NULL;
	struct client_chunk *chunk;
	struct piece_entry entry;
	int before = open_fds();

	(void)state;
	for (uint64_t i = 0; i < 20; i++) {
		struct chunk_id id = id_of(i);

		assert_int_equal(
			client_chunks_install(chunks, &id, make_file(i, i), 0, bitmap, &chunk), 0);
		if (i == 0)
			held = chunk;
		else
			client_chunk_unref(chunk);
		assert_true(client_chunks_count(chunks) <= 4);
		assert_true(open_fds() - before <= 5);
	}
	for (uint64_t i = 0; i < 20; i++) {
		struct chunk_id id = id_of(i);

		chunk = client_chunks_get(chunks, &id);
		assert_true((chunk != NULL) == (i >= 16));
		client_chunk_unref(chunk);
	}
	/* Evicted long ago, and still readable by whoever holds it. */
	assert_int_equal(client_chunk_entry(held, 341, 341, &entry), 0);
	assert_int_equal(entry.xxh3, 1000);
	assert_int_equal(entry.length, 4096);
	client_chunk_unref(held);
	client_chunks_free(chunks);
	assert_int_equal(open_fds(), before);
}

static void test_used_ones_stay(void **state)
{
	struct client_chunks *chunks = client_chunks_new(4);
	uint8_t bitmap[CHUNK_BITMAP_BYTES] = { 0 };
	struct client_chunk *chunk;
	struct chunk_id hot = id_of(0);

	(void)state;
	for (uint64_t i = 0; i < 12; i++) {
		struct chunk_id id = id_of(i);

		assert_int_equal(
			client_chunks_install(chunks, &id, make_file(i, i), 0, bitmap, &chunk), 0);
		client_chunk_unref(chunk);
		chunk = client_chunks_get(chunks, &hot);
		assert_non_null(chunk);
		client_chunk_unref(chunk);
	}
	client_chunks_free(chunks);
}

static void test_refused_files(void **state)
{
	struct client_chunks *chunks = client_chunks_new(4);
	uint8_t bitmap[CHUNK_BITMAP_BYTES] = { 0 };
	struct client_chunk *chunk = NULL;
	struct chunk_id id = id_of(1);
	int before = open_fds();
	int fd;

	(void)state;
	assert_int_equal(
		client_chunks_install(chunks, &id, make_file(1, 2), 0, bitmap, &chunk), -EBADMSG);
	fd = make_file(1, 1);
	assert_int_equal(ftruncate(fd, CHUNK_FILE_BYTES - 1), 0);
	assert_int_equal(client_chunks_install(chunks, &id, fd, 0, bitmap, &chunk), -EBADMSG);
	fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	assert_int_equal(client_chunks_install(chunks, &id, fd, 0, bitmap, &chunk), -EBADMSG);
	assert_null(chunk);
	assert_int_equal(client_chunks_count(chunks), 0);
	assert_int_equal(open_fds(), before);
	client_chunks_free(chunks);
}

static void test_bitmap_is_replaced(void **state)
{
	struct client_chunks *chunks = client_chunks_new(4);
	uint8_t bitmap[CHUNK_BITMAP_BYTES] = { 0 };
	struct client_chunk *chunk;
	struct client_chunk *again;
	struct chunk_id id = id_of(3);
	int fd = make_file(3, 3);
	int copy = dup(fd);

	(void)state;
	bitmap[0] = 0x0e;
	bitmap[9] = 0xff;
	assert_int_equal(client_chunks_install(chunks, &id, fd, 0, bitmap, &chunk), 0);
	assert_true(client_bits_all(&chunk->present, 1, 3));
	assert_false(client_bits_any(&chunk->present, 0, 1));
	assert_true(client_bits_all(&chunk->present, 72, 8));
	client_bits_set(&chunk->verified, 72, 8);
	client_chunk_damage(chunk, 1, 1);
	/* The same file: one descriptor, what was verified and is still there stays, what was
	 * damaged stays out. */
	bitmap[9] = 0x0f;
	assert_int_equal(client_chunks_install(chunks, &id, copy, 0, bitmap, &again), 0);
	assert_ptr_equal(chunk, again);
	assert_int_equal(fcntl(copy, F_GETFD), -1);
	assert_true(client_bits_all(&chunk->verified, 72, 4));
	assert_false(client_bits_any(&chunk->verified, 76, 4));
	assert_false(client_bits_any(&chunk->present, 1, 1));
	assert_true(client_bits_all(&chunk->present, 2, 2));
	client_chunk_unref(again);
	client_chunk_unref(chunk);
	client_chunks_free(chunks);
}

#define EXTENT (4ull * CHUNK_BYTES)

/* An extent file of four chunks with their heads; one entry for block 0 of each. */
static int make_extent(uint64_t length)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/extent", dir);
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)length), 0);
	for (uint64_t i = 4; i < 8; i++) {
		struct chunk_place place = extent_place(EXTENT, i);
		uint8_t head[CHUNK_HEAD_BYTES];
		uint8_t entry[CHUNK_ENTRY_BYTES];

		chunk_head_encode(&(struct chunk_head){ .id = id_of(i), .file_id = 3 }, head);
		piece_entry_encode(&(struct piece_entry){ .xxh3 = i + 70, .length = 4096 }, entry);
		assert_int_equal(file_pwrite_exact(fd, head, sizeof(head), place.head), 0);
		assert_int_equal(
			file_pwrite_exact(fd, entry, sizeof(entry), chunk_place_table(&place)), 0);
	}
	assert_int_equal(unlink(path), 0);
	return fd;
}

/* Whatever number of chunks is known of an extent, its file is open once. */
static void test_extent_is_open_once(void **state)
{
	struct client_chunks *chunks = client_chunks_new(4);
	uint8_t bitmap[CHUNK_BITMAP_BYTES] = { 1 };
	struct client_chunk *held[4];
	int before = open_fds();
	int fd = make_extent(extent_file_bytes(EXTENT));

	(void)state;
	for (uint64_t i = 0; i < 4; i++) {
		struct chunk_id id = id_of(4 + i);
		struct piece_entry entry;
		int copy = dup(fd);

		assert_int_equal(
			client_chunks_install(chunks, &id, copy, EXTENT, bitmap, &held[i]), 0);
		assert_int_equal(held[i]->place.data, i * CHUNK_BYTES);
		assert_int_equal(client_chunk_entry(held[i], 0, 0, &entry), 0);
		assert_int_equal(entry.xxh3, 74 + i);
		assert_int_equal(client_chunks_files(chunks), 1);
	}
	(void)close(fd);
	assert_int_equal(open_fds(), before + 1);
	for (uint64_t i = 0; i < 4; i++) {
		client_chunks_drop(chunks, held[i]);
		client_chunk_unref(held[i]);
		assert_int_equal(open_fds(), before + (i < 3));
	}
	assert_int_equal(client_chunks_files(chunks), 0);
	client_chunks_free(chunks);
}

/* A worker that moved the chunk into an extent: nothing is taken for verified there, and who reads
 * the old file goes on. */
static void test_other_place(void **state)
{
	struct client_chunks *chunks = client_chunks_new(4);
	uint8_t bitmap[CHUNK_BITMAP_BYTES] = { 1 };
	struct client_chunk *old;
	struct client_chunk *moved;
	struct chunk_id id = id_of(5);
	struct piece_entry entry;

	(void)state;
	assert_int_equal(client_chunks_install(chunks, &id, make_file(5, 5), 0, bitmap, &old), 0);
	client_bits_set(&old->verified, 0, 1);
	assert_int_equal(client_chunks_install(chunks, &id, make_extent(extent_file_bytes(EXTENT)),
				 EXTENT, bitmap, &moved),
		0);
	assert_ptr_not_equal(old, moved);
	assert_false(client_bits_any(&moved->verified, 0, CHUNK_BLOCKS));
	assert_int_equal(client_chunk_entry(old, 341, 341, &entry), 0);
	assert_int_equal(entry.xxh3, 1005);
	assert_int_equal(client_chunks_files(chunks), 2);
	client_chunk_unref(old);
	client_chunk_unref(moved);
	assert_int_equal(client_chunks_files(chunks), 1);
	client_chunks_free(chunks);
}

/* What a hostile or confused worker may say of an extent. */
static void test_refused_extents(void **state)
{
	static const uint64_t sizes[] = { 1, EXTENT - 1, EXTENT / 2, EXTENT * 2, EXTENT * 3,
		CHUNK_BYTES / 2, 1ull << 63, UINT64_MAX, 16ull << 40 };
	struct client_chunks *chunks = client_chunks_new(4);
	uint8_t bitmap[CHUNK_BITMAP_BYTES] = { 1 };
	struct client_chunk *chunk = NULL;
	struct chunk_id id = id_of(5);
	int before = open_fds();
	int fd = make_extent(extent_file_bytes(EXTENT));

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++)
		assert_int_equal(
			client_chunks_install(chunks, &id, dup(fd), sizes[i], bitmap, &chunk),
			-EBADMSG);
	/* An extent's file as a chunk's own: no head is there. */
	assert_int_equal(client_chunks_install(chunks, &id, dup(fd), 0, bitmap, &chunk), -EBADMSG);
	/* A chunk of another extent. */
	id = id_of(9);
	assert_int_equal(
		client_chunks_install(chunks, &id, dup(fd), EXTENT, bitmap, &chunk), -EBADMSG);
	/* A chunk's own file, called an extent. */
	id = id_of(5);
	assert_int_equal(
		client_chunks_install(chunks, &id, make_file(5, 5), CHUNK_BYTES, bitmap, &chunk),
		-EBADMSG);
	/* Shorter or longer than such a file is. */
	assert_int_equal(ftruncate(fd, (off_t)extent_file_bytes(EXTENT) - 4096), 0);
	assert_int_equal(
		client_chunks_install(chunks, &id, dup(fd), EXTENT, bitmap, &chunk), -EBADMSG);
	assert_int_equal(ftruncate(fd, (off_t)extent_file_bytes(EXTENT) + 4096), 0);
	assert_int_equal(
		client_chunks_install(chunks, &id, dup(fd), EXTENT, bitmap, &chunk), -EBADMSG);
	(void)close(fd);
	assert_null(chunk);
	assert_int_equal(client_chunks_count(chunks), 0);
	assert_int_equal(client_chunks_files(chunks), 0);
	assert_int_equal(open_fds(), before);
	client_chunks_free(chunks);
}

static void test_bits(void **state)
{
	static struct client_bits bits;
	static bool model[CHUNK_BLOCKS];
	uint64_t x = 88172645463325252ull;

	(void)state;
	for (int i = 0; i < 20000; i++) {
		uint32_t from;
		uint32_t n;
		bool all = true;
		bool any = false;

		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		from = (uint32_t)(x % CHUNK_BLOCKS);
		n = (uint32_t)(x >> 20) % (x & 1ull << 50 ? 70 : 300) + 1;
		n = min(n, CHUNK_BLOCKS - from);
		for (uint32_t b = from; b < from + n; b++) {
			all = all && model[b];
			any = any || model[b];
		}
		assert_int_equal(client_bits_all(&bits, from, n), all);
		assert_int_equal(client_bits_any(&bits, from, n), any);
		memset(model + from, x >> 60 & 1, n);
		if (x >> 60 & 1)
			client_bits_set(&bits, from, n);
		else
			client_bits_clear(&bits, from, n);
	}
}

static int group_setup(void **state)
{
	(void)state;
	snprintf(dir, sizeof(dir), "/var/tmp/granary-chunk-XXXXXX");
	return mkdtemp(dir) ? 0 : -1;
}

static int group_teardown(void **state)
{
	(void)state;
	return rmdir(dir);
}

static void hold_as(struct client_chunks *chunks, uint64_t n, struct view_peer *owner,
	uint64_t number, struct client_chunk **ret_chunk)
{
	uint8_t bitmap[CHUNK_BITMAP_BYTES] = { 0 };
	struct chunk_id id = id_of(n);

	assert_int_equal(
		client_chunks_install(chunks, &id, make_file(n, n), 0, bitmap, ret_chunk), 0);
	client_chunk_held(chunks, *ret_chunk, owner, number);
}

/* What a worker is told: closed ones once, used ones once, and by number. */
static void test_holds(void **state)
{
	struct client_chunks *chunks = client_chunks_new(4);
	struct view_peer owner = { 0 };
	uint8_t entries[HELD_ENTRIES_MAX * HELD_ENTRY_BYTES];
	struct client_chunk *reading;
	struct client_chunk *chunk;
	struct chunk_id id = id_of(1);
	uint32_t n;

	(void)state;
	assert_null(client_chunks_report(chunks, entries, &n));
	hold_as(chunks, 1, &owner, 11, &chunk);
	client_chunk_held(chunks, chunk, &owner, 14); /* answered again, and out of order */
	client_chunk_held(chunks, chunk, &owner, 12);
	client_chunk_unref(chunk);
	hold_as(chunks, 2, &owner, 13, &reading);
	assert_ptr_equal(client_chunks_report(chunks, entries, &n), &owner);
	assert_int_equal(n, 0); /* open, not used since */
	client_chunk_unref(client_chunks_get(chunks, &id));
	assert_ptr_equal(client_chunks_report(chunks, entries, &n), &owner);
	assert_int_equal(n, 1);
	assert_true(held_get(entries, 0) == held_entry(14, true));
	assert_ptr_equal(client_chunks_report(chunks, entries, &n), &owner);
	assert_int_equal(n, 0);

	/* The worker unlinked both, and a third whose answer was dropped. */
	held_put(entries, 0, held_entry(14, false));
	held_put(entries, 1, held_entry(13, false));
	held_put(entries, 2, held_entry(99, false));
	client_chunks_let_go(chunks, &owner, entries, 3);
	assert_int_equal(client_chunks_count(chunks), 0);
	assert_ptr_equal(client_chunks_report(chunks, entries, &n), &owner);
	assert_int_equal(n, 2); /* 99 and 14; 13 is being read */
	assert_true(held_get(entries, 0) == held_entry(99, false));
	assert_true(held_get(entries, 1) == held_entry(14, false));
	assert_null(client_chunks_report(chunks, entries, &n));
	client_chunk_unref(reading);
	assert_ptr_equal(client_chunks_report(chunks, entries, &n), &owner);
	assert_int_equal(n, 1);
	assert_true(held_get(entries, 0) == held_entry(13, false));

	/* Pushed out of a full cache: closed as well. */
	for (uint64_t i = 20; i < 25; i++) {
		hold_as(chunks, i, &owner, i, &chunk);
		client_chunk_unref(chunk);
	}
	assert_ptr_equal(client_chunks_report(chunks, entries, &n), &owner);
	assert_int_equal(n, 1);
	assert_true(held_get(entries, 0) == held_entry(20, false));
	client_chunks_free(chunks);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bound),
		cmocka_unit_test(test_used_ones_stay),
		cmocka_unit_test(test_refused_files),
		cmocka_unit_test(test_bitmap_is_replaced),
		cmocka_unit_test(test_extent_is_open_once),
		cmocka_unit_test(test_other_place),
		cmocka_unit_test(test_refused_extents),
		cmocka_unit_test(test_bits),
		cmocka_unit_test(test_holds),
	};

	return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
