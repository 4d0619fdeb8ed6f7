/*
 * kill -9 in the middle of writes. A child process writes until it is killed at a random time;
 * another opens what it left: every piece that is there verifies, and nothing is lost whose write
 * had returned.
 *
 * This process never opens a tier itself: RocksDB's threads would not survive its forks.
 */
#include "tests/unit/tiers/tier_fixture.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include "base/clock.h"
#include "tests/clock/test_clock.h"

#define CHUNKS  6u
#define SLOTS   140u /* objects of 110 KiB in a chunk */
#define THREADS 3
#define KILLS   16

/* Shared by the processes. */
struct journal {
	_Atomic bool ready;
	_Atomic bool done[CHUNKS][SLOTS];
	_Atomic uint64_t adopted;
};

static struct journal *journal;

static struct piece_run object(uint32_t chunk, uint32_t slot)
{
	return run_of(slot * 28 * BLOCK_BYTES, 110 * 1024 - slot, chunk * 1000 + slot);
}

struct writer {
	pthread_t thread;
	struct fixture *f;
	unsigned int seed;
};

static void *writer_main(void *arg)
{
	struct writer *w = arg;

	for (;;) {
		uint32_t c = (uint32_t)rand_r(&w->seed) % CHUNKS;
		uint32_t s = (uint32_t)rand_r(&w->seed) % SLOTS;
		struct piece_run run = object(c, s);

		if (write_run(w->f, c, &run) == 0)
			atomic_store(&journal->done[c][s], true);
	}
	return NULL;
}

static bool keep_others(void *arg, uint64_t chunk)
{
	return chunk % 2 != *(unsigned int *)arg % 2;
}

/* Half of the chunks start empty, so that there is something to write when the kill comes. */
static void write_until_killed(struct fixture *f, unsigned int round, unsigned int seed)
{
	struct chunk_id id = chunk_number(0);
	struct writer writers[THREADS];

	fixture_open(f);
	for (uint32_t c = round % 2; c < CHUNKS; c += 2) {
		for (uint32_t s = 0; s < SLOTS; s++)
			atomic_store(&journal->done[c][s], false);
	}
	(void)tier_set_drop(f->set, &id.volume, id.lineage, keep_others, &round);
	atomic_store(&journal->ready, true);
	for (unsigned int i = 0; i < THREADS; i++) {
		writers[i] = (struct writer){ .f = f, .seed = seed + i };
		if (pthread_create(&writers[i].thread, NULL, writer_main, &writers[i]) != 0)
			_exit(3);
	}
	for (;;)
		pause();
}

/* 0, or how many things were wrong. */
static int verify(struct fixture *f)
{
	int wrong = 0;

	fixture_open(f);
	for (uint32_t c = 0; c < CHUNKS; c++) {
		for (uint32_t s = 0; s < SLOTS; s++) {
			struct piece_run run = object(c, s);
			int r = read_run(f, c, &run);
			bool lost = r == -ENODATA && atomic_load(&journal->done[c][s]);

			if (lost || (r != 0 && r != -ENODATA)) {
				print_error("chunk %u object %u: %s, lost %d\n", c, s, err_name(r),
					lost);
				wrong++;
			}
		}
	}
	wrong += status_of(f).used > status_of(f).capacity;
	wrong += counter_get(&tier_set_counters(f->set)->mismatches) != 0;
	atomic_store(&journal->adopted, counter_get(&tier_set_counters(f->set)->adopted));
	tier_set_free(f->set);
	return min(wrong, 100);
}

/* Chunks that hold an object whose write returned: each was to be found again. */
static uint32_t chunks_done(void)
{
	uint32_t n = 0;

	for (uint32_t c = 0; c < CHUNKS; c++) {
		bool any = false;

		for (uint32_t s = 0; s < SLOTS; s++)
			any |= atomic_load(&journal->done[c][s]);
		n += any;
	}
	return n;
}

static int wait_for(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static void test_kill(void **state)
{
	struct fixture *f = *state;
	unsigned int seed = (unsigned int)clock_mono_ns();

	print_message("seed %u\n", seed);
	journal = mmap(
		NULL, sizeof(*journal), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(journal != MAP_FAILED);
	f->capacity = 256 * MiB;
	for (int i = 0; i < KILLS; i++) {
		pid_t pid;

		atomic_store(&journal->ready, false);
		pid = fork();
		if (pid == 0)
			write_until_killed(f, (unsigned int)i, seed + 100 * (unsigned int)i);
		test_wait(atomic_load(&journal->ready));
		test_advance((uint64_t)rand_r(&seed) % 30000 * (CLOCK_MS / 1000));
		assert_int_equal(kill(pid, SIGKILL), 0);
		assert_true(WIFSIGNALED(wait_for(pid)));

		pid = fork();
		if (pid == 0)
			_exit(verify(f));
		assert_int_equal(wait_for(pid), 0);
	}
	assert_in_range(journal->adopted, chunks_done(), CHUNKS);
	munmap(journal, sizeof(*journal));
}

#define T(fn) cmocka_unit_test_setup_teardown(fn, fixture_setup, fixture_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_kill),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
