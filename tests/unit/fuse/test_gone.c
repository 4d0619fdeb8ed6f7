/* Files that are shown no more: found again, also by the next daemon, and never more than so many. */
#include "tests/unit/catalog/fixture.h"
#include "fuse/tree/gone.h"

#include <errno.h>

#define HALF 100u

static struct gone_file file_of(uint64_t node)
{
	return (struct gone_file){ .node = node,
		.size = node * 3 + 1,
		.mtime = 1700000000 + (int64_t)node,
		.mtime_nsec = 7,
		.mode = 0100444,
		.uid = 12,
		.gid = 34 };
}

static struct gone *open_it(bool fresh)
{
	struct gone *gone = NULL;

	assert_int_equal(gone_open(fixture_path("gone"), fresh, HALF, &gone), 0);
	return gone;
}

static void add(struct gone *gone, uint64_t from, uint64_t to)
{
	for (uint64_t node = from; node < to; node++) {
		struct gone_file file = file_of(node);

		assert_int_equal(gone_add(gone, &file), 0);
	}
}

static void check(struct gone *gone, uint64_t from, uint64_t to)
{
	for (uint64_t node = from; node < to; node++) {
		struct gone_file file = file_of(node);
		struct gone_file found;

		assert_int_equal(gone_find(gone, node, &found), 0);
		assert_memory_equal(&found, &file, sizeof(file));
	}
}

static void found_again(void **state)
{
	struct gone *gone = open_it(true);
	struct gone_file found;

	(void)state;
	assert_int_equal(gone_find(gone, 4096, &found), -ESTALE);
	add(gone, 4096, 4096 + 70);
	add(gone, 4096, 4096 + 70); /* known */
	assert_int_equal(gone_count(gone), 70);
	check(gone, 4096, 4096 + 70);
	gone_free(gone);
	gone = open_it(false);
	assert_int_equal(gone_count(gone), 70);
	check(gone, 4096, 4096 + 70);
	add(gone, 9000, 9010);
	gone_free(gone);
	gone = open_it(false);
	check(gone, 4096, 4096 + 70);
	check(gone, 9000, 9010);
	gone_free(gone);
	gone = open_it(true);
	assert_int_equal(gone_count(gone), 0);
	gone_free(gone);
}

/* The last HALF of them are there, whenever the daemon ended. */
static void bounded(void **state)
{
	struct gone *gone = open_it(true);
	uint64_t next = 5000;

	(void)state;
	for (uint32_t i = 0; i < 60; i++) {
		add(gone, next, next + 17);
		next += 17;
		assert_true(gone_count(gone) <= 2 * HALF);
		check(gone, max(next - HALF, 5000ull), next);
		gone_free(gone);
		gone = open_it(false);
		assert_true(gone_count(gone) <= 2 * HALF);
		check(gone, max(next - HALF, 5000ull), next);
	}
	gone_free(gone);
}

/* A file in another format starts again. */
static void damaged(void **state)
{
	struct gone *gone;
	int fd = open(fixture_path("gone"), O_RDWR | O_CREAT | O_TRUNC, 0600);

	(void)state;
	assert_int_equal(write(fd, "nothing that we wrote", 21), 21);
	close(fd);
	gone = open_it(false);
	assert_int_equal(gone_count(gone), 0);
	add(gone, 7000, 7003);
	gone_free(gone);
	gone = open_it(false);
	check(gone, 7000, 7003);
	gone_free(gone);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(found_again),
		cmocka_unit_test(bounded),
		cmocka_unit_test(damaged),
	};

	return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
