#include "tests/unit/master/source_fixture.h"

struct source_fixture sf;

void sf_open(void)
{
	struct err e = ERR_INIT;
	struct source_set_config config;

	if (store_rocksdb_open(fixture_in("state/store"), &sf.store, &e) < 0)
		fail_msg("%s", e.text);
	config = fixture_sources(sf.store, ++sf.epoch);
	config.limits = fixture_limits(sf.patience_ns);
	config.hold_ns = sf.hold_ns;
	config.grace_ns = sf.grace_ns;
	if (source_set_new(&config, &sf.set, &e) < 0)
		fail_msg("%s", e.text);
}

void sf_close(void)
{
	source_set_free(sf.set);
	store_close(sf.store);
	sf.set = NULL;
	sf.store = NULL;
}

int sf_setup(void **state)
{
	struct err e = ERR_INIT;
	char url[128];

	(void)state;
	if (fixture_make() < 0 || file_mkdirs(fixture_in("origin/sub"), 0755) < 0)
		return -1;
	fixture_put("a", "aaa");
	fixture_put("sub/b", "bbbbb");
	sf.hold_ns = 3600 * CLOCK_SECOND;
	sf.grace_ns = 0;
	sf.patience_ns = CLOCK_SECOND;
	(void)snprintf(url, sizeof(url), "file://%s/origin", fixture_dir);
	if (ufs_config_parse(url, &sf.origin, &e) < 0)
		return -1;
	sf_open();
	return 0;
}

int sf_teardown(void **state)
{
	(void)state;
	sf_close();
	ufs_config_release(&sf.origin);
	return fixture_remove();
}

void sf_on_done(
	struct source_wait *wait, int status, struct source_answer *answer, const struct err *e)
{
	struct got *got = container_of(wait, struct got, wait);

	if (status < 0) {
		got->e = *e;
	} else {
		got->generation = answer->generation;
		got->newest = answer->newest;
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

struct got sf_ask(bool refresh, const struct source_seen *seen)
{
	struct got got = {
		.wait = { .config = &sf.origin, .refresh = refresh, .on_done = sf_on_done },
		.status = 1
	};

	if (seen)
		got.wait.seen = *seen;
	source_open(sf.set, &got.wait);
	assert_int_not_equal(got.status, 1);
	return got;
}

struct got sf_ask_table(const struct volume_id *volume, uint64_t lineage, uint64_t generation,
	const struct source_seen *seen)
{
	struct got got = {
		.wait = { .lineage = lineage, .generation = generation, .on_done = sf_on_done },
		.status = 1
	};

	if (seen)
		got.wait.seen = *seen;
	source_table(sf.set, volume, &got.wait);
	assert_int_not_equal(got.status, 1);
	return got;
}

struct source_seen sf_seen_of(const struct got *got)
{
	struct source_seen seen = { .lineage = got->generation.id.lineage,
		.generation = got->generation.id.generation };

	memcpy(seen.hash, got->generation.id.hash, SHA256_BYTES);
	sf_seal(got, &seen);
	return seen;
}

void sf_seal(const struct got *got, struct source_seen *seen)
{
	source_set_seal(sf.set, &got->generation.id.volume, seen, seen->seal);
}

void sf_drop(struct got *got)
{
	if (got->table)
		table_unref(got->table);
	got->table = NULL;
}

unsigned int sf_count_tables(void)
{
	DIR *d = opendir(fixture_in("state/tables"));
	const struct dirent *entry;
	unsigned int n = 0;

	while ((entry = readdir(d)))
		n += entry->d_name[0] != '.';
	(void)closedir(d);
	return n;
}

void sf_expect_generation(struct got *got, uint64_t number, uint64_t files)
{
	if (got->status < 0)
		fail_msg("%s", got->e.text);
	assert_int_equal(got->generation.id.generation, number);
	assert_int_equal(got->generation.files, files);
	sf_drop(got);
}
