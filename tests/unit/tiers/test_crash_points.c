/*
 * kill -9 at every crash point of tiers/. A child lives through all that a tier does and dies at
 * the point; another opens what it left: what is there is right, and the whole life goes on from
 * it. A point that the life does not come to fails the test.
 *
 * This process never opens a tier itself: RocksDB's threads would not survive its forks.
 */
#include "tests/unit/tiers/tier_fixture.h"

#include <signal.h>
#include <sys/wait.h>
#include "base/clock.h"
#include "base/crash_point.h"
#include "tests/clock/test_clock.h"
#include "tiers/extent_internal.h"
#include "tiers/move_internal.h"
#include "tiers/tier_set_internal.h"

#define CHUNKS      6u
#define UNITS       2u /* runs in a chunk */
#define EXTENT      (4ull * CHUNK_BYTES)
#define RUN_BYTES   (150u << 10)
#define DEADLINE    (60 * CLOCK_SECOND)
#define NOT_REACHED 7 /* exit of a child */

extern const char *const __start_crash_points[];
extern const char *const __stop_crash_points[];

/* Of the child. */
static const char *wanted;
static _Atomic int left;

static void on_point(const char *name)
{
	if (strcmp(name, wanted) == 0 && atomic_fetch_sub(&left, 1) == 1)
		(void)kill(getpid(), SIGKILL);
}

static struct piece_run run_in(uint32_t n, uint32_t unit)
{
	return run_of(unit * UNIT_BYTES, RUN_BYTES, n + 1);
}

static void start(struct fixture *f)
{
	char slow[400];
	struct tier_config configs[2] = {
		{ .path = f->path, .kind = TIER_NVME, .capacity = 512 * MiB, .create = true },
		/* Of one speed, or nothing would lie in extents; smaller, so that the first is taken. */
		{ .path = slow, .kind = TIER_NVME, .capacity = 256 * MiB, .create = true },
	};
	struct err e = ERR_INIT;

	(void)snprintf(slow, sizeof(slow), "%s/slow", f->root);
	if (tier_set_open(configs, 2, &f->set, &e) < 0)
		fail_msg("%s", e.text);
}

static uint64_t chunks_of(struct fixture *f)
{
	struct tier_status slow;

	tier_set_status(f->set, 1, &slow);
	return status_of(f).chunks + slow.chunks;
}

static void write_chunks(struct fixture *f)
{
	for (uint32_t n = 0; n < CHUNKS; n++)
		for (uint32_t unit = 0; unit < UNITS; unit++) {
			struct piece_run run = run_in(n, unit);

			assert_int_equal(write_run(f, n, &run), 0);
		}
}

/* All is right, or absent when it may be. */
static void read_chunks(struct fixture *f, bool may_miss)
{
	for (uint32_t n = 0; n < CHUNKS; n++)
		for (uint32_t unit = 0; unit < UNITS; unit++) {
			struct piece_run run = run_in(n, unit);
			int r = read_run(f, n, &run);

			if (r != 0 && !(may_miss && (r == -ENODATA || r == -EBADMSG)))
				fail_msg("chunk %u unit %u: %s", n, unit, err_name(r));
		}
}

static bool keep_none(void *arg, uint64_t chunk)
{
	(void)arg;
	(void)chunk;
	return false;
}

static void drop_all(struct fixture *f)
{
	const struct chunk_id id = chunk_number(0);

	(void)tier_set_drop(f->set, &id.volume, id.lineage, keep_none, NULL);
	assert_int_equal(chunks_of(f), 0);
}

static bool in_extent(struct fixture *f, uint32_t n)
{
	struct chunk_id id = chunk_number(n);
	struct chunk *chunk = tier_chunk_find(f->set, &id);
	bool is = chunk && chunk_extent_bytes(chunk) != 0;

	chunk_unref(chunk);
	return is;
}

static _Noreturn void fail_not_moved(struct fixture *f, bool whole)
{
	for (uint32_t n = 0; n < CHUNKS; n++) {
		struct chunk_id id = chunk_number(n);
		struct chunk *chunk = tier_chunk_find(f->set, &id);

		print_error("chunk %u: %s, in an extent %d, to be %d\n", n,
			chunk ? "there" : "missing", in_extent(f, n), whole);
		chunk_unref(chunk);
	}
	list_for_each (node, &f->set->extents.plans) {
		const struct extent_plan *plan = list_entry(node, struct extent_plan, link);

		print_error("plan: wanted %d whole %d settled %d failed %d rest %u next %u\n",
			plan->wanted, plan->whole, plan->settled, plan->failed, plan->rest,
			(unsigned int)plan->next);
	}
	fail_msg("chunks do not move");
	abort(); /* not reached */
}

/* The tiers' own thread goes round too. */
static bool all_moved(struct fixture *f, bool whole)
{
	uint32_t moved = 0;

	(void)extents_round(f->set);
	for (uint32_t n = 0; n < CHUNKS; n++)
		moved += in_extent(f, n) == whole;
	return moved == CHUNKS;
}

/* Into extents, or out of them; until every chunk has moved. */
static void move_chunks(struct fixture *f, bool whole)
{
	const struct chunk_id id = chunk_number(0);
	const struct tier_layout layout = { .end = 8 * CHUNK_BYTES,
		.used = 8 * CHUNK_BYTES,
		.extent_bytes = EXTENT,
		.whole = whole };

	assert_int_equal(tier_set_layout(f->set, &id.volume, id.lineage, &layout), 0);
	if (!test_wait_for(DEADLINE, all_moved(f, whole)))
		fail_not_moved(f, whole);
}

/* One chunk to the other tier. */
static void change_tier(struct fixture *f, uint32_t to)
{
	const struct chunk_id id = chunk_number(1);
	struct chunk *chunk = tier_chunk_find(f->set, &id);
	int r;

	assert_non_null(chunk);
	test_wait((r = move_chunk(f->set, chunk, f->set->tiers[to])) != -EBUSY);
	assert_int_equal(r, 0);
	chunk_unref(chunk);
}

/* A piece that is found damaged. */
static void damage_piece(struct fixture *f)
{
	struct piece_run run = run_in(0, 0);
	char path[800];

	assert_int_equal(write_run(f, 0, &run), 0);
	only_file(f, path);
	flip_byte(path, 7);
	assert_int_equal(read_run(f, 0, &run), -EBADMSG);
}

static void damage_index(struct fixture *f)
{
	char path[400];
	FILE *file;

	(void)snprintf(path, sizeof(path), "%s/index/CURRENT", f->path);
	file = fopen(path, "we");
	assert_non_null(file);
	(void)fputs("nothing\n", file);
	assert_int_equal(fclose(file), 0);
}

static void cut_file(struct fixture *f)
{
	char path[800];

	(void)each_chunk_file(f, keep_path, path);
	assert_int_equal(chmod(path, 0600), 0);
	assert_int_equal(truncate(path, BLOCK_BYTES), 0);
}

/* From whatever there is. */
static void live(struct fixture *f)
{
	start(f);
	read_chunks(f, true);
	drop_all(f);
	damage_piece(f);
	drop_all(f);
	write_chunks(f);
	read_chunks(f, false);
	change_tier(f, 1);
	read_chunks(f, false);
	change_tier(f, 0);
	read_chunks(f, false);
	move_chunks(f, true);
	read_chunks(f, false);
	move_chunks(f, false);
	read_chunks(f, false);
	fixture_close(f);
	damage_index(f);
	another_boot(f);
	start(f);
	read_chunks(f, false);
	fixture_close(f);
	cut_file(f);
	start(f);
	read_chunks(f, true);
	write_chunks(f);
	fixture_close(f);
}

/* After a crash: in the end what is cached is there, once. */
static void live_on(struct fixture *f)
{
	live(f);
	start(f);
	read_chunks(f, false);
	assert_int_equal(chunks_of(f), CHUNKS);
	assert_int_equal(status_of(f).extents, 0);
	assert_int_equal(each_chunk_file(f, NULL, NULL), status_of(f).chunks);
	fixture_close(f);
}

static int in_child(void (*fn)(struct fixture *f), struct fixture *f, const char *point, int nth)
{
	int status = 0;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		wanted = point;
		atomic_store(&left, nth);
		crash_point_hook = point ? on_point : NULL;
		fn(f);
		_exit(point ? NOT_REACHED : 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static void kill_at(struct fixture *f, const char *point, int nth)
{
	int status = in_child(live, f, point, nth);

	if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
		fail_msg("%s, time %d: not reached, or the life failed: status %x", point, nth,
			(unsigned int)status);
	if (in_child(live_on, f, NULL, 0) != 0)
		fail_msg("%s, time %d: the life after it failed", point, nth);
}

static void test_each_point(void **state)
{
	struct fixture *f = *state;
	size_t n = (size_t)(__stop_crash_points - __start_crash_points);

	assert_true(n >= 20);
	for (size_t i = 0; i < n; i++) {
		const char *point = __start_crash_points[i];

		kill_at(f, point, 1);
		if (strcmp(point, "piece.entered") == 0)
			kill_at(f, point, 2);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_each_point, fixture_setup, fixture_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
