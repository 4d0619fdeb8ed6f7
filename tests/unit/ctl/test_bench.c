/* Passes over files, and which limit a row is compared with. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"
#include "ctl/bench_report.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SMALL      30u
#define SMALL_SIZE 3000u
#define LARGE_SIZE (3 * MiB + 5)
#define LONG_NS    (60 * CLOCK_SECOND) /* whatever the machine: `once` ends before */

struct files {
	char dir[64];
	struct bench_set small, large;
	bool cut;
};

static void write_file(const char *path, uint64_t size)
{
	char *bytes = calloc(1, size);
	FILE *f = fopen(path, "w");

	assert_non_null(bytes);
	assert_non_null(f);
	assert_int_equal(fwrite(bytes, 1, size, f), size);
	assert_int_equal(fflush(f), 0);
	assert_int_equal(fsync(fileno(f)), 0); /* its blocks are counted from now on */
	assert_int_equal(fclose(f), 0);
	free(bytes);
}

static int set_up(void **state)
{
	struct files *f = calloc(1, sizeof(*f));
	char path[128];

	(void)strcpy(f->dir, "/tmp/test_bench.XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	(void)snprintf(path, sizeof(path), "%s/sub", f->dir);
	assert_int_equal(mkdir(path, 0700), 0);
	for (unsigned int i = 0; i < SMALL; i++) {
		(void)snprintf(path, sizeof(path), "%s/%s%u", f->dir, i % 2 ? "sub/" : "", i);
		write_file(path, SMALL_SIZE);
	}
	(void)snprintf(path, sizeof(path), "%s/empty", f->dir);
	write_file(path, 0);
	(void)snprintf(path, sizeof(path), "%s/large", f->dir);
	write_file(path, LARGE_SIZE);
	assert_int_equal(
		bench_collect(f->dir, UINT64_MAX, LONG_NS, &f->small, &f->large, &f->cut), 0);
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct files *f = *state;
	char command[128];

	bench_set_release(&f->small);
	bench_set_release(&f->large);
	(void)snprintf(command, sizeof(command), "rm -r %s", f->dir);
	assert_int_equal(
		system(command), 0); // NOLINT(cert-env33-c,concurrency-mt-unsafe): one thread
	free(f);
	return 0;
}

static struct bench_result run(
	const struct bench_set *set, enum bench_op op, unsigned int threads, bool once)
{
	const struct bench_pass pass = { .op = op,
		.set = set,
		.threads = threads,
		.ns = once ? LONG_NS : CLOCK_MS,
		.once = once,
		.block = BENCH_BLOCK };
	struct bench_result result;

	assert_int_equal(bench_run(&pass, &result), 0);
	return result;
}

static void test_files_are_found(void **state)
{
	struct files *f = *state;
	bool cut;
	struct bench_set some = { 0 };
	struct bench_set none = { 0 };

	assert_int_equal(f->small.n, SMALL);
	assert_int_equal(f->small.bytes, SMALL * SMALL_SIZE);
	assert_int_equal(f->large.n, 1);
	assert_int_equal(f->large.bytes, LARGE_SIZE);
	assert_false(f->cut);
	assert_int_equal(bench_collect(f->dir, SMALL_SIZE + 1, LONG_NS, &some, &none, &cut), 0);
	assert_true(cut);
	assert_int_equal(some.bytes, SMALL_SIZE + 1); /* the second only begun */
	bench_set_release(&some);
	bench_set_release(&none);
	assert_int_equal(
		bench_collect("/nowhere", UINT64_MAX, LONG_NS, &some, &none, &cut), -ENOENT);
}

static void test_each_file_once(void **state)
{
	struct files *f = *state;

	for (unsigned int threads = 1; threads <= 8; threads *= 8) {
		struct bench_result r = run(&f->small, BENCH_READ, threads, true);

		assert_int_equal(r.operations, SMALL);
		assert_int_equal(r.bytes, SMALL * SMALL_SIZE);
		assert_int_equal(r.errors, 0);
		assert_int_equal(r.complete, SMALL);
		assert_true(r.p50_ns > 0 && r.p50_ns <= r.p99_ns && r.p99_ns <= r.ns);
		r = run(&f->small, BENCH_STAT, threads, true);
		assert_int_equal(r.operations, SMALL);
		assert_int_equal(r.bytes, 0);
		r = run(&f->large, BENCH_READ, threads, true);
		assert_int_equal(r.bytes, LARGE_SIZE);
	}
}

/* However short the time, something is measured. */
static void test_again_and_again(void **state)
{
	struct files *f = *state;
	struct bench_result r = run(&f->small, BENCH_OPEN, 3, false);

	assert_true(r.operations >= 3);
	assert_int_equal(r.bytes, 0);
	r = run(&f->large, BENCH_READ, 2, false);
	assert_true(r.operations >= 2);
	assert_int_equal(r.bytes, r.operations * LARGE_SIZE);
}

static void test_failures_are_counted(void **state)
{
	struct files *f = *state;
	struct bench_result r;

	assert_int_equal(unlink(f->small.files[7].path), 0);
	r = run(&f->small, BENCH_READ, 2, true);
	assert_int_equal(r.errors, 1);
	assert_int_equal(r.error, -ENOENT);
	assert_string_equal(r.failed, f->small.files[7].path);
	assert_int_equal(r.operations, SMALL - 1);
	assert_int_equal(r.complete, 7); /* those before it */
}

static void test_blocks_of_memory(void **state)
{
	struct bench_set memory = { 0 };
	struct bench_result r;

	(void)state;
	assert_int_equal(bench_memory_open(&(struct bench_set){ 0 }, &memory), 0);
	r = run(&memory, BENCH_BLOCKS, 2, false);
	assert_int_equal(r.errors, 0);
	assert_int_equal(r.bytes, r.operations * BENCH_BLOCK);
	r = run(&memory, BENCH_SCATTER, 2, false);
	assert_int_equal(r.errors, 0);
	assert_int_equal(r.bytes, r.operations * BENCH_BLOCK);
	r = run(&memory, BENCH_PARTS, 2, false);
	assert_int_equal(r.errors, 0);
	assert_int_equal(r.bytes, r.operations * BENCH_BLOCK);
	bench_set_release(&memory);
}

static void test_a_tier_without_bytes(void **state)
{
	struct files *f = *state;
	struct bench_set memory = { 0 };
	struct bench_set tier = { 0 };
	struct err e = ERR_INIT;
	char path[128];
	bool direct;

	(void)snprintf(path, sizeof(path), "%s/sub", f->dir);
	assert_int_equal(bench_tier_open(path, &tier, &direct, &e), -ENODATA);
	assert_non_null(strstr(e.text, path));
	assert_int_equal(bench_tier_open(f->dir, &tier, &direct, &e), 0);
	assert_int_equal(tier.n, 1);
	assert_int_equal(tier.bytes, 3 * MiB); /* whole blocks */
	assert_int_equal(bench_memory_open(&tier, &memory), 0);
	assert_string_equal(memory.files[0].path, tier.files[0].path);
	assert_int_equal(memory.bytes, 3 * MiB);
	bench_set_release(&memory);
	bench_set_release(&tier);
}

/* Only what was written is read: a hole is no disk. */
static void test_a_tier_with_holes(void **state)
{
	struct files *f = *state;
	struct bench_set tier = { 0 };
	struct err e = ERR_INIT;
	char *bytes = calloc(1, 4 * MiB);
	char path[128];
	bool direct;
	int fd;

	memset(bytes, 1, 4 * MiB);
	(void)snprintf(path, sizeof(path), "%s/sub/sparse", f->dir);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, bytes, 4 * MiB, 2 * MiB), 4 * MiB);
	assert_int_equal(ftruncate(fd, 64 * MiB), 0);
	assert_int_equal(fsync(fd), 0);
	assert_int_equal(close(fd), 0);
	(void)snprintf(path, sizeof(path), "%s/sub", f->dir);
	assert_int_equal(bench_tier_open(path, &tier, &direct, &e), 0);
	assert_int_equal(tier.n, 1);
	assert_int_equal(tier.files[0].from, 2 * MiB);
	assert_int_equal(tier.files[0].size, 4 * MiB);
	bench_set_release(&tier);
	free(bytes);
}

static struct bench_row *row(struct bench_report *report, const char *test, const char *of,
	const char *state, unsigned int threads, uint64_t bytes)
{
	struct bench_row *added = bench_report_add(report, test, of, state, threads);

	added->result =
		(struct bench_result){ .operations = 10, .bytes = bytes, .ns = CLOCK_SECOND };
	return added;
}

static void test_the_limit_that_holds(void **state)
{
	struct bench_report report = { 0 };
	const struct bench_row *memory = row(&report, "small", "memory", "", 1, 1000);
	const struct bench_row *disk = row(&report, "small", "disk", "", 1, 100);
	const struct bench_row *origin =
		row(&report, "read", "origin", "", BENCH_ORIGIN_CONNECTIONS, 10);
	struct bench_row *warm = row(&report, "small", "mount", "warm", 1, 500);
	struct bench_row *found = row(&report, "small", "mount", "found", 1, 50);
	struct bench_row *other = row(&report, "small", "mount", "warm", 2, 500);

	(void)state;
	found->counted = true;
	found->from_mount = 50;
	assert_ptr_equal(bench_report_limit(&report, warm), memory);
	assert_float_equal(bench_report_ratio(warm, memory), 0.5, 1e-9);
	assert_ptr_equal(bench_report_limit(&report, found), disk);
	assert_float_equal(bench_report_ratio(found, disk), 0.5, 1e-9);
	found->from_origin = 40;
	assert_ptr_equal(bench_report_limit(&report, found), origin);
	found->from_origin = 0;
	found->from_mount = 0; /* it lay in memory */
	assert_ptr_equal(bench_report_limit(&report, found), memory);
	report.sealed = true; /* then nobody counted */
	assert_ptr_equal(bench_report_limit(&report, found), disk);
	assert_null(bench_report_limit(&report, other)); /* none for so many threads */
	assert_true(bench_report_ratio(other, NULL) < 0);
	assert_null(bench_report_limit(&report, memory));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_files_are_found, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_each_file_once, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_again_and_again, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_failures_are_counted, set_up, tear_down),
		cmocka_unit_test(test_blocks_of_memory),
		cmocka_unit_test_setup_teardown(test_a_tier_without_bytes, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_a_tier_with_holes, set_up, tear_down),
		cmocka_unit_test(test_the_limit_that_holds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
