/* Building and opening a table and its image, with every allocation failing once. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/file.h"
#include "catalog/catalog.h"
#include "catalog/image_read.h"
#include "tests/alloc/alloc_fail.h"

#define KEYS           3000u
#define SPILLED_KEYS   11000u
#define SPILLED_MEMORY (300u << 10) /* a third of them */

static const struct volume_id volume = { { 1, 2, 3 } };
static char dir[64];

static int setup(void **state)
{
	(void)state;
	snprintf(dir, sizeof(dir), "/var/tmp/granary-alloc-XXXXXX");
	return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
	char command[128];

	(void)state;
	snprintf(command, sizeof(command), "rm -r %s", dir);
	return system(command);
}

static const char *path(const char *name)
{
	static char paths[4][128];
	static unsigned int next;
	char *p = paths[next++ % 4];

	snprintf(p, sizeof(paths[0]), "%s/%s", dir, name);
	return p;
}

static int add(struct listing *l, uint32_t i, const char *tag)
{
	char key[64];
	int n = snprintf(
		key, sizeof(key), "d%u/e%u/%s-%u", i * 7 % 11, i % 5, i % 2 ? "x" : "y", i);

	return listing_add(
		l, key, (uint32_t)n, i * 37, 1700000000ll * 1000000000, tag, (uint32_t)strlen(tag));
}

/* With `memory` for the listing; what does not fit is spilled. */
static int build_in(
	uint64_t memory, uint32_t keys, struct table *prev, const char *name, const char *tag)
{
	struct listing *l = listing_new(memory);
	struct err e = ERR_INIT;
	int r = l ? listing_spill_to(l, dir, UINT64_MAX) : -ENOMEM;

	for (uint32_t i = 0; r == 0 && i < keys; i++)
		r = add(l, i, i % 3 ? "same" : tag);
	if (r == 0) {
		r = generation_build(&volume, prev, l, path(name), NULL, NULL, &e);
		assert_true(r == 0 || e.text[0]);
	}
	listing_free(l);
	return r;
}

static int build(struct table *prev, const char *name, const char *tag)
{
	return build_in(64 << 20, KEYS, prev, name, tag);
}

static int open_table(const char *name, struct table **ret_table)
{
	struct err e = ERR_INIT;
	int fd = open(path(name), O_RDONLY | O_CLOEXEC);
	int r = table_open(fd, ret_table, &e);

	assert_true(r == 0 || e.text[0]);
	return r;
}

/* Two generations, the guard between them, lookups. */
static int tables(void *arg)
{
	static struct table_row row;
	struct table *one = NULL;
	struct table *two = NULL;
	int r = build(NULL, "one", "a");

	(void)arg;
	if (r == 0)
		r = open_table("one", &one);
	if (r == 0)
		r = build(one, "two", "b");
	if (r == 0)
		r = open_table("two", &two);
	if (r == 0)
		r = generation_check_successor(one, two, NULL);
	if (r == 0)
		r = table_find_key(two, "d7/e1/x-1", 9, &row);
	if (r == 0) {
		assert_int_equal(row.size, 37);
		r = table_find_offset(two, row.offset, &row);
	}
	if (r == 0)
		assert_string_equal(row.key, "d7/e1/x-1");
	table_unref(one);
	table_unref(two);
	(void)unlink(path("one"));
	(void)unlink(path("two"));
	assert_int_not_equal(r, -ENOENT);
	return r;
}

/* Three runs and their merge. */
static int spilled(void *arg)
{
	struct table *table = NULL;
	int r = build_in(SPILLED_MEMORY, SPILLED_KEYS, NULL, "spilled", "a");

	(void)arg;
	if (r == 0)
		r = open_table("spilled", &table);
	if (r == 0)
		assert_int_equal(table_info(table)->live_files, SPILLED_KEYS);
	table_unref(table);
	(void)unlink(path("spilled"));
	return r;
}

static int images(void *arg)
{
	struct image_options options = { .umask = 022 };
	static struct image_view view;
	struct table *table = arg;
	struct image *image = NULL;
	struct image_inode inode;
	struct image_info info;
	struct err e = ERR_INIT;
	int r = image_build(table, &options, path("image"), NULL, NULL, &info, &e);

	if (r == 0)
		r = image_open(open(path("image"), O_RDONLY | O_CLOEXEC), info.extent_bytes, NULL,
			&image, &e);
	assert_true(r == 0 || e.text[0]);
	if (r == 0) {
		assert_int_equal(info.files, KEYS);
		memset(&view, 0, sizeof(view));
		r = image_inode(image, &view, image_root(image), &inode);
	}
	if (r == 0)
		assert_int_equal(image_lookup(image, &view, &inode, "d7", 2, &inode), 0);
	image_close(image);
	(void)unlink(path("image"));
	return r;
}

static void test_tables(void **state)
{
	(void)state;
	assert_true(alloc_sweep(tables, NULL, 1) > 20);
}

static void test_spilled(void **state)
{
	(void)state;
	assert_true(alloc_sweep(spilled, NULL, 1) > 20);
}

static void test_images(void **state)
{
	struct table *table;

	(void)state;
	assert_int_equal(build(NULL, "one", "a"), 0);
	assert_int_equal(open_table("one", &table), 0);
	assert_true(alloc_sweep(images, table, 1) > 5);
	table_unref(table);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tables),
		cmocka_unit_test(test_spilled),
		cmocka_unit_test(test_images),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
