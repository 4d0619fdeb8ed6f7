/* What `cachectl top` makes of what daemons say: rows per volume, differences, restarts. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include "ctl/top_sample.h"

#define VOLUME "0123456789abcdef0123456789abcdef"

static void add_mount(struct top_sample *s, const char *volume, int node, int worker)
{
	json_t *json = json_pack("{s:s, s:s, s:i, s:{s:i, s:i, s:i, s:i}}", "volume", volume,
		"source", "s3://bucket/set", "bytes", 1000, "counters", "local_bytes", node,
		"remote_bytes", worker, "slow_reads", 3, "waiting", 2);

	assert_non_null(json);
	top_sample_mount(s, json);
	json_decref(json);
}

static void add_worker(struct top_sample *s, const char *run, int origin, int stalls)
{
	json_t *json = json_pack("{s:[{s:s, s:i, s:i, s:{s:i}, s:{s:s, s:i, s:i}, s:{s:i, s:i}}, "
				 "{s:s, s:{s:i}, s:{s:i, s:i}}], "
				 "s:{s:{s:i, s:i}}, s:[{s:i, s:i}, {s:i, s:i}], s:{s:i}}",
		"sources", "volume", VOLUME, "bytes", 1000, "cached_bytes", 400, "origin", "bytes",
		origin, "use", "url", "s3://bucket/set", "tier_bytes", origin, "origin_bytes",
		origin, "space", "quota", 500, "evicted", origin / 2, "volume",
		"ffff456789abcdef0123456789abcdef", "origin", "bytes", 5, "space", "quota", 0,
		"evicted", 0, "counters", "worker", "hit_bytes", 70, "flights", 4, "tiers", "used",
		10, "capacity", 100, "used", 20, "capacity", 200, "stalls", "origin", stalls);

	assert_non_null(json);
	top_sample_worker(s, run, json);
	json_decref(json);
}

static void test_rows(void **state)
{
	struct top_sample *s = calloc(1, sizeof(*s));
	json_t *datasets = json_pack("{s:[{s:s, s:[{s:s}]}]}", "datasets", "name", "imagenet",
		"mounts", "volume", VOLUME);

	(void)state;
	add_mount(s, VOLUME, 100, 50);
	add_mount(s, VOLUME, 11, 0);
	add_worker(s, "/run/a", 60, 1);
	top_sample_datasets(s, datasets);
	json_decref(datasets);
	assert_int_equal(s->n_sources, 2);
	assert_int_equal(s->sources[0].mounts, 2);
	assert_int_equal(s->sources[0].waiting, 4);
	assert_int_equal(s->sources[0].node, 111);
	assert_int_equal(s->sources[0].worker, 50);
	assert_int_equal(s->sources[0].origin, 60);
	assert_int_equal(s->sources[0].cached, 400);
	assert_string_equal(s->sources[0].name, "imagenet");
	assert_string_equal(s->sources[0].url, "s3://bucket/set");
	assert_int_equal(s->sources[0].quota, 500);
	assert_false(s->sources[0].unbounded);
	assert_int_equal(s->sources[0].evicted, 30);
	assert_true(s->sources[1].unbounded);
	assert_int_equal(s->sources[1].origin, 5);
	assert_string_equal(s->sources[1].name, "");
	assert_int_equal(s->n_workers, 1);
	assert_int_equal(s->workers[0].used, 30);
	assert_int_equal(s->workers[0].capacity, 300);
	assert_int_equal(s->workers[0].tier, 70);
	assert_int_equal(s->workers[0].origin, 65);
	assert_int_equal(s->workers[0].in_flight, 4);
	assert_int_equal(s->workers[0].stalls[3], 1);
	free(s);
}

/* Workers of other nodes, as the master tells: not that of this node again, nor those that are down. */
static void test_cluster(void **state)
{
	struct top_sample *s = calloc(1, sizeof(*s));
	json_t *workers = json_pack("{s:[{s:s,s:s,s:[s]}, {s:s,s:s,s:[s],s:i,s:i,s:i,s:[{s:i}],"
				    "s:{s:i}}, {s:s,s:s,s:[s]}]}",
		"workers", "name", "w0", "state", "up", "addresses", "unix:/run/a/worker.rpc",
		"name", "w1", "state", "draining", "addresses", "tcp:10.0.0.2:1", "served_bytes",
		77, "in_flight", 3, "capacity", 500, "tiers", "used", 44, "stalls", "disk", 9,
		"name", "w2", "state", "down", "addresses", "tcp:10.0.0.3:1");
	json_t *datasets = json_pack("{s:[{s:s, s:i, s:[{s:s}]}]}", "datasets", "name", "imagenet",
		"cached_bytes", 900, "mounts", "volume", VOLUME);

	(void)state;
	assert_non_null(workers);
	add_mount(s, VOLUME, 100, 50);
	top_sample_cluster(s, "unix:/run/a/worker.rpc", workers, datasets);
	assert_int_equal(s->n_workers, 1);
	assert_string_equal(s->workers[0].run, "w1");
	assert_true(s->workers[0].far);
	assert_int_equal(s->workers[0].tier, 77);
	assert_int_equal(s->workers[0].in_flight, 3);
	assert_int_equal(s->workers[0].used, 44);
	assert_int_equal(s->workers[0].capacity, 500);
	assert_int_equal(s->workers[0].stalls[2], 9);
	assert_int_equal(s->sources[0].cached, 900);
	assert_true(top_hit_ratio(&s->sources[0]) < 0); /* nobody here knows */
	add_worker(s, "/run/a", 75, 1);
	assert_true(top_hit_ratio(&s->sources[0]) > 0.4);
	assert_int_equal(s->n_workers, 2);
	top_sample_cluster(s, "", NULL, NULL);
	assert_int_equal(s->n_workers, 2);
	json_decref(workers);
	json_decref(datasets);
	free(s);
}

/* A mount of several volumes is one row: what workers say of each counts there, unless it has one. */
static void test_parts(void **state)
{
	static const char first[] = "aaaa456789abcdef0123456789abcdef";
	struct top_sample *s = calloc(1, sizeof(*s));
	json_t *mount = json_pack("{s:s, s:s, s:i, s:{s:i, s:i}, s:[{s:s}, {s:s}]}", "volume",
		first, "source", "s3://a", "bytes", 1500, "counters", "local_bytes", 100,
		"remote_bytes", 20, "sources", "volume", first, "volume", VOLUME);

	(void)state;
	assert_non_null(mount);
	top_sample_mount(s, mount);
	assert_int_equal(s->n_sources, 1);
	add_worker(s, "/run/a", 60, 1);
	assert_int_equal(s->n_sources, 2); /* the other that the worker has */
	assert_int_equal(s->sources[0].origin, 60);
	assert_int_equal(s->sources[0].cached, 400);
	assert_int_equal(s->sources[0].bytes, 1500);
	assert_string_equal(s->sources[0].url, "s3://a");
	add_mount(s, VOLUME, 7, 0); /* that part alone: no bytes of the other mount */
	assert_int_equal(s->n_sources, 3);
	assert_int_equal(s->sources[0].node, 100);
	assert_int_equal(s->sources[2].node, 7);
	memset(s, 0, sizeof(*s));
	add_mount(s, VOLUME, 1, 1); /* mounted alone, too */
	top_sample_mount(s, mount);
	add_worker(s, "/run/a", 60, 1);
	assert_int_equal(s->n_sources, 3);
	assert_string_equal(s->sources[0].volume, VOLUME);
	assert_int_equal(s->sources[0].origin, 60);
	assert_int_equal(s->sources[1].origin, 0);
	json_decref(mount);
	free(s);
}

static void test_since(void **state)
{
	struct top_sample *before = calloc(1, sizeof(*before));
	struct top_sample *now = calloc(1, sizeof(*now));
	struct top_sample *delta = calloc(1, sizeof(*delta));

	(void)state;
	add_mount(before, VOLUME, 1000, 500);
	add_worker(before, "/run/a", 60, 1);
	add_mount(now, VOLUME, 1300, 600);
	add_mount(now, "eeee456789abcdef0123456789abcdef", 7, 0);
	add_worker(now, "/run/a", 160, 4);
	top_sample_since(now, before, delta);
	assert_int_equal(delta->sources[0].node, 300);
	assert_int_equal(delta->sources[0].worker, 100);
	assert_int_equal(delta->sources[0].origin, 100);
	assert_int_equal(delta->sources[0].slow, 0);
	assert_int_equal(delta->sources[0].evicted, 80);
	assert_int_equal(delta->sources[0].evicting, 50);
	assert_int_equal(delta->sources[0].waiting, 2); /* a gauge */
	assert_true(top_hit_ratio(&delta->sources[0]) == 0.8);
	assert_int_equal(delta->sources[1].node, 7); /* came meanwhile */
	assert_int_equal(delta->workers[0].origin, 100);
	assert_int_equal(delta->workers[0].stalls[3], 3);
	/* A daemon that was started again counts from nothing. */
	top_sample_since(before, now, delta);
	assert_int_equal(delta->sources[0].node, 1000);
	/* Nothing before: nothing since. */
	top_sample_since(now, NULL, delta);
	assert_int_equal(delta->sources[0].node, 0);
	assert_int_equal(delta->workers[0].origin, 0);
	assert_true(top_hit_ratio(&delta->sources[0]) < 0);
	free(before);
	free(now);
	free(delta);
}

/* More of them than there is room for: said, not written past the end. */
static void test_bounds(void **state)
{
	struct top_sample *s = calloc(1, sizeof(*s));
	char volume[40];

	(void)state;
	for (int i = 0; i < (int)TOP_SOURCES + 5; i++) {
		(void)snprintf(volume, sizeof(volume), "%032d", i);
		add_mount(s, volume, 1, 1);
	}
	assert_int_equal(s->n_sources, TOP_SOURCES);
	assert_true(s->more);
	s->more = false;
	for (int i = 0; i < (int)TOP_WORKERS + 1; i++)
		add_worker(s, "/run/x", 1, 0);
	assert_int_equal(s->n_workers, TOP_WORKERS);
	assert_true(s->more);
	free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rows),
		cmocka_unit_test(test_parts),
		cmocka_unit_test(test_cluster),
		cmocka_unit_test(test_since),
		cmocka_unit_test(test_bounds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
