/* The chunk map of a set: in step with what is clean, before files go, over restarts and moves, and
 * with many threads at work. */
#include "base/crash_point.h"
#include "base/hash.h"
#include "locate/chunk_map.h"
#include "locate/extent_format.h"
#include "tests/clock/test_clock.h"
#include "tests/unit/tiers/tier_fixture.h"
#include "tiers/extent_internal.h"
#include "tiers/publish_internal.h"
#include "tiers/tier_set_internal.h"

#include <errno.h>
#include <pthread.h>

#define MAP_BYTES MiB
#define CHUNKS    12u

static struct chunk_map *map;

static void open_map(struct fixture *f)
{
	struct tier_map_use use;
	int fd;

	assert_int_equal(tier_map_start(f->set), 0);
	assert_int_equal(tier_set_publish(f->set, MAP_BYTES), 0);
	assert_int_equal(tier_map_fd(f->set, &fd), 0);
	chunk_map_close(map);
	map = NULL;
	assert_int_equal(chunk_map_open(fd, &map), 0);
	close(fd);
	assert_true(chunk_map_start(map) == tier_map_start(f->set));
	tier_map_use(f->set, &use);
	assert_true(use.bytes > 0 && use.bytes <= MAP_BYTES && use.max >= 512);
}

static bool find(uint64_t n, struct chunk_map_row *row, uint64_t bits[CHUNK_MAP_WORDS])
{
	struct chunk_id id = chunk_number(n);
	uint64_t seq;
	uint32_t slot = chunk_map_find(map, &id, row, &seq);

	return slot != CHUNK_MAP_NONE && chunk_map_load(map, slot, seq, bits);
}

/* Blocks of the chunk that the map has. */
static uint32_t blocks_of(uint64_t n)
{
	uint64_t bits[CHUNK_MAP_WORDS];
	struct chunk_map_row row;
	uint32_t blocks = 0;

	if (!find(n, &row, bits))
		return 0;
	for (uint32_t w = 0; w < CHUNK_MAP_WORDS; w++)
		blocks += (uint32_t)__builtin_popcountll(bits[w]);
	return blocks;
}

/* The map says of the chunk what the set does, of the file in which it lies; nothing is unverified. */
static void compare(struct fixture *f, uint64_t n)
{
	uint8_t block[CHUNK_HEAD_BYTES];
	uint8_t bitmap[CHUNK_BITMAP_BYTES];
	uint64_t bits[CHUNK_MAP_WORDS];
	struct chunk_id id = chunk_number(n);
	struct chunk *chunk = tier_chunk_find(f->set, &id);
	struct chunk_place place = CHUNK_PLACE_OWN;
	struct chunk_map_row row;
	struct chunk_head head;
	char path[64];
	int direct;
	int fd;

	if (!chunk) {
		assert_false(find(n, &row, bits));
		return;
	}
	if (!find(n, &row, bits)) {
		assert_true(chunk_present_bytes(chunk) == 0);
		chunk_unref(chunk);
		return;
	}
	chunk_bitmap(chunk, bitmap);
	for (uint32_t b = 0; b < CHUNK_BLOCKS; b++)
		assert_int_equal(bitmap[b / 8] >> b % 8 & 1, bits[b / 64] >> b % 64 & 1);
	assert_true(row.extent == chunk_extent_bytes(chunk));
	if (row.extent)
		place = extent_place(row.extent, n);
	assert_int_equal(chunk_open_fd(chunk, &direct), 0);
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", direct);
	fd = open(path, O_RDONLY | O_CLOEXEC); /* our memory is not aligned */
	assert_int_equal(pread(fd, block, sizeof(block), (off_t)place.head), sizeof(block));
	assert_int_equal(chunk_head_decode(block, &head), 0);
	assert_true(head.file_id == row.file);
	close(fd);
	close(direct);
	chunk_unref(chunk);
}

static void drop_all(struct fixture *f)
{
	struct chunk_id id = chunk_number(0);

	(void)tier_set_drop(f->set, &id.volume, id.lineage, NULL, NULL);
}

static void test_comes_and_goes(void **state)
{
	struct fixture *f = *state;
	struct piece_run run = run_of(0, MiB, 1);
	struct piece_run piece = run_of(2 * PIECE_BYTES, PIECE_BYTES, 1);
	struct chunk_id id = chunk_number(1);
	char path[800];

	fixture_open(f);
	assert_int_equal(write_run(f, 1, &run), 0); /* before there is a map */
	open_map(f);
	assert_int_equal(blocks_of(1), MiB / BLOCK_BYTES);
	run.offset = 5 * MiB;
	run.first_piece = 80;
	assert_int_equal(write_run(f, 1, &run), 0);
	assert_int_equal(blocks_of(1), 2 * MiB / BLOCK_BYTES);
	compare(f, 1);
	/* A damaged piece. */
	only_file(f, path);
	flip_byte(path, 2 * PIECE_BYTES + 5);
	piece.first_piece = 2;
	{
		struct chunk *chunk = tier_chunk_find(f->set, &id);

		assert_int_equal(chunk_recheck(chunk, &piece), -EBADMSG);
		chunk_unref(chunk);
	}
	assert_int_equal(blocks_of(1), (2 * MiB - PIECE_BYTES) / BLOCK_BYTES);
	compare(f, 1);
	drop_all(f);
	compare(f, 1);
	assert_int_equal(blocks_of(1), 0);
	/* Filled to the end. */
	for (uint32_t i = 0; i < CHUNK_BYTES / MiB; i++) {
		run = run_of(i * MiB, MiB, i + 1);
		assert_int_equal(write_run(f, 1, &run), 0);
	}
	assert_int_equal(blocks_of(1), CHUNK_BLOCKS);
	compare(f, 1);
}

/* What readers read by the map counts as what they ask for; of whatever slot they say. */
static void test_read_by_the_map(void **state)
{
	struct fixture *f = *state;
	struct piece_run run = run_of(0, MiB, 1);
	struct chunk_id id = chunk_number(1);
	struct chunk_map_row row;
	struct chunk *chunk;
	uint64_t asked;
	uint64_t seq;

	fixture_open(f);
	open_map(f);
	assert_int_equal(write_run(f, 1, &run), 0);
	chunk = tier_chunk_find(f->set, &id);
	assert_non_null(chunk);
	chunk->unread = true; /* as a neighbour is */
	assert_int_equal(chunk->space->asked.value, 0);
	tier_map_note_read(f->set, CHUNK_MAP_NONE, GiB);
	assert_true(chunk->unread);
	tier_map_note_read(f->set, chunk_map_find(map, &id, &row, &seq), 5 * BLOCK_BYTES);
	assert_false(chunk->unread);
	asked = chunk->space->asked.value;
	assert_true(asked > 0);
	chunk_unref(chunk);
}

/* A tier that is out is said to be, and to be back. */
static void test_away(void **state)
{
	struct fixture *f = *state;

	fixture_open(f);
	open_map(f);
	assert_false(chunk_map_away(map, 0));
	assert_int_equal(chunk_map_capacity(map), f->set->tiers[0]->capacity);
	health_fail(&f->set->tiers[0]->health);
	test_wait(chunk_map_away(map, 0));
	test_wait(chunk_map_capacity(map) == 0);
	test_wait(!chunk_map_away(map, 0));
	test_wait(chunk_map_capacity(map) == f->set->tiers[0]->capacity);
}

/* ---- before the file goes -------------------------------------------------------------------- */

static uint32_t seen;

static void on_point(const char *name)
{
	struct chunk_map_row row;
	uint64_t bits[CHUNK_MAP_WORDS];

	if (strcmp(name, "chunk.unlisted") != 0)
		return;
	assert_false(find(1, &row, bits));
	seen++;
}

static void test_gone_before_its_file(void **state)
{
	struct fixture *f = *state;
	struct piece_run run = run_of(0, MiB, 1);

	fixture_open(f);
	open_map(f);
	assert_int_equal(write_run(f, 1, &run), 0);
	assert_int_equal(blocks_of(1), MiB / BLOCK_BYTES);
	seen = 0;
	crash_point_hook = on_point;
	drop_all(f);
	crash_point_hook = NULL;
	assert_int_equal(seen, 1);
}

/* Whoever has one in his hands that was dropped meanwhile does not bring it back. */
static void test_dropped_stays_gone(void **state)
{
	struct fixture *f = *state;
	struct piece_run run = run_of(0, MiB, 1);
	uint64_t bits[CHUNK_MAP_WORDS];
	struct chunk_id id = chunk_number(1);
	struct chunk_map_row row;
	struct chunk *chunk;

	fixture_open(f);
	open_map(f);
	assert_int_equal(write_run(f, 1, &run), 0);
	chunk = tier_chunk_find(f->set, &id);
	assert_non_null(chunk);
	publish_chunk(chunk);
	assert_true(find(1, &row, bits));
	drop_all(f);
	publish_chunk(chunk);
	assert_false(find(1, &row, bits));
	chunk_unref(chunk);
}

/* What is not known to be good has no bits until it was read. */
static void test_unverified(void **state)
{
	struct fixture *f = *state;
	struct piece_run run = run_of(0, MiB, 1);
	struct piece_run part = run_of(0, 3 * PIECE_BYTES, 1);

	fixture_open(f);
	assert_int_equal(write_run(f, 1, &run), 0);
	fixture_reopen(f);
	open_map(f);
	assert_int_equal(blocks_of(1), MiB / BLOCK_BYTES);
	fixture_close(f);
	another_boot(f);
	fixture_open(f);
	open_map(f);
	assert_int_equal(blocks_of(1), 0);
	assert_int_equal(read_run(f, 1, &part), 0);
	assert_int_equal(blocks_of(1), 3 * PIECE_BYTES / BLOCK_BYTES);
	assert_int_equal(read_run(f, 1, &run), 0);
	assert_int_equal(blocks_of(1), MiB / BLOCK_BYTES);
	compare(f, 1);
}

/* Into an extent and out of it: one file or the other at any time. */
static void test_extents(void **state)
{
	struct fixture *f = *state;
	struct tier_layout layout = {
		.end = 8 * CHUNK_BYTES, .used = 8 * CHUNK_BYTES, .extent_bytes = 4 * CHUNK_BYTES
	};
	struct piece_run run = run_of(0, MiB, 1);
	struct chunk_id id = chunk_number(0);

	fixture_open(f);
	space_stop(f->set); /* we say when chunks move */
	open_map(f);
	for (uint64_t n = 0; n < 8; n++)
		assert_int_equal(write_run(f, n, &run), 0);
	for (uint32_t whole = 0; whole < 4; whole++) {
		layout.whole = whole % 2 == 0;
		assert_int_equal(tier_set_layout(f->set, &id.volume, id.lineage, &layout), 0);
		for (uint32_t i = 0; i < 1000 && extents_round(f->set); i++)
			;
		for (uint64_t n = 0; n < 8; n++) {
			struct chunk *chunk;
			uint64_t lies_in;

			id = chunk_number(n);
			chunk = tier_chunk_find(f->set, &id);
			assert_non_null(chunk);
			lies_in = chunk_extent_bytes(chunk);
			chunk_unref(chunk);
			assert_int_equal(lies_in, layout.whole ? layout.extent_bytes : 0);
			assert_int_equal(blocks_of(n), MiB / BLOCK_BYTES);
			compare(f, n);
		}
	}
	drop_all(f);
	for (uint64_t n = 0; n < 8; n++)
		compare(f, n);
}

/* ---- many threads ---------------------------------------------------------------------------- */

struct hand {
	struct fixture *f;
	uint64_t seed;
};

static uint64_t draw(struct hand *hand)
{
	hand->seed++;
	return hash_xxh3(&hand->seed, sizeof(hand->seed), 0);
}

static bool keep_some(void *arg, uint64_t chunk)
{
	return chunk % 4 != *(uint64_t *)arg;
}

static void *work(void *arg)
{
	struct hand *hand = arg;
	struct chunk_id id = chunk_number(0);

	for (uint32_t i = 0; i < 120; i++) {
		uint64_t n = draw(hand) % CHUNKS;
		struct piece_run run =
			run_of((uint32_t)(draw(hand) % 16) * MiB, 2 * PIECE_BYTES, 7);
		uint64_t which = draw(hand) % 4;

		if (i % 16 == 15)
			(void)tier_set_drop(
				hand->f->set, &id.volume, id.lineage, keep_some, &which);
		else if (write_run(hand->f, n, &run) == 0)
			(void)read_run(hand->f, n, &run); /* dropped, perhaps */
	}
	return NULL;
}

static void test_threads(void **state)
{
	struct fixture *f = *state;
	pthread_t threads[4];
	struct hand hands[4];

	fixture_open(f);
	open_map(f);
	for (uint32_t i = 0; i < ARRAY_SIZE(threads); i++) {
		hands[i] = (struct hand){ .f = f, .seed = i * 100000 };
		assert_int_equal(pthread_create(&threads[i], NULL, work, &hands[i]), 0);
	}
	for (uint32_t i = 0; i < ARRAY_SIZE(threads); i++)
		pthread_join(threads[i], NULL);
	for (uint64_t n = 0; n < CHUNKS; n++)
		compare(f, n);
	drop_all(f);
	for (uint64_t n = 0; n < CHUNKS; n++)
		compare(f, n);
}

static int teardown(void **state)
{
	chunk_map_close(map);
	map = NULL;
	return fixture_teardown(state);
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, fixture_setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_comes_and_goes),
		CASE(test_read_by_the_map),
		CASE(test_away),
		CASE(test_gone_before_its_file),
		CASE(test_dropped_stays_gone),
		CASE(test_unverified),
		CASE(test_extents),
		CASE(test_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
