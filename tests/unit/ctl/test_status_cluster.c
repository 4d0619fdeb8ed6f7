/* What a node's status takes from the master's word on datasets. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>

#include "ctl/status_cluster.h"

/* Volume "a" alone, and a part of it; "b" and "c" in one; "d", of which no worker has reported. */
static json_t *cluster_of(void)
{
	json_t *cluster = json_pack("{s:[{s:[{s:s, s:s}], s:i}, {s:[{s:s}], s:i}, "
				    "{s:[{s:s}, {s:s}], s:i}, {s:[{s:s}]}]}",
		"datasets", "mounts", "volume", "a", "subtree", "part/", "cached_bytes", 3,
		"mounts", "volume", "a", "cached_bytes", 7, "mounts", "volume", "b", "volume", "c",
		"cached_bytes", 8, "mounts", "volume", "d");

	assert_non_null(cluster);
	return cluster;
}

/* Takes the mount over; -1: there is no dataset of it. */
static json_int_t cached_of(const json_t *cluster, json_t *mount)
{
	const json_t *dataset = status_cluster_dataset(cluster, mount);

	json_decref(mount);
	return dataset ? json_integer_value(json_object_get(dataset, "cached_bytes")) : -1;
}

static void test_of_all_workers(void **state)
{
	json_t *cluster = cluster_of();

	(void)state;
	assert_int_equal(cached_of(cluster, json_pack("{s:s}", "volume", "a")), 7);
	assert_int_equal(cached_of(cluster, json_pack("{s:[{s:s, s:s}]}", "sources", "volume", "a",
						    "subtree", "part/")),
		3);
	assert_int_equal(cached_of(cluster, json_pack("{s:s, s:[{s:s}, {s:s}]}", "volume", "b",
						    "sources", "volume", "b", "volume", "c")),
		8);
	json_decref(cluster);
}

static void test_not_known(void **state)
{
	static const char *const volumes[] = { "b", "c", "d", "nobody" };
	json_t *cluster = cluster_of();

	(void)state;
	for (size_t i = 0; i < 4; i++)
		assert_int_equal(cached_of(cluster, json_pack("{s:s}", "volume", volumes[i])), -1);
	assert_int_equal(cached_of(cluster, json_object()), -1); /* a mount that does not answer */
	assert_int_equal(cached_of(NULL, json_pack("{s:s}", "volume", "a")), -1);
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
