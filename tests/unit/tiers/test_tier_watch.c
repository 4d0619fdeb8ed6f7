/*
 * Disks that stop answering, go away and come back while they are used: seen while it lasts, told,
 * and over when it is over. The disk is one of the test's own, which waits as long as it is told.
 */
#include "tests/unit/tiers/tier_fixture.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/mount.h>
#include "tests/clock/test_clock.h"
#include "tiers/disk.h"
#include "tiers/evict_internal.h"
#include "tiers/tier_set_internal.h"

#define READERS 12u

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool hangs;
static dev_t hanging_dev; /* with `hangs`: its files wait */
static _Atomic unsigned int hanging;

static void set_hangs(bool now)
{
	pthread_mutex_lock(&lock);
	hangs = now;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

static void wait_while_hanging(void)
{
	pthread_mutex_lock(&lock);
	hanging++;
	pthread_cond_broadcast(&changed);
	while (hangs)
		pthread_cond_wait(&changed, &lock);
	hanging--;
	pthread_mutex_unlock(&lock);
}

static bool is_slow_file(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && st.st_dev == hanging_dev;
}

static ssize_t slow_pread(int fd, void *data, size_t len, uint64_t offset)
{
	if (is_slow_file(fd))
		wait_while_hanging();
	return disk_kernel.pread(fd, data, len, offset);
}

static ssize_t slow_pwrite(int fd, const void *data, size_t len, uint64_t offset)
{
	if (is_slow_file(fd))
		wait_while_hanging();
	return disk_kernel.pwrite(fd, data, len, offset);
}

/* Two tiers: the first, of that capacity, on the ordinary disk, the second, of 128 MiB, on a tmpfs,
 * which hangs. */
struct slow {
	struct fixture *f;
	char second[400];
	struct tier_config configs[2];
	struct disk_ops ops;
	const struct disk_ops *before;
};

static void slow_open(struct slow *s, struct fixture *f, uint64_t first)
{
	struct stat st;

	*s = (struct slow){ .f = f, .ops = disk_kernel };
	(void)snprintf(s->second, sizeof(s->second), "%s/second", f->root);
	assert_int_equal(mkdir(s->second, 0700), 0);
	if (mount("granary-test", s->second, "tmpfs", 0, "size=256m") != 0) {
		print_message("SKIPPED: needs the right to mount\n");
		skip();
	}
	assert_int_equal(stat(s->second, &st), 0);
	hanging_dev = st.st_dev;
	s->ops.pread = slow_pread;
	s->ops.pread_now = NULL;
	s->ops.pwrite = slow_pwrite;
	s->ops.pwritev = NULL;
	s->before = disk_use(&s->ops);
	s->configs[0] = (struct tier_config){
		.path = f->path, .kind = TIER_SSD, .capacity = first, .create = true
	};
	s->configs[1] = (struct tier_config){
		.path = s->second, .kind = TIER_SSD, .capacity = 128 * MiB, .create = true
	};
	assert_int_equal(tier_set_open(s->configs, 2, &f->set, NULL), 0);
	gate_set_stall(&f->set->tiers[1]->gate, CLOCK_SECOND);
}

static void slow_close(struct slow *s)
{
	fixture_close(s->f);
	(void)disk_use(s->before);
	(void)umount2(s->second, MNT_DETACH);
}

static struct tier_status status_at(struct fixture *f, uint32_t tier)
{
	struct tier_status status;

	tier_set_status(f->set, tier, &status);
	return status;
}

static bool is_in_state(struct fixture *f, uint32_t tier, const char *state)
{
	return strcmp(status_at(f, tier).state, state) == 0;
}

struct reader {
	pthread_t thread;
	struct chunk *chunk;
	uint64_t seed;
	int result;
	_Atomic bool done;
};

static void *reader_main(void *arg)
{
	struct reader *r = arg;
	struct piece_run run = run_of(0, PIECE_BYTES, r->seed);
	uint8_t *data = malloc(PIECE_BYTES);

	r->result = chunk_read(r->chunk, &run, data);
	atomic_store(&r->done, true);
	free(data);
	return NULL;
}

static uint32_t count_done(const struct reader *readers)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < READERS; i++)
		n += atomic_load(&readers[i].done);
	return n;
}

/* A chunk of that tier, referenced; its pieces have `*ret_seed`. */
static struct chunk *chunk_on(struct fixture *f, uint32_t tier, uint64_t *ret_seed)
{
	for (uint64_t n = 0; n < 64; n++) {
		struct piece_run run = run_of(0, PIECE_BYTES, 500 + n);
		struct chunk_id id = chunk_number(n);
		struct chunk *chunk;

		assert_int_equal(write_run(f, n, &run), 0);
		chunk = tier_chunk_find(f->set, &id);
		assert_non_null(chunk);
		*ret_seed = run.object_seed;
		if (chunk->tier == f->set->tiers[tier])
			return chunk;
		chunk_unref(chunk);
	}
	fail_msg("no chunk went to tier %u", tier);
	return NULL;
}

static void test_stall(void **state)
{
	struct reader readers[READERS] = { 0 };
	struct fixture *f = *state;
	struct chunk_id fast_id;
	struct chunk_id slow_id;
	struct chunk *fast;
	struct chunk *slow;
	uint64_t fast_seed;
	uint64_t slow_seed;
	struct slow s;

	slow_open(&s, f, 128 * MiB);
	fast = chunk_on(f, 0, &fast_seed);
	slow = chunk_on(f, 1, &slow_seed);
	fast_id = *chunk_id_of(fast);
	slow_id = *chunk_id_of(slow);
	set_hangs(true);
	for (uint32_t i = 0; i < READERS; i++) {
		readers[i].chunk = slow;
		readers[i].seed = slow_seed;
		assert_int_equal(
			pthread_create(&readers[i].thread, NULL, reader_main, &readers[i]), 0);
	}
	test_wait(is_in_state(f, 1, "stalled"));
	assert_string_equal(status_at(f, 1).why, "a call to its disk does not return");

	/* Only so many threads are held; the others were turned away while it hangs. */
	test_wait(count_done(readers) >= READERS - GATE_CALLS);
	assert_int_equal(hanging, GATE_CALLS);

	/* Nobody touches that disk any more, and the other one serves and admits. */
	assert_null(tier_chunk_find(f->set, &slow_id));
	{
		struct piece_run run = run_of(PIECE_BYTES, PIECE_BYTES, 1);
		struct piece_run there = run_of(0, PIECE_BYTES, fast_seed);

		assert_int_equal(write_run(f, slow_id.chunk, &run), -EIO);
		assert_int_equal(read_run(f, fast_id.chunk, &there), 0);
		assert_int_equal(write_run(f, 1000, &run), 0);
		assert_false(tier_set_full(f->set));
	}
	{
		const struct evict_for shrunk = { .space = slow->space, .shrink = true };

		assert_int_equal(evict_one(f->set, &shrunk, slow->tier), 0);
		assert_true(chunk_is_live(slow));
	}

	set_hangs(false);
	for (uint32_t i = 0; i < READERS; i++) {
		assert_int_equal(pthread_join(readers[i].thread, NULL), 0);
		assert_true(readers[i].result == 0 || readers[i].result == -EIO);
	}
	test_wait(is_in_state(f, 1, "ok"));
	{
		struct piece_run there = run_of(0, PIECE_BYTES, slow_seed);

		assert_int_equal(read_run(f, slow_id.chunk, &there), 0);
	}
	chunk_unref(fast);
	chunk_unref(slow);
	slow_close(&s);
}

struct creator {
	pthread_t thread;
	struct fixture *f;
	uint64_t number;
	int result;
	_Atomic bool done;
};

static void *creator_main(void *arg)
{
	struct creator *c = arg;
	struct chunk_id id = chunk_number(c->number);
	struct chunk *chunk = NULL;

	c->result = tier_chunk_admit(c->f->set, &id, &chunk);
	chunk_unref(chunk);
	atomic_store(&c->done, true);
	return NULL;
}

static uint32_t count_created(struct creator *creators, uint32_t n)
{
	uint32_t done = 0;

	for (uint32_t i = 0; i < n; i++)
		done += atomic_load(&creators[i].done);
	return done;
}

/* Who waits for a chunk that another thread makes on a hanging disk does not hang with it. */
static void test_stall_while_made(void **state)
{
	struct creator creators[8] = { 0 };
	struct fixture *f = *state;
	struct slow s;

	slow_open(&s, f, 64 * MiB);
	set_hangs(true);
	for (uint32_t i = 0; i < ARRAY_SIZE(creators); i++) {
		creators[i].f = f;
		creators[i].number = 7; /* the same for all; the roomier tier is chosen */
		assert_int_equal(
			pthread_create(&creators[i].thread, NULL, creator_main, &creators[i]), 0);
	}
	test_wait(is_in_state(f, 1, "stalled"));
	pthread_mutex_lock(&lock);
	assert_int_equal(hanging, 1);
	pthread_mutex_unlock(&lock);
	/* All but the one that hangs: refused, or on the other disk when they came later. */
	test_wait(count_created(creators, ARRAY_SIZE(creators)) == ARRAY_SIZE(creators) - 1);
	set_hangs(false);
	for (uint32_t i = 0; i < ARRAY_SIZE(creators); i++) {
		assert_int_equal(pthread_join(creators[i].thread, NULL), 0);
		assert_true(creators[i].result == 0 || creators[i].result == -EIO);
	}
	test_wait(is_in_state(f, 1, "ok"));
	slow_close(&s);
}

/* ---- a directory that goes away -------------------------------------------------------------- */

struct told {
	pthread_mutex_t lock;
	char states[200];
	char why[200];
};

static void on_state(void *arg, const char *path, const char *state, const char *why)
{
	struct told *told = arg;

	assert_non_null(strstr(path, "/tier"));
	pthread_mutex_lock(&told->lock);
	(void)snprintf(told->states + strlen(told->states),
		sizeof(told->states) - strlen(told->states), "%s ", state);
	if (*why)
		(void)snprintf(told->why, sizeof(told->why), "%s", why);
	pthread_mutex_unlock(&told->lock);
}

static bool were_told(struct told *told, const char *states)
{
	bool same;

	pthread_mutex_lock(&told->lock);
	same = strcmp(told->states, states) == 0;
	pthread_mutex_unlock(&told->lock);
	return same;
}

static void test_unmounted(void **state)
{
	struct fixture *f = *state;
	struct told told = { .lock = PTHREAD_MUTEX_INITIALIZER };
	struct piece_run run = run_of(0, PIECE_BYTES, 1);
	struct chunk_id id = chunk_number(0);
	char elsewhere[400];

	fixture_open(f);
	tier_set_on_state(f->set, on_state, &told);
	assert_int_equal(write_run(f, 0, &run), 0);
	(void)snprintf(elsewhere, sizeof(elsewhere), "%s/elsewhere", f->root);
	assert_int_equal(rename(f->path, elsewhere), 0);
	test_wait(tier_is(f, "out"));
	assert_non_null(strstr(status_of(f).why, "mount its disk"));
	test_wait(were_told(&told, "out "));
	assert_null(tier_chunk_find(f->set, &id));
	assert_int_equal(write_run(f, 1, &run), -EIO);

	/* The bare mount point is not the tier. */
	assert_int_equal(mkdir(f->path, 0700), 0);
	test_advance(4 * HEALTH_PROBE_NS);
	assert_string_equal(status_of(f).state, "out");
	assert_int_equal(rmdir(f->path), 0);

	assert_int_equal(rename(elsewhere, f->path), 0);
	test_wait(tier_is(f, "ok"));
	test_wait(were_told(&told, "out ok "));
	assert_int_equal(read_run(f, 0, &run), 0);
	assert_int_equal(write_run(f, 1, &run), 0);
	tier_set_on_state(f->set, NULL, NULL);
}

/* The same tier in another directory of its own: a disk that came back as another device. */
static void test_came_anew(void **state)
{
	struct fixture *f = *state;
	struct identity identity;
	char elsewhere[400];

	fixture_open(f);
	assert_int_equal(identity_load(f->path, &identity, NULL), 0);
	(void)snprintf(elsewhere, sizeof(elsewhere), "%s/elsewhere", f->root);
	assert_int_equal(rename(f->path, elsewhere), 0);
	assert_int_equal(mkdir(f->path, 0700), 0);
	assert_int_equal(identity_store(f->path, &identity), 0);
	test_wait(tier_is(f, "replaced"));
	fixture_remove_tree(f->path);
	assert_int_equal(rename(elsewhere, f->path), 0);
	test_wait(tier_is(f, "ok"));
}

static void test_emptied(void **state)
{
	struct fixture *f = *state;
	struct piece_run run = run_of(0, PIECE_BYTES, 1);
	char path[400];

	fixture_open(f);
	assert_int_equal(write_run(f, 0, &run), 0);
	(void)snprintf(path, sizeof(path), "%s/" IDENTITY_NAME, f->path);
	assert_int_equal(unlink(path), 0);
	test_wait(tier_is(f, "out"));
	assert_non_null(strstr(status_of(f).why, IDENTITY_NAME));
	assert_int_equal(write_run(f, 1, &run), -EIO);
}

/* The index goes while RocksDB has it open: built again from memory, and nothing is lost at the next
 * start. */
static void test_index_removed(void **state)
{
	struct fixture *f = *state;
	struct piece_run run = run_of(0, PIECE_BYTES, 1);
	char path[400];

	fixture_open(f);
	for (uint32_t i = 0; i < 5; i++)
		assert_int_equal(write_run(f, i, &run), 0);
	(void)snprintf(path, sizeof(path), "%s/index", f->path);
	fixture_remove_tree(path);
	test_wait(counter_get(&tier_set_counters(f->set)->rebuilt) > 0);
	test_wait(tier_is(f, "ok"));
	assert_int_equal(write_run(f, 5, &run), 0);
	fixture_reopen(f);
	assert_int_equal(counter_get(&tier_set_counters(f->set)->rebuilt), 0);
	assert_int_equal(status_of(f).chunks, 6);
	for (uint32_t i = 0; i < 6; i++)
		assert_int_equal(read_run(f, i, &run), 0);
}

static void test_stall_makes_suspect(void **state)
{
	const uint64_t s = CLOCK_SECOND;
	struct health h;

	(void)state;
	health_init(&h);
	health_stalls(&h, 100 * s);
	assert_int_equal(health_get(&h), HEALTH_SUSPECT);
	health_stalls(&h, 150 * s); /* it still hangs */
	health_tick(&h, 165 * s);
	assert_int_equal(health_get(&h), HEALTH_SUSPECT);
	health_tick(&h, 210 * s);
	assert_int_equal(health_get(&h), HEALTH_OK);
	health_release(&h);
}

#define T(fn) cmocka_unit_test_setup_teardown(fn, fixture_setup, fixture_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_stall),
		T(test_stall_while_made),
		T(test_unmounted),
		T(test_came_anew),
		T(test_emptied),
		T(test_index_removed),
		cmocka_unit_test(test_stall_makes_suspect),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
