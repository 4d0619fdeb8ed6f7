/* Chunks of one tier: what is written is read, what is damaged is dropped, what is there
 * survives. */
#include "tests/unit/tiers/tier_fixture.h"

#include <sys/ioctl.h>

#include "base/cleanup.h"
#include "base/hash.h"
#include "base/piece.h"
#include "tiers/chunk_internal.h"
#include "tiers/disk.h"

#define OBJECT_BYTES (110u * 1024u) /* two pieces, the last one not whole */

static void test_write_read(void **state)
{
	struct fixture *f = *state;
	struct piece_run run = run_of(8 * BLOCK_BYTES, OBJECT_BYTES, 5);
	struct piece_run second = run;
	struct chunk_id id = chunk_number(1);
	uint8_t bitmap[CHUNK_BITMAP_BYTES];
	uint8_t data[PIECE_BYTES];
	struct chunk *chunk;

	fixture_open(f);
	assert_null(tier_chunk_find(f->set, &id));
	assert_int_equal(read_run(f, 1, &run), -ENODATA);
	assert_int_equal(write_run(f, 1, &run), 0);
	assert_int_equal(read_run(f, 1, &run), 0);

	chunk = tier_chunk_find(f->set, &id);
	assert_non_null(chunk);
	assert_true(chunk_id_equal(chunk_id_of(chunk), &id));
	assert_true(chunk_present(chunk, 8 * BLOCK_BYTES, OBJECT_BYTES));
	assert_false(chunk_present(chunk, 7 * BLOCK_BYTES, BLOCK_BYTES + 1));
	assert_false(chunk_present(chunk, 8 * BLOCK_BYTES, 28 * BLOCK_BYTES + 1));
	assert_false(chunk_present(chunk, CHUNK_BYTES - 1, 2));
	assert_int_equal(chunk_present_bytes(chunk), 28 * BLOCK_BYTES);
	chunk_bitmap(chunk, bitmap);
	assert_int_equal(bitmap[0], 0x00);
	assert_int_equal(bitmap[1], 0xff);
	assert_int_equal(bitmap[4], 0x0f);

	/* The second piece alone is addressed by its number. */
	second.offset += PIECE_BYTES;
	second.length -= PIECE_BYTES;
	second.first_piece = 1;
	assert_int_equal(chunk_read(chunk, &second, data), 0);
	second.offset += 32 * PIECE_BYTES;
	assert_int_equal(chunk_read(chunk, &second, data), -ENODATA);
	chunk_unref(chunk);
	assert_int_equal(tier_set_volume_bytes(f->set, &id.volume, id.lineage), 28 * BLOCK_BYTES);
	assert_int_equal(tier_set_volume_bytes(f->set, &id.volume, id.lineage + 1), 0);
}

/* The same through a pipe; a chunk that goes meanwhile leaves its pages there. What is not in the page cache is
 * not waited for. */
static void check_splice(struct chunk *chunk, uint32_t offset, const uint8_t *data, uint32_t length)
{
	_cleanup_free_ uint8_t *out = malloc(length);
	struct chunk_sum sums[2][UNIT_BYTES / BLOCK_BYTES] = { 0 };
	struct disk_ops cannot = disk_kernel;
	const struct disk_ops *before;
	int left = 0;
	int ends[2];
	int fd = -1;
	int r = -EAGAIN;

	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	assert_true(fcntl(ends[1], F_SETPIPE_SZ, UNIT_BYTES) >= 0);
	assert_int_equal(
		chunk_splice_blocks_now(chunk, offset + 1, length, ends[1], sums[0]), -EINVAL);
	cannot.splice_now = NULL;
	before = disk_use(&cannot);
	assert_int_equal(chunk_splice_blocks_now(chunk, offset, length, ends[1], sums[0]), -EAGAIN);
	(void)disk_use(before);                        /* its own */
	for (int i = 0; i < 10 && r == -EAGAIN; i++) { /* the kernel may have dropped it again */
		assert_int_equal(chunk_read_blocks(chunk, offset, length, out, sums[0]), 0);
		r = chunk_splice_blocks_now(chunk, offset, length, ends[1], sums[1]);
	}
	assert_int_equal(r, 0);
	assert_memory_equal(sums[0], sums[1], sizeof(sums[0]));
	assert_int_equal(ioctl(ends[0], FIONREAD, &left), 0);
	assert_int_equal(left, length);

	assert_int_equal(chunk_open_fd(chunk, &fd), 0);
	assert_int_equal(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
	for (uint32_t done = 0; done < length;) {
		ssize_t n = read(ends[0], out + done, length - done);

		assert_true(n > 0);
		done += (uint32_t)n;
	}
	assert_memory_equal(out, data, length);
	if (posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0 && fcntl(fd, F_GETFL) & O_DIRECT)
		assert_int_equal(
			chunk_splice_blocks_now(chunk, offset, length, ends[1], sums[1]), -EAGAIN);
	(void)close(fd);
	(void)close(ends[0]);
	(void)close(ends[1]);
}

/* What lies in the page cache is had without waiting, and is the same. */
static void test_blocks(void **state)
{
	static uint8_t data[2][28 * BLOCK_BYTES];
	struct chunk_sum sums[2][28] = { 0 };
	struct fixture *f = *state;
	struct piece_run run = run_of(8 * BLOCK_BYTES, OBJECT_BYTES, 5);
	struct chunk_id id = chunk_number(1);
	struct disk_ops waits = disk_kernel;
	const struct disk_ops *before;
	struct chunk *chunk;
	int r = -EAGAIN;

	fixture_open(f);
	assert_int_equal(write_run(f, 1, &run), 0);
	chunk = tier_chunk_find(f->set, &id);
	assert_non_null(chunk);
	assert_int_equal(
		chunk_read_blocks_now(chunk, 1, sizeof(data[0]), data[1], sums[1]), -EINVAL);
	for (int i = 0; i < 10 && r == -EAGAIN; i++) { /* the kernel may have dropped it again */
		assert_int_equal(
			chunk_read_blocks(chunk, run.offset, sizeof(data[0]), data[0], sums[0]), 0);
		r = chunk_read_blocks_now(chunk, run.offset, sizeof(data[1]), data[1], sums[1]);
	}
	assert_int_equal(r, 0);
	assert_memory_equal(data[0], data[1], OBJECT_BYTES);
	assert_memory_equal(sums[0], sums[1], sizeof(sums[0]));
	assert_int_equal(sums[1][0].length, PIECE_BYTES);
	assert_int_equal(sums[1][16].length, OBJECT_BYTES - PIECE_BYTES);
	assert_int_equal(sums[1][0].sum,
		hash_xxh3(data[1], PIECE_BYTES, piece_seed(run.object_seed, run.first_piece)));
	check_splice(chunk, run.offset, data[1], sizeof(data[1]));

	waits.pread_now = NULL;
	before = disk_use(&waits);
	assert_int_equal(
		chunk_read_blocks_now(chunk, run.offset, sizeof(data[1]), data[1], sums[1]),
		-EAGAIN);
	(void)disk_use(before); /* its own */
	chunk_unref(chunk);

	fixture_close(f);
	another_boot(f);
	fixture_open(f); /* now it is to be looked at first */
	chunk = tier_chunk_find(f->set, &id);
	assert_non_null(chunk);
	assert_int_equal(
		chunk_read_blocks_now(chunk, run.offset, sizeof(data[1]), data[1], sums[1]),
		-EAGAIN);
	chunk_unref(chunk);
}

static void test_bad_runs(void **state)
{
	struct fixture *f = *state;
	struct piece_run bad[] = { run_of(1, 4096, 1), run_of(0, 0, 1),
		run_of(CHUNK_BYTES, 4096, 1), run_of(CHUNK_BYTES - 4096, 4097, 1) };

	fixture_open(f);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(write_run(f, 1, &bad[i]), -EINVAL);
}

static void test_big_run(void **state)
{
	struct fixture *f = *state;
	struct piece_run hole = run_of(5 * PIECE_BYTES, PIECE_BYTES, 9);
	struct piece_run all = run_of(0, CHUNK_BYTES, 3);
	struct chunk_id id = chunk_number(0);
	uint64_t written;
	struct stat st;
	char path[800];

	fixture_open(f);
	assert_int_equal(write_run(f, 0, &all), 0);
	assert_int_equal(read_run(f, 0, &all), 0);
	assert_int_equal(tier_set_volume_bytes(f->set, &id.volume, id.lineage), CHUNK_BYTES);
	only_file(f, path);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0400);
	assert_int_equal(st.st_size, CHUNK_FILE_BYTES);

	/* Present pieces are not written again. */
	written = counter_get(&tier_set_counters(f->set)->written);
	assert_int_equal(write_run(f, 0, &hole), 0);
	assert_int_equal(counter_get(&tier_set_counters(f->set)->written), written);
	assert_int_equal(read_run(f, 0, &all), 0);
}

static void test_fills_gaps_only(void **state)
{
	struct fixture *f = *state;
	struct piece_run all = run_of(0, UNIT_BYTES - 5, 3);
	uint8_t *data = malloc(UNIT_BYTES);
	struct piece_run middle = all;
	struct chunk_id id = chunk_number(4);
	struct chunk *chunk;

	fixture_open(f);
	assert_non_null(data);
	pattern(3, data, UNIT_BYTES);
	assert_int_equal(tier_chunk_admit(f->set, &id, &chunk), 0);
	middle.offset = 4 * PIECE_BYTES;
	middle.first_piece = 4;
	middle.length = 2 * PIECE_BYTES;
	assert_int_equal(chunk_write(chunk, &middle, data + middle.offset), 0);
	middle.offset = 9 * PIECE_BYTES;
	middle.first_piece = 9;
	middle.length = PIECE_BYTES;
	assert_int_equal(chunk_write(chunk, &middle, data + middle.offset), 0);
	assert_int_equal(chunk_write(chunk, &all, data), 0);
	assert_int_equal(counter_get(&tier_set_counters(f->set)->written), all.length);
	assert_int_equal(read_run(f, 4, &all), 0);
	chunk_unref(chunk);
	free(data);
}

#define PARTS 3u

/* An object of some bytes, one of a single block, one of two pieces, each in the blocks behind the one before. */
static void parts_make(struct chunk_part parts[PARTS], bool whole_blocks)
{
	static const uint32_t lengths[PARTS] = { 5000, BLOCK_BYTES, OBJECT_BYTES };
	uint32_t offset = 8 * BLOCK_BYTES;

	for (uint32_t i = 0; i < PARTS; i++) {
		uint32_t padded = (uint32_t)align_up(lengths[i], BLOCK_BYTES);
		uint8_t *data = aligned_alloc(BLOCK_BYTES, padded);

		assert_non_null(data);
		memset(data, 0, padded);
		parts[i] = (struct chunk_part){ .run = run_of(offset, lengths[i], i + 1),
			.data = data };
		parts[i].run.whole_blocks = whole_blocks;
		pattern(i + 1, data, lengths[i]);
		offset += padded;
	}
}

static void parts_free(struct chunk_part parts[PARTS])
{
	for (uint32_t i = 0; i < PARTS; i++)
		free((void *)(uintptr_t)parts[i].data);
}

static unsigned int writes_of_data;

static ssize_t count_pwrite(int fd, const void *data, size_t len, uint64_t offset)
{
	writes_of_data += offset < CHUNK_BYTES;
	return disk_kernel.pwrite(fd, data, len, offset);
}

/* Few bytes at a time, as a disk may. */
static ssize_t count_pwritev(int fd, const struct iovec *iov, int n, uint64_t offset)
{
	writes_of_data += offset < CHUNK_BYTES;
	assert_int_equal(n, PARTS - (writes_of_data - 1));
	return disk_kernel.pwritev(fd, iov, 1, offset);
}

static void check_parts(struct fixture *f, uint64_t n, bool whole_blocks, unsigned int writes)
{
	struct chunk_id id = chunk_number(n);
	struct chunk_part parts[PARTS];
	struct chunk *chunk;

	parts_make(parts, whole_blocks);
	writes_of_data = 0;
	assert_int_equal(tier_chunk_admit(f->set, &id, &chunk), 0);
	assert_int_equal(chunk_write_parts(chunk, parts, PARTS), 0);
	assert_int_equal(writes_of_data, writes);
	assert_int_equal(chunk_present_bytes(chunk), 31 * BLOCK_BYTES);
	chunk_unref(chunk);
	fixture_reopen(f); /* their entries are there, too */
	for (uint32_t i = 0; i < PARTS; i++)
		assert_int_equal(read_run(f, n, &parts[i].run), 0);
	parts_free(parts);
}

static void test_parts(void **state)
{
	struct disk_ops ops = disk_kernel;
	struct fixture *f = *state;
	const struct disk_ops *before;

	ops.pwrite = count_pwrite;
	ops.pwritev = NULL;
	before = disk_use(&ops);
	fixture_open(f);
	check_parts(f, 1, false, 1); /* by a copy */
	check_parts(f, 2, true, PARTS);
	ops.pwritev = count_pwritev;
	check_parts(f, 3, true, PARTS); /* two of them after short writes */
	fixture_close(f);
	(void)disk_use(before);
}

static void test_bad_parts(void **state)
{
	struct chunk_id id = chunk_number(1);
	struct chunk_part parts[PARTS];
	struct fixture *f = *state;
	struct chunk *chunk;

	fixture_open(f);
	parts_make(parts, false);
	assert_int_equal(tier_chunk_admit(f->set, &id, &chunk), 0);
	assert_int_equal(chunk_write_parts(chunk, parts, 0), -EINVAL);
	parts[2].run.offset += BLOCK_BYTES; /* a gap */
	assert_int_equal(chunk_write_parts(chunk, parts, PARTS), -EINVAL);
	parts[2].run.offset -= BLOCK_BYTES;
	parts[2].run.length = UNIT_BYTES; /* too much together */
	assert_int_equal(chunk_write_parts(chunk, parts, PARTS), -EINVAL);
	parts[2].run.length = OBJECT_BYTES;
	assert_int_equal(chunk_write(chunk, &parts[1].run, parts[1].data), 0);
	assert_int_equal(chunk_write_parts(chunk, parts, PARTS), -EEXIST);
	assert_int_equal(read_run(f, 1, &parts[0].run), -ENODATA);
	chunk_unref(chunk);
	parts_free(parts);
}

static void test_wrong_seed(void **state)
{
	struct fixture *f = *state;
	struct piece_run run = run_of(0, OBJECT_BYTES, 5);
	struct piece_run wrong = run_of(0, OBJECT_BYTES, 6);

	fixture_open(f);
	assert_int_equal(write_run(f, 1, &run), 0);
	assert_int_equal(read_run(f, 1, &wrong), -EBADMSG);
	assert_int_equal(counter_get(&tier_set_counters(f->set)->mismatches), 2);
	assert_int_equal(read_run(f, 1, &run), -ENODATA);
	assert_int_equal(write_run(f, 1, &run), 0);
	assert_int_equal(read_run(f, 1, &run), 0);
}

/* Flips a byte of the file at `offset`: the first piece is dropped and the second stays. */
static void damage(struct fixture *f, off_t offset)
{
	struct piece_run run = run_of(0, OBJECT_BYTES, 5);
	struct piece_run first = run_of(0, PIECE_BYTES, 5);
	uint8_t data[PIECE_BYTES];
	struct chunk_id id = chunk_number(1);
	struct chunk *chunk;
	char path[800];

	fixture_open(f);
	assert_int_equal(write_run(f, 1, &run), 0);
	only_file(f, path);
	flip_byte(path, offset);
	assert_int_equal(read_run(f, 1, &run), -EBADMSG);
	chunk = tier_chunk_find(f->set, &id);
	assert_non_null(chunk);
	assert_false(chunk_present(chunk, 0, 1));
	assert_true(chunk_present(chunk, PIECE_BYTES, OBJECT_BYTES - PIECE_BYTES));
	assert_int_equal(chunk_read(chunk, &first, data), -ENODATA);
	chunk_unref(chunk);
	assert_int_equal(counter_get(&tier_set_counters(f->set)->mismatches), 1);

	/* The hole survives a restart and can be filled. */
	fixture_reopen(f);
	assert_int_equal(read_run(f, 1, &run), -ENODATA);
	assert_int_equal(write_run(f, 1, &run), 0);
	assert_int_equal(read_run(f, 1, &run), 0);
}

static void test_damaged_data(void **state)
{
	damage(*state, 4711);
}

static void test_damaged_checksum(void **state)
{
	damage(*state, CHUNK_TABLE_OFFSET + 3);
}

static void test_damaged_length(void **state)
{
	damage(*state, CHUNK_TABLE_OFFSET + 9);
}

static void test_damage_in_complete_chunk(void **state)
{
	struct fixture *f = *state;
	struct piece_run all = run_of(0, CHUNK_BYTES, 3);
	char path[800];

	fixture_open(f);
	assert_int_equal(write_run(f, 0, &all), 0);
	fixture_close(f);
	only_file(f, path);
	flip_byte(path, 77 * BLOCK_BYTES);
	assert_int_equal(chmod(path, 0400), 0);
	fixture_open(f);
	assert_int_equal(read_run(f, 0, &all), -EBADMSG);
	assert_int_equal(counter_get(&tier_set_counters(f->set)->mismatches), 1);
	fixture_reopen(f);
	assert_int_equal(read_run(f, 0, &all), -ENODATA);
	assert_int_equal(write_run(f, 0, &all), 0);
	assert_int_equal(counter_get(&tier_set_counters(f->set)->written), PIECE_BYTES);
	assert_int_equal(read_run(f, 0, &all), 0);
}

static void test_recheck(void **state)
{
	struct fixture *f = *state;
	struct piece_run run = run_of(0, OBJECT_BYTES, 5);
	struct chunk_id id = chunk_number(1);
	struct chunk *chunk;
	char path[800];

	fixture_open(f);
	assert_int_equal(write_run(f, 1, &run), 0);
	chunk = tier_chunk_find(f->set, &id);
	assert_non_null(chunk);
	assert_int_equal(chunk_recheck(chunk, &run), 0); /* a reader's mistake */
	assert_int_equal(chunk_present_bytes(chunk), 28 * BLOCK_BYTES);
	only_file(f, path);
	flip_byte(path, PIECE_BYTES + 1);
	assert_int_equal(chunk_recheck(chunk, &run), -EBADMSG);
	assert_int_equal(chunk_present_bytes(chunk), PIECE_BYTES);
	assert_int_equal(chunk_recheck(chunk, &run), -ENODATA);
	chunk_unref(chunk);
}

/* A reader on the node sees data and entries through its O_DIRECT descriptor as soon as they are
 * marked, also after others. */
static void test_open_fd(void **state)
{
	struct fixture *f = *state;
	uint8_t *in = aligned_alloc(BLOCK_BYTES, PIECE_BYTES);
	uint8_t *want = malloc(PIECE_BYTES);
	struct chunk_id id = chunk_number(1);
	struct chunk *chunk;
	int fd;

	fixture_open(f);
	assert_non_null(in);
	assert_non_null(want);
	assert_int_equal(tier_chunk_admit(f->set, &id, &chunk), 0);
	assert_int_equal(chunk_open_fd(chunk, &fd), 0);
	assert_true(fcntl(fd, F_GETFL) & O_DIRECT);
	assert_int_equal(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDONLY);
	for (uint32_t i = 0; i < 64; i++) {
		struct piece_run run = run_of(i * PIECE_BYTES, PIECE_BYTES - i, i + 1);
		struct piece_entry entry;

		assert_int_equal(write_run(f, 1, &run), 0);
		assert_int_equal(
			pread(fd, in, BLOCK_BYTES,
				(off_t)align_down(
					CHUNK_TABLE_OFFSET + i * CHUNK_PIECE_STRIDE, BLOCK_BYTES)),
			BLOCK_BYTES);
		piece_entry_decode(in + (i * CHUNK_PIECE_STRIDE) % BLOCK_BYTES, &entry);
		if ((i * CHUNK_PIECE_STRIDE) % BLOCK_BYTES <= BLOCK_BYTES - CHUNK_ENTRY_BYTES)
			assert_int_equal(entry.length, PIECE_BYTES - i);
		assert_int_equal(pread(fd, in, PIECE_BYTES, i * PIECE_BYTES), PIECE_BYTES);
		pattern(i + 1, want, run.length);
		memset(want + run.length, 0, i);
		assert_memory_equal(in, want, PIECE_BYTES);
	}
	close(fd);
	chunk_unref(chunk);
	free(in);
	free(want);
}

#define RESTART_CHUNKS 12u

static void write_many(struct fixture *f)
{
	for (uint32_t i = 0; i < RESTART_CHUNKS; i++) {
		struct piece_run run = run_of(i * 3 * BLOCK_BYTES, OBJECT_BYTES + i, i);
		struct piece_run all = run_of(0, CHUNK_BYTES, i);

		assert_int_equal(write_run(f, i, i % 4 == 3 ? &all : &run), 0);
	}
}

static void read_many(struct fixture *f)
{
	for (uint32_t i = 0; i < RESTART_CHUNKS; i++) {
		struct piece_run run = run_of(i * 3 * BLOCK_BYTES, OBJECT_BYTES + i, i);
		struct piece_run all = run_of(0, CHUNK_BYTES, i);

		assert_int_equal(read_run(f, i, i % 4 == 3 ? &all : &run), 0);
	}
}

static void test_restart_adopts_all(void **state)
{
	struct fixture *f = *state;
	struct tier_status before;
	struct tier_status after;

	fixture_open(f);
	write_many(f);
	before = status_of(f);
	fixture_reopen(f);
	after = status_of(f);
	assert_int_equal(after.chunks, RESTART_CHUNKS);
	assert_int_equal(after.data_bytes, before.data_bytes);
	assert_int_equal(counter_get(&tier_set_counters(f->set)->adopted), RESTART_CHUNKS);
	assert_int_equal(counter_get(&tier_set_counters(f->set)->rebuilt), 0);
	read_many(f);
}

static void test_other_boot_verifies(void **state)
{
	struct fixture *f = *state;
	struct piece_run first = run_of(0, OBJECT_BYTES, 0);
	char path[800];

	fixture_open(f);
	assert_int_equal(write_run(f, 0, &first), 0);
	fixture_close(f);
	only_file(f, path);
	flip_byte(path, 100);
	another_boot(f);
	fixture_open(f);
	assert_int_equal(status_of(f).data_bytes, 28 * BLOCK_BYTES); /* there, to be checked */
	assert_int_equal(read_run(f, 0, &first), -EBADMSG);
	assert_int_equal(write_run(f, 0, &first), 0);
	write_many(f);
	fixture_close(f);
	another_boot(f);
	fixture_open(f);
	assert_int_equal(status_of(f).chunks, RESTART_CHUNKS);
	read_many(f);
	fixture_reopen(f);
	read_many(f);
}

static uint32_t unverified(struct fixture *f, uint64_t n)
{
	struct chunk_id id = chunk_number(n);
	struct chunk *chunk = tier_chunk_find(f->set, &id);
	uint32_t blocks;

	assert_non_null(chunk);
	blocks = chunk->unverified_blocks;
	chunk_unref(chunk);
	return blocks;
}

/* What another boot wrote is not trusted until it was read, and is then for the rest of this
 * boot. */
static void test_unverified_until_read(void **state)
{
	struct fixture *f = *state;
	struct piece_run first = run_of(0, OBJECT_BYTES, 1);
	struct piece_run second = run_of(64 * BLOCK_BYTES, OBJECT_BYTES, 2);

	fixture_open(f);
	assert_int_equal(write_run(f, 0, &first), 0);
	assert_int_equal(write_run(f, 0, &second), 0);
	fixture_reopen(f);
	assert_int_equal(unverified(f, 0), 0);
	fixture_close(f);
	another_boot(f);
	fixture_open(f);
	assert_int_equal(unverified(f, 0), 56);
	assert_int_equal(read_run(f, 0, &first), 0);
	assert_int_equal(unverified(f, 0), 28);
	fixture_reopen(f);
	assert_int_equal(unverified(f, 0), 56); /* half is not enough to remember */
	assert_int_equal(read_run(f, 0, &first), 0);
	assert_int_equal(read_run(f, 0, &second), 0);
	assert_int_equal(unverified(f, 0), 0);
	fixture_reopen(f);
	assert_int_equal(unverified(f, 0), 0);
}

static enum tier_class all_are_copies(void *arg, const struct tier_chunk_look *look)
{
	(void)arg;
	(void)look;
	return TIER_COPY;
}

static uint64_t copy_bytes(struct fixture *f)
{
	struct chunk_id id = chunk_number(0);

	return tier_set_copy_bytes(f->set, &id.volume, id.lineage);
}

/* Whose a chunk is by now is known at the next start, if it was to be kept. */
static void test_classes_are_kept(void **state)
{
	struct fixture *f = *state;
	struct piece_run run = run_of(0, OBJECT_BYTES, 1);
	uint64_t bytes;

	fixture_open(f);
	for (uint64_t i = 0; i < 3; i++)
		assert_int_equal(write_run(f, i, &run), 0);
	assert_int_equal(tier_set_classify(f->set, all_are_copies, NULL), 3);
	bytes = copy_bytes(f);
	assert_true(bytes >= 3ull * OBJECT_BYTES);
	assert_int_equal(tier_set_keep_classes(f->set), 3);
	assert_int_equal(tier_set_keep_classes(f->set), 0);
	fixture_reopen(f);
	assert_int_equal(copy_bytes(f), bytes);
	assert_int_equal(tier_set_keep_classes(f->set), 0);
}

static void test_lost_index(void **state)
{
	struct fixture *f = *state;
	struct tier_status before;
	char index[400];

	fixture_open(f);
	write_many(f);
	before = status_of(f);
	fixture_close(f);
	(void)snprintf(index, sizeof(index), "%s/index", f->path);
	fixture_remove_tree(index);
	fixture_open(f);
	assert_int_equal(counter_get(&tier_set_counters(f->set)->rebuilt), 1);
	assert_int_equal(status_of(f).chunks, RESTART_CHUNKS);
	assert_int_equal(status_of(f).data_bytes, before.data_bytes);
	read_many(f);
	fixture_reopen(f);
	assert_int_equal(counter_get(&tier_set_counters(f->set)->rebuilt), 0);
	read_many(f);
}

static void damage_index(const char *index, const char *prefix)
{
	DIR *d = opendir(index);
	struct dirent *entry;

	assert_non_null(d);
	while ((entry = readdir(d))) {
		char path[800];
		int fd;

		if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0)
			continue;
		(void)snprintf(path, sizeof(path), "%s/%s", index, entry->d_name);
		fd = open(path, O_WRONLY | O_CLOEXEC);
		assert_true(fd >= 0);
		assert_int_equal(pwrite(fd, "garbage garbage", 15, 0), 15);
		close(fd);
	}
	closedir(d);
}

static void test_damaged_index(void **state)
{
	struct fixture *f = *state;
	char index[400];

	fixture_open(f);
	write_many(f);
	fixture_close(f);
	(void)snprintf(index, sizeof(index), "%s/index", f->path);
	damage_index(index, "MANIFEST");
	damage_index(index, "CURRENT");
	fixture_open(f);
	assert_int_equal(counter_get(&tier_set_counters(f->set)->rebuilt), 1);
	read_many(f);
}

/* The blocks at the end of the tables, which are read when they are opened. */
static void damage_last_blocks(const char *index)
{
	DIR *d = opendir(index);
	struct dirent *entry;
	unsigned int n = 0;

	assert_non_null(d);
	while ((entry = readdir(d))) {
		const char *dot = strrchr(entry->d_name, '.');
		char path[800];
		struct stat st;

		if (!dot || strcmp(dot, ".sst") != 0)
			continue;
		(void)snprintf(path, sizeof(path), "%s/%s", index, entry->d_name);
		assert_int_equal(stat(path, &st), 0);
		for (off_t at = st.st_size - 60; at > 0 && at > st.st_size - 600; at -= 20)
			flip_byte(path, at);
		n++;
	}
	closedir(d);
	assert_true(n > 0);
}

/* RocksDB says "block checksum mismatch", and nobody takes that for a lock. */
static void test_damaged_index_block(void **state)
{
	struct fixture *f = *state;
	char index[400];

	fixture_open(f);
	write_many(f);
	fixture_reopen(f); /* its log becomes a table */
	fixture_close(f);
	(void)snprintf(index, sizeof(index), "%s/index", f->path);
	damage_last_blocks(index);
	fixture_open(f);
	assert_int_equal(counter_get(&tier_set_counters(f->set)->rebuilt), 1);
	read_many(f);
}

static void unlink_file(const char *path, void *arg)
{
	(void)arg;
	assert_int_equal(unlink(path), 0);
}

static void test_lost_files(void **state)
{
	struct fixture *f = *state;
	struct piece_run run = run_of(0, OBJECT_BYTES, 0);

	fixture_open(f);
	write_many(f);
	fixture_close(f);
	each_chunk_file(f, unlink_file, NULL);
	fixture_open(f);
	assert_int_equal(status_of(f).chunks, 0);
	assert_int_equal(status_of(f).data_bytes, 0);
	assert_int_equal(read_run(f, 0, &run), -ENODATA);
	assert_int_equal(write_run(f, 0, &run), 0);
	assert_int_equal(read_run(f, 0, &run), 0);
}

/* Files that lost their head, or were cut, are of no use to anybody. */
static void test_headless_files(void **state)
{
	struct fixture *f = *state;
	struct piece_run run = run_of(0, OBJECT_BYTES, 0);
	char path[800];

	fixture_open(f);
	assert_int_equal(write_run(f, 0, &run), 0);
	fixture_close(f);
	only_file(f, path);
	flip_byte(path, CHUNK_HEAD_OFFSET + 17);
	fixture_open(f);
	assert_int_equal(read_run(f, 0, &run), -ENODATA);
	assert_int_equal(each_chunk_file(f, NULL, NULL), 0);
	assert_int_equal(write_run(f, 0, &run), 0);
	fixture_close(f);
	only_file(f, path);
	assert_int_equal(truncate(path, 1 << 20), 0);
	fixture_open(f);
	assert_int_equal(read_run(f, 0, &run), -ENODATA);
	assert_int_equal(write_run(f, 0, &run), 0);
	assert_int_equal(read_run(f, 0, &run), 0);
}

static bool keep_even(void *arg, uint64_t chunk)
{
	(*(uint32_t *)arg)++;
	return chunk % 2 == 0;
}

static void test_drop(void **state)
{
	struct fixture *f = *state;
	struct piece_run held_run = run_of(3 * BLOCK_BYTES, OBJECT_BYTES + 1, 1);
	struct chunk_id id = chunk_number(1);
	uint8_t *data = malloc(held_run.length);
	uint32_t asked = 0;
	struct chunk *held;
	uint64_t freed;
	uint64_t used;
	int fd;

	fixture_open(f);
	write_many(f);
	assert_non_null(data);
	held = tier_chunk_find(f->set, &id);
	assert_non_null(held);
	assert_int_equal(chunk_open_fd(held, &fd), 0);
	used = status_of(f).used;
	assert_int_equal(tier_set_drop(f->set, &id.volume, id.lineage + 1, keep_even, &asked), 0);
	assert_int_equal(asked, 0);
	freed = tier_set_drop(f->set, &id.volume, id.lineage, keep_even, &asked);
	assert_int_equal(asked, RESTART_CHUNKS);
	assert_true(freed > 3 * CHUNK_BYTES);
	assert_int_equal(each_chunk_file(f, NULL, NULL), RESTART_CHUNKS / 2);

	/* Held: unlinked, charged, readable by whoever has it open, but not to be found. */
	assert_null(tier_chunk_find(f->set, &id));
	assert_true(status_of(f).used > used - freed);
	assert_int_equal(pread(fd, data, 0, 0), 0);
	assert_int_equal(chunk_write(held, &held_run, data), 0); /* present: nothing to do */
	assert_int_equal(read_run(f, 1, &held_run), -ENODATA);
	assert_int_equal(write_run(f, 1, &held_run), 0); /* a new file beside the held one */
	assert_int_equal(read_run(f, 1, &held_run), 0);
	chunk_unref(held);
	close(fd);
	fixture_reopen(f);
	assert_int_equal(status_of(f).chunks, RESTART_CHUNKS / 2 + 1);
	free(data);
}

static void test_unlinked_behind_our_back(void **state)
{
	struct fixture *f = *state;
	struct piece_run run = run_of(0, OBJECT_BYTES, 5);
	struct chunk_id id = chunk_number(1);
	struct chunk *chunk;
	char path[800];
	int fd;

	fixture_open(f);
	assert_int_equal(write_run(f, 1, &run), 0);
	only_file(f, path);
	assert_int_equal(unlink(path), 0);
	chunk = tier_chunk_find(f->set, &id);
	assert_non_null(chunk);
	assert_int_equal(chunk_open_fd(chunk, &fd), -ENODATA);
	chunk_unref(chunk);
	assert_null(tier_chunk_find(f->set, &id));
	assert_int_equal(write_run(f, 1, &run), 0);
	assert_int_equal(read_run(f, 1, &run), 0);
	assert_string_equal(status_of(f).state, "ok");
}

#define T(fn) cmocka_unit_test_setup_teardown(fn, fixture_setup, fixture_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_write_read),
		T(test_blocks),
		T(test_bad_runs),
		T(test_big_run),
		T(test_fills_gaps_only),
		T(test_parts),
		T(test_bad_parts),
		T(test_wrong_seed),
		T(test_damaged_data),
		T(test_damaged_checksum),
		T(test_damaged_length),
		T(test_damage_in_complete_chunk),
		T(test_recheck),
		T(test_open_fd),
		T(test_restart_adopts_all),
		T(test_other_boot_verifies),
		T(test_unverified_until_read),
		T(test_classes_are_kept),
		T(test_lost_index),
		T(test_damaged_index),
		T(test_damaged_index_block),
		T(test_lost_files),
		T(test_headless_files),
		T(test_drop),
		T(test_unlinked_behind_our_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
