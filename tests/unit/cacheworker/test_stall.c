/*
 * A tier whose disk hangs, under a worker: every reader gets right bytes from the origin while it
 * lasts, whether the hanging call was his, came before or after; when it is over the tier serves
 * again. The disk is one of the test's own.
 */
#include "tests/unit/cacheworker/world.h"
#include "cacheworker/tier_call.h"
#include "tiers/disk.h"
#include "tiers/tier_set_internal.h"

#define FILES   24u
#define READERS 12u

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool hangs;

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
	while (hangs)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
}

static ssize_t slow_pread(int fd, void *data, size_t len, uint64_t offset)
{
	wait_while_hanging();
	return disk_kernel.pread(fd, data, len, offset);
}

static ssize_t slow_pwrite(int fd, const void *data, size_t len, uint64_t offset)
{
	wait_while_hanging();
	return disk_kernel.pwrite(fd, data, len, offset);
}

static int slow_open(int dir, const char *path, int flags, mode_t mode)
{
	wait_while_hanging();
	return disk_kernel.open(dir, path, flags, mode);
}

struct reader {
	pthread_t thread;
	struct world *w;
	unsigned int number;
};

static void *reader_main(void *arg)
{
	struct reader *r = arg;
	uint64_t step = 256 * KiB;
	uint64_t places = r->w->model_bytes / step;

	for (uint64_t i = 0; i < places; i++)
		(void)world_read_range(
			r->w, (i * 7 + r->number) % places * step, (uint32_t)step, 0);
	return NULL;
}

static void read_by_all(struct world *w)
{
	struct reader readers[READERS];

	for (unsigned int i = 0; i < READERS; i++) {
		readers[i] = (struct reader){ .w = w, .number = i };
		assert_int_equal(
			pthread_create(&readers[i].thread, NULL, reader_main, &readers[i]), 0);
	}
	for (unsigned int i = 0; i < READERS; i++)
		assert_int_equal(pthread_join(readers[i].thread, NULL), 0);
}

static bool is_in_state(struct world *w, const char *state)
{
	struct tier_status status;

	tier_set_status(w->worker.tiers, 0, &status);
	return strcmp(status.state, state) == 0;
}

/* From here on the disk hangs after a second; or it does not, though all of the machine stands still for some. */
static void set_hasty(struct world *w, bool hasty)
{
	gate_set_stall(&w->worker.tiers->tiers[0]->gate, hasty ? CLOCK_SECOND : DEADLINE);
	w->worker.tier_call_ns = hasty ? CLOCK_SECOND + CLOCK_SECOND / 2 : 2 * DEADLINE;
}

static struct world *hasty_world(void)
{
	struct world *w = world_new(1 * GiB, FILES);

	set_hasty(w, true);
	return w;
}

static void test_reads_go_on(void **state)
{
	struct world *w = world_new(1 * GiB, FILES);
	uint32_t local;
	uint32_t ranges;
	uint64_t gets;

	(void)state;
	set_hasty(w, false);
	world_read_all(w, 0, &local, &ranges);
	world_wait_written(w);
	gets = world_origin_gets(w);
	set_hasty(w, true);
	set_hangs(true);
	read_by_all(w);
	assert_true(counter_get(&w->worker.counters.stalled) >= 1);
	assert_true(world_origin_gets(w) > gets);
	test_wait(is_in_state(w, "stalled"));
	gets = counter_get(&w->worker.counters.stalled);
	read_by_all(w); /* nobody tries that disk any more */
	assert_int_equal(counter_get(&w->worker.counters.stalled), gets);
	set_hangs(false);
	set_hasty(w, false);
	test_wait(is_in_state(w, "ok"));
	gets = world_origin_gets(w);
	world_read_all(w, 0, &local, &ranges);
	assert_int_equal(world_origin_gets(w), gets); /* all of it is still cached */
	world_free(w);
}

/* It hangs before anything is cached: creating files, opening and writing them. */
static void test_cold_reads_go_on(void **state)
{
	struct world *w = hasty_world();

	(void)state;
	set_hangs(true);
	read_by_all(w);
	test_wait(is_in_state(w, "stalled"));
	read_by_all(w);
	set_hangs(false);
	test_wait(is_in_state(w, "ok"));
	read_by_all(w);
	world_free(w);
}

/* ---- the call itself ------------------------------------------------------------------------ */

static _Atomic unsigned int released;

static int hang(void *arg)
{
	wait_while_hanging();
	return *(int *)arg;
}

static void release(void *arg)
{
	(void)arg;
	released++;
}

static void test_tier_call(void **state)
{
	struct world *w = hasty_world();
	int result = -ENODATA;

	(void)state;
	set_hasty(w, false);
	assert_int_equal(tier_call(&w->worker, hang, release, &result), -ENODATA);
	assert_int_equal(released, 0); /* the caller has it again */
	set_hasty(w, true);
	set_hangs(true);
	assert_int_equal(tier_call(&w->worker, hang, release, &result), -ETIMEDOUT);
	assert_int_equal(released, 0);
	set_hangs(false);
	test_wait(released != 0);
	world_free(w);
	assert_int_equal(released, 1);
}

int main(void)
{
	static struct disk_ops ops;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_reads_go_on),
		cmocka_unit_test(test_cold_reads_go_on),
		cmocka_unit_test(test_tier_call),
	};

	ops = disk_kernel;
	ops.open = slow_open;
	ops.pread = slow_pread;
	ops.pread_now = NULL;
	ops.pwrite = slow_pwrite;
	(void)disk_use(&ops); /* the kernel's, for ever */
	return cmocka_run_group_tests(tests, NULL, NULL);
}
