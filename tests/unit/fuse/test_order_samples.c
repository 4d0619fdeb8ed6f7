/* Lists and orders that are longer than memory: in files, sorted, bounded, and refused when there is no room. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/layout.h"
#include "base/units.h"
#include "fuse/order/order_samples.h"

#define MANY   10000000u
#define MEMORY (24 * MiB) /* an eighth of 192 MiB */
#define STEP   7919u      /* no factor of MANY */
#define BLOCKS 27u        /* of a file */

static const uint8_t digest[SHA256_BYTES];

struct fixture {
	char dir[64];
	struct order_space space;
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	(void)snprintf(f->dir, sizeof(f->dir), "/var/tmp/granary-order.XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	f->space =
		(struct order_space){ .directory = f->dir, .memory = MEMORY, .disk = 1024 * MiB };
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;
	struct arena_use use;

	arena_use(ARENA_ORDERS, &use);
	assert_int_equal(use.used, 0);
	assert_int_equal(f->space.memory_used, 0);
	assert_int_equal(f->space.disk_used, 0);
	assert_int_equal(rmdir(f->dir), 0); /* the files have no names */
	free(f);
	return 0;
}

/* The lists' order is not that of their places: the first half lies behind the second one. */
static uint64_t start_of(uint32_t number, uint32_t n)
{
	return (uint64_t)((number + n / 2) % n) * BLOCKS * BLOCK_BYTES;
}

static struct order_samples *list_of(struct order_space *space, uint32_t n)
{
	struct order_samples *list;

	assert_int_equal(order_samples_new(space, n, digest, &list), 0);
	for (uint32_t i = 0; i < n; i++)
		list->samples[i] =
			(struct order_sample){ start_of(i, n), (uint64_t)BLOCKS * BLOCK_BYTES };
	assert_int_equal(order_samples_sort(list), 0);
	assert_int_equal(list->n_by_start, n);
	return list;
}

static uint32_t nth(uint32_t place, uint32_t n)
{
	return (uint32_t)((uint64_t)place * STEP % n);
}

static struct order_sequence *sequence_of(struct order_samples *list, uint32_t n)
{
	struct order_sequence *sequence;
	struct order_array numbers;
	uint32_t *words;

	assert_int_equal(
		order_array_new(list->samples_array.space, n, sizeof(*words), &numbers), 0);
	words = numbers.data;
	for (uint32_t i = 0; i < n; i++)
		words[i] = nth(i, n);
	assert_int_equal(order_sequence_of(list, &numbers, n, &sequence), 0);
	assert_null(numbers.space);
	return sequence;
}

static void check_sequence(struct order_samples *list, struct order_sequence *sequence, uint32_t n)
{
	for (uint32_t place = 0; place < n; place += n / 1000) {
		uint32_t sample = nth(place, n);
		uint32_t found = order_samples_find(list, start_of(sample, n), BLOCK_BYTES);

		assert_int_equal(order_sequence_sample(sequence, place), sample);
		assert_int_equal(order_sequence_place(sequence, sample), place);
		assert_in_range(found, 0, n - 1);
		assert_int_equal(list->by_start[found], sample);
	}
}

static void test_many(void **state)
{
	struct fixture *f = *state;
	struct order_samples *list = list_of(&f->space, MANY);
	struct order_sequence *sequence = sequence_of(list, MANY);
	struct arena_use use;

	check_sequence(list, sequence, MANY);
	arena_use(ARENA_ORDERS, &use);
	assert_true(use.peak <= MEMORY + MiB);
	assert_true(f->space.memory_used <= MEMORY);
	assert_int_equal(f->space.disk_used, MANY * (16ull + 4 + 4 + 4));
	order_sequence_unref(sequence);
	order_samples_unref(list);
}

/* What fits is in memory, and what does not is beside it, not in its place. */
static void test_few(void **state)
{
	struct fixture *f = *state;
	struct order_samples *few = list_of(&f->space, 1000);
	struct order_samples *more = list_of(&f->space, 2000000);
	struct order_sequence *sequence = sequence_of(few, 1000);

	assert_false(few->samples_array.in_file);
	assert_true(more->samples_array.in_file);
	assert_false(sequence->by_sample_array.in_file);
	check_sequence(few, sequence, 1000);
	order_sequence_unref(sequence);
	order_samples_unref(few);
	order_samples_unref(more);
}

static void test_too_many(void **state)
{
	struct fixture *f = *state;
	struct order_samples *list = NULL;

	assert_int_equal(
		order_samples_new(&f->space, ORDER_SAMPLES_MAX + 1, digest, &list), -E2BIG);
	f->space.disk = 100 * MiB;
	assert_int_equal(order_samples_new(&f->space, MANY, digest, &list), -EDQUOT);
	f->space.directory = "/none";
	assert_int_equal(order_samples_new(&f->space, 4000000, digest, &list), -ENOENT);
	f->space.directory = NULL;
	assert_int_equal(order_samples_new(&f->space, MANY, digest, &list), -ENOMEM);
	assert_null(list);
}

/* On a disk of 8 MiB. The status: of the list, or 100 without the right to mount one. */
static int on_a_small_disk(struct fixture *f)
{
	struct order_samples *list = NULL;

	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
		mount("none", f->dir, "tmpfs", 0, "size=8m") < 0)
		return 100;
	return -order_samples_new(&f->space, MANY, digest, &list);
}

static void test_full_disk(void **state)
{
	pid_t pid = fork();
	int status;

	assert_true(pid >= 0);
	if (pid == 0)
		_exit(on_a_small_disk(*state));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 100)
		skip();
	assert_int_equal(WEXITSTATUS(status), ENOSPC);
}

/* However often a list names the same bytes, a READ of them looks at so many of it. */
static void test_same_bytes(void **state)
{
	const uint32_t n = 3 * ORDER_TOUCHED;
	struct fixture *f = *state;
	struct order_samples *list;

	assert_int_equal(order_samples_new(&f->space, n, digest, &list), 0);
	for (uint32_t i = 0; i < n; i++)
		list->samples[i] = (struct order_sample){ CHUNK_BYTES, 2 * BLOCK_BYTES };
	assert_int_equal(order_samples_sort(list), 0);
	assert_int_equal(order_samples_find(list, CHUNK_BYTES + BLOCK_BYTES, BLOCK_BYTES),
		n - ORDER_TOUCHED);
	assert_int_equal(order_samples_find(list, CHUNK_BYTES, BLOCK_BYTES), 0);
	order_samples_unref(list);
}

/* Each sample is at its first place; what an order leaves out is nowhere. */
static void test_places(void **state)
{
	static const uint32_t order[] = { 7, 2, 7, 0, 2, 9 };
	static const uint32_t places[10] = { 3, ORDER_NOWHERE, 1, ORDER_NOWHERE, ORDER_NOWHERE,
		ORDER_NOWHERE, ORDER_NOWHERE, 0, ORDER_NOWHERE, 5 };
	struct fixture *f = *state;
	struct order_sequence *sequence;
	struct order_samples *list;
	struct order_array numbers;
	struct order_sequence *all;

	assert_int_equal(order_samples_new(&f->space, 10, digest, &list), 0);
	assert_int_equal(order_array_new(&f->space, ARRAY_SIZE(order), 4, &numbers), 0);
	memcpy(numbers.data, order, sizeof(order));
	assert_int_equal(order_sequence_of(list, &numbers, ARRAY_SIZE(order), &sequence), 0);
	all = order_sequence_listed(list);
	for (uint32_t i = 0; i < 10; i++) {
		assert_int_equal(order_sequence_place(sequence, i), places[i]);
		assert_int_equal(order_sequence_place(all, i), i);
	}
	assert_ptr_equal(order_sequence_listed(list), all);
	order_sequence_unref(all);
	order_sequence_unref(all);
	order_sequence_unref(sequence);
	order_samples_unref(list);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_many),
		TEST(test_few),
		TEST(test_too_many),
		TEST(test_full_disk),
		TEST(test_same_bytes),
		TEST(test_places),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
