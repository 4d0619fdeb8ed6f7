/* Extents: a volume that fits lies in files that are the image's devices; what a start finds; what goes and what stays. */
#include "tests/unit/tiers/extent_fixture.h"

/* The file is the device: bytes at their offsets in the extent, zeros elsewhere, nothing of ours
 * before the extent's end. */
static void test_file_is_the_device(void **state)
{
	struct fixture *f = *state;
	uint8_t *want = calloc(1, EXTENT);
	uint8_t *got = malloc(EXTENT);
	char path[500];
	int fd;

	fixture_open(f);
	layout(f, 10 * CHUNK_BYTES);
	for (uint64_t n = 4; n < 8; n++) {
		write_chunk(f, n);
		pattern(n + 1, want + (n - 4) * CHUNK_BYTES + RUN_OFFSET, RUN_BYTES);
	}
	assert_int_equal(each_chunk_file(f, NULL, NULL), 0);
	path_of(f, 1, path);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(pread(fd, got, EXTENT, 0), EXTENT);
	assert_memory_equal(got, want, EXTENT);
	assert_int_equal(lseek(fd, 0, SEEK_END), extent_file_bytes(EXTENT));
	(void)close(fd);
	assert_int_equal(status_of(f).extents, 1);
	free(want);
	free(got);
}

static void test_restart(void **state)
{
	struct fixture *f = *state;
	uint64_t used;

	fixture_open(f);
	layout(f, 10 * CHUNK_BYTES);
	for (uint64_t n = 0; n < 10; n++)
		write_chunk(f, n);
	assert_int_equal(status_of(f).extents, 3);
	used = status_of(f).used;
	fixture_reopen(f);
	assert_int_equal(status_of(f).extents, 3);
	assert_int_equal(status_of(f).chunks, 10);
	/* The same blocks are charged, but for what the index takes. */
	assert_true(status_of(f).used + (1u << 20) > used && status_of(f).used < used + (1u << 20));
	for (uint64_t n = 0; n < 10; n++) {
		check_chunk(f, n);
		assert_true(in_extent(f, n));
	}
	/* New chunks join the extent that is there. */
	layout(f, 12 * CHUNK_BYTES);
	write_chunk(f, 10);
	assert_int_equal(status_of(f).extents, 3);
	assert_true(in_extent(f, 10));
}

static void remove_index(struct fixture *f)
{
	char path[400];

	(void)snprintf(path, sizeof(path), "%s/index", f->path);
	fixture_remove_tree(path);
}

static void test_lost_index(void **state)
{
	struct fixture *f = *state;

	fixture_open(f);
	layout(f, 10 * CHUNK_BYTES);
	for (uint64_t n = 0; n < 10; n++)
		write_chunk(f, n);
	fixture_close(f);
	remove_index(f);
	fixture_open(f);
	assert_int_equal(status_of(f).chunks, 10);
	for (uint64_t n = 0; n < 10; n++)
		check_chunk(f, n);
	/* And the rows that were written meanwhile serve the next start. */
	fixture_reopen(f);
	for (uint64_t n = 0; n < 10; n++)
		check_chunk(f, n);
	assert_int_equal(status_of(f).chunks, 10);
}

static void test_other_boot(void **state)
{
	struct fixture *f = *state;
	struct piece_run run = run_in(1);
	char path[500];

	fixture_open(f);
	layout(f, 10 * CHUNK_BYTES);
	for (uint64_t n = 0; n < 4; n++)
		write_chunk(f, n);
	fixture_close(f);
	another_boot(f);
	path_of(f, 0, path);
	flip_byte(path, CHUNK_BYTES + RUN_OFFSET + 5);
	fixture_open(f);
	assert_int_equal(read_run(f, 1, &run), -EBADMSG);
	check_chunk(f, 0);
	check_chunk(f, 2);
	check_chunk(f, 3);
	write_chunk(f, 1);
	check_chunk(f, 1);
	assert_true(in_extent(f, 1));
}

/* What a crash or a power failure may leave in ext/. */
static void test_leftovers(void **state)
{
	struct fixture *f = *state;
	char path[500];
	char other[520];
	int fd;

	fixture_open(f);
	layout(f, 10 * CHUNK_BYTES);
	write_chunk(f, 0);
	write_chunk(f, 4);
	write_chunk(f, 8);
	fixture_close(f);
	/* One that was being made. */
	path_of(f, 3, path);
	(void)snprintf(other, sizeof(other), "%s.new", path);
	fd = open(other, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	(void)close(fd);
	/* A foot that never reached the disk. */
	path_of(f, 1, path);
	flip_byte(path, (off_t)extent_foot_offset(EXTENT) + 20);
	/* Cut off. */
	path_of(f, 2, path);
	assert_int_equal(truncate(path, (off_t)EXTENT), 0);
	fixture_open(f);
	assert_int_equal(access(other, F_OK), -1);
	assert_false(file_exists(f, 1));
	assert_false(file_exists(f, 2));
	assert_int_equal(status_of(f).chunks, 1);
	assert_int_equal(status_of(f).extents, 1);
	check_chunk(f, 0);
	layout(f, 10 * CHUNK_BYTES);
	write_chunk(f, 4);
	check_chunk(f, 4);
	assert_true(in_extent(f, 4));
}

static bool keep_even(void *arg, uint64_t chunk)
{
	(void)arg;
	return chunk % 2 == 0;
}

/* Dropped chunks are found no more; the file goes with the last, and only then its bytes. */
static void test_drop(void **state)
{
	struct fixture *f = *state;
	struct chunk_id id = chunk_number(1);
	struct piece_run run = run_in(1);
	struct chunk *held;
	uint8_t *data = malloc(RUN_BYTES);
	uint64_t used;

	fixture_open(f);
	used = status_of(f).used;
	layout(f, 10 * CHUNK_BYTES);
	for (uint64_t n = 0; n < 4; n++)
		write_chunk(f, n);
	held = tier_chunk_find(f->set, &id);
	(void)tier_set_drop(f->set, &id.volume, id.lineage, keep_even, NULL);
	assert_null(tier_chunk_find(f->set, &id));
	assert_true(file_exists(f, 0));
	check_chunk(f, 0);
	check_chunk(f, 2);
	assert_int_equal(chunk_read(held, &run, data), 0);
	chunk_unref(held);
	fixture_close(f);
	free(data);
	fixture_open(f);
	assert_int_equal(status_of(f).chunks, 2);
	assert_null(tier_chunk_find(f->set, &id));
	(void)tier_set_drop(f->set, &id.volume, id.lineage, NULL, NULL);
	assert_false(file_exists(f, 0));
	assert_int_equal(status_of(f).extents, 0);
	assert_true(status_of(f).used < used + (1u << 20));
}

/* A chunk that comes back begins empty, in the place that it had. */
static void test_second_life(void **state)
{
	struct fixture *f = *state;
	struct chunk_id id = chunk_number(1);
	struct chunk *chunk;
	uint64_t used;

	fixture_open(f);
	layout(f, 10 * CHUNK_BYTES);
	write_chunk(f, 0);
	write_chunk(f, 1);
	used = status_of(f).used;
	(void)tier_set_drop(f->set, &id.volume, id.lineage, keep_even, NULL);
	assert_int_equal(tier_chunk_admit(f->set, &id, &chunk), 0);
	assert_int_equal(chunk_present_bytes(chunk), 0);
	chunk_unref(chunk);
	write_chunk(f, 1);
	check_chunk(f, 1);
	/* The blocks are those that were there. */
	assert_true(status_of(f).used < used + (64u << 10));
}

/* Who still has the first life of a chunk takes nothing from the second. */
static void test_reader_of_first_life(void **state)
{
	struct fixture *f = *state;
	struct chunk_id id = chunk_number(1);
	struct piece_run run = run_in(1);
	uint8_t *data = malloc(RUN_BYTES);
	struct chunk *second;
	struct chunk *first;

	fixture_open(f);
	layout(f, 10 * CHUNK_BYTES);
	write_chunk(f, 0);
	write_chunk(f, 1);
	first = tier_chunk_find(f->set, &id);
	(void)tier_set_drop(f->set, &id.volume, id.lineage, keep_even, NULL);
	assert_int_equal(tier_chunk_admit(f->set, &id, &second), 0);
	assert_int_equal(chunk_read(first, &run, data), -ENODATA);
	assert_int_equal(chunk_recheck(first, &run), -ENODATA);
	assert_int_equal(tier_set_counters(f->set)->mismatches, 0);
	chunk_unref(second);
	write_chunk(f, 1);
	assert_int_equal(chunk_read(first, &run, data), 0); /* the same bytes */
	chunk_unref(first);
	check_chunk(f, 1);
	free(data);
}

static int open_fds(void)
{
	int n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

/* One pair of descriptors for all chunks of an extent; a reader's is of the very file. */
static void test_descriptors(void **state)
{
	struct fixture *f = *state;
	uint8_t want[4096];
	uint8_t *got = aligned_alloc(4096, 4096);
	int before;
	int fd;

	fixture_open(f);
	layout(f, 10 * CHUNK_BYTES);
	before = open_fds();
	for (uint64_t n = 0; n < 4; n++)
		write_chunk(f, n);
	assert_in_range(open_fds(), before + 1, before + 2);
	for (uint64_t n = 4; n < 10; n++)
		write_chunk(f, n);
	assert_in_range(open_fds(), before + 3, before + 6);
	for (uint64_t n = 0; n < 10; n++) {
		struct chunk_id id = chunk_number(n);
		struct chunk *chunk = tier_chunk_find(f->set, &id);
		struct chunk_place place = extent_place(EXTENT, n);

		assert_int_equal(chunk_open_fd(chunk, &fd), 0);
		/* Whose reads change nothing on the disk, which may hang. */
		assert_true(fcntl(fd, F_GETFL) & O_NOATIME);
		assert_int_equal(pread(fd, got, 4096, (off_t)(place.data + RUN_OFFSET)), 4096);
		pattern(n + 1, want, sizeof(want));
		assert_memory_equal(got, want, sizeof(want));
		(void)close(fd);
		chunk_unref(chunk);
	}
	free(got);
}

/* A volume that does not fit, or of which others hold parts, has chunk files. */
static void test_does_not_fit(void **state)
{
	struct fixture *f = *state;
	struct chunk_id id = chunk_number(0);
	struct tier_layout part = {
		.end = 64 * CHUNK_BYTES, .used = CHUNK_BYTES, .extent_bytes = EXTENT
	};

	fixture_open(f);
	layout(f, 2 * f->capacity);
	write_chunk(f, 0);
	assert_false(in_extent(f, 0));
	assert_int_equal(tier_set_layout(f->set, &id.volume, id.lineage, &part), 0);
	write_chunk(f, 1);
	assert_false(in_extent(f, 1));
	assert_int_equal(status_of(f).extents, 0);
	assert_int_equal(each_chunk_file(f, NULL, NULL), 2);
}

static void test_removed_behind_our_back(void **state)
{
	struct fixture *f = *state;
	struct chunk_id id = chunk_number(0);
	struct chunk *chunk;
	char path[500];
	int fd;

	fixture_open(f);
	layout(f, 10 * CHUNK_BYTES);
	write_chunk(f, 0);
	write_chunk(f, 1);
	path_of(f, 0, path);
	assert_int_equal(unlink(path), 0);
	chunk = tier_chunk_find(f->set, &id);
	assert_int_equal(chunk_open_fd(chunk, &fd), -ENODATA);
	chunk_unref(chunk);
	assert_null(tier_chunk_find(f->set, &id));
	write_chunk(f, 0); /* in a file of its own: the extent is lost */
	check_chunk(f, 0);
	assert_false(in_extent(f, 0));
	assert_string_equal(status_of(f).state, "ok");
}

/* ---- in and out ------------------------------------------------------------------------------ */

static void test_promotion(void **state)
{
	struct fixture *f = *state;
	struct chunk_id id = chunk_number(3);
	struct piece_run run = run_in(3);
	uint8_t *data = malloc(RUN_BYTES);
	uint8_t *want = malloc(RUN_BYTES);
	struct chunk *old;
	uint64_t used;
	uint8_t *block = aligned_alloc(4096, 4096);
	int fd;

	open_still(f);
	for (uint64_t n = 0; n < 10; n++)
		write_chunk(f, n);
	assert_int_equal(each_chunk_file(f, NULL, NULL), 10);
	used = status_of(f).used;
	old = tier_chunk_find(f->set, &id);
	assert_int_equal(chunk_open_fd(old, &fd), 0);
	layout(f, 10 * CHUNK_BYTES);
	move_all(f);
	assert_int_equal(each_chunk_file(f, NULL, NULL), 0);
	assert_int_equal(status_of(f).extents, 3);
	assert_int_equal(counter_get(&tier_set_counters(f->set)->into_extents), 10);
	for (uint64_t n = 0; n < 10; n++) {
		assert_true(in_extent(f, n));
		check_chunk(f, n);
	}
	/* Who had the old file reads on, through the chunk and by the descriptor. */
	assert_int_equal(chunk_read(old, &run, data), 0);
	pattern(4, want, RUN_BYTES);
	assert_memory_equal(data, want, RUN_BYTES);
	assert_int_equal(pread(fd, block, 4096, RUN_OFFSET), 4096);
	assert_memory_equal(block, want, 4096);
	free(block);
	/* Its bytes are held until he lets go. */
	assert_true(status_of(f).held >= RUN_BYTES);
	(void)close(fd);
	chunk_unref(old);
	assert_int_equal(status_of(f).held, 0);
	assert_true(status_of(f).used < used + (1u << 20));
	/* Written under the old roof: told to look again. */
	write_chunk(f, 3);
	reopen_still(f);
	assert_int_equal(status_of(f).chunks, 10);
	for (uint64_t n = 0; n < 10; n++)
		check_chunk(f, n);
	free(data);
	free(want);
}

static struct fixture *changing;

/* The first chunk of a round is about to move. */
static void change_layout(const char *point)
{
	struct fixture *f = changing;

	if (!f || strcmp(point, "relocate.begun") != 0)
		return;
	changing = NULL;
	layout(f, 10 * CHUNK_BYTES);
}

/* Two chunks are to move into larger extents, and the size changes back when the first of them moves: the second one is where it
 * belongs, and keeps its bytes. */
static void test_layout_changes_during_a_round(void **state)
{
	struct fixture *f = *state;

	open_still(f);
	layout(f, 10 * CHUNK_BYTES);
	write_chunk(f, 8);
	write_chunk(f, 9);
	layout_in(f, 10 * CHUNK_BYTES, 2 * EXTENT);
	changing = f;
	crash_point_hook = change_layout;
	assert_true(extents_round(f->set));
	crash_point_hook = NULL;
	assert_null(changing);
	assert_true(in_extent(f, 8) != in_extent(f, 9));
	check_chunk(f, 8);
	check_chunk(f, 9);
	move_all(f);
	assert_true(in_extent(f, 8) && in_extent(f, 9));
	assert_int_equal(counter_get(&tier_set_counters(f->set)->mismatches), 0);
	reopen_still(f);
	check_chunk(f, 8);
	check_chunk(f, 9);
}

static void test_write_to_the_moved(void **state)
{
	struct fixture *f = *state;
	struct chunk_id id = chunk_number(0);
	struct piece_run run = run_of(0, PIECE_BYTES, 99);
	uint8_t *data = calloc(1, PIECE_BYTES);
	struct chunk *old;

	open_still(f);
	write_chunk(f, 0);
	old = tier_chunk_find(f->set, &id);
	layout(f, 10 * CHUNK_BYTES);
	move_all(f);
	assert_int_equal(chunk_write(old, &run, data), -EAGAIN);
	chunk_unref(old);
	assert_int_equal(write_run(f, 0, &run), 0);
	assert_int_equal(read_run(f, 0, &run), 0);
	check_chunk(f, 0);
	free(data);
}

/* Out again, but not what an operator pinned; who reads the extent reads on. */
static void test_demotion(void **state)
{
	struct fixture *f = *state;
	struct chunk_id id = chunk_number(5);
	struct tier_policy policy = { .pin = true };
	struct piece_run run = run_in(5);
	uint8_t *data = malloc(RUN_BYTES);
	struct chunk *held;

	open_still(f);
	layout(f, 10 * CHUNK_BYTES);
	for (uint64_t n = 0; n < 10; n++)
		write_chunk(f, n);
	held = tier_chunk_find(f->set, &id);
	assert_int_equal(tier_set_policy(f->set, &id.volume, &policy), 0);
	no_layout(f);
	for (int i = 0; i < 50; i++)
		(void)extents_round(f->set);
	for (uint64_t n = 0; n < 10; n++)
		assert_true(in_extent(f, n));
	policy.pin = false;
	assert_int_equal(tier_set_policy(f->set, &id.volume, &policy), 0);
	for (int i = 0; i < 100; i++)
		(void)extents_round(f->set);
	assert_int_equal(status_of(f).extents, 0);
	assert_int_equal(each_chunk_file(f, NULL, NULL), 10);
	for (uint64_t n = 0; n < 10; n++)
		check_chunk(f, n);
	assert_int_equal(chunk_read(held, &run, data), 0);
	chunk_unref(held);
	reopen_still(f);
	for (uint64_t n = 0; n < 10; n++)
		check_chunk(f, n);
	assert_int_equal(status_of(f).chunks, 10);
	free(data);
}

static enum tier_class class_of(struct fixture *f, uint64_t n)
{
	struct chunk_id id = chunk_number(n);
	struct chunk *chunk = tier_chunk_find(f->set, &id);
	enum tier_class class;

	assert_non_null(chunk);
	class = chunk->class;
	chunk_unref(chunk);
	return class;
}

/* What another worker owns is known as such, after a move and after a restart. */
static void test_class(void **state)
{
	static const struct tier_admission copy = { .class = TIER_COPY, .want = TIER_WANT_READ };
	struct fixture *f = *state;
	struct chunk_id id = chunk_number(1);
	struct chunk *chunk;

	open_still(f);
	write_chunk(f, 0);
	assert_int_equal(tier_chunk_admit_as(f->set, &id, &copy, &chunk), 0);
	chunk_unref(chunk);
	write_chunk(f, 1);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(class_of(f, 0), TIER_OWNED);
		assert_int_equal(class_of(f, 1), TIER_COPY);
		layout(f, 10 * CHUNK_BYTES);
		move_all(f);
		assert_true(in_extent(f, 0) && in_extent(f, 1));
		assert_int_equal(class_of(f, 0), TIER_OWNED);
		assert_int_equal(class_of(f, 1), TIER_COPY);
		reopen_still(f);
	}
}

static enum tier_class even_are_copies(void *arg, const struct tier_chunk_look *look)
{
	(void)arg;
	return look->id.chunk % 2 ? TIER_OWNED : TIER_COPY;
}

/* Of a volume that is not to be whole any more copies go, and what is owned moves out. */
static void test_copies_are_given_up(void **state)
{
	struct fixture *f = *state;

	open_still(f);
	layout(f, 10 * CHUNK_BYTES);
	for (uint64_t n = 0; n < 8; n++)
		write_chunk(f, n);
	assert_int_equal(tier_set_classify(f->set, even_are_copies, NULL), 4);
	move_all(f);
	assert_true(in_extent(f, 0) && in_extent(f, 1));
	no_layout(f);
	move_all(f);
	for (uint64_t n = 0; n < 8; n++) {
		struct chunk_id id = chunk_number(n);
		struct chunk *chunk = tier_chunk_find(f->set, &id);

		assert_int_equal(chunk != NULL, n % 2);
		chunk_unref(chunk);
	}
	assert_false(in_extent(f, 1));
	check_chunk(f, 1);
	assert_int_equal(status_of(f).extents, 0);
}

/* At the edge a volume does not go to and fro. */
static void test_hysteresis(void **state)
{
	struct fixture *f = *state;
	uint64_t room = f->capacity - 80 * MiB; /* what index and slack take is less */

	open_still(f);
	write_chunk(f, 0);
	layout_used(f, room);
	assert_false(in_extent(f, 0)); /* it would fit, but not with something to spare */
	layout_used(f, room / 2);
	assert_true(in_extent(f, 0));
	layout_used(f, room);
	assert_true(in_extent(f, 0)); /* it fits still */
	reopen_still(f);
	layout_used(f, room);
	assert_true(in_extent(f, 0)); /* a restart changes nothing */
	layout_used(f, f->capacity);
	assert_false(in_extent(f, 0));
	layout_used(f, room);
	assert_false(in_extent(f, 0));
}

static void test_quota(void **state)
{
	struct fixture *f = *state;
	struct chunk_id id = chunk_number(0);
	struct tier_policy policy = { .quota = 100 * MiB };

	open_still(f);
	assert_int_equal(tier_set_policy(f->set, &id.volume, &policy), 0);
	layout_used(f, 200 * MiB);
	write_chunk(f, 0);
	assert_false(in_extent(f, 0));
	policy.quota = 0;
	assert_int_equal(tier_set_policy(f->set, &id.volume, &policy), 0);
	move_all(f);
	assert_true(in_extent(f, 0));
	policy.quota = 100 * MiB;
	assert_int_equal(tier_set_policy(f->set, &id.volume, &policy), 0);
	move_all(f);
	assert_false(in_extent(f, 0));
	check_chunk(f, 0);
}

/* A chunk of 12 MiB, so that a few that are gone are worth it. */
static struct piece_run large_run(uint64_t n)
{
	return run_of(0, 12u << 20, n + 100);
}

static bool keep_first(void *arg, uint64_t chunk)
{
	(void)arg;
	return chunk == 0;
}

/* A file much of which is dead gives way to another; its bytes come back. */
static void test_dead_bytes(void **state)
{
	struct fixture *f = *state;
	struct chunk_id id = chunk_number(0);
	struct piece_run run;
	struct chunk *held;
	uint8_t *data = malloc(12u << 20);
	uint64_t used;

	open_still(f);
	layout(f, 10 * CHUNK_BYTES);
	for (uint64_t n = 0; n < 4; n++) {
		run = large_run(n);
		assert_int_equal(write_run(f, n, &run), 0);
	}
	held = tier_chunk_find(f->set, &id);
	used = status_of(f).used;
	(void)tier_set_drop(f->set, &id.volume, id.lineage, keep_first, NULL);
	assert_true(status_of(f).used + MiB > used);
	move_all(f);
	run = large_run(0);
	assert_int_equal(read_run(f, 0, &run), 0);
	assert_true(in_extent(f, 0));
	assert_true(file_exists(f, 0));
	assert_int_equal(status_of(f).extents, 1);
	/* The old file is gone for all but who has it. */
	assert_int_equal(chunk_read(held, &run, data), 0);
	assert_true(status_of(f).used + 8 * MiB > used);
	chunk_unref(held);
	assert_true(status_of(f).used < used - 30 * MiB);
	reopen_still(f);
	assert_int_equal(read_run(f, 0, &run), 0);
	assert_true(in_extent(f, 0));
	assert_true(status_of(f).used < used - 30 * MiB);
	free(data);
}

/* What is dead in an extent whose other chunks live is not waited for: these go. */
static void test_room_beside_dead_bytes(void **state)
{
	const struct tier_policy policy = { .quota = 40 * MiB, .evict = TIER_EVICT_LRU };
	struct fixture *f = *state;
	struct chunk_id id = chunk_number(0);
	struct piece_run run;

	open_still(f);
	assert_int_equal(tier_set_policy(f->set, &id.volume, &policy), 0);
	layout(f, MiB);
	for (uint64_t n = 0; n < 2; n++) {
		run = large_run(n);
		assert_int_equal(write_run(f, n, &run), 0);
	}
	(void)tier_set_drop(f->set, &id.volume, id.lineage, keep_first, NULL);
	for (uint64_t n = 4; n <= 8; n += 4) {
		run = large_run(n);
		assert_int_equal(write_run(f, n, &run), 0);
		assert_int_equal(read_run(f, n, &run), 0);
	}
	assert_null(tier_chunk_find(f->set, &id));
	assert_false(file_exists(f, 0));
	assert_int_equal(status_of(f).held, 0);
}

/* ---- dropped on the way ---------------------------------------------------------------------- */

/* At that point of its move, and written again at once. */
static void drop_on_the_way(struct fixture *f, const char *point, bool into)
{
	const struct chunk_id id = chunk_number(1);
	struct piece_run run = run_in(1);

	open_still(f);
	if (!into)
		layout(f, 10 * CHUNK_BYTES);
	write_chunk(f, 1);
	if (into)
		layout(f, 10 * CHUNK_BYTES);
	else
		no_layout(f);
	drop_at(f, point, 1, &run);
	move_all(f);
	drop_at_end();
	check_chunk(f, 1);
	assert_int_equal(counter_get(&tier_set_counters(f->set)->mismatches), 0);
	reopen_still(f);
	check_chunk(f, 1);
	(void)tier_set_drop(f->set, &id.volume, id.lineage, NULL, NULL);
	assert_int_equal(status_of(f).held, 0);
	assert_int_equal(status_of(f).chunks, 0);
	fixture_close(f);
}

static void test_dropped_on_the_way(void **state)
{
	static const char *const points[] = { "relocate.begun", "relocate.made", "relocate.copied",
		"relocate.entered", "relocate.listed", "relocate.moved" };

	for (size_t i = 0; i < ARRAY_SIZE(points); i++) {
		drop_on_the_way(*state, points[i], true);
		drop_on_the_way(*state, points[i], false);
	}
}

#define T(fn) cmocka_unit_test_setup_teardown(fn, fixture_setup, fixture_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_file_is_the_device),
		T(test_restart),
		T(test_lost_index),
		T(test_other_boot),
		T(test_leftovers),
		T(test_drop),
		T(test_second_life),
		T(test_reader_of_first_life),
		T(test_descriptors),
		T(test_does_not_fit),
		T(test_removed_behind_our_back),
		T(test_promotion),
		T(test_layout_changes_during_a_round),
		T(test_write_to_the_moved),
		T(test_demotion),
		T(test_class),
		T(test_copies_are_given_up),
		T(test_hysteresis),
		T(test_quota),
		T(test_dead_bytes),
		T(test_room_beside_dead_bytes),
		T(test_dropped_on_the_way),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
