/* Counts with a maximum, and what the kernel counts of this process. */
#include "base/bounds.h"
#include "base/limits.h"
#include "base/loop.h"
#include "base/pool.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static void counts_and_peaks(void **state)
{
	struct bound_use use;

	(void)state;
	bound_raise_max(BOUND_CONNECTIONS, 5);
	bound_add(BOUND_CONNECTIONS, 3);
	assert_false(bound_take(BOUND_CONNECTIONS, 3, 5));
	assert_true(bound_take(BOUND_CONNECTIONS, 2, 5));
	assert_false(bound_take(BOUND_CONNECTIONS, 1, 5));
	bound_sub(BOUND_CONNECTIONS, 4);
	bound_use(BOUND_CONNECTIONS, &use);
	assert_string_equal(use.name, "connections");
	assert_int_equal(use.used, 1);
	assert_int_equal(use.peak, 5);
	assert_int_equal(use.max, 5);
	bound_sub(BOUND_CONNECTIONS, 1);
}

static void threads_have_a_maximum(void **state)
{
	struct pool *two;
	uint64_t before = bound_used(BOUND_THREADS);
	struct loop *loop;

	(void)state;
	assert_true(bound_take(BOUND_THREADS, LIMIT_THREADS - 3, LIMIT_THREADS));
	two = pool_new("two", 2, 1);
	assert_non_null(two);
	assert_null(pool_new("two more", 2, 1));
	loop = loop_new("one");
	assert_non_null(loop);
	assert_null(loop_new("another"));
	loop_free(loop);
	pool_free(two);
	bound_sub(BOUND_THREADS, LIMIT_THREADS - 3);
	assert_int_equal(bound_used(BOUND_THREADS), before);
}

static void set_descriptors(rlim_t n)
{
	struct rlimit limit;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = n;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static void descriptors_are_shared_out(void **state)
{
	struct bound_use use;
	struct bound_use more;
	struct err e = ERR_INIT;
	int fd;

	(void)state;
	set_descriptors(1024);
	assert_int_equal(bounds_descriptor_share(8, 4096), 256);
	assert_int_equal(bounds_descriptor_share(8, 100), 100);
	assert_int_equal(bounds_descriptor_share(300, 4096), 300);
	assert_int_equal(bounds_check_descriptors(&e), 0);
	bounds_descriptors(&use);
	assert_int_equal(use.max, 1024);
	fd = dup(STDIN_FILENO);
	assert_true(fd >= 0);
	bounds_descriptors(&more);
	assert_int_equal(more.used, use.used + 1);
	assert_int_equal(close(fd), 0);
	set_descriptors(100);
	assert_int_equal(bounds_check_descriptors(&e), -EMFILE);
	assert_non_null(strstr(e.text, "ulimit -n"));
}

/* Last: it is for good. */
static void connections_have_most(void **state)
{
	struct rlimit limit;
	rlim_t useful = LIMIT_CONNS / 3 * 4 + 4;

	(void)state;
	set_descriptors(1024);
	assert_int_equal(bounds_connection_share(8, 4096), 256);
	bounds_mostly_connections();
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	assert_int_equal(limit.rlim_cur, limit.rlim_max < useful ? limit.rlim_max : useful);
	set_descriptors(1024);
	assert_int_equal(bounds_connection_share(8, 4096), 768);
	assert_int_equal(bounds_connection_share(8, 100), 100);
	assert_int_equal(bounds_connection_share(1000, 4096), 1000);
	assert_int_equal(bounds_descriptor_share(8, 4096), 256);
}

static void descriptors_are_raised(void **state)
{
	struct rlimit limit;
	rlim_t useful;

	(void)state;
	set_descriptors(100);
	bounds_raise_descriptors();
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	useful = 8 * LIMIT_CHUNK_FDS;
	assert_int_equal(limit.rlim_cur, limit.rlim_max < useful ? limit.rlim_max : useful);
	/* What is enough stays. */
	if (limit.rlim_max > useful) {
		set_descriptors(useful + 1);
		bounds_raise_descriptors();
		assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
		assert_int_equal(limit.rlim_cur, useful + 1);
	}
}

static void the_kernel_counts(void **state)
{
	struct bound_use use;

	(void)state;
	bounds_maps(&use);
	assert_in_range(use.used, 5, 1000000);
	assert_in_range(use.max, use.used, UINT64_MAX);
	bounds_threads(&use);
	assert_in_range(use.used, 1, 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(counts_and_peaks),
		cmocka_unit_test(threads_have_a_maximum),
		cmocka_unit_test(descriptors_are_shared_out),
		cmocka_unit_test(descriptors_are_raised),
		cmocka_unit_test(connections_have_most),
		cmocka_unit_test(the_kernel_counts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
