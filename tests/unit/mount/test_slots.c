/* Slots: states, exhaustion, and what is left in them for a successor. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/limits.h"
#include "mount/slots.h"
#include "tests/clock/test_clock.h"

#define SLOTS 16u

static int madvise_fails; /* with this error */

int madvise(void *memory, size_t size, int advice)
{
	if (madvise_fails) {
		errno = madvise_fails;
		return -1;
	}
	return (int)syscall(SYS_madvise, memory, size, advice);
}

static int memory(uint32_t slots)
{
	int fd = memfd_create("test-slots", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, SLOTS_HEAD_BYTES + (off_t)slots * SLOT_BYTES), 0);
	return fd;
}

static struct slots *open_slots(int fd)
{
	struct slots *s = NULL;
	struct err e = ERR_INIT;

	assert_int_equal(slots_open(fd, &s, &e), 0);
	return s;
}

static void fill(struct slots *s, uint32_t slot, uint32_t len)
{
	memset(slot_data(s, slot), 0xab, len);
	memcpy(slot_data(s, slot), &len, sizeof(len));
}

static uint32_t take(struct slots *s)
{
	uint32_t slot = UINT32_MAX;

	assert_int_equal(slots_take(s, &slot), 0);
	assert_int_equal(slot_state(s, slot), SLOT_READING);
	assert_int_equal(slot_len(s, slot), 0);
	return slot;
}

static void states(void **state)
{
	int fd = memory(SLOTS);
	struct slots *s = open_slots(fd);
	uint32_t slot = take(s);
	struct slots_use use;

	(void)state;
	fill(s, slot, 100);
	assert_int_equal(slot_len(s, slot), 100);
	assert_true(slot_move(s, slot, SLOT_READING, SLOT_HELD));
	slots_use(s, &use);
	assert_int_equal(use.held, 1);
	assert_true(slot_move(s, slot, SLOT_HELD, SLOT_ANSWERING));
	assert_false(slot_move(s, slot, SLOT_HELD, SLOT_ANSWERING)); /* only one answers */
	assert_int_equal(slot_len(s, slot), 100); /* a crash now: answered again */
	assert_true(slot_move(s, slot, SLOT_ANSWERING, SLOT_FREE));
	assert_int_equal(slot_len(s, slot), 0);
	slots_use(s, &use);
	assert_int_equal(use.held, 0);
	assert_int_equal(use.peak, 1);
	assert_int_equal(use.max, SLOTS);
	slots_free(s);
	close(fd);
}

/* A ticket of a request that is gone moves nothing, though the slot is HELD again. */
static void tickets(void **state)
{
	int fd = memory(SLOTS);
	struct slots *s = open_slots(fd);
	uint32_t slot = take(s);
	uint32_t old;

	(void)state;
	assert_true(slot_move(s, slot, SLOT_READING, SLOT_HELD));
	old = slot_ticket(s, slot);
	assert_true(slot_move(s, slot, SLOT_HELD, SLOT_ANSWERING));
	assert_true(slot_move(s, slot, SLOT_ANSWERING, SLOT_FREE));
	assert_int_equal(take(s), slot); /* the last used comes first */
	assert_true(slot_move(s, slot, SLOT_READING, SLOT_HELD));
	assert_false(slot_move_ticket(s, slot, old, SLOT_HELD, SLOT_ANSWERING));
	assert_true(slot_move_ticket(s, slot, slot_ticket(s, slot), SLOT_HELD, SLOT_ANSWERING));
	slots_free(s);
	close(fd);
}

struct taker {
	struct slots *slots;
	_Atomic int result;
	uint32_t slot;
};

static void *take_one(void *arg)
{
	struct taker *t = arg;

	atomic_store(&t->result, slots_take(t->slots, &t->slot) == 0 ? 1 : 2);
	return NULL;
}

static void exhausted(void **state)
{
	int fd = memory(SLOTS);
	struct slots *s = open_slots(fd);
	struct taker t = { .slots = s };
	struct taker stopped = { .slots = s };
	pthread_t thread;

	(void)state;
	for (uint32_t i = 0; i < SLOTS; i++)
		assert_int_equal(take(s), i);
	assert_int_equal(pthread_create(&thread, NULL, take_one, &t), 0);
	test_advance(CLOCK_SECOND);
	assert_int_equal(atomic_load(&t.result), 0); /* waits */
	assert_true(slot_move(s, 7, SLOT_READING, SLOT_FREE));
	pthread_join(thread, NULL);
	assert_int_equal(t.result, 1);
	assert_int_equal(t.slot, 7);
	assert_int_equal(pthread_create(&thread, NULL, take_one, &stopped), 0);
	slots_wake(s);
	pthread_join(thread, NULL);
	assert_int_equal(stopped.result, 2);
	slots_free(s);
	close(fd);
}

/*
 * A process dies with full slots: the next finds those, each once, and what each is to blame for.
 */
static void left_by_the_dead(void **state)
{
	int fd = memory(SLOTS);
	struct slots *s;

	(void)state;
	for (uint32_t crash = 1; crash <= 3; crash++) {
		pid_t pid = fork();
		int status;

		if (pid == 0) {
			struct slots *mine = open_slots(fd);
			uint32_t blame;
			uint32_t slot;

			if (crash == 1)
				for (uint32_t i = 0; i < 5; i++)
					fill(mine, take(mine), 40 + i);
			while (slots_take_left(mine, &slot, &blame) == 0)
				if (blame != (crash - 1) * SLOTS_BLAME_HANDLED)
					_exit(1);
			slots_set_phase(mine, SLOTS_MOUNTED);
			slots_mount(mine)->lineage = 77;
			if (crash == 3) /* who only waits is hardly to blame */
				assert_true(slot_move(mine, 0, SLOT_READING, SLOT_HELD));
			(void)kill(getpid(), SIGKILL);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFSIGNALED(status));
	}
	s = open_slots(fd);
	assert_int_equal(slots_phase(s), SLOTS_MOUNTED);
	assert_int_equal(slots_mount(s)->lineage, 77);
	for (uint32_t i = 0; i < 5; i++) {
		uint32_t blame = 0;
		uint32_t slot = 99;

		assert_int_equal(slots_take_left(s, &slot, &blame), 0);
		assert_int_equal(slot, i);
		assert_int_equal(blame, i == 0 ? 2 * SLOTS_BLAME_HANDLED + SLOTS_BLAME_WAITED
					       : 3 * SLOTS_BLAME_HANDLED);
		assert_int_equal(slot_len(s, slot), 40 + i);
		assert_int_equal(slot_state(s, slot), SLOT_READING);
	}
	assert_int_equal(slots_take_left(s, &(uint32_t){ 0 }, &(uint32_t){ 0 }), -ENOENT);
	for (uint32_t i = 5; i < SLOTS; i++)
		assert_int_equal(take(s), i); /* the full ones are not given to new requests */
	slots_free(s);
	close(fd);
}

static uint64_t has(int fd)
{
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	return ((uint64_t)st.st_blocks * 512 - SLOTS_HEAD_BYTES) / SLOT_BYTES;
}

/* Slots have memory from their first use on, and the last one that a predecessor used is found. */
static void memory_of_use(void **state)
{
	int fd = memory(LIMIT_FUSE_SLOTS);
	struct slots *s = open_slots(fd);
	uint64_t first = has(fd);
	uint32_t slot = 99, blame;

	(void)state;
	if (first >= 64) { /* shmem_enabled: huge pages, as large as 256 slots */
		slots_free(s);
		close(fd);
		skip();
	}
	for (uint32_t turn = 0; turn < LIMIT_FUSE_SLOTS; turn++)
		assert_true(slot_move(s, take(s), SLOT_READING, SLOT_FREE));
	assert_int_equal(has(fd), first);
	for (uint32_t i = 0; i < 100; i++)
		assert_int_equal(take(s), i);
	fill(s, 99, 50);
	assert_true(has(fd) >= 100 && has(fd) < 200);
	slots_free(s);
	first = has(fd);
	s = open_slots(fd);
	assert_int_equal(slots_take_left(s, &slot, &blame), 0);
	assert_int_equal(slot, 99);
	assert_int_equal(slots_take_left(s, &slot, &blame), -ENOENT);
	assert_int_equal(has(fd), first);
	for (uint32_t i = 1; i < LIMIT_FUSE_SLOTS; i++)
		(void)take(s);
	assert_int_equal(has(fd), LIMIT_FUSE_SLOTS);
	slots_free(s);
	close(fd);
}

/* Without memory the mount goes on: the kernel gets it, or fails that request. */
static void no_memory(void **state)
{
	int fd = memory(2 * SLOTS);
	struct slots *s;

	(void)state;
	madvise_fails = ENOMEM;
	s = open_slots(fd);
	for (uint32_t i = 0; i < 2 * SLOTS; i++)
		assert_int_equal(take(s), i);
	madvise_fails = 0;
	slots_free(s);
	close(fd);
}

/* A kernel that cannot be asked for the memory of a part gives all at once. */
static void old_kernel(void **state)
{
	int fd = memory(LIMIT_FUSE_SLOTS);
	struct slots *s;

	(void)state;
	madvise_fails = EINVAL;
	s = open_slots(fd);
	assert_int_equal(has(fd), LIMIT_FUSE_SLOTS);
	assert_int_equal(take(s), 0);
	madvise_fails = 0;
	slots_free(s);
	close(fd);
}

/* A request far behind the others is found. */
static void left_behind_a_hole(void **state)
{
	const uint32_t len = 60;
	int fd = memory(LIMIT_FUSE_SLOTS);
	struct slots *s = open_slots(fd);
	uint32_t slot = 99, blame;

	(void)state;
	slots_free(s);
	assert_int_equal(
		pwrite(fd, &len, sizeof(len), SLOTS_HEAD_BYTES + 300 * SLOT_BYTES), sizeof(len));
	s = open_slots(fd);
	assert_int_equal(slots_take_left(s, &slot, &blame), 0);
	assert_int_equal(slot, 300);
	assert_int_equal(slots_take_left(s, &slot, &blame), -ENOENT);
	slots_free(s);
	close(fd);
}

static void foreign_memory(void **state)
{
	int fd = memory(SLOTS);
	int small = memory(2);
	int empty = memfd_create("test-slots", MFD_CLOEXEC);
	struct slots *s = open_slots(fd);
	struct err e = ERR_INIT;
	uint64_t other = 0x1122334455667788;

	(void)state;
	slots_free(s);
	assert_int_equal(pwrite(fd, &other, sizeof(other), 0), sizeof(other));
	assert_int_equal(slots_open(fd, &s, &e), -EPROTONOSUPPORT);
	assert_non_null(strstr(e.text, "version"));
	assert_int_equal(slots_open(small, &s, &e), -EINVAL);
	assert_int_equal(slots_open(-1, &s, &e), -EBADF);
	s = open_slots(empty);
	assert_int_equal(slots_count(s), LIMIT_FUSE_SLOTS);
	slots_free(s);
	close(fd);
	close(small);
	close(empty);
}

/* A version that knew of one source had its facts in slots_mount only. */
static void one_source_of_before(void **state)
{
	int fd = memory(SLOTS);
	struct slots *s = open_slots(fd);
	struct slots_mount *m = slots_mount(s);

	(void)state;
	assert_int_equal(slots_sources(s)->layout.n, 0);
	m->volume.bytes[3] = 7;
	m->lineage = 11;
	m->generation = 13;
	m->hash[5] = 17;
	slots_set_phase(s, SLOTS_MOUNTED);
	slots_free(s);
	s = open_slots(fd);
	assert_int_equal(slots_sources(s)->layout.n, 1);
	assert_int_equal(slots_sources(s)->layout.first[0], 0);
	assert_int_equal(slots_sources(s)->all[0].volume.bytes[3], 7);
	assert_int_equal(slots_sources(s)->all[0].lineage, 11);
	assert_int_equal(slots_sources(s)->all[0].generation, 13);
	assert_int_equal(slots_sources(s)->all[0].hash[5], 17);
	slots_sources(s)->layout.n = 2;
	slots_free(s);
	s = open_slots(fd);
	assert_int_equal(slots_sources(s)->layout.n, 2);
	slots_free(s);
	close(fd);
}

static void *churn(void *arg)
{
	struct slots *s = arg;

	for (int i = 0; i < 5000; i++) {
		uint32_t slot = take(s);

		fill(s, slot, 64);
		assert_true(slot_move(s, slot, SLOT_READING, SLOT_HELD));
		assert_true(slot_move(s, slot, SLOT_HELD, SLOT_ANSWERING));
		assert_true(slot_move(s, slot, SLOT_ANSWERING, SLOT_FREE));
	}
	return NULL;
}

static void many_threads(void **state)
{
	int fd = memory(SLOTS);
	struct slots *s = open_slots(fd);
	pthread_t threads[6];
	struct slots_use use;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, churn, s), 0);
	for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
		pthread_join(threads[i], NULL);
	slots_use(s, &use);
	assert_int_equal(use.held, 0);
	for (uint32_t i = 0; i < SLOTS; i++)
		(void)take(s);
	slots_free(s);
	close(fd);
}

/* A daemon that no keeper knows of; it says when it has them. */
static pid_t start_claimant(int fd)
{
	int told[2];
	char byte = 0;
	pid_t pid;

	assert_int_equal(pipe(told), 0);
	pid = fork();
	if (pid == 0) {
		struct err e = ERR_INIT;

		if (slots_claim(fd, &e) < 0 || write(told[1], "x", 1) != 1)
			_exit(1);
		for (;;)
			(void)pause();
	}
	close(told[1]);
	assert_int_equal(read(told[0], &byte, 1), 1);
	close(told[0]);
	return pid;
}

static void claimed_by_one(void **state)
{
	int fd = memory(SLOTS);
	struct err e = ERR_INIT;
	pid_t first = start_claimant(fd);
	pid_t second = start_claimant(fd);
	int status = 0;

	(void)state;
	assert_int_equal(waitpid(first, &status, 0), first);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	assert_int_equal(kill(second, 0), 0);
	assert_int_equal(slots_claim(fd, &e), 0);
	assert_int_equal(waitpid(second, &status, 0), second);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	assert_int_equal(slots_claim(fd, &e), 0); /* its own */
	close(fd);
	assert_int_equal(slots_claim(fd, &e), -EBADF);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(states),
		cmocka_unit_test(tickets),
		cmocka_unit_test(exhausted),
		cmocka_unit_test(left_by_the_dead),
		cmocka_unit_test(memory_of_use),
		cmocka_unit_test(no_memory),
		cmocka_unit_test(old_kernel),
		cmocka_unit_test(left_behind_a_hole),
		cmocka_unit_test(foreign_memory),
		cmocka_unit_test(one_source_of_before),
		cmocka_unit_test(claimed_by_one),
		cmocka_unit_test(many_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
