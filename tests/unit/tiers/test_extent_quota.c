/* Quotas that shrink, of volumes that are stored in extents. */
#include "tests/unit/tiers/extent_fixture.h"

/* A whole chunk. */
static void fill_chunk(struct fixture *f, uint64_t n)
{
	struct piece_run run = run_of(0, CHUNK_BYTES, n + 1);

	assert_int_equal(write_run(f, n, &run), 0);
}

static uint64_t charged_to_volume(struct fixture *f)
{
	struct chunk_id id = chunk_number(0);
	struct tier_volume_status status;

	assert_true(tier_volume_status(f->set, &id.volume, &status));
	return status.charged;
}

static uint32_t chunks_left(struct fixture *f, uint64_t n)
{
	uint32_t left = 0;

	for (uint64_t i = 0; i < n; i++) {
		struct chunk_id id = chunk_number(i);
		struct piece_run run = run_of(0, CHUNK_BYTES, i + 1);
		struct chunk *chunk = tier_chunk_find(f->set, &id);

		if (chunk)
			assert_int_equal(read_run(f, i, &run), 0);
		left += chunk != NULL;
		chunk_unref(chunk);
	}
	return left;
}

static void fill_extents(struct fixture *f, uint64_t n)
{
	open_still(f);
	layout(f, n * CHUNK_BYTES);
	for (uint64_t i = 0; i < n; i++)
		fill_chunk(f, i);
	assert_true(in_extent(f, 0) && in_extent(f, n - 1));
}

/* Rounds until the quota is met. */
static void shrink_to(struct fixture *f, const struct tier_policy *policy)
{
	struct chunk_id id = chunk_number(0);

	assert_int_equal(tier_set_policy(f->set, &id.volume, policy), 0);
	for (int round = 0; round < 40; round++)
		space_round(f->set);
}

/* The excess went, and less than a chunk more. */
static void check_shrunk(struct fixture *f, uint64_t quota, uint64_t chunks)
{
	assert_true(charged_to_volume(f) <= quota);
	assert_true(charged_to_volume(f) + CHUNK_FILE_BYTES > quota);
	assert_int_equal(chunks_left(f, chunks), charged_to_volume(f) / CHUNK_BYTES);
	assert_int_equal(status_of(f).extents, 0);
}

static const uint64_t quotas[] = { 11 * CHUNK_BYTES, 10 * CHUNK_BYTES + MiB, 3 * CHUNK_BYTES };

/* A smaller quota evicts the excess, a chunk at most beyond it, and not the extents in which it lies. */
static void test_quota_shrinks(void **state)
{
	struct fixture *f = *state;

	fill_extents(f, 12);
	for (size_t i = 0; i < ARRAY_SIZE(quotas); i++) {
		const struct tier_policy policy = { .quota = quotas[i],
			.pin = i == 1 }; /* what its operator wants less of goes, pinned or not */

		shrink_to(f, &policy);
		check_shrunk(f, quotas[i], 12);
	}
}

/* On a tier that is full to the last byte, too: what moves out of an extent goes over its capacity until the extent's file goes. */
static void test_quota_shrinks_on_a_full_tier(void **state)
{
	struct fixture *f = *state;
	struct tier *tier;

	fill_extents(f, 12);
	tier = f->set->tiers[0];
	tier->capacity = atomic_load(&tier->used);
	assert_int_equal(tier_room(tier), 0);
	for (size_t i = 0; i < ARRAY_SIZE(quotas); i++) {
		const struct tier_policy policy = { .quota = quotas[i] };

		shrink_to(f, &policy);
		check_shrunk(f, quotas[i], 12);
		/* The index may grow. */
		assert_true(atomic_load(&tier->used) <= tier->capacity + MiB);
		tier->capacity = atomic_load(&tier->used);
	}
}

/* A chunk of each extent cannot move: the others exceed the capacity by what lives in one extent. */
static void test_moves_past_capacity_are_of_one_extent(void **state)
{
	const struct tier_policy policy = { .quota = 11 * CHUNK_BYTES };
	const struct chunk_id id = chunk_number(0);
	struct fixture *f = *state;
	struct chunk *busy[3];
	struct tier *tier;

	fill_extents(f, 12);
	tier = f->set->tiers[0];
	tier->capacity = atomic_load(&tier->used);
	for (uint64_t i = 0; i < ARRAY_SIZE(busy); i++) {
		const struct chunk_id last = chunk_number(4 * i + 3);

		busy[i] = tier_chunk_find(f->set, &last);
		assert_int_equal(chunk_write_begin(busy[i]), 0);
	}
	assert_int_equal(tier_set_policy(f->set, &id.volume, &policy), 0);
	for (int round = 0; round < 40; round++) {
		space_round(f->set);
		assert_true(
			atomic_load(&tier->used) <= tier->capacity + 3 * CHUNK_FILE_BYTES + MiB);
	}
	assert_true(atomic_load(&tier->used) > tier->capacity + CHUNK_BYTES / 2);
	for (size_t i = 0; i < ARRAY_SIZE(busy); i++) {
		chunk_write_end(busy[i]);
		chunk_unref(busy[i]);
	}
	shrink_to(f, &policy);
	shrink_to(f, &policy);
	check_shrunk(f, policy.quota, 12);
}

/* A quota is raised again before the extent that exceeds the capacity is empty: others may exceed it then. */
static void test_raised_quota_ends_exceeding(void **state)
{
	const struct tier_policy policy = { .quota = 11 * CHUNK_BYTES };
	const struct tier_policy none = { 0 };
	const struct chunk_id last = chunk_number(3);
	struct fixture *f = *state;
	struct chunk *busy;
	struct tier *tier;

	fill_extents(f, 12);
	tier = f->set->tiers[0];
	tier->capacity = atomic_load(&tier->used);
	busy = tier_chunk_find(f->set, &last);
	assert_int_equal(chunk_write_begin(busy), 0);
	shrink_to(f, &policy);
	assert_int_equal(atomic_load(&tier->exceeding), busy->extent->file);
	assert_int_equal(tier_set_policy(f->set, &last.volume, &none), 0);
	space_round(f->set);
	assert_int_equal(atomic_load(&tier->exceeding), 0);
	chunk_write_end(busy);
	chunk_unref(busy);
}

/* Misses of an `lru` volume that is over its quota evict nothing: what is left of its extents moves out of them. */
static void test_misses_while_a_quota_shrinks(void **state)
{
	const struct tier_policy policy = { .quota = 11 * CHUNK_BYTES, .evict = TIER_EVICT_LRU };
	struct chunk_id busy = chunk_number(3);
	struct piece_run run = run_in(20);
	struct fixture *f = *state;
	struct chunk *chunk;

	fill_extents(f, 12);
	chunk = tier_chunk_find(f->set, &busy);
	assert_int_equal(chunk_write_begin(chunk), 0); /* it cannot move */
	assert_int_equal(tier_set_policy(f->set, &busy.volume, &policy), 0);
	for (int i = 0; i < 10; i++) {
		space_round(f->set);
		assert_int_equal(write_run(f, 20, &run), -ENOSPC);
	}
	chunk_write_end(chunk);
	chunk_unref(chunk);
	shrink_to(f, &policy);
	check_shrunk(f, policy.quota, 12);
}

static uint64_t fs_free; /* bytes */

static int fake_statvfs(int fd, struct statvfs *ret_fs)
{
	(void)fd;
	*ret_fs = (struct statvfs){ .f_frsize = 4096,
		.f_bsize = 4096,
		.f_blocks = GiB / 4096, /* its watermark is 64 MiB */
		.f_bavail = fs_free / 4096 };
	return 0;
}

/* A filesystem that has no room for what would move out of an extent: that extent goes, and no other. */
static void test_quota_shrinks_on_a_full_filesystem(void **state)
{
	const struct tier_policy policy = { .quota = 6 * CHUNK_BYTES };
	struct disk_ops ops = disk_kernel;
	const struct disk_ops *kernel;
	struct fixture *f = *state;

	fs_free = 900 * MiB;
	ops.statvfs = fake_statvfs;
	kernel = disk_use(&ops);
	fill_extents(f, 8);
	fs_free = 65 * MiB; /* less than a new chunk wants */
	tier_refresh_space(f->set->tiers[0], true);
	shrink_to(f, &policy);
	assert_true(charged_to_volume(f) <= policy.quota);
	assert_int_equal(chunks_left(f, 8), 4);
	fixture_close(f);
	(void)disk_use(kernel); /* ours again */
}

static enum tier_class two_thirds_are_copies(void *arg, const struct tier_chunk_look *look)
{
	(void)arg;
	return look->id.chunk % 3 ? TIER_COPY : TIER_OWNED;
}

static void set_unread(struct fixture *f, uint64_t n, bool unread)
{
	struct chunk_id id = chunk_number(n);
	struct chunk *chunk = tier_chunk_find(f->set, &id);

	volumes_unqueue(&f->set->volumes, chunk);
	chunk->unread = unread;
	volumes_queue(&f->set->volumes, chunk);
	chunk_unref(chunk);
}

/* Of a whole replica the copies go before what is owned, however it was read: they would go anyhow once it does not fit. */
static void test_quota_shrinks_of_copies_first(void **state)
{
	const struct tier_policy policy = { .quota = 3 * CHUNK_BYTES + 4 * MiB };
	struct fixture *f = *state;

	fill_extents(f, 12);
	assert_int_equal(tier_set_classify(f->set, two_thirds_are_copies, NULL), 8);
	for (uint64_t n = 0; n < 12; n++)
		set_unread(f, n, n % 2 == 0);
	no_layout(f);
	shrink_to(f, &policy);
	check_shrunk(f, policy.quota, 12);
	for (uint64_t n = 0; n < 12; n++) {
		struct chunk_id id = chunk_number(n);
		struct chunk *chunk = tier_chunk_find(f->set, &id);

		assert_true(!chunk || n % 3 == 0);
		chunk_unref(chunk);
	}
}

#define T(fn) cmocka_unit_test_setup_teardown(fn, fixture_setup, fixture_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_quota_shrinks),
		T(test_quota_shrinks_on_a_full_tier),
		T(test_moves_past_capacity_are_of_one_extent),
		T(test_raised_quota_ends_exceeding),
		T(test_misses_while_a_quota_shrinks),
		T(test_quota_shrinks_on_a_full_filesystem),
		T(test_quota_shrinks_of_copies_first),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
