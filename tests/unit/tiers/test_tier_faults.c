/* Full tiers, full and failing disks, a failing index, few descriptors. */
#include "tests/unit/tiers/tier_fixture.h"
#include "base/pool.h"
#include "tests/clock/test_clock.h"
#include "tiers/disk.h"
#include "tiers/tier_set_internal.h"

#include <sys/mount.h>

static void add_blocks(const char *path, void *arg)
{
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	*(uint64_t *)arg += (uint64_t)st.st_blocks * 512;
}

static bool keep_none(void *arg, uint64_t chunk)
{
	(void)arg;
	(void)chunk;
	return false;
}

/* Until no chunk takes a MiB any more: MiB number m goes to chunk m / 16. */
static uint32_t fill(struct fixture *f)
{
	uint32_t m = 0;

	for (;; m++) {
		struct piece_run run = run_of(m % 16 * UNIT_BYTES, UNIT_BYTES, m);
		int r = write_run(f, m / 16, &run);

		if (r == -ENOSPC)
			return m;
		assert_int_equal(r, 0);
		assert_true(status_of(f).used <= status_of(f).capacity);
	}
}

static void test_admits_until_full(void **state)
{
	struct fixture *f = *state;
	struct piece_run again = run_of(0, UNIT_BYTES, 0);
	struct chunk_id id = chunk_number(0);
	uint64_t blocks = 0;
	uint32_t n;

	f->capacity = 128 * MiB;
	fixture_open(f);
	assert_false(tier_set_full(f->set));
	n = fill(f);
	assert_true(n >= 122); /* all but index, tables and one unit */
	assert_true(tier_set_full(f->set));
	assert_true(counter_get(&tier_set_counters(f->set)->refused) > 0 || n % 16 != 0);
	each_chunk_file(f, add_blocks, &blocks);
	assert_true(blocks <= f->capacity);
	assert_true(status_of(f).used >= blocks);
	for (uint32_t m = 0; m < n; m++) {
		struct piece_run run = run_of(m % 16 * UNIT_BYTES, UNIT_BYTES, m);

		assert_int_equal(read_run(f, m / 16, &run), 0);
	}

	/* Full after a restart, too; and free again when the data goes. */
	fixture_reopen(f);
	assert_true(tier_set_full(f->set));
	assert_true(status_of(f).used <= f->capacity);
	assert_true(tier_set_drop(f->set, &id.volume, id.lineage, keep_none, NULL) >= n * MiB);
	assert_false(tier_set_full(f->set));
	assert_true(status_of(f).used < 16 * MiB);
	assert_int_equal(status_of(f).data_bytes, 0);
	assert_int_equal(write_run(f, 0, &again), 0);
}

/* 1 % of the data costs about 1 % of the capacity. */
static void test_sparse_is_cheap(void **state)
{
	struct fixture *f = *state;

	f->capacity = 64 * MiB;
	fixture_open(f);
	for (uint32_t i = 0; i < 200; i++) {
		struct piece_run run = run_of((i * 37 % 140) * 28 * BLOCK_BYTES, 110 * 1024, i);

		assert_int_equal(write_run(f, i, &run), 0);
	}
	assert_int_equal(status_of(f).chunks, 200);
	assert_int_equal(status_of(f).data_bytes, 200 * 28 * BLOCK_BYTES);
	assert_true(status_of(f).used < 32 * MiB);
}

static void test_held_stays_charged(void **state)
{
	struct fixture *f = *state;
	struct piece_run all = run_of(0, CHUNK_BYTES, 1);
	struct chunk_id id = chunk_number(0);
	struct chunk *held;

	fixture_open(f);
	assert_int_equal(write_run(f, 0, &all), 0);
	held = tier_chunk_find(f->set, &id);
	assert_true(tier_set_drop(f->set, &id.volume, id.lineage, keep_none, NULL) > CHUNK_BYTES);
	assert_int_equal(each_chunk_file(f, NULL, NULL), 0);
	assert_true(status_of(f).used > CHUNK_BYTES);
	chunk_unref(held);
	assert_true(status_of(f).used < CHUNK_BYTES);
}

static void test_two_tiers(void **state)
{
	struct fixture *f = *state;
	char second[400];
	struct tier_config configs[2] = {
		{ .path = f->path, .capacity = 64 * MiB, .create = true },
		{ .path = second, .capacity = 64 * MiB, .create = true },
	};
	bool written[160];
	struct tier_status a;
	struct tier_status b;
	uint32_t n = 0;

	(void)snprintf(second, sizeof(second), "%s/second", f->root);
	assert_int_equal(tier_set_open(configs, 2, &f->set, NULL), 0);
	assert_int_equal(tier_set_count(f->set), 2);
	for (uint32_t m = 0; m < 160; m++) {
		struct piece_run run = run_of(m % 16 * UNIT_BYTES, UNIT_BYTES, m);
		int r = write_run(f, m / 16, &run);

		assert_true(r == 0 || r == -ENOSPC);
		written[m] = r == 0;
		n += written[m];
	}
	assert_true(n >= 112);
	tier_set_status(f->set, 0, &a);
	tier_set_status(f->set, 1, &b);
	assert_true(a.chunks >= 3 && b.chunks >= 3);
	tier_set_free(f->set);
	f->set = NULL;
	assert_int_equal(tier_set_open(configs, 2, &f->set, NULL), 0);
	for (uint32_t m = 0; m < 160; m++) {
		struct piece_run run = run_of(m % 16 * UNIT_BYTES, UNIT_BYTES, m);

		assert_int_equal(read_run(f, m / 16, &run), written[m] ? 0 : -ENODATA);
	}
}

static void mount_tmpfs(struct fixture *f, const char *options)
{
	assert_int_equal(mkdir(f->path, 0700), 0);
	if (mount("granary-test", f->path, "tmpfs", 0, options) != 0) {
		print_message("SKIPPED: needs the right to mount\n");
		skip();
	}
}

static int teardown_mount(void **state)
{
	struct fixture *f = *state;

	tier_set_free(f->set);
	f->set = NULL;
	(void)umount(f->path);
	return fixture_teardown(state);
}

/* The filesystem is smaller than the capacity: its watermark holds. */
static void test_watermark(void **state)
{
	struct fixture *f = *state;
	uint32_t n;

	mount_tmpfs(f, "size=96m");
	fixture_open(f);
	n = fill(f);
	assert_in_range(n, 75, 90);
	assert_true(tier_set_full(f->set));
	assert_string_equal(status_of(f).state, "ok");
}

static void hog_path(struct fixture *f, char path[400])
{
	(void)snprintf(path, 400, "%s/hog", f->path);
}

/* Takes the filesystem's last byte. */
static void hog(struct fixture *f)
{
	static char block[65536] = { 1 };
	char path[400];
	int fd;

	hog_path(f, path);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	while (write(fd, block, sizeof(block)) > 0)
		;
	while (write(fd, block, BLOCK_BYTES) > 0)
		;
	close(fd);
}

/* Somebody else takes the last byte between the look and the write: no entry without its data. */
static void test_disk_full(void **state)
{
	struct fixture *f = *state;
	struct piece_run first = run_of(0, UNIT_BYTES, 1);
	struct piece_run second = run_of(UNIT_BYTES, PIECE_BYTES, 2);
	struct piece_run third = run_of(0, PIECE_BYTES, 3);
	struct chunk_id id = chunk_number(0);
	struct chunk *chunk;
	char path[400];

	mount_tmpfs(f, "size=96m");
	fixture_open(f);
	assert_int_equal(write_run(f, 0, &first), 0);
	hog(f);
	assert_int_equal(write_run(f, 0, &second), -ENOSPC);
	chunk = tier_chunk_find(f->set, &id);
	assert_non_null(chunk);
	assert_false(chunk_present(chunk, UNIT_BYTES, 1));
	chunk_unref(chunk);
	assert_int_equal(read_run(f, 0, &first), 0);
	assert_string_equal(status_of(f).state, "ok"); /* no fault of the disk */
	assert_true(tier_set_full(f->set));

	/* A start on the full disk serves what is there and takes nothing new. */
	fixture_close(f);
	hog(f);
	fixture_open(f);
	assert_int_equal(status_of(f).data_bytes, UNIT_BYTES);
	assert_int_equal(read_run(f, 0, &first), 0);
	assert_int_equal(write_run(f, 0, &second), -ENOSPC);
	assert_int_equal(write_run(f, 1, &third), -ENOSPC);

	/* Room again: all is as before. */
	hog_path(f, path);
	assert_int_equal(unlink(path), 0);
	test_wait(tier_is(f, "ok"));
	tier_refresh_space(f->set->tiers[0], true);
	assert_int_equal(write_run(f, 1, &third), 0);
	assert_int_equal(write_run(f, 0, &second), 0);
	fixture_reopen(f);
	assert_int_equal(counter_get(&tier_set_counters(f->set)->rebuilt), 0);
	assert_int_equal(read_run(f, 0, &first), 0);
	assert_int_equal(read_run(f, 0, &second), 0);
	assert_int_equal(read_run(f, 1, &third), 0);
	assert_string_equal(status_of(f).state, "ok");
}

/* The index itself finds no room: nothing more is admitted, nothing dies, and all is there
 * later. */
static void test_index_without_room(void **state)
{
	struct fixture *f = *state;
	struct piece_run run = run_of(0, PIECE_BYTES, 1);
	struct index_row row = { .id = chunk_number(0) };
	struct tier *tier;
	char path[400];

	mount_tmpfs(f, "size=96m");
	fixture_open(f);
	for (uint32_t i = 0; i < 10; i++)
		assert_int_equal(write_run(f, i, &run), 0);
	hog(f);
	tier = f->set->tiers[0];
	row.id.volume.bytes[0] =
		1; /* of nobody: rows without files are removed at the next start */
	for (row.id.chunk = 0; row.id.chunk < 400000; row.id.chunk++) {
		if (tier_index_put(tier, &row) < 0)
			break;
	}
	assert_string_equal(status_of(f).state, "out");
	assert_int_equal(write_run(f, 99, &run), -EIO);
	hog_path(f, path);
	assert_int_equal(unlink(path), 0);
	test_wait(tier_is(f, "ok"));
	tier_refresh_space(tier, true);
	assert_int_equal(write_run(f, 99, &run), 0);
	assert_string_equal(status_of(f).state, "ok");
	fixture_reopen(f);
	assert_int_equal(status_of(f).chunks, 11);
	for (uint32_t i = 0; i < 10; i++)
		assert_int_equal(read_run(f, i, &run), 0);
}

static void test_no_inodes(void **state)
{
	struct fixture *f = *state;
	struct piece_run run = run_of(0, BLOCK_BYTES, 1);
	uint32_t n = 0;
	int r;

	mount_tmpfs(f, "size=256m,nr_inodes=400");
	fixture_open(f);
	do {
		tier_refresh_space(f->set->tiers[0], true);
		r = write_run(f, n++, &run);
	} while (r == 0 && n < 400);
	assert_int_equal(r, -ENOSPC);
	assert_string_equal(status_of(f).state, "ok");
	assert_true(tier_set_full(f->set));
}

/* A filesystem that reports no inodes at all is not full. */
static void test_inodes_unknown(void **state)
{
	struct fixture *f = *state;
	struct piece_run run = run_of(0, BLOCK_BYTES, 1);

	mount_tmpfs(f, "size=256m,nr_inodes=0");
	fixture_open(f);
	assert_false(tier_set_full(f->set));
	assert_int_equal(write_run(f, 0, &run), 0);
}

/* Reads past the end of a cut file are errors of the disk: their pieces go, then the tier is
 * suspect, then out. */
static void test_failing_reads(void **state)
{
	struct fixture *f = *state;
	struct piece_run all = run_of(0, CHUNK_BYTES, 1);
	struct piece_run other = run_of(0, UNIT_BYTES, 2);
	struct piece_run one = run_of(0, PIECE_BYTES, 1);
	struct chunk_id id = chunk_number(0);
	uint8_t *data = malloc(PIECE_BYTES);
	struct chunk *chunk;
	char path[800];

	fixture_open(f);
	assert_non_null(data);
	assert_int_equal(write_run(f, 0, &all), 0);
	only_file(f, path);
	assert_int_equal(truncate(path, 0), 0);
	chunk = tier_chunk_find(f->set, &id);
	assert_non_null(chunk);
	assert_int_equal(chunk_read(chunk, &one, data), -EIO);
	assert_false(chunk_present(chunk, 0, 1));
	assert_string_equal(status_of(f).state, "ok");
	/* Dropping wrote an entry, so that now the table reads as zeros: mismatches, not errors. */
	assert_int_equal(truncate(path, 0), 0);

	one.offset = PIECE_BYTES;
	one.first_piece = 1;
	assert_int_equal(chunk_read(chunk, &one, data), -EIO);
	assert_string_equal(status_of(f).state, "suspect");
	assert_int_equal(write_run(f, 1, &other), -ENOSPC); /* nothing new */
	assert_true(tier_set_full(f->set));
	for (uint32_t i = 2; i < 10; i++) {
		assert_int_equal(truncate(path, 0), 0);
		one.offset = i * PIECE_BYTES;
		one.first_piece = i;
		assert_int_equal(chunk_read(chunk, &one, data), -EIO);
	}
	assert_string_equal(status_of(f).state, "out");
	assert_null(tier_chunk_find(f->set, &id));
	chunk_unref(chunk);

	/* A probe finds the disk working: back in service, and what is damaged is seen piece by
	 * piece. */
	test_wait(tier_is(f, "ok"));
	assert_int_equal(write_run(f, 1, &other), 0);
	assert_string_equal(status_of(f).state, "ok");
	assert_int_equal(read_run(f, 1, &other), 0);
	free(data);
}

static int failing_put(struct index *index, const struct index_row *row)
{
	(void)index;
	(void)row;
	return -EIO;
}

static int failing_remove(struct index *index, const struct chunk_id *id)
{
	(void)index;
	(void)id;
	return -EIO;
}

static void failing_close(struct index *index)
{
	(void)index;
}

/* Nothing is admitted that the index does not know; it is built again from memory once the disk
 * works. */
static void test_failing_index(void **state)
{
	static const struct index_ops ops = {
		.put = failing_put, .remove = failing_remove, .close = failing_close
	};
	static struct index failing = { .ops = &ops };
	struct fixture *f = *state;
	struct piece_run run = run_of(0, UNIT_BYTES, 1);
	struct chunk_id id = chunk_number(0);
	struct index *real;
	struct tier *tier;

	fixture_open(f);
	for (uint32_t i = 0; i < 5; i++)
		assert_int_equal(write_run(f, i, &run), 0);
	tier = f->set->tiers[0];
	real = tier->index;
	real->ops->close(real);
	tier->index = &failing;
	assert_int_equal(write_run(f, 9, &run), -EIO);
	assert_int_equal(each_chunk_file(f, NULL, NULL), 5);
	assert_string_equal(status_of(f).state, "out");
	assert_null(tier_chunk_find(f->set, &id));
	test_wait(tier_is(f, "ok"));
	assert_int_equal(write_run(f, 9, &run), 0);
	assert_string_equal(status_of(f).state, "ok");
	assert_int_equal(read_run(f, 0, &run), 0);
	fixture_reopen(f);
	assert_int_equal(counter_get(&tier_set_counters(f->set)->rebuilt), 0);
	assert_int_equal(status_of(f).chunks, 6);
	for (uint32_t i = 0; i < 5; i++)
		assert_int_equal(read_run(f, i, &run), 0);
}

static uint32_t count_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	uint32_t n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static void test_few_descriptors(void **state)
{
	struct fixture *f = *state;
	uint32_t before;

	fixture_open(f);
	f->set->descriptors.max = 8;
	before = count_fds();
	for (uint32_t round = 0; round < 2; round++) {
		for (uint32_t i = 0; i < 40; i++) {
			struct piece_run run = run_of(round * PIECE_BYTES, PIECE_BYTES, i);

			assert_int_equal(write_run(f, i, &run), 0);
			assert_int_equal(read_run(f, i, &run), 0);
		}
	}
	assert_true(count_fds() <= before + 20); /* two a file, and the index's own */
	assert_int_equal(f->set->descriptors.open, 8);
}

static void test_health(void **state)
{
	const uint64_t s = 1000000000ull;
	struct health h;

	(void)state;
	health_init(&h);
	assert_false(health_probe_due(&h, 100 * s, false));
	(void)health_error(&h, 100 * s);
	assert_int_equal(health_error(&h, 101 * s), HEALTH_OK);
	assert_int_equal(health_error(&h, 162 * s), HEALTH_OK); /* the first two are too old */
	assert_int_equal(health_error(&h, 163 * s), HEALTH_OK);
	assert_int_equal(health_error(&h, 164 * s), HEALTH_SUSPECT);
	health_tick(&h, 200 * s);
	assert_int_equal(health_get(&h), HEALTH_SUSPECT);
	health_tick(&h, 225 * s);
	assert_int_equal(health_get(&h), HEALTH_OK);
	health_took(&h, 300 * s, 29 * s);
	assert_int_equal(health_get(&h), HEALTH_OK);
	health_took(&h, 300 * s, 30 * s);
	assert_int_equal(health_get(&h), HEALTH_SUSPECT);
	for (uint32_t i = 0; i < HEALTH_OUT_MIN; i++)
		(void)health_error(&h, 310 * s + i);
	assert_int_equal(health_get(&h), HEALTH_OUT);
	health_tick(&h, 900 * s);
	assert_int_equal(health_get(&h), HEALTH_OUT); /* only a probe helps */
	assert_true(health_probe_due(&h, 900 * s, false));
	assert_false(health_probe_due(&h, 901 * s, true));
	assert_true(health_probe_due(&h, 905 * s, false));
	health_recovered(&h);
	assert_int_equal(health_get(&h), HEALTH_OK);
	assert_int_equal(health_error(&h, 905 * s), HEALTH_OK); /* old errors are forgotten */
	assert_false(health_counts(-ENOSPC));
	assert_true(health_counts(-EIO));
	health_release(&h);
}

#define T(fn) cmocka_unit_test_setup_teardown(fn, fixture_setup, fixture_teardown)
#define M(fn) cmocka_unit_test_setup_teardown(fn, fixture_setup, teardown_mount)

static const struct disk_ops *below;
static _Atomic uint32_t closed_here;
static _Atomic uint32_t closed_elsewhere;
static pthread_t here;

static int note_close(int fd)
{
	if (pthread_equal(pthread_self(), here))
		closed_here++;
	else
		closed_elsewhere++;
	return below->close(fd);
}

/* Who lets a chunk go that was evicted meanwhile closes its file: not where nothing may wait. */
static void test_the_last_one_closes_elsewhere(void **state)
{
	struct fixture *f = *state;
	struct piece_run run = run_of(0, PIECE_BYTES, 1);
	struct chunk_id id = chunk_number(0);
	struct pool *pool = pool_new("test", 1, 4);
	struct disk_ops ops;
	struct chunk *chunk;

	assert_non_null(pool);
	below = disk_use(&disk_kernel);
	ops = *below;
	ops.close = note_close;
	(void)disk_use(&ops);
	here = pthread_self();
	fixture_open(f);
	assert_int_equal(write_run(f, 0, &run), 0);
	assert_int_equal(read_run(f, 0, &run), 0);
	chunk = tier_chunk_find(f->set, &id);
	assert_non_null(chunk);
	chunk_unref_by(chunk_ref(chunk), pool); /* not the last one */
	(void)tier_set_drop(f->set, &id.volume, id.lineage, keep_none, NULL);
	closed_here = closed_elsewhere = 0;
	chunk_unref_by(chunk, pool);
	chunk_unref_by(NULL, pool);
	pool_free(pool);
	assert_int_equal(closed_here, 0);
	assert_in_range(closed_elsewhere, 1, 2);
	fixture_close(f);
	(void)disk_use(below);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_admits_until_full),
		T(test_sparse_is_cheap),
		T(test_held_stays_charged),
		T(test_two_tiers),
		M(test_watermark),
		M(test_disk_full),
		M(test_index_without_room),
		M(test_no_inodes),
		M(test_inodes_unknown),
		T(test_failing_reads),
		T(test_failing_index),
		T(test_few_descriptors),
		T(test_the_last_one_closes_elsewhere),
		cmocka_unit_test(test_health),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
