/* What the keeper knows of superblocks and their mount points. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "keeper/points/superblock.h"

static struct superblocks all;

static int setup(void **state)
{
	(void)state;
	superblocks_init(&all);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	superblocks_release(&all);
	return 0;
}

static struct superblock *add(unsigned int server, const char *key)
{
	struct superblock *s = NULL;

	assert_int_equal(superblock_add(&all, server, key, 7, 8, &s), 0);
	return s;
}

static void shared_while_shown(void **state)
{
	struct superblock *s = add(1, "a");

	(void)state;
	assert_null(superblock_find(&all, "a")); /* not shown anywhere yet */
	assert_int_equal(superblock_point_add(s, 1, "/m"), 0);
	assert_ptr_equal(superblock_find(&all, "a"), s);
	assert_null(superblock_find(&all, "b"));
	assert_int_equal(superblock_point_add(s, 2, "/n"), 0);
	assert_int_equal(s->n_points, 2);
	assert_ptr_equal(superblock_at(&all, "/n"), s);
	assert_int_equal(superblock_point_remove(s, "/m"), 1);
	assert_ptr_equal(superblock_find(&all, "a"), s);
	assert_int_equal(superblock_point_remove(s, "/m"), 0);
	assert_int_equal(superblock_point_remove(s, "/n"), 2);
	assert_null(superblock_find(&all, "a"));
	assert_null(superblock_at(&all, "/n"));
	assert_ptr_equal(superblock_of_server(&all, 1), s); /* open files may keep it */
}

static void nobody_shares_what_ends(void **state)
{
	struct superblock *s = add(1, "a");

	(void)state;
	assert_int_equal(superblock_point_add(s, 1, "/m"), 0);
	s->closed = true;
	assert_null(superblock_find(&all, "a"));
	assert_int_equal(superblock_point_add(s, 2, "/n"), 0); /* it goes on after all */
	assert_ptr_equal(superblock_find(&all, "a"), s);
}

static void refuses(void **state)
{
	struct superblock *s = add(1, "a");
	struct superblock *other = NULL;
	char key[MOUNTER_KEY_BYTES + 1];
	char path[32];

	(void)state;
	memset(key, 'k', sizeof(key) - 1);
	key[sizeof(key) - 1] = '\0';
	assert_int_equal(superblock_add(&all, 1, "b", 1, 1, &other), -EEXIST);
	assert_int_equal(superblock_add(&all, 2, "", 1, 1, &other), -EINVAL);
	assert_int_equal(superblock_add(&all, 2, key, 1, 1, &other), -EINVAL);
	for (unsigned int i = 0; i < SUPERBLOCK_POINTS_MAX; i++) {
		snprintf(path, sizeof(path), "/m%u", i);
		assert_int_equal(superblock_point_add(s, i + 1, path), 0);
	}
	assert_int_equal(superblock_point_add(s, 1, "/m0"), -EEXIST);
	assert_int_equal(superblock_point_add(s, 1, "/one-more"), -ENOSPC);
	for (unsigned int i = 2; i <= SUPERBLOCKS_MAX; i++)
		(void)add(i, "a");
	assert_int_equal(superblock_add(&all, SUPERBLOCKS_MAX + 1, "a", 1, 1, &other), -ENOSPC);
	superblock_remove(&all, s);
	assert_null(superblock_of_server(&all, 1));
	assert_int_equal(superblock_add(&all, 1, "a", 1, 1, &other), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(shared_while_shown, setup, teardown),
		cmocka_unit_test_setup_teardown(nobody_shares_what_ends, setup, teardown),
		cmocka_unit_test_setup_teardown(refuses, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
