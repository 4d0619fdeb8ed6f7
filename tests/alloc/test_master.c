/*
 * The master's sources, with every allocation failing once: what it has handed out stays true, and
 * the next one who asks gets a whole table.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/units.h"
#include "master/source.h"
#include "tests/alloc/alloc_fail.h"

#define FILES 12u

static char dir[64];
static struct ufs_config origin;
static uint64_t epoch;
static struct table *last; /* handed out before */

static const char *in(const char *name)
{
	static char paths[4][128];
	static unsigned int next;
	char *p = paths[next++ % 4];

	(void)snprintf(p, sizeof(paths[0]), "%s/%s", dir, name);
	return p;
}

static int setup(void **state)
{
	struct err e = ERR_INIT;
	char url[128];

	(void)state;
	(void)snprintf(dir, sizeof(dir), "/var/tmp/granary-alloc-XXXXXX");
	if (!mkdtemp(dir) || file_mkdirs(in("origin/sub"), 0755) < 0 ||
		file_mkdirs(in("tables"), 0700) < 0)
		return -1;
	for (uint32_t i = 0; i < FILES; i++) {
		char name[64];

		(void)snprintf(name, sizeof(name), "origin/%sf%02u", i % 2 ? "sub/" : "", i);
		if (file_write_atomic(in(name), name, i, 0644) < 0)
			return -1;
	}
	(void)snprintf(url, sizeof(url), "file://%s/origin", dir);
	return ufs_config_parse(url, &origin, &e);
}

static int teardown(void **state)
{
	char command[128];

	(void)state;
	table_unref(last);
	ufs_config_release(&origin);
	(void)snprintf(command, sizeof(command), "rm -r %s", dir);
	return system(command);
}

struct got {
	struct source_wait wait;
	bool done;
	int status;
	struct err e;
	int fd;
};

static void on_done(
	struct source_wait *wait, int status, struct source_answer *answer, const struct err *e)
{
	struct got *got = container_of(wait, struct got, wait);

	ensure(!got->done);
	got->done = true;
	got->status = status;
	if (status < 0)
		got->e = *e;
	else
		got->fd = TAKE_FD(answer->fd);
}

/* What was handed out is whole, and gives no offset another meaning than what was handed out
 * before. */
static void check_table(int fd)
{
	struct table *table = NULL;

	assert_int_equal(table_open(fd, &table, NULL), 0);
	assert_int_equal(table_info(table)->live_files, FILES + 1);
	if (last && memcmp(table_info(last)->id.hash, table_info(table)->id.hash, SHA256_BYTES)) {
		assert_int_equal(table_info(last)->id.lineage, table_info(table)->id.lineage);
		assert_int_equal(generation_check_successor(last, table, NULL), 0);
	}
	table_unref(last);
	last = table;
}

static int ask(struct source_set *set, int *ret_fd)
{
	struct got got = { .wait = { .config = &origin, .refresh = true, .on_done = on_done },
		.fd = -1 };

	source_open(set, &got.wait);
	assert_true(got.done); /* the flight runs on this thread */
	assert_true(got.status == 0 || got.e.text[0]);
	*ret_fd = got.fd;
	return got.status;
}

/* A run of the master: it loads what it knows, and lists. */
static int run(int *ret_fd)
{
	struct source_set *set = NULL;
	struct store *store = NULL;
	struct err e = ERR_INIT;
	int r = store_rocksdb_open(in("store"), &store, &e);

	if (r == 0) {
		const struct source_set_config config = {
			.store = store,
			.tables = in("tables"),
			.epoch = ++epoch,
			.listing_bytes = 64 * MiB,
			.limits = { .max_requests = 4,
				.list_requests = 4,
				.request_timeout_ns = CLOCK_SECOND,
				.deadline_ns = 2 * CLOCK_SECOND },
		};

		r = source_set_new(&config, &set, &e);
	}
	assert_true(r == 0 || e.text[0]);
	if (r == 0)
		r = ask(set, ret_fd);
	if (r == 0) {
		json_t *json = source_set_json(set, true); /* NULL without memory */

		json_decref(json);
	}
	source_set_free(set);
	store_close(store);
	return r;
}

static void forget(void)
{
	char command[320];

	(void)snprintf(command, sizeof(command), "rm -rf %s/store %s/tables && mkdir %s/tables",
		dir, dir, dir);
	assert_int_equal(system(command), 0);
	table_unref(last);
	last = NULL;
}

static void change(void)
{
	static uint32_t version;
	char text[32];
	int n = snprintf(text, sizeof(text), "version %u", ++version);

	assert_int_equal(file_write_atomic(in("origin/changed"), text, (size_t)n, 0644), 0);
}

static void run_well(void)
{
	int fd = -1;

	assert_int_equal(run(&fd), 0);
	check_table(fd);
}

/* The second run of a new master, or its first, in which an allocation fails. Then one in which
 * none does. */
static int life(void *arg)
{
	uint64_t n = alloc_fail_suspend();
	bool failed;
	int fd = -1;
	int r;

	forget();
	change();
	if (*(bool *)arg) {
		run_well();
		change();
	}
	alloc_fail(n);
	r = run(&fd);
	failed = alloc_fail_end();
	if (fd >= 0)
		check_table(fd);
	run_well();
	assert_true(r == 0 || failed);
	return r;
}

static void test_sources(void **state)
{
	bool second = true;

	(void)state;
	assert_true(alloc_sweep(life, &second, 1) > 50);
	second = false;
	assert_true(alloc_sweep(life, &second, 5) > 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sources),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
