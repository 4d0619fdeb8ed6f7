/* Sources over a directory as the origin, and what somebody who asks for one gets. Header only. */
#pragma once

#include <dirent.h>

#include "tests/unit/master/fixture.h"

static struct store *store;
static struct source_set *set;
static struct ufs_config origin;
static uint64_t epoch;
static uint64_t hold_ns; /* of the set opened next */
static uint64_t grace_ns;
static uint64_t patience_ns; /* with an origin */

static inline void open_set(void)
{
	struct err e = ERR_INIT;
	struct source_set_config config;

	if (store_rocksdb_open(in("state/store"), &store, &e) < 0)
		fail_msg("%s", e.text);
	config = fixture_sources(store, ++epoch);
	config.limits = fixture_limits(patience_ns);
	config.hold_ns = hold_ns;
	config.grace_ns = grace_ns;
	if (source_set_new(&config, &set, &e) < 0)
		fail_msg("%s", e.text);
}

static inline void close_set(void)
{
	source_set_free(set);
	store_close(store);
	set = NULL;
	store = NULL;
}

static inline int setup(void **state)
{
	struct err e = ERR_INIT;
	char url[128];

	(void)state;
	if (fixture_make() < 0 || file_mkdirs(in("origin/sub"), 0755) < 0)
		return -1;
	put("a", "aaa");
	put("sub/b", "bbbbb");
	hold_ns = 3600 * CLOCK_SECOND;
	grace_ns = 0;
	patience_ns = CLOCK_SECOND;
	(void)snprintf(url, sizeof(url), "file://%s/origin", dir);
	if (ufs_config_parse(url, &origin, &e) < 0)
		return -1;
	open_set();
	return 0;
}

static inline int teardown(void **state)
{
	(void)state;
	close_set();
	ufs_config_release(&origin);
	return fixture_remove();
}

/* What one asker got. */
struct got {
	struct source_wait wait;
	int status;
	struct err e;
	struct record_generation generation;
	struct tier_policy policy;
	bool listed;
	char notice[512];
	struct table *table;
};

static inline void on_done(
	struct source_wait *wait, int status, struct source_answer *answer, const struct err *e)
{
	struct got *got = container_of(wait, struct got, wait);

	if (status < 0) {
		got->e = *e;
	} else {
		got->generation = answer->generation;
		got->listed = answer->listed;
		got->policy = answer->policy;
		(void)snprintf(got->notice, sizeof(got->notice), "%s",
			answer->notice ? answer->notice : "");
		assert_int_equal(table_open(TAKE_FD(answer->fd), &got->table, &got->e), 0);
		assert_memory_equal(
			table_info(got->table)->id.hash, got->generation.id.hash, SHA256_BYTES);
	}
	__atomic_store_n(
		&got->status, status, __ATOMIC_RELEASE); /* another thread may wait for it */
}

static inline struct got ask(bool refresh, const struct source_seen *seen)
{
	struct got got = { .wait = { .config = &origin, .refresh = refresh, .on_done = on_done },
		.status = 1 };

	if (seen)
		got.wait.seen = *seen;
	source_open(set, &got.wait);
	assert_int_not_equal(got.status, 1);
	return got;
}

static inline struct got ask_table(const struct volume_id *volume, uint64_t lineage,
	uint64_t generation, const struct source_seen *seen)
{
	struct got got = {
		.wait = { .lineage = lineage, .generation = generation, .on_done = on_done },
		.status = 1
	};

	if (seen)
		got.wait.seen = *seen;
	source_table(set, volume, &got.wait);
	assert_int_not_equal(got.status, 1);
	return got;
}

static inline struct source_seen seen_of(const struct got *got)
{
	struct source_seen seen = { got->generation.id.lineage, got->generation.id.generation,
		{ 0 } };

	memcpy(seen.hash, got->generation.id.hash, SHA256_BYTES);
	return seen;
}

static inline void drop(struct got *got)
{
	if (got->table)
		table_unref(got->table);
	got->table = NULL;
}

static inline unsigned int count_tables(void)
{
	DIR *d = opendir(in("state/tables"));
	const struct dirent *entry;
	unsigned int n = 0;

	while ((entry = readdir(d)))
		n += entry->d_name[0] != '.';
	(void)closedir(d);
	return n;
}

static inline void expect_generation(struct got *got, uint64_t number, uint64_t files)
{
	if (got->status < 0)
		fail_msg("%s", got->e.text);
	assert_int_equal(got->generation.id.generation, number);
	assert_int_equal(got->generation.files, files);
	drop(got);
}

/* The answer carries the policy that the same request made. */
