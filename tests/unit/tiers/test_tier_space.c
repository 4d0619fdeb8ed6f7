/*
 * What may be where: quotas, priorities, pins, `lru`, held bytes, watermarks. All on one tier; a
 * clock that the tests move.
 */
#include "tests/unit/tiers/tier_fixture.h"

#include <sched.h>
#include <stdatomic.h>
#include "base/clock.h"
#include "tiers/disk.h"
#include "tiers/evict_internal.h"
#include "tiers/tier_set_internal.h"

#define OBJECT UNIT_BYTES
/* A chunk of so many objects. */
#define OBJECTS 4u
#define CHARGE  (OBJECTS * OBJECT + CHUNK_HEAD_BYTES + 64 * KiB) /* at most; at least the data */

static _Atomic uint64_t fake_now = 1000 * CLOCK_SECOND;

static uint64_t fake_clock(void)
{
	return atomic_load(&fake_now);
}

static void pass(uint64_t ns)
{
	atomic_fetch_add(&fake_now, ns);
}

static void start(struct fixture *f)
{
	fixture_open(f);
	space_stop(f->set); /* the tests run its rounds */
	atomic_store(&f->set->volumes.clock, fake_clock);
}

static struct chunk_id id_in(uint8_t volume, uint64_t n)
{
	struct chunk_id id = { .lineage = 1, .chunk = n };

	memset(id.volume.bytes, volume, sizeof(id.volume.bytes));
	return id;
}

static void set_policy(struct fixture *f, uint8_t volume, struct tier_policy policy)
{
	struct chunk_id id = id_in(volume, 0);

	assert_int_equal(tier_set_policy(f->set, &id.volume, &policy), 0);
}

static void ask(struct fixture *f, uint8_t volume, uint64_t size, uint64_t bytes)
{
	struct chunk_id id = id_in(volume, 0);

	tier_volume_asked(f->set, &id.volume, size, bytes);
}

static struct tier_volume_status volume_of(struct fixture *f, uint8_t volume)
{
	struct chunk_id id = id_in(volume, 0);
	struct tier_volume_status status;

	assert_true(tier_volume_status(f->set, &id.volume, &status));
	return status;
}

/* Fills a chunk; how many of its objects went in. */
static uint32_t fill_as(
	struct fixture *f, uint8_t volume, uint64_t n, const struct tier_admission *how)
{
	uint8_t *data = malloc(OBJECT);
	struct chunk_id id = id_in(volume, n);
	uint32_t written = 0;

	assert_non_null(data);
	for (uint32_t i = 0; i < OBJECTS; i++) {
		struct piece_run run = run_of(i * OBJECT, OBJECT, n * OBJECTS + i + 1);
		struct chunk *chunk;

		pattern(run.object_seed, data, OBJECT);
		if (tier_chunk_admit_as(f->set, &id, how, &chunk) < 0)
			break;
		if (chunk_write(chunk, &run, data) == 0)
			written++;
		chunk_unref(chunk);
	}
	free(data);
	pass(CLOCK_SECOND);
	return written;
}

static uint32_t fill(struct fixture *f, uint8_t volume, uint64_t n)
{
	static const struct tier_admission how = { .class = TIER_OWNED, .want = TIER_WANT_READ };

	return fill_as(f, volume, n, &how);
}

/* Chunks 0, 1, ... until one does not go in whole; how many did. */
static uint64_t fill_up(struct fixture *f, uint8_t volume)
{
	uint64_t n = 0;

	while (n < 1000 && fill(f, volume, n) == OBJECTS)
		n++;
	assert_in_range(n, 1, 999);
	return n;
}

static bool is_there(struct fixture *f, uint8_t volume, uint64_t n)
{
	struct chunk_id id = id_in(volume, n);
	struct chunk *chunk = tier_chunk_find(f->set, &id);
	bool there = chunk && chunk_present(chunk, 0, OBJECTS * OBJECT);

	chunk_unref(chunk);
	return there;
}

static void read_chunk(struct fixture *f, uint8_t volume, uint64_t n)
{
	struct chunk_id id = id_in(volume, n);
	struct chunk *chunk = tier_chunk_find(f->set, &id);

	assert_non_null(chunk);
	chunk_note_read(chunk);
	chunk_unref(chunk);
	pass(CLOCK_SECOND);
}

static uint64_t evicted(struct fixture *f)
{
	return counter_get(&tier_set_counters(f->set)->evicted);
}

/* ---- one volume ------------------------------------------------------------------------------ */

static void test_never(void **state)
{
	struct fixture *f = *state;
	uint64_t n;

	start(f);
	n = fill_up(f, 1);
	for (uint64_t i = n; i < n + 5; i++)
		assert_true(fill(f, 1, i) < OBJECTS);
	for (uint64_t i = 0; i < n; i++)
		assert_true(is_there(f, 1, i));
	assert_int_equal(evicted(f), 0);
}

static void test_lru(void **state)
{
	struct fixture *f = *state;
	uint64_t n;

	start(f);
	n = fill_up(f, 1);
	set_policy(f, 1, (struct tier_policy){ .evict = TIER_EVICT_LRU });
	read_chunk(f, 1, 0);
	assert_int_equal(fill(f, 1, 500), OBJECTS);
	assert_true(is_there(f, 1, 0)); /* read last */
	assert_false(is_there(f, 1, 1));
	assert_true(is_there(f, 1, n - 1));
	assert_true(is_there(f, 1, 500));
	assert_true(evicted(f) >= 1);
	assert_true(status_of(f).used <= f->capacity);
	/* Neighbours push nothing out. */
	assert_true(
		fill_as(f, 1, 501, &(struct tier_admission){ .want = TIER_WANT_FILL }) < OBJECTS);
}

static void test_unread_goes_first(void **state)
{
	static const struct tier_admission ahead = { .want = TIER_WANT_AHEAD };
	struct fixture *f = *state;
	uint64_t n;

	start(f);
	set_policy(f, 1, (struct tier_policy){ .evict = TIER_EVICT_LRU });
	assert_int_equal(fill(f, 1, 900), OBJECTS);
	assert_int_equal(fill_as(f, 1, 901, &ahead), OBJECTS);
	assert_int_equal(fill_as(f, 1, 902, &ahead), OBJECTS);
	set_policy(f, 1, (struct tier_policy){ 0 });
	n = fill_up(f, 1);
	assert_true(n > 10);
	read_chunk(f, 1, 902);
	set_policy(f, 1, (struct tier_policy){ .evict = TIER_EVICT_LRU });
	assert_int_equal(fill(f, 1, 903), OBJECTS);
	assert_true(is_there(f, 1, 900)); /* older, but read */
	assert_false(is_there(f, 1, 901));
	assert_true(is_there(f, 1, 902));
	/* What was announced a moment ago is about to be read. */
	assert_int_equal(fill_as(f, 1, 904, &ahead), OBJECTS);
	assert_int_equal(fill(f, 1, 905), OBJECTS);
	assert_true(is_there(f, 1, 904));
	pass(EVICT_GRACE_NS);
	for (uint64_t i = 906; i < 909; i++)
		assert_int_equal(fill(f, 1, i), OBJECTS);
	assert_false(is_there(f, 1, 904));
}

/* ---- epochs ---------------------------------------------------------------------------------- */

#define EPOCH_CHUNKS 110u
#define EPOCHS       4u

static void shuffle(uint32_t *order, unsigned int *seed)
{
	for (uint32_t i = EPOCH_CHUNKS - 1; i > 0; i--) {
		uint32_t j = (uint32_t)rand_r(seed) % (i + 1);
		uint32_t other = order[i];

		order[i] = order[j];
		order[j] = other;
	}
}

/* Reads one object of a chunk as a reader's worker does; true when it was there. */
static bool read_or_fill(struct fixture *f, uint64_t n, uint8_t *data)
{
	struct piece_run run = run_of(0, OBJECT, n + 1);
	struct chunk_id id = id_in(1, n);
	struct chunk *chunk = tier_chunk_find(f->set, &id);
	bool there = chunk && chunk_present(chunk, 0, OBJECT);

	if (chunk)
		chunk_note_read(chunk);
	chunk_unref(chunk);
	if (!there && tier_chunk_admit(f->set, &id, &chunk) == 0) {
		int r = chunk_write(chunk, &run, data);

		assert_true(r == 0 || r == -ENOSPC); /* no room: it is bypassed */
		chunk_unref(chunk);
	}
	pass(CLOCK_SECOND);
	return there;
}

/* Per mille of the reads of the last epochs, each of which reads every chunk once, that were
 * there. */
static uint32_t hits_of(struct fixture *f, enum tier_evict evict)
{
	uint8_t *data = calloc(1, OBJECT);
	uint32_t order[EPOCH_CHUNKS];
	unsigned int seed = 1;
	uint32_t hits = 0;

	assert_non_null(data);
	for (uint32_t i = 0; i < EPOCH_CHUNKS; i++)
		order[i] = i;
	set_policy(f, 1, (struct tier_policy){ .evict = evict });
	for (uint32_t epoch = 0; epoch < EPOCHS; epoch++) {
		shuffle(order, &seed);
		for (uint32_t i = 0; i < EPOCH_CHUNKS; i++)
			hits += read_or_fill(f, order[i], data) && epoch > 0;
	}
	free(data);
	return hits * 1000 / (EPOCH_CHUNKS * (EPOCHS - 1));
}

/* With random epochs no policy has more hits than what it holds, and `lru` far fewer. */
static void test_epochs(void **state)
{
	struct fixture *f = *state;
	struct chunk_id id = id_in(1, 0);
	uint32_t never;
	uint32_t lru;
	uint32_t held;

	f->capacity = 64 * MiB;
	start(f);
	never = hits_of(f, TIER_EVICT_NEVER);
	held = (uint32_t)volume_of(f, 1).chunks * 1000 / EPOCH_CHUNKS;
	(void)tier_set_drop(f->set, &id.volume, id.lineage, NULL, NULL);
	lru = hits_of(f, TIER_EVICT_LRU);
	print_message("of 1000 reads: holds %u, never %u, lru %u\n", held, never, lru);
	assert_in_range(held, 450, 600);
	assert_true(never * 100 >= held * 97);
	assert_in_range(lru, 50, 300); /* c + (1 - c) ln(1 - c): 0.2 at 0.55 */
}

/* ---- quota ----------------------------------------------------------------------------------- */

static void test_quota(void **state)
{
	struct fixture *f = *state;
	uint64_t n;

	start(f);
	set_policy(f, 1, (struct tier_policy){ .quota = 5 * CHARGE });
	n = fill_up(f, 1);
	assert_in_range(n, 4, 5);
	assert_true(volume_of(f, 1).charged <= 5 * CHARGE);
	assert_true(counter_get(&tier_set_counters(f->set)->over_quota) > 0);
	/* Another volume has the rest. */
	assert_true(fill_up(f, 2) > 5);
	for (uint64_t i = 0; i < n; i++)
		assert_true(is_there(f, 1, i));
	/* `lru` within the quota takes from itself alone. */
	set_policy(f, 1, (struct tier_policy){ .quota = 5 * CHARGE, .evict = TIER_EVICT_LRU });
	for (uint64_t i = 100; i < 120; i++)
		assert_int_equal(fill(f, 1, i), OBJECTS);
	assert_true(volume_of(f, 1).charged <= 5 * CHARGE);
	assert_int_equal(volume_of(f, 2).evicted, 0);
	assert_true(is_there(f, 1, 119));
	assert_false(is_there(f, 1, 0));
}

static void test_quota_shrinks(void **state)
{
	struct fixture *f = *state;

	start(f);
	for (uint64_t i = 0; i < 8; i++)
		assert_int_equal(fill(f, 1, i), OBJECTS);
	read_chunk(f, 1, 0);
	set_policy(f, 1, (struct tier_policy){ .quota = 3 * CHARGE });
	space_round(f->set); /* what its thread does */
	assert_true(volume_of(f, 1).charged <= 3 * CHARGE);
	assert_true(volume_of(f, 1).charged > OBJECTS * OBJECT);
	assert_true(is_there(f, 1, 0)); /* `never`, but the oldest went */
	assert_false(is_there(f, 1, 1));
}

/* ---- several volumes ------------------------------------------------------------------------- */

static void test_priority(void **state)
{
	struct fixture *f = *state;
	uint64_t n;

	start(f);
	n = fill_up(f, 1);
	set_policy(f, 2, (struct tier_policy){ .priority = 1 });
	for (uint64_t i = 0; i < n; i++)
		assert_int_equal(fill(f, 2, i), OBJECTS);
	assert_int_equal(fill(f, 2, n + 1) < OBJECTS, true); /* `never` inside itself */
	assert_true(volume_of(f, 1).chunks <= 1);
	/* The other way round nothing goes. */
	assert_true(fill(f, 1, 700) < OBJECTS);
	assert_int_equal(volume_of(f, 2).evicted, 0);
}

static void test_pin(void **state)
{
	struct fixture *f = *state;
	uint64_t n;

	start(f);
	set_policy(f, 1, (struct tier_policy){ .pin = true });
	n = fill_up(f, 1);
	set_policy(f, 2, (struct tier_policy){ .priority = 1000 });
	assert_true(fill(f, 2, 0) < OBJECTS);
	for (uint64_t i = 0; i < n; i++)
		assert_true(is_there(f, 1, i));
	set_policy(f, 1, (struct tier_policy){ 0 });
	assert_int_equal(fill(f, 2, 0), OBJECTS);
	assert_false(is_there(f, 1, 0));
}

static void test_value(void **state)
{
	struct fixture *f = *state;
	uint64_t n;

	start(f);
	n = fill_up(f, 1);
	ask(f, 1, n * CHARGE, n * CHARGE); /* one epoch */
	ask(f, 2, n * CHARGE, n * CHARGE);
	assert_true(fill(f, 2, 0) < OBJECTS); /* alike: they leave each other alone */
	assert_int_equal(evicted(f), 0);
	for (int i = 0; i < 8; i++) { /* nobody reads the first any more */
		pass(HEAT_HALF_LIFE_NS);
		ask(f, 2, n * CHARGE, n * CHARGE);
	}
	assert_int_equal(fill(f, 2, 1), OBJECTS);
	assert_false(is_there(f, 1, 0));
	assert_true(is_there(f, 1, n - 1));
}

static void test_copies_go_first(void **state)
{
	static const struct tier_admission copy = { .class = TIER_COPY };
	struct fixture *f = *state;
	uint64_t n;

	start(f);
	set_policy(f, 2, (struct tier_policy){ .priority = 1, .pin = true });
	assert_int_equal(fill_as(f, 2, 800, &copy), OBJECTS);
	n = fill_up(f, 1); /* volume 2 is pinned: its copy stays */
	assert_true(is_there(f, 2, 800));
	set_policy(f, 2, (struct tier_policy){ .priority = 1 });
	assert_int_equal(fill(f, 1, 600), OBJECTS); /* whatever its priority is */
	assert_false(is_there(f, 2, 800));
	for (uint64_t i = 0; i < n; i++)
		assert_true(is_there(f, 1, i));
	/* And a copy never pushes an owned chunk out. */
	set_policy(f, 1, (struct tier_policy){ 0 });
	assert_true(fill_as(f, 2, 801, &copy) < OBJECTS);
}

static enum tier_class odd_are_copies(void *arg, const struct tier_chunk_look *look)
{
	uint64_t *bytes = arg;

	*bytes += look->bytes;
	return look->id.chunk % 2 ? TIER_COPY : TIER_OWNED;
}

static enum tier_class all_are_owned(void *arg, const struct tier_chunk_look *look)
{
	(void)arg;
	(void)look;
	return TIER_OWNED;
}

/* Chunks that others own by now go first, in the order of their reads. */
static void test_classified_anew(void **state)
{
	struct fixture *f = *state;
	struct chunk_id id = id_in(1, 0);
	uint64_t bytes = 0;

	start(f);
	for (uint64_t i = 0; i < 8; i++)
		assert_int_equal(fill(f, 1, i), OBJECTS);
	assert_int_equal(tier_set_classify(f->set, odd_are_copies, &bytes), 4);
	assert_int_equal(bytes, 8ull * OBJECTS * OBJECT);
	assert_int_equal(tier_set_classify(f->set, odd_are_copies, &bytes), 0);
	assert_int_equal(
		tier_set_copy_bytes(f->set, &id.volume, id.lineage), 4ull * OBJECTS * OBJECT);
	(void)fill_up(f, 2);
	for (uint64_t i = 0; i < 8; i++)
		assert_int_equal(is_there(f, 1, i), i % 2 == 0);
	(void)tier_set_classify(f->set, all_are_owned, NULL);
	assert_int_equal(tier_set_copy_bytes(f->set, &id.volume, id.lineage), 0);
}

/* What is owned does not go with the copies of its extent. */
static void test_copies_of_an_extent(void **state)
{
	const struct tier_layout layout = { .end = 64 * CHUNK_BYTES,
		.used = 40 * MiB,
		.extent_bytes = 4ull * CHUNK_BYTES,
		.whole = true };
	struct fixture *f = *state;
	struct chunk_id id = id_in(1, 0);
	uint64_t bytes = 0;

	start(f);
	assert_int_equal(tier_set_layout(f->set, &id.volume, id.lineage, &layout), 0);
	for (uint64_t i = 0; i < 4; i++)
		assert_int_equal(fill(f, 1, i), OBJECTS);
	assert_int_equal(tier_set_classify(f->set, odd_are_copies, &bytes), 2);
	for (uint64_t i = 0; is_there(f, 1, 1) && i < 1000; i++)
		(void)fill(f, 2, i);
	for (uint64_t i = 0; i < 4; i++)
		assert_int_equal(is_there(f, 1, i), i % 2 == 0);
}

/* An extent gives its room back when its last chunk has gone: all go. */
static void test_extents_go_whole(void **state)
{
	const struct tier_layout layout = { .end = 64 * CHUNK_BYTES,
		.used = 40 * MiB,
		.extent_bytes = 4ull * CHUNK_BYTES,
		.whole = true };
	struct fixture *f = *state;
	struct chunk_id id = id_in(1, 0);
	struct tier_status status;

	start(f);
	assert_int_equal(tier_set_layout(f->set, &id.volume, id.lineage, &layout), 0);
	for (uint64_t i = 0; i < 8; i++)
		assert_int_equal(fill(f, 1, i), OBJECTS);
	status = status_of(f);
	assert_int_equal(status.extents, 2);
	set_policy(f, 2, (struct tier_policy){ .priority = 1 });
	for (uint64_t i = 0; status_of(f).extents == 2; i++)
		assert_int_equal(fill(f, 2, i), OBJECTS);
	assert_int_equal(status_of(f).held, 0);
	for (uint64_t i = 0; i < 8; i++)
		assert_int_equal(is_there(f, 1, i), i >= 4);
}

/* ---- watermarks ------------------------------------------------------------------------------ */

#define FS_BLOCKS 262144ull /* 1 GiB; its watermark is 64 MiB, the low mark 96 MiB */

static _Atomic uint64_t fs_free;   /* blocks */
static _Atomic uint64_t fs_inodes; /* free */

static int fake_statvfs(int fd, struct statvfs *ret_fs)
{
	(void)fd;
	*ret_fs = (struct statvfs){ .f_frsize = 4096,
		.f_bsize = 4096,
		.f_blocks = FS_BLOCKS,
		.f_bavail = atomic_load(&fs_free),
		.f_bfree = atomic_load(&fs_free),
		.f_files = 100000,
		.f_favail = atomic_load(&fs_inodes),
		.f_ffree = atomic_load(&fs_inodes) };
	return 0;
}

static const struct disk_ops *begin_fake(struct disk_ops *ops)
{
	*ops = disk_kernel;
	ops->statvfs = fake_statvfs;
	atomic_store(&fs_free, FS_BLOCKS / 2);
	atomic_store(&fs_inodes, 50000);
	return disk_use(ops);
}

static void look(struct fixture *f)
{
	tier_refresh_space(f->set->tiers[0], true);
}

static uint64_t free_now(struct fixture *f, uint64_t free_at_first)
{
	return free_at_first + evicted(f) * OBJECTS * OBJECT / BLOCK_BYTES;
}

/* Somebody else fills the filesystem: what may go, goes, and admission begins again at the low
 * mark. Inside `never` nothing goes. */
static void test_watermark(void **state)
{
	struct fixture *f = *state;
	struct disk_ops ops;
	const struct disk_ops *kernel = begin_fake(&ops);
	const uint64_t before = 62 * MiB / 4096;

	start(f);
	for (uint64_t i = 0; i < 4; i++)
		assert_int_equal(fill(f, 1, i), OBJECTS);
	set_policy(f, 2, (struct tier_policy){ .evict = TIER_EVICT_LRU });
	for (uint64_t i = 0; i < 10; i++)
		assert_int_equal(fill(f, 2, i), OBJECTS);
	atomic_store(&fs_free, before);
	look(f);
	assert_true(tier_set_full(f->set));
	for (int round = 0; round < 20; round++) {
		space_round(f->set);
		atomic_store(&fs_free, free_now(f, before));
		look(f);
	}
	assert_in_range(evicted(f), 9, 10); /* 34 MiB in chunks of 4 */
	assert_int_equal(volume_of(f, 1).evicted, 0);
	for (uint64_t i = 0; i < 4; i++)
		assert_true(is_there(f, 1, i));
	assert_false(tier_set_full(f->set));

	/* Between the two marks it goes on as it was. */
	atomic_store(&fs_free, 80 * MiB / 4096);
	look(f);
	assert_false(tier_set_full(f->set));
	atomic_store(&fs_free, 60 * MiB / 4096);
	look(f);
	atomic_store(&fs_free, 80 * MiB / 4096);
	look(f);
	assert_true(tier_set_full(f->set));
	atomic_store(&fs_free, 100 * MiB / 4096);
	look(f);
	assert_false(tier_set_full(f->set));

	atomic_store(&fs_inodes, 60);
	look(f);
	assert_true(tier_set_full(f->set));
	atomic_store(&fs_inodes, 100);
	look(f);
	assert_true(tier_set_full(f->set));
	atomic_store(&fs_inodes, 200);
	look(f);
	assert_false(tier_set_full(f->set));
	fixture_close(f);
	(void)disk_use(kernel); /* ours again */
}

/* ---- held, busy ------------------------------------------------------------------------------ */

static void test_held(void **state)
{
	struct fixture *f = *state;
	struct chunk_id id = id_in(1, 0);
	struct chunk *held;
	uint64_t n;
	uint64_t used;

	start(f);
	n = fill_up(f, 1);
	held = tier_chunk_find(f->set, &id);
	used = status_of(f).used;
	set_policy(f, 1, (struct tier_policy){ .evict = TIER_EVICT_LRU });
	/* Its bytes come back when they are let go of: nothing else goes for them. */
	assert_true(fill(f, 1, 500) < OBJECTS);
	assert_false(is_there(f, 1, 0));
	assert_true(is_there(f, 1, 1));
	assert_in_range(status_of(f).held, OBJECTS * OBJECT, CHARGE);
	assert_true(status_of(f).used >= used - MiB);
	assert_int_equal(evicted(f), 1);
	chunk_unref(held);
	assert_int_equal(status_of(f).held, 0);
	assert_int_equal(volume_of(f, 1).held, 0);
	assert_true(status_of(f).used < used);
	assert_int_equal(fill(f, 1, 501), OBJECTS);
	assert_int_equal(fill(f, 1, 502), OBJECTS);
	assert_true(is_there(f, 1, n - 1));
}

struct reader {
	struct volume_space *space;
	_Atomic uint32_t round; /* whose bytes are held; the reader lets go of them */
	_Atomic uint32_t freed; /* round */
};

#define READER_ROUNDS 20000u

static void await_round(const _Atomic uint32_t *round, uint32_t n)
{
	while (atomic_load(round) < n)
		(void)sched_yield();
}

/* In the order of chunk_end(). */
static void *free_held(void *arg)
{
	struct reader *r = arg;

	for (uint32_t i = 1; i <= READER_ROUNDS; i++) {
		await_round(&r->round, i);
		volumes_settle(r->space, CHARGE, 0);
		atomic_fetch_sub(&r->space->held, CHARGE);
		atomic_store(&r->freed, i);
	}
	return NULL;
}

/* A reader drops an unlinked chunk between two looks at the volume: nothing is evicted for bytes that just came free. */
static void test_freed_while_evicting(void **state)
{
	struct fixture *f = *state;
	struct chunk_id id = id_in(1, 0);
	struct reader reader = { 0 };
	struct evict_for why = { .shrink = true };
	struct chunk *chunk;
	pthread_t thread;

	start(f);
	for (uint64_t i = 0; i < 4; i++)
		assert_int_equal(fill(f, 1, i), OBJECTS);
	set_policy(f, 1, (struct tier_policy){ .quota = volume_of(f, 1).charged });
	chunk = tier_chunk_find(f->set, &id);
	assert_non_null(chunk);
	reader.space = why.space = chunk->space;
	assert_int_equal(pthread_create(&thread, NULL, free_held, &reader), 0);
	for (uint32_t i = 1; i <= READER_ROUNDS; i++) {
		atomic_fetch_add(&why.space->held, CHARGE);
		volumes_settle(why.space, 0, CHARGE);
		atomic_store(&reader.round, i);
		while (atomic_load(&reader.freed) < i)
			(void)!evict_quota(f->set, &why, 0, 1);
	}
	pthread_join(thread, NULL);
	assert_int_equal(evicted(f), 0);
	chunk_unref(chunk);
}

static void test_writers_stay(void **state)
{
	struct evict_for why = { .class = TIER_OWNED, .shrink = true };
	struct fixture *f = *state;
	struct chunk_id id = id_in(1, 0);
	struct chunk *chunk;

	start(f);
	assert_int_equal(fill(f, 1, 0), OBJECTS);
	chunk = tier_chunk_find(f->set, &id);
	why.space = chunk->space;
	assert_int_equal(chunk_write_begin(chunk), 0);
	assert_int_equal(evict_one(f->set, &why, NULL), 0);
	assert_true(is_there(f, 1, 0));
	chunk_write_end(chunk);
	assert_true(evict_one(f->set, &why, NULL) >= OBJECTS * OBJECT);
	assert_false(is_there(f, 1, 0));
	assert_int_equal(chunk_write_begin(chunk), -ENOSPC);
	chunk_unref(chunk);
}

static void test_full(void **state)
{
	struct fixture *f = *state;
	struct chunk_id id = id_in(1, 0);

	start(f);
	assert_false(tier_volume_full(f->set, &id.volume, TIER_WANT_FILL));
	(void)fill_up(f, 1);
	while (!tier_set_full(f->set))
		assert_true(fill(f, 1, 999) > 0 || fill(f, 1, 998) > 0);
	assert_true(tier_volume_full(f->set, &id.volume, TIER_WANT_FILL));
	assert_true(tier_volume_full(f->set, &id.volume, TIER_WANT_AHEAD));
	set_policy(f, 1, (struct tier_policy){ .evict = TIER_EVICT_LRU });
	assert_true(tier_volume_full(f->set, &id.volume, TIER_WANT_FILL));
	assert_false(tier_volume_full(f->set, &id.volume, TIER_WANT_AHEAD));
}

/* Where a reader's bytes still go, no chunk of neighbours does. */
static void test_no_room_for_neighbours(void **state)
{
	struct fixture *f = *state;
	struct chunk_id id = id_in(1, 0);
	uint64_t charged;

	start(f);
	assert_int_equal(fill(f, 1, 0), OBJECTS);
	charged = volume_of(f, 1).charged;
	set_policy(f, 1, (struct tier_policy){ .quota = charged + CHUNK_FILE_BYTES });
	assert_false(tier_volume_full(f->set, &id.volume, TIER_WANT_FILL));
	set_policy(f, 1, (struct tier_policy){ .quota = charged + CHUNK_FILE_BYTES - 1 });
	assert_true(tier_volume_full(f->set, &id.volume, TIER_WANT_FILL));
	assert_false(tier_volume_full(f->set, &id.volume, TIER_WANT_AHEAD));
	assert_true(fill(f, 1, 1) > 0);
}

static void test_volumes_survive_a_restart(void **state)
{
	struct fixture *f = *state;
	uint64_t charged;

	start(f);
	assert_int_equal(fill(f, 1, 0), OBJECTS);
	assert_int_equal(fill(f, 1, 1), OBJECTS);
	charged = volume_of(f, 1).charged;
	fixture_close(f);
	start(f);
	assert_int_equal(volume_of(f, 1).charged, charged);
	set_policy(f, 1,
		(struct tier_policy){ .quota = charged + 256 * KiB, .evict = TIER_EVICT_LRU });
	read_chunk(f, 1, 0);
	assert_int_equal(fill(f, 1, 2), OBJECTS);
	assert_true(is_there(f, 1, 0));
	assert_false(is_there(f, 1, 1)); /* found at start: older than everything since */
}

static int setup(void **state)
{
	int r = fixture_setup(state);

	((struct fixture *)*state)->capacity = 96 * MiB;
	return r;
}

#define test(fn) cmocka_unit_test_setup_teardown(fn, setup, fixture_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		test(test_never),
		test(test_lru),
		test(test_unread_goes_first),
		test(test_epochs),
		test(test_quota),
		test(test_quota_shrinks),
		test(test_priority),
		test(test_pin),
		test(test_value),
		test(test_copies_go_first),
		test(test_classified_anew),
		test(test_copies_of_an_extent),
		test(test_extents_go_whole),
		test(test_watermark),
		test(test_held),
		test(test_freed_while_evicting),
		test(test_writers_stay),
		test(test_full),
		test(test_no_room_for_neighbours),
		test(test_volumes_survive_a_restart),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
