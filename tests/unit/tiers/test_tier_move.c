/*
 * Tiers of several speeds: where new chunks go, what moves up and down, and that every read finds
 * the right bytes all the while. The tiers lie on one disk; their kinds are said.
 */
#include "tests/unit/tiers/tier_fixture.h"

#include <pthread.h>
#include <stdatomic.h>
#include "base/clock.h"
#include "base/crash_point.h"
#include "base/piece.h"
#include "tiers/move_internal.h"
#include "tiers/tier_set_internal.h"

#define OBJECT  UNIT_BYTES
#define OBJECTS 4u

static const struct tier_admission wanted = { .class = TIER_OWNED, .want = TIER_WANT_READ };

struct two {
	struct fixture f; /* its set has the tiers fast and slow */
	char fast[300];
	char slow[300];
};

/* Each look at the clock is a second later. */
static uint64_t ticking_clock(void)
{
	static _Atomic uint64_t now = 1000 * CLOCK_SECOND;

	return atomic_fetch_add(&now, CLOCK_SECOND);
}

static void start(struct two *t)
{
	struct tier_config configs[2] = {
		{ .path = t->slow, .kind = TIER_HDD, .capacity = 128 * MiB, .create = true },
		{ .path = t->fast, .kind = TIER_NVME, .capacity = 64 * MiB, .create = true },
	};
	struct err e = ERR_INIT;
	int r = tier_set_open(configs, 2, &t->f.set, &e);

	if (r < 0)
		print_error("%s\n", e.text);
	assert_int_equal(r, 0);
	space_stop(t->f.set); /* the tests run its rounds */
	atomic_store(&t->f.set->volumes.clock, ticking_clock);
}

static void stop(struct two *t)
{
	tier_set_free(t->f.set);
	t->f.set = NULL;
}

static uint64_t seed_of(uint64_t n, uint32_t i)
{
	return n * OBJECTS + i + 1;
}

/* Where the objects of the tests lie: OBJECTS of them from each chunk's start. */
static int next_run(
	void *arg, const struct chunk_id *id, uint32_t offset, struct piece_run *ret_run)
{
	uint32_t i = offset / OBJECT;

	(void)arg;
	if (i >= OBJECTS)
		return -ENOENT;
	*ret_run = run_of(i * OBJECT, OBJECT, seed_of(id->chunk, i));
	return 0;
}

static int write_object(struct two *t, uint64_t n, uint32_t i)
{
	struct piece_run run = run_of(i * OBJECT, OBJECT, seed_of(n, i));
	struct chunk_id id = chunk_number(n);
	uint8_t *data = malloc(OBJECT);
	int r = -EAGAIN;

	assert_non_null(data);
	pattern(run.object_seed, data, OBJECT);
	for (int tries = 0; r == -EAGAIN && tries < 4; tries++) {
		struct chunk *chunk;

		r = tier_chunk_admit_as(t->f.set, &id, &wanted, &chunk);
		if (r < 0)
			break;
		r = chunk_write(chunk, &run, data);
		chunk_unref(chunk);
	}
	free(data);
	return r;
}

static bool fill(struct two *t, uint64_t n)
{
	bool all = true;

	for (uint32_t i = 0; i < OBJECTS; i++)
		all &= write_object(t, n, i) == 0;
	return all;
}

static int read_object(struct two *t, uint64_t n, uint32_t i)
{
	struct piece_run run = run_of(i * OBJECT, OBJECT, seed_of(n, i));

	return read_run(&t->f, n, &run);
}

static void check_chunk(struct two *t, uint64_t n)
{
	for (uint32_t i = 0; i < OBJECTS; i++)
		assert_int_equal(read_object(t, n, i), 0);
}

static struct chunk *find(struct two *t, uint64_t n)
{
	struct chunk_id id = chunk_number(n);

	return tier_chunk_find(t->f.set, &id);
}

static enum tier_kind where(struct two *t, uint64_t n)
{
	struct chunk *chunk = find(t, n);
	enum tier_kind kind = chunk ? chunk->tier->kind : TIER_KIND_ASK;

	chunk_unref(chunk);
	return kind;
}

static void heat(struct two *t, uint64_t n, int reads)
{
	struct chunk *chunk = find(t, n);

	assert_non_null(chunk);
	for (int i = 0; i < reads; i++)
		chunk_note_read(chunk);
	chunk_unref(chunk);
}

static uint64_t used(struct two *t)
{
	return counter_get(&tier_set_counters(t->f.set)->used);
}

static int move_to(struct two *t, uint64_t n, enum tier_kind kind)
{
	struct chunk *chunk = find(t, n);
	int r = -ENOENT;

	assert_non_null(chunk);
	for (uint32_t i = 0; i < t->f.set->n_tiers; i++) {
		if (t->f.set->tiers[i]->kind == kind)
			r = move_chunk(t->f.set, chunk, t->f.set->tiers[i]);
	}
	chunk_unref(chunk);
	return r;
}

/* ---- placing --------------------------------------------------------------------------------- */

static void test_faster_first(void **state)
{
	struct two *t = *state;
	uint64_t n = 0;

	start(t);
	while (fill(t, n)) {
		assert_true(n < 100);
		n++;
	}
	assert_int_equal(where(t, 0), TIER_NVME);
	assert_int_equal(where(t, 12), TIER_HDD);
	/* Both are as full as one chunk more or less. */
	assert_true(used(t) > 192 * MiB - (OBJECTS + 1) * OBJECT - 24 * MiB);
	for (uint64_t i = 0; i < n; i++)
		check_chunk(t, i);
}

static void test_move(void **state)
{
	struct two *t = *state;
	struct chunk *old;
	uint64_t before;
	struct piece_run run = run_of(0, OBJECT, seed_of(0, 0));
	uint8_t *data = malloc(OBJECT);
	int fd;

	start(t);
	tier_set_runs(t->f.set, next_run, NULL);
	assert_int_equal(write_object(t, 0, 0), 0);
	assert_int_equal(write_object(t, 0, 2), 0);
	before = used(t);
	old = find(t, 0);
	assert_int_equal(chunk_open_fd(old, &fd), 0);
	assert_int_equal(where(t, 0), TIER_NVME);
	assert_int_equal(move_to(t, 0, TIER_HDD), 0);
	assert_int_equal(where(t, 0), TIER_HDD);
	assert_int_equal(read_object(t, 0, 0), 0);
	assert_int_equal(read_object(t, 0, 2), 0);
	assert_int_equal(read_object(t, 0, 1), -ENODATA);
	assert_int_equal(write_object(t, 0, 1), 0);
	assert_int_equal(read_object(t, 0, 1), 0);

	/* The old one is charged and readable while it is held, and written no more. */
	assert_true(used(t) >= before * 2 - MiB);
	assert_int_equal(pread(fd, data, 0, 0), 0);
	run.offset = 3 * OBJECT;
	run.object_seed = seed_of(0, 3);
	pattern(run.object_seed, data, OBJECT);
	assert_int_equal(chunk_write(old, &run, data), -EAGAIN);
	chunk_unref(old);
	close(fd);
	assert_true(used(t) < before + OBJECT + MiB);
	free(data);

	/* Everything was checked on the way: the next start trusts it. */
	stop(t);
	start(t);
	assert_int_equal(where(t, 0), TIER_HDD);
	old = find(t, 0);
	assert_int_equal(old->unverified_blocks, 0);
	chunk_unref(old);
	assert_int_equal(read_object(t, 0, 1), 0);
}

static void test_unknown_pieces(void **state)
{
	struct two *t = *state;
	struct chunk *chunk;

	start(t);
	assert_true(fill(t, 0));
	assert_int_equal(move_to(t, 0, TIER_HDD), 0); /* nobody knows the objects */
	chunk = find(t, 0);
	assert_int_equal(chunk->unverified_blocks, OBJECTS * OBJECT / BLOCK_BYTES);
	check_chunk(t, 0);
	assert_int_equal(chunk->unverified_blocks, 0);
	chunk_unref(chunk);
}

static void test_damage_is_not_moved(void **state)
{
	struct two *t = *state;
	char path[800];

	start(t);
	tier_set_runs(t->f.set, next_run, NULL);
	assert_true(fill(t, 0));
	(void)snprintf(t->f.path, sizeof(t->f.path), "%.299s", t->fast);
	only_file(&t->f, path);
	flip_byte(path, OBJECT + 3 * PIECE_BYTES + 5);
	assert_int_equal(move_to(t, 0, TIER_HDD), 0);
	assert_int_equal(read_object(t, 0, 0), 0);
	assert_int_equal(read_object(t, 0, 1), -ENODATA);
	assert_int_equal(write_object(t, 0, 1), 0); /* as a reader's worker does */
	check_chunk(t, 0);
	assert_true(counter_get(&tier_set_counters(t->f.set)->mismatches) > 0);
}

static void test_dropped_while_moved(void **state)
{
	struct two *t = *state;
	struct chunk_id id = chunk_number(0);
	struct chunk *chunk;

	start(t);
	assert_true(fill(t, 0));
	chunk = find(t, 0);
	assert_int_equal(chunk_write_begin(chunk), 0);
	assert_int_equal(move_to(t, 0, TIER_HDD), -EBUSY); /* written */
	chunk_write_end(chunk);
	assert_true(tier_set_drop(t->f.set, &id.volume, id.lineage, NULL, NULL) > 0);
	assert_int_equal(move_chunk(t->f.set, chunk, t->f.set->tiers[0]), -EBUSY);
	chunk_unref(chunk);
	assert_true(used(t) < MiB);
}

/* ---- rounds ---------------------------------------------------------------------------------- */

static void test_hot_up_cold_down(void **state)
{
	struct two *t = *state;
	uint64_t slow = 0;
	uint64_t n = 0;

	start(t);
	tier_set_runs(t->f.set, next_run, NULL);
	while (n < 20) {
		assert_true(fill(t, n));
		if (where(t, n) == TIER_HDD)
			slow = n;
		n++;
	}
	assert_true(slow > 0);
	assert_int_equal(where(t, 0), TIER_NVME);
	assert_int_equal(counter_get(&tier_set_counters(t->f.set)->promoted), 0);
	heat(t, slow, 10);
	for (int i = 0; i < 4; i++)
		space_round(t->f.set);
	assert_int_equal(where(t, slow), TIER_NVME);
	assert_true(counter_get(&tier_set_counters(t->f.set)->promoted) >= 1);
	/* It stays so: no two change places for ever. */
	for (int i = 0; i < 4; i++)
		space_round(t->f.set);
	n = counter_get(&tier_set_counters(t->f.set)->promoted);
	for (int i = 0; i < 4; i++)
		space_round(t->f.set);
	assert_int_equal(counter_get(&tier_set_counters(t->f.set)->promoted), n);
	for (uint64_t i = 0; i < 20; i++)
		check_chunk(t, i);
	/* And over a restart. */
	stop(t);
	start(t);
	assert_int_equal(where(t, slow), TIER_NVME);
	for (uint64_t i = 0; i < 20; i++)
		check_chunk(t, i);
}

/* A chunk that grows in a tier without room goes on in another. */
static void test_spill(void **state)
{
	struct two *t = *state;
	uint64_t n = 0;

	start(t);
	while (write_object(t, n, 0) == 0 && where(t, n) == TIER_NVME)
		n++;
	assert_true(n >= 4);
	for (uint64_t i = 0; i < n; i++) {
		assert_true(fill(t, i));
		check_chunk(t, i);
	}
	for (uint64_t c = 0; c < n; c++) /* more than the fast tier holds */
		for (uint32_t i = OBJECTS; i < CHUNK_BYTES / OBJECT && used(t) < 150 * MiB; i++)
			assert_int_equal(write_object(t, c, i), 0);
	assert_true(counter_get(&tier_set_counters(t->f.set)->demoted) > 0);
	for (uint64_t i = 0; i < n; i++)
		check_chunk(t, i);
}

struct writer {
	pthread_t thread;
	struct two *t;
	uint64_t n;
	uint32_t i;
	int r;
};

static void *write_one(void *arg)
{
	struct writer *w = arg;

	w->r = write_object(w->t, w->n, w->i);
	return NULL;
}

/* Objects that arrive at one time for a chunk without room: one writer moves it, and all are stored. */
static void test_spill_among_writers(void **state)
{
	struct writer writers[8];
	struct two *t = *state;
	uint64_t n = 0;

	start(t);
	while (write_object(t, n, 0) == 0 && where(t, n) == TIER_NVME)
		n++;
	for (uint64_t c = 0; c < n && used(t) < 150 * MiB; c++)
		for (uint32_t i = 1; i < CHUNK_BYTES / OBJECT; i += ARRAY_SIZE(writers)) {
			uint32_t some =
				(uint32_t)min(ARRAY_SIZE(writers), CHUNK_BYTES / OBJECT - i);

			for (uint32_t k = 0; k < some; k++) {
				writers[k] = (struct writer){ .t = t, .n = c, .i = i + k };
				assert_int_equal(pthread_create(&writers[k].thread, NULL, write_one,
							 &writers[k]),
					0);
			}
			for (uint32_t k = 0; k < some; k++)
				assert_int_equal(pthread_join(writers[k].thread, NULL), 0);
			for (uint32_t k = 0; k < some; k++)
				assert_int_equal(writers[k].r, 0);
		}
	assert_true(counter_get(&tier_set_counters(t->f.set)->demoted) > 0);
}

/* A quota has no more room elsewhere: nothing moves for it. */
static void test_quota_does_not_spill(void **state)
{
	const struct tier_policy policy = { .quota = 10 * MiB };
	struct two *t = *state;
	struct chunk_id id = chunk_number(0);

	start(t);
	assert_int_equal(tier_set_policy(t->f.set, &id.volume, &policy), 0);
	assert_true(fill(t, 0));
	for (uint32_t i = OBJECTS; i < 9; i++)
		assert_int_equal(write_object(t, 0, i), 0);
	for (uint32_t i = 9; i < 12; i++)
		assert_int_equal(write_object(t, 0, i), -ENOSPC);
	assert_int_equal(where(t, 0), TIER_NVME);
	assert_int_equal(counter_get(&tier_set_counters(t->f.set)->demoted), 0);
}

/* ---- under readers --------------------------------------------------------------------------- */

struct readers {
	struct two *t;
	_Atomic bool stop;
	_Atomic uint64_t reads;
	_Atomic uint64_t missing;
	_Atomic uint64_t wrong;
};

static void *read_on(void *arg)
{
	struct readers *readers = arg;

	for (uint64_t k = 0; !atomic_load(&readers->stop); k++) {
		struct chunk_id id = chunk_number(k % 4);
		struct chunk *chunk = tier_chunk_find(readers->t->f.set, &id);

		if (!chunk)
			atomic_fetch_add(&readers->missing, 1);
		chunk_unref(chunk);
		if (read_object(readers->t, k % 4, (uint32_t)(k % OBJECTS)) == -EILSEQ)
			atomic_fetch_add(&readers->wrong, 1);
		atomic_fetch_add(&readers->reads, 1);
	}
	return NULL;
}

static void test_moves_under_readers(void **state)
{
	struct two *t = *state;
	struct readers readers = { .t = t };
	pthread_t threads[2];

	start(t);
	tier_set_runs(t->f.set, next_run, NULL);
	for (uint64_t i = 0; i < 4; i++)
		assert_true(fill(t, i));
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, read_on, &readers), 0);
	for (int round = 0; round < 20 || atomic_load(&readers.reads) < 40; round++)
		for (uint64_t i = 0; i < 4; i++) {
			int r = move_to(t, i, round % 2 ? TIER_NVME : TIER_HDD);

			assert_true(r == 0 || r == -EBUSY);
		}
	atomic_store(&readers.stop, true);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(readers.missing, 0); /* the old one or the new one, never neither */
	assert_int_equal(readers.wrong, 0);
	for (uint64_t i = 0; i < 4; i++)
		check_chunk(t, i);
}

/* The next life of the chunk begins when nothing of the last one's move is left to do. */
static void test_dropped_on_the_way(void **state)
{
	static const char *const points[] = { "move.made", "move.copied", "move.named",
		"move.listed", "move.unlisted", "move.unlinked" };
	const size_t moved_from = 4; /* before, the move is of no use any more */
	const struct piece_run run = run_of(0, OBJECT, seed_of(0, 0));
	struct two *t = *state;

	start(t);
	for (size_t i = 0; i < 2 * ARRAY_SIZE(points); i++) {
		enum tier_kind to = i % 2 ? TIER_NVME : TIER_HDD;

		assert_int_equal(write_object(t, 0, 0), 0);
		if (where(t, 0) == to)
			assert_int_equal(move_to(t, 0, to == TIER_HDD ? TIER_NVME : TIER_HDD), 0);
		drop_at(&t->f, points[i / 2], 0, &run);
		assert_int_equal(move_to(t, 0, to), i / 2 < moved_from ? -EBUSY : 0);
		drop_at_end();
		assert_int_equal(read_object(t, 0, 0), 0);
		stop(t);
		start(t);
		assert_int_equal(read_object(t, 0, 0), 0);
		assert_int_equal(counter_get(&tier_set_counters(t->f.set)->chunks), 1);
		assert_int_equal(counter_get(&tier_set_counters(t->f.set)->held), 0);
	}
}

static bool moves_while_asked(void *arg, uint64_t chunk)
{
	assert_int_equal(move_to(arg, chunk, TIER_HDD), 0);
	return false;
}

/* A move that ends under a drop does not save the chunk. */
static void test_dropped_at_the_new_place(void **state)
{
	struct two *t = *state;
	struct chunk_id id = chunk_number(0);

	start(t);
	assert_int_equal(write_object(t, 0, 0), 0);
	assert_int_equal(where(t, 0), TIER_NVME);
	assert_true(tier_set_drop(t->f.set, &id.volume, id.lineage, moves_while_asked, t) > 0);
	assert_null(find(t, 0));
	assert_int_equal(counter_get(&tier_set_counters(t->f.set)->chunks), 0);
}

static struct two *hanging;
static int admitted;

/* The disk that a dropped chunk is moved to hangs. */
static void on_made(const char *point)
{
	struct tier_set *set = hanging->f.set;
	struct gate *gate = &set->tiers[0]->gate;
	struct chunk_id id = chunk_number(0);
	struct chunk *chunk;

	if (strcmp(point, "move.made") != 0)
		return;
	assert_true(tier_set_drop(set, &id.volume, id.lineage, NULL, NULL) > 0);
	gate_set_stall(gate, 0);
	atomic_store(&gate->stalled, true);
	admitted = tier_chunk_admit(set, &id, &chunk);
	gate_set_stall(gate, GATE_STALL_NS);
	atomic_store(&gate->stalled, false);
}

static void test_nobody_waits_for_a_move_that_hangs(void **state)
{
	struct two *t = *state;

	start(t);
	assert_int_equal(t->f.set->tiers[0]->kind, TIER_HDD);
	assert_int_equal(write_object(t, 0, 0), 0);
	hanging = t;
	admitted = 0;
	crash_point_hook = on_made;
	assert_int_equal(move_to(t, 0, TIER_HDD), -EBUSY);
	crash_point_hook = NULL;
	assert_int_equal(admitted, -EIO);
	assert_int_equal(write_object(t, 0, 0), 0);
	assert_int_equal(read_object(t, 0, 0), 0);
}

/* What a crash leaves of a move. */
static void test_leftovers(void **state)
{
	struct two *t = *state;
	char path[400];
	int fd;

	start(t);
	assert_true(fill(t, 0));
	stop(t);
	(void)snprintf(path, sizeof(path), "%s/move/ab", t->slow);
	assert_int_equal(mkdir(path, 0700), 0);
	(void)snprintf(path, sizeof(path), "%s/move/ab/00000000000000ab", t->slow);
	fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	close(fd);
	start(t);
	assert_int_equal(access(path, F_OK), -1);
	check_chunk(t, 0);
}

/* ---- in memory ------------------------------------------------------------------------------- */

static int open_ram(const char *path, uint64_t capacity, struct tier_set **ret_set, struct err *e)
{
	struct tier_config config = { .path = path, .kind = TIER_RAM, .capacity = capacity };

	return tier_set_open(&config, 1, ret_set, e);
}

static void test_ram(void **state)
{
	struct two *t = *state;
	char dir[] = "/dev/shm/granary-test-XXXXXX";
	char path[64];
	struct tier_status status;
	struct err e = ERR_INIT;

	assert_int_equal(open_ram(t->fast, 64 * MiB, &t->f.set, &e), -EINVAL); /* a disk */
	assert_non_null(strstr(e.text, "mount -t tmpfs"));
	assert_int_equal(access(t->fast, F_OK), 0);
	assert_int_equal(open_ram(t->fast, 64 * MiB, &t->f.set, &e), -EINVAL);
	if (!mkdtemp(dir))
		skip();
	(void)snprintf(path, sizeof(path), "%s/tier", dir);
	assert_int_equal(open_ram(path, 0, &t->f.set, &e), -EINVAL);
	assert_non_null(strstr(e.text, "capacity"));
	assert_int_equal(open_ram(path, 1ull << 60, &t->f.set, &e), -ENOSPC);
	assert_int_equal(open_ram(path, 64 * MiB, &t->f.set, &e), 0);
	tier_set_status(t->f.set, 0, &status);
	assert_int_equal(status.kind, TIER_RAM);
	assert_true(fill(t, 0));
	check_chunk(t, 0);
	stop(t);
	assert_int_equal(open_ram(path, 64 * MiB, &t->f.set, &e), 0);
	check_chunk(t, 0);
	stop(t);
	fixture_remove_tree(dir);
	assert_int_equal(open_ram(path, 64 * MiB, &t->f.set, &e), 0); /* as after a reboot */
	assert_int_equal(where(t, 0), TIER_KIND_ASK);
	stop(t);
	fixture_remove_tree(dir);
}

static void test_kinds(void **state)
{
	enum tier_kind kind;

	(void)state;
	for (enum tier_kind k = TIER_KIND_ASK; k <= TIER_HDD; k++) {
		assert_int_equal(tier_kind_parse(tier_kind_name(k), &kind), 0);
		assert_int_equal(kind, k);
	}
	assert_int_equal(tier_kind_parse("tape", &kind), -EINVAL);
}

static int setup(void **state)
{
	struct two *t = calloc(1, sizeof(*t));
	struct fixture *f;

	assert_non_null(t);
	assert_int_equal(fixture_setup((void **)&f), 0);
	t->f = *f;
	free(f);
	(void)snprintf(t->fast, sizeof(t->fast), "%s/fast", t->f.root);
	(void)snprintf(t->slow, sizeof(t->slow), "%s/slow", t->f.root);
	*state = t;
	return 0;
}

static int teardown(void **state)
{
	struct two *t = *state;

	tier_set_free(t->f.set);
	fixture_remove_tree(t->f.root);
	free(t);
	return 0;
}

#define test(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		test(test_faster_first),
		test(test_move),
		test(test_unknown_pieces),
		test(test_damage_is_not_moved),
		test(test_dropped_while_moved),
		test(test_hot_up_cold_down),
		test(test_spill),
		test(test_spill_among_writers),
		test(test_quota_does_not_spill),
		test(test_moves_under_readers),
		test(test_dropped_on_the_way),
		test(test_dropped_at_the_new_place),
		test(test_nobody_waits_for_a_move_that_hangs),
		test(test_leftovers),
		test(test_ram),
		test(test_kinds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
