/* What sealing rests on: what of an extent was verified, when that ends, and that a held one stays
 * where it is. */
#include "tests/unit/tiers/tier_fixture.h"
#include "tiers/disk.h"
#include "tiers/evict_internal.h"
#include "tiers/seal.h"
#include "tiers/tier_set_internal.h"

#define EXTENT    (4ull * CHUNK_BYTES)
#define RUN_BYTES (150u << 10)

static void layout(struct fixture *f, bool whole)
{
	const struct chunk_id id = chunk_number(0);
	const struct tier_layout layout = { .end = 64 * CHUNK_BYTES,
		.used = 4 * CHUNK_BYTES,
		.extent_bytes = EXTENT,
		.whole = whole };

	assert_int_equal(tier_set_layout(f->set, &id.volume, id.lineage, &layout), 0);
}

/* The test runs what the tiers do in the background. */
static void start(struct fixture *f)
{
	fixture_open(f);
	space_stop(f->set);
	layout(f, true);
}

static void round_all(struct fixture *f)
{
	for (int i = 0; i < 1000 && extents_round(f->set); i++)
		;
}

static void write_at(struct fixture *f, uint64_t n, uint32_t offset)
{
	struct piece_run run = run_of(offset, RUN_BYTES, n + offset + 1);

	assert_int_equal(write_run(f, n, &run), 0);
}

static int read_at(struct fixture *f, uint64_t n, uint32_t offset)
{
	struct piece_run run = run_of(offset, RUN_BYTES, n + offset + 1);

	return read_run(f, n, &run);
}

static struct extent *extent_of(struct fixture *f, uint64_t number)
{
	const struct chunk_id id = chunk_number(0);

	return tier_seal_find(f->set, &id.volume, id.lineage, number);
}

static struct chunk *chunk_of(struct fixture *f, uint64_t n)
{
	struct chunk_id id = chunk_number(n);

	return tier_chunk_find(f->set, &id);
}

static enum tier_seal_mark mark_of(struct fixture *f, struct extent *extent, uint64_t n)
{
	struct chunk *chunk = chunk_of(f, n);
	enum tier_seal_mark mark = chunk ? tier_seal_mark(extent, chunk) : TIER_SEAL_NONE;

	chunk_unref(chunk);
	return mark;
}

/* Verified, but for the reading. */
static bool verify(struct fixture *f, struct extent *extent, uint64_t n)
{
	struct chunk *chunk = chunk_of(f, n);
	bool good = tier_seal_end(extent, chunk, tier_seal_begin(chunk));

	chunk_unref(chunk);
	return good;
}

static uint64_t changes(const struct extent *extent)
{
	struct tier_seal_facts facts;

	tier_seal_facts(extent, &facts);
	return facts.changes;
}

static void damage(struct extent *extent, off_t offset)
{
	char path[64];
	int fd;

	assert_int_equal(tier_seal_open_fd(extent, &fd), 0);
	assert_int_equal(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDONLY);
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	flip_byte(path, offset);
	(void)close(fd);
}

static void test_marks(void **state)
{
	struct fixture *f = *state;
	struct extent *extent;
	struct chunk *chunk;
	uint64_t begun;
	uint64_t was;

	start(f);
	assert_null(extent_of(f, 0));
	write_at(f, 0, 0);
	write_at(f, 1, 0);
	extent = extent_of(f, 0);
	assert_non_null(extent);
	assert_int_equal(mark_of(f, extent, 0), TIER_SEAL_NONE);
	assert_true(verify(f, extent, 0));
	assert_int_equal(mark_of(f, extent, 0), TIER_SEAL_FRESH);
	assert_int_equal(mark_of(f, extent, 1), TIER_SEAL_NONE);
	/* Another piece does not harm what was verified, nor is it. */
	was = changes(extent);
	write_at(f, 0, 1 << 20);
	assert_int_equal(mark_of(f, extent, 0), TIER_SEAL_THERE);
	assert_int_equal(changes(extent), was);
	assert_true(verify(f, extent, 0));
	assert_int_equal(mark_of(f, extent, 0), TIER_SEAL_FRESH);
	/* One that comes while it is verified. */
	chunk = chunk_of(f, 1);
	begun = tier_seal_begin(chunk);
	write_at(f, 1, 1 << 20);
	assert_true(tier_seal_end(extent, chunk, begun));
	assert_int_equal(mark_of(f, extent, 1), TIER_SEAL_THERE);
	chunk_unref(chunk);
	tier_seal_unref(extent);
}

static void test_damage(void **state)
{
	struct fixture *f = *state;
	uint64_t all;
	struct tier_seal_facts facts;
	struct extent *extent;
	struct chunk *chunk;
	uint64_t begun;

	start(f);
	write_at(f, 0, 0);
	write_at(f, 0, 1 << 20);
	write_at(f, 1, 0);
	extent = extent_of(f, 0);
	assert_true(verify(f, extent, 0));
	assert_true(verify(f, extent, 1));
	all = tier_seal_damages(f->set);
	damage(extent, 100);
	assert_int_equal(read_at(f, 0, 0), -EBADMSG);
	assert_int_equal(mark_of(f, extent, 0), TIER_SEAL_NONE);
	assert_int_equal(mark_of(f, extent, 1), TIER_SEAL_FRESH);
	tier_seal_facts(extent, &facts);
	assert_int_equal(facts.damages, 1);
	assert_int_equal(tier_seal_damages(f->set), all + 1);
	/* Found while it is verified by somebody else, and repaired before he is through. */
	chunk = chunk_of(f, 0);
	begun = tier_seal_begin(chunk);
	damage(extent, (1 << 20) + 5);
	assert_int_equal(read_at(f, 0, 1 << 20), -EBADMSG);
	write_at(f, 0, 1 << 20);
	assert_false(tier_seal_end(extent, chunk, begun));
	assert_int_equal(mark_of(f, extent, 0), TIER_SEAL_NONE);
	chunk_unref(chunk);
	tier_seal_unref(extent);
}

static void evict(struct fixture *f, uint64_t n)
{
	struct chunk *chunk = chunk_of(f, n);

	assert_true(set_unlink(f->set, chunk));
	chunk_unref(chunk);
}

/* A chunk that went and came again was not verified. */
static void test_another_life(void **state)
{
	struct fixture *f = *state;
	struct extent *extent;
	struct chunk *before;
	uint64_t begun;

	start(f);
	write_at(f, 0, 0);
	write_at(f, 1, 0);
	extent = extent_of(f, 0);
	assert_true(verify(f, extent, 0));
	before = chunk_of(f, 0);
	begun = tier_seal_begin(before);
	evict(f, 0);
	assert_int_equal(mark_of(f, extent, 0), TIER_SEAL_NONE);
	write_at(f, 0, 0);
	assert_int_equal(mark_of(f, extent, 0), TIER_SEAL_NONE);
	assert_false(tier_seal_end(extent, before, begun));
	assert_int_equal(mark_of(f, extent, 0), TIER_SEAL_NONE);
	chunk_unref(before);
	/* Another file of that number. */
	evict(f, 0);
	evict(f, 1);
	assert_null(extent_of(f, 0));
	write_at(f, 0, 0);
	before = chunk_of(f, 0);
	assert_false(tier_seal_has(extent, before));
	assert_false(tier_seal_end(extent, before, tier_seal_begin(before)));
	chunk_unref(before);
	tier_seal_unref(extent);
}

/* The bytes of a file that went whole are right for who has it, and charged. */
static void test_gone_while_held(void **state)
{
	struct fixture *f = *state;
	const struct chunk_id id = chunk_number(0);
	uint8_t want[BLOCK_BYTES];
	uint8_t got[BLOCK_BYTES];
	struct extent *extent;
	int fd;

	start(f);
	write_at(f, 0, 0);
	extent = extent_of(f, 0);
	assert_int_equal(tier_seal_open_fd(extent, &fd), 0);
	tier_seal_hold(extent);
	assert_true(tier_set_drop(f->set, &id.volume, id.lineage, NULL, NULL) > 0);
	assert_null(extent_of(f, 0));
	assert_true(status_of(f).held >= RUN_BYTES);
	assert_int_equal(pread(fd, got, sizeof(got), 0), sizeof(got));
	pattern(1, want, sizeof(want));
	assert_memory_equal(got, want, sizeof(want));
	(void)close(fd);
	tier_seal_let_go(extent);
	tier_seal_unref(extent);
	assert_int_equal(status_of(f).held, 0);
}

/* ---- what a held one is spared -------------------------------------------------------------- */

static void test_not_evicted(void **state)
{
	const struct tier_policy lru = { .evict = TIER_EVICT_LRU };
	struct evict_for watermark = { .class = TIER_OWNED };
	struct evict_for shrink = { .class = TIER_OWNED, .shrink = true };
	struct fixture *f = *state;
	const struct chunk_id id = chunk_number(0);
	struct extent *extent;
	struct chunk *chunk;

	start(f);
	assert_int_equal(tier_set_policy(f->set, &id.volume, &lru), 0);
	for (uint64_t n = 0; n < 4; n++)
		write_at(f, n, 0);
	extent = extent_of(f, 0);
	tier_seal_hold(extent);
	assert_int_equal(evict_one(f->set, &watermark, NULL), 0);
	assert_false(evict_possible(f->set, &watermark));
	/* Others, that came later, go meanwhile. */
	write_at(f, 4, 0);
	assert_true(evict_one(f->set, &watermark, NULL) > 0);
	assert_null(chunk_of(f, 4));
	assert_int_equal(evict_one(f->set, &watermark, NULL), 0);
	for (uint64_t n = 0; n < 4; n++)
		assert_int_equal(read_at(f, n, 0), 0);
	/* For a quota that an operator made smaller a chunk of it goes, and the rest stays. */
	chunk = chunk_of(f, 0);
	shrink.space = chunk->space;
	assert_true(evict_one(f->set, &shrink, NULL) > 0);
	chunk_unref(chunk);
	assert_null(chunk_of(f, 0));
	for (uint64_t n = 1; n < 4; n++)
		assert_int_equal(read_at(f, n, 0), 0);
	assert_int_equal(evict_one(f->set, &watermark, NULL), 0);
	tier_seal_let_go(extent);
	tier_seal_unref(extent);
	assert_true(evict_one(f->set, &watermark, NULL) > 0);
	assert_null(extent_of(f, 0));
	/* Let go of, it is as all others. */
	write_at(f, 8, 0);
	extent = extent_of(f, 2);
	tier_seal_hold(extent);
	assert_int_equal(evict_one(f->set, &watermark, NULL), 0);
	tier_seal_let_go(extent);
	tier_seal_unref(extent);
	assert_true(evict_one(f->set, &watermark, NULL) > 0);
}

static void test_not_moved(void **state)
{
	struct fixture *f = *state;
	struct extent *extent;
	struct chunk *chunk;

	start(f);
	write_at(f, 0, 0);
	write_at(f, 4, 0);
	extent = extent_of(f, 0);
	tier_seal_hold(extent);
	layout(f, false);
	round_all(f);
	chunk = chunk_of(f, 0);
	assert_true(tier_seal_has(extent, chunk));
	chunk_unref(chunk);
	chunk = chunk_of(f, 4);
	assert_int_equal(chunk_extent_bytes(chunk), 0);
	chunk_unref(chunk);
	tier_seal_let_go(extent);
	round_all(f);
	chunk = chunk_of(f, 0);
	assert_false(tier_seal_has(extent, chunk));
	assert_int_equal(read_at(f, 0, 0), 0);
	chunk_unref(chunk);
	tier_seal_unref(extent);
}

/* Writes a chunk whole: 16 objects of 1 MiB. */
static void write_whole(struct fixture *f, uint64_t n)
{
	for (uint32_t i = 0; i < 16; i++) {
		struct piece_run run = run_of(i * UNIT_BYTES, UNIT_BYTES, n * 16 + i + 1);

		assert_int_equal(write_run(f, n, &run), 0);
	}
}

/* Most of it is dead: who holds it keeps that file, and is not given another one. */
static void test_not_renewed(void **state)
{
	struct fixture *f = *state;
	struct tier_seal_facts before;
	struct tier_seal_facts after;
	struct extent *extent;
	struct extent *now;

	start(f);
	for (uint64_t n = 0; n < 4; n++)
		write_whole(f, n);
	extent = extent_of(f, 0);
	tier_seal_facts(extent, &before);
	tier_seal_hold(extent);
	for (uint64_t n = 0; n < 3; n++)
		evict(f, n);
	round_all(f);
	now = extent_of(f, 0);
	assert_ptr_equal(now, extent);
	tier_seal_unref(now);
	tier_seal_let_go(extent);
	tier_seal_unref(extent);
	round_all(f);
	now = extent_of(f, 0);
	assert_non_null(now);
	tier_seal_facts(now, &after);
	assert_true(after.file != before.file);
	tier_seal_unref(now);
}

/* ---- into an extent ------------------------------------------------------------------------- */

static uint64_t shared_bytes;
static int share_fails;

/* A filesystem that shares blocks, or one that cannot. */
static int fake_share(int from, uint64_t from_offset, int to, uint64_t to_offset, uint64_t len)
{
	uint8_t *data;
	int r;

	if (share_fails)
		return share_fails;
	assert_int_equal((from_offset | to_offset | len) % BLOCK_BYTES, 0);
	data = malloc(len);
	assert_non_null(data);
	r = disk_pread(from, data, len, from_offset);
	if (r == 0)
		r = disk_pwrite(to, data, len, to_offset);
	free(data);
	shared_bytes += r == 0 ? len : 0;
	return r;
}

/* Chunk files become parts of an extent: blocks are shared where that can be, else copied. */
static void check_moved_in(struct fixture *f, int fails)
{
	struct disk_ops ops = disk_kernel;
	const struct disk_ops *before;
	struct chunk *chunk;
	struct extent *extent;

	ops.share = fake_share;
	share_fails = fails;
	shared_bytes = 0;
	before = disk_use(&ops);
	fixture_open(f);
	space_stop(f->set);
	for (uint64_t n = 0; n < 4; n++)
		write_whole(f, n);
	layout(f, true);
	round_all(f);
	extent = extent_of(f, 0);
	assert_non_null(extent);
	for (uint64_t n = 0; n < 4; n++) {
		chunk = chunk_of(f, n);
		assert_true(tier_seal_has(extent, chunk));
		assert_int_equal(chunk_present_bytes(chunk), CHUNK_BYTES);
		chunk_unref(chunk);
		for (uint32_t i = 0; i < 16; i++) {
			struct piece_run run = run_of(i * UNIT_BYTES, UNIT_BYTES, n * 16 + i + 1);

			assert_int_equal(read_run(f, n, &run), 0);
		}
	}
	tier_seal_unref(extent);
	assert_int_equal(shared_bytes, fails ? 0 : 4 * CHUNK_BYTES);
	assert_int_equal(each_chunk_file(f, NULL, NULL), 0);
	fixture_close(f);
	(void)disk_use(before);
}

static void test_shared(void **state)
{
	check_moved_in(*state, 0);
}

static void test_copied(void **state)
{
	check_moved_in(*state, -EOPNOTSUPP);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
		TEST(test_marks),
		TEST(test_damage),
		TEST(test_another_life),
		TEST(test_gone_while_held),
		TEST(test_not_evicted),
		TEST(test_not_moved),
		TEST(test_not_renewed),
		TEST(test_shared),
		TEST(test_copied),
#undef TEST
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
