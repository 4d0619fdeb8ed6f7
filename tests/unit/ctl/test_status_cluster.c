/* What a node's status takes from the master's word on datasets. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>

#include "ctl/status_cluster.h"

/* Volume "a" alone; "b" and "c" in one; "d", of which no worker was heard; "e", which nobody has read. */
static json_t *cluster_of(void)
{
	json_t *cluster = json_pack("{s:[{s:[{s:s}], s:i, s:i, s:i}, {s:[{s:s}, {s:s}], s:i, s:i, "
				    "s:i}, {s:[{s:s}]}, {s:[{s:s}], s:i, s:i, s:i}]}",
		"datasets", "mounts", "volume", "a", "cached_bytes", 7, "hit_bytes", 60,
		"miss_bytes", 20, "mounts", "volume", "b", "volume", "c", "cached_bytes", 8,
		"hit_bytes", 1, "miss_bytes", 1, "mounts", "volume", "d", "mounts", "volume", "e",
		"cached_bytes", 9, "hit_bytes", 0, "miss_bytes", 0);

	assert_non_null(cluster);
	return cluster;
}

static void test_of_all_workers(void **state)
{
	json_t *cluster = cluster_of();
	uint64_t bytes = 1;

	(void)state;
	assert_true(status_cluster_cached(cluster, "a", &bytes));
	assert_int_equal(bytes, 7);
	assert_true(status_cluster_cached(cluster, "e", &bytes));
	assert_int_equal(bytes, 9);
	json_decref(cluster);
}

static void test_not_known(void **state)
{
	static const char *const volumes[] = { "b", "c", "d", "nobody", NULL };
	json_t *cluster = cluster_of();
	uint64_t bytes = 1;

	(void)state;
	for (size_t i = 0; i < 5; i++)
		assert_false(status_cluster_cached(cluster, volumes[i], &bytes));
	assert_int_equal(bytes, 1);
	json_decref(cluster);
}

/* A cache of somebody's own, beside the service: what the cluster has of the same bucket is not what its mount reads. */
static void test_not_of_a_private_cache(void **state)
{
	json_t *cluster = cluster_of();

	(void)state;
	assert_int_equal(setenv("GRANARY_RUN_DIR", "/run/its", 1), 0);
	assert_ptr_equal(status_cluster_of(cluster, "/run/its/keeper"), cluster);
	assert_null(status_cluster_of(cluster, "/run/its/0123456789abcdef"));
	assert_null(status_cluster_of(cluster, NULL));
	assert_null(status_cluster_of(NULL, "/run/its/keeper"));
	json_decref(cluster);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_of_all_workers),
		cmocka_unit_test(test_not_known),
		cmocka_unit_test(test_not_of_a_private_cache),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
