/* Reads from the node's own chunk files: descriptors, first touch, damage, gaps, replacement. */
#include "client/client_internal.h"
#include "tests/unit/client/fixture.h"

static uint64_t small_end(const struct fix *f)
{
	const struct fix_object *o = fix_object(f, "a/small-27");

	return align_up(o->offset + o->size, BLOCK_BYTES);
}

static void test_first_touch_then_warm(void **state)
{
	struct fix *f = *state;
	const struct fix_object *o = fix_object(f, "a/small-07"); /* 110,000 bytes: two pieces */
	uint32_t length = (uint32_t)align_up(o->size, BLOCK_BYTES);

	assert_int_equal(fix_read_local(f, o->offset, length), -EAGAIN);
	fix_read(f, o->offset, length);
	assert_int_equal(fix_counter(f, "verified"), 2);
	for (int i = 0; i < 3; i++)
		assert_int_equal(fix_read_local(f, o->offset, length), 0);
	assert_int_equal(fix_read_local(f, o->offset + BLOCK_BYTES, BLOCK_BYTES), 0);
	assert_int_equal(fix_counter(f, "verified"), 2);
	assert_int_equal(fix_counter(f, "local_reads"), 4);
	assert_int_equal(fix_counter(f, "remote_reads"), 1);
	assert_int_equal(fix_counter(f, "remote_bytes"), 0);
	assert_int_equal(fix_count(f, FRAME_FETCH), 1);
	assert_int_equal(fix_counter(f, "waiting"), 0);
	/* Its neighbour was not filled. */
	assert_int_equal(
		fix_read_local(f, fix_object(f, "a/small-08")->offset, BLOCK_BYTES), -EAGAIN);
}

static void test_part_of_a_piece(void **state)
{
	struct fix *f = *state;
	const struct fix_object *o = fix_object(f, "a/small-07");

	f->whole = true;
	/* In the middle of a piece: it is verified whole, in other memory. */
	fix_read(f, o->offset + 5 * BLOCK_BYTES, 2 * BLOCK_BYTES);
	assert_int_equal(fix_counter(f, "verified"), 1);
	assert_int_equal(fix_read_local(f, o->offset, PIECE_BYTES), 0);
	assert_int_equal(fix_counter(f, "verified"), 1);
	/* Over the border: the second piece comes along. */
	assert_int_equal(
		fix_read_local(f, o->offset + PIECE_BYTES - BLOCK_BYTES, 2 * BLOCK_BYTES), 0);
	assert_int_equal(fix_counter(f, "verified"), 2);
}

static void test_every_range(void **state)
{
	struct fix *f = *state;
	uint64_t seed = 1;

	f->whole = true;
	for (int i = 0; i < 300; i++) {
		uint64_t blocks = f->end / BLOCK_BYTES + 8;
		uint64_t offset = fix_mix(seed++) % blocks * BLOCK_BYTES;
		uint32_t length = (uint32_t)(fix_mix(seed++) % 256 + 1) * BLOCK_BYTES;

		if (i % 2)
			offset %= small_end(f);
		offset = align_down(offset, BLOCK_BYTES);
		if (fix_read_local(f, offset, length) == -EAGAIN)
			fix_read(f, offset, length);
		assert_int_equal(fix_read_local(f, offset, length), 0);
	}
	assert_true(fix_count(f, FRAME_FETCH) <= FIX_CHUNKS);
	assert_int_equal(fix_counter(f, "mismatches"), 0);
}

static void test_gaps_and_end(void **state)
{
	struct fix *f = *state;
	const struct fix_object *large = fix_object(f, "b/large");
	uint64_t gap = small_end(f);

	assert_true(gap < large->offset);
	assert_int_equal(fix_read_local(f, gap, (uint32_t)(large->offset - gap)), 0);
	assert_int_equal(fix_read_local(f, f->end, MiB), 0);
	assert_int_equal(fix_read_local(f, 1ull << 40, MiB), 0);
	fix_read(f, gap, (uint32_t)(large->offset - gap));
	fix_read(f, f->end + CHUNK_BYTES - MiB / 2, MiB);
	assert_int_equal(fix_count(f, FRAME_FETCH), 0);
	/* From an object over the gap into the next, and over the volume's end. */
	fix_read(f, gap - BLOCK_BYTES, (uint32_t)(large->offset - gap) + 2 * BLOCK_BYTES);
	fix_read(f, f->end - BLOCK_BYTES, 4 * BLOCK_BYTES);
	assert_int_equal(fix_read_local(f, gap - BLOCK_BYTES,
				 (uint32_t)(large->offset - gap) + 2 * BLOCK_BYTES),
		0);
	assert_int_equal(fix_read_local(f, f->end - BLOCK_BYTES, 4 * BLOCK_BYTES), 0);
}

/* For a reader that has its ranges from an earlier generation a gap is an object that was
 * forgotten: never zeros. */
static void test_named_only(void **state)
{
	struct fix *f = *state;
	uint64_t gap = small_end(f);

	client_volume_named_only(f->volume);
	assert_int_equal(fix_read_local(f, gap, BLOCK_BYTES), -EAGAIN);
	fix_read_end(f, fix_read_start(f, gap, BLOCK_BYTES), -ESTALE);
	fix_read_end(f, fix_read_start(f, gap - BLOCK_BYTES, 2 * BLOCK_BYTES), -ESTALE);
	fix_read_end(f, fix_read_start(f, f->end, BLOCK_BYTES), -ESTALE);
	assert_int_equal(fix_count(f, FRAME_FETCH), 0);
	fix_read(f, gap - BLOCK_BYTES, BLOCK_BYTES);
	assert_int_equal(fix_read_local(f, gap - BLOCK_BYTES, BLOCK_BYTES), 0);
	assert_int_equal(fix_read_local(f, gap - BLOCK_BYTES, 2 * BLOCK_BYTES), -EAGAIN);
}

/* Damages the chunk file behind the client's back. */
static void flip(struct fix *f, uint64_t offset, bool in_table)
{
	uint32_t chunk = (uint32_t)(offset / CHUNK_BYTES);
	uint64_t at = offset % CHUNK_BYTES;
	uint8_t byte;
	int fd;

	fix_write_chunk(f, chunk);
	fd = open(fix_chunk_path(f, chunk), O_RDWR | O_CLOEXEC);
	if (in_table)
		at = CHUNK_TABLE_OFFSET + at / BLOCK_BYTES * CHUNK_ENTRY_BYTES;
	assert_int_equal(file_pread_exact(fd, &byte, 1, at), 0);
	byte ^= 0x10;
	assert_int_equal(file_pwrite_exact(fd, &byte, 1, at), 0);
	assert_int_equal(fsync(fd), 0);
	close(fd);
}

static void check_damage(struct fix *f, bool in_table)
{
	const struct fix_object *o = fix_object(f, "a/small-10"); /* 1 MiB */
	uint64_t piece = o->offset + 3 * PIECE_BYTES;
	struct fix_seen recheck = { 0 };

	flip(f, in_table ? piece : piece + 777, in_table);
	fix_read(f, o->offset, MiB);
	assert_int_equal(fix_counter(f, "mismatches"), 1);
	for (uint32_t i = 0; i < f->seen_n; i++)
		if (f->seen[i].op == FRAME_RECHECK)
			recheck = f->seen[i];
	assert_int_equal(fix_count(f, FRAME_RECHECK), 1);
	assert_int_equal(recheck.offset, piece);
	assert_int_equal(recheck.length, PIECE_BYTES);
	/* The bytes came without the file. */
	assert_int_equal(fix_counter(f, "remote_bytes"), MiB);
	assert_false(f->seen[f->seen_n - 1].flags & FRAME_LOCAL_OK);
	/* The damaged piece stays out, the others are served. */
	assert_int_equal(fix_read_local(f, piece, BLOCK_BYTES), -EAGAIN);
	assert_int_equal(fix_read_local(f, o->offset, 3 * PIECE_BYTES), 0);
}

static void test_damaged_data(void **state)
{
	check_damage(*state, false);
}

static void test_worker_finds_damage(void **state)
{
	struct fix *f = *state;

	f->recheck = -EBADMSG;
	check_damage(f, false);
	assert_int_equal(fix_counter(f, "retries"), 1); /* the file's; none for the RECHECK */
}

static void test_damaged_entry(void **state)
{
	check_damage(*state, true);
}

static void test_damage_found_locally(void **state)
{
	struct fix *f = *state;
	const struct fix_object *o = fix_object(f, "a/small-10");

	f->whole = true;
	fix_read(f, o->offset, PIECE_BYTES);
	flip(f, o->offset + PIECE_BYTES, false);
	assert_int_equal(fix_read_local(f, o->offset, 2 * PIECE_BYTES), -EAGAIN);
	assert_int_equal(fix_counter(f, "mismatches"), 1);
	fix_read(f, o->offset, 2 * PIECE_BYTES);
	assert_int_equal(fix_count(f, FRAME_RECHECK), 1);
	/* Repaired by the worker: the file is used again. */
	flip(f, o->offset + PIECE_BYTES, false);
	fix_read(f, o->offset, 2 * PIECE_BYTES);
	assert_int_equal(fix_read_local(f, o->offset, 2 * PIECE_BYTES), 0);
	assert_int_equal(fix_counter(f, "mismatches"), 1);
}

/* A bit that flips after a piece was verified is found when that was too long ago. */
static void test_verified_again(void **state)
{
	struct fix *f = *state;
	const struct fix_object *o = fix_object(f, "a/small-10");

	f->whole = true;
	fix_read(f, o->offset, PIECE_BYTES);
	assert_int_equal(fix_read_local(f, o->offset, PIECE_BYTES), 0);
	assert_int_equal(fix_counter(f, "verified"), 1);
	f->client->verify_age_ns = 1;
	assert_int_equal(fix_read_local(f, o->offset, PIECE_BYTES), 0);
	assert_int_equal(fix_counter(f, "verified"), 2);
	flip(f, o->offset, false);
	assert_int_equal(fix_read_local(f, o->offset, PIECE_BYTES), -EAGAIN);
	assert_int_equal(fix_counter(f, "mismatches"), 1);
}

static void test_another_file(void **state)
{
	struct fix *f = *state;
	const struct fix_object *a = fix_object(f, "a/small-05");
	const struct fix_object *b = fix_object(f, "a/small-06");

	fix_read(f, a->offset, PIECE_BYTES);
	assert_int_equal(fix_counter(f, "verified"), 1);
	/* Evicted and filled again: another inode, of which nothing was checked, and less is
	 * there. */
	assert_int_equal(unlink(fix_chunk_path(f, 0)), 0);
	f->file_version[0]++;
	memset(f->bitmap[0], 0, CHUNK_BITMAP_BYTES);
	assert_int_equal(fix_read_local(f, a->offset, PIECE_BYTES), 0); /* by the old descriptor */
	fix_read(f, b->offset, PIECE_BYTES);
	assert_int_equal(fix_counter(f, "verified"), 2);
	assert_int_equal(fix_read_local(f, a->offset, PIECE_BYTES), -EAGAIN);
	fix_read(f, a->offset, PIECE_BYTES);
	assert_int_equal(fix_counter(f, "verified"), 3);
}

static void test_wrong_file(void **state)
{
	struct fix *f = *state;
	const struct fix_object *o = fix_object(f, "b/large");
	char from[160];

	/* The worker hands out chunk 0's file as chunk 1's. */
	fix_write_chunk(f, 0);
	snprintf(from, sizeof(from), "%s", fix_chunk_path(f, 0));
	assert_int_equal(link(from, fix_chunk_path(f, 1)), 0);
	fix_read(f, align_up(o->offset, CHUNK_BYTES) + PIECE_BYTES, PIECE_BYTES);
	assert_true(fix_counter(f, "remote_bytes") == PIECE_BYTES);
}

static void *reader(void *arg)
{
	struct fix *f = arg;
	uint64_t seed = clock_mono_ns();

	for (int i = 0; i < 200; i++) {
		uint64_t offset = fix_mix(seed++) % (f->end / BLOCK_BYTES) * BLOCK_BYTES;
		uint32_t length = (uint32_t)(fix_mix(seed++) % 64 + 1) * BLOCK_BYTES;

		client_note_read(f->volume, offset, length);
		if (fix_read_local(f, offset, length) == -EAGAIN)
			fix_read(f, offset, length);
	}
	return NULL;
}

static void test_many_threads(void **state)
{
	struct fix *f = *state;
	pthread_t threads[4];

	f->bytes_odd = true;
	for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, reader, f), 0);
	for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(fix_counter(f, "mismatches"), 0);
	assert_int_equal(fix_counter(f, "failed_reads"), 0);
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, fix_setup, fix_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_first_touch_then_warm),
		CASE(test_part_of_a_piece),
		CASE(test_every_range),
		CASE(test_gaps_and_end),
		CASE(test_named_only),
		CASE(test_damaged_data),
		CASE(test_verified_again),
		CASE(test_worker_finds_damage),
		CASE(test_damaged_entry),
		CASE(test_damage_found_locally),
		CASE(test_another_file),
		CASE(test_wrong_file),
		CASE(test_many_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
