/*
 * Sources against a real directory as the origin: generations, retention, restarts, a master
 * restored from an old copy, an origin that is away, a store that takes nothing; directly, and once
 * through a real rpc client.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/units.h"
#include "master/service.h"
#include "proto/granary.pb-c.h"

static char dir[64];
static char path_buffer[512];
static struct store *store;
static struct source_set *set;
static struct ufs_config origin;
static uint64_t epoch;
static uint64_t hold_ns; /* of the set opened next */
static uint64_t grace_ns;
static uint64_t patience_ns; /* with an origin */

static const char *in(const char *fmt, ...)__printf(1, 2);
static const char *in(const char *fmt, ...)
{
	va_list ap;
	int n = snprintf(path_buffer, sizeof(path_buffer), "%s/", dir);

	va_start(ap, fmt);
	(void)vsnprintf(path_buffer + n, sizeof(path_buffer) - (size_t)n, fmt, ap);
	va_end(ap);
	return path_buffer;
}

static void put(const char *name, const char *text)
{
	assert_int_equal(file_write_atomic(in("origin/%s", name), text, strlen(text), 0644), 0);
}

static void open_set(void)
{
	struct err e = ERR_INIT;
	static char tables[128];

	(void)snprintf(tables, sizeof(tables), "%s/state/tables", dir);
	if (store_rocksdb_open(in("state/store"), &store, &e) < 0)
		fail_msg("%s", e.text);
	const struct source_set_config config = {
		.store = store,
		.tables = tables,
		.epoch = ++epoch,
		.listing_bytes = 64 * MiB,
		.limits = { .max_requests = 4,
			.list_requests = 4,
			.request_timeout_ns = patience_ns,
			.deadline_ns = 2 * patience_ns },
		.hold_ns = hold_ns,
		.grace_ns = grace_ns,
	};
	if (source_set_new(&config, &set, &e) < 0)
		fail_msg("%s", e.text);
}

static void close_set(void)
{
	source_set_free(set);
	store_close(store);
	set = NULL;
	store = NULL;
}

static int setup(void **state)
{
	struct err e = ERR_INIT;
	char url[128];

	(void)state;
	(void)snprintf(dir, sizeof(dir), "/var/tmp/granary-so.XXXXXX");
	if (!mkdtemp(dir) || file_mkdirs(in("origin/sub"), 0755) < 0 ||
		file_mkdirs(in("state/tables"), 0700) < 0)
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

static int teardown(void **state)
{
	char command[128];

	(void)state;
	close_set();
	ufs_config_release(&origin);
	(void)snprintf(command, sizeof(command), "rm -rf %s", dir);
	return system(command);
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

static void on_done(
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

static struct got ask(bool refresh, const struct source_seen *seen)
{
	struct got got = { .wait = { .config = &origin, .refresh = refresh, .on_done = on_done },
		.status = 1 };

	if (seen)
		got.wait.seen = *seen;
	source_open(set, &got.wait);
	assert_int_not_equal(got.status, 1);
	return got;
}

static struct got ask_table(const struct volume_id *volume, uint64_t lineage, uint64_t generation,
	const struct source_seen *seen)
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

static struct source_seen seen_of(const struct got *got)
{
	struct source_seen seen = { got->generation.id.lineage, got->generation.id.generation,
		{ 0 } };

	memcpy(seen.hash, got->generation.id.hash, SHA256_BYTES);
	return seen;
}

static void drop(struct got *got)
{
	if (got->table)
		table_unref(got->table);
	got->table = NULL;
}

static unsigned int count_tables(void)
{
	DIR *d = opendir(in("state/tables"));
	const struct dirent *entry;
	unsigned int n = 0;

	while ((entry = readdir(d)))
		n += entry->d_name[0] != '.';
	(void)closedir(d);
	return n;
}

static void expect_generation(struct got *got, uint64_t number, uint64_t files)
{
	if (got->status < 0)
		fail_msg("%s", got->e.text);
	assert_int_equal(got->generation.id.generation, number);
	assert_int_equal(got->generation.files, files);
	drop(got);
}

/* The answer carries the policy that the same request made. */
static void test_policy_in_the_answer(void **state)
{
	struct got got = { .wait = { .config = &origin,
				   .refresh = true,
				   .policy = { .to.quota = 7ull << 30, .parts = POLICY_QUOTA },
				   .on_done = on_done },
		.status = 1 };

	(void)state;
	source_open(set, &got.wait);
	assert_int_equal(got.status, 0);
	assert_true(got.policy.quota == 7ull << 30);
	drop(&got);
	got = ask(false, NULL); /* and to who has no wish */
	assert_true(got.policy.quota == 7ull << 30);
	drop(&got);
}

static void test_generations(void **state)
{
	struct got first = ask(true, NULL);
	struct got same;
	struct got next;
	struct got named;
	uint64_t lineage = first.generation.id.lineage;
	struct volume_id volume = first.generation.id.volume;

	(void)state;
	assert_true(first.listed);
	expect_generation(&first, 1, 2);
	same = ask(true, NULL);
	assert_true(same.listed);
	expect_generation(&same, 1, 2);
	same = ask(false, NULL);
	assert_false(same.listed);
	expect_generation(&same, 1, 2);
	put("c", "cc");
	same = ask(false, NULL);
	expect_generation(&same, 1, 2);
	next = ask(true, NULL);
	assert_int_equal(next.generation.id.lineage, lineage);
	assert_memory_equal(next.generation.id.prev_hash, first.generation.id.hash, SHA256_BYTES);
	expect_generation(&next, 2, 3);
	named = ask_table(&volume, lineage, 1, NULL);
	expect_generation(&named, 1, 2);
	named = ask_table(&volume, 0, 0, NULL);
	expect_generation(&named, 2, 3);
	named = ask_table(&volume, lineage, 9, NULL);
	assert_int_equal(named.status, -ESTALE);
	volume.bytes[0] ^= 1;
	named = ask_table(&volume, 0, 0, NULL);
	assert_int_equal(named.status, -ENXIO);
}

static void test_restart(void **state)
{
	struct got got = ask(true, NULL);
	struct volume_id volume = got.generation.id.volume;
	uint64_t lineage = got.generation.id.lineage;

	(void)state;
	expect_generation(&got, 1, 2);
	put("c", "cc");
	close_set();
	assert_int_equal(file_write_atomic(in("state/tables/orphan"), "x", 1, 0600), 0);
	open_set();
	assert_int_equal(count_tables(), 1);
	got = ask_table(&volume, lineage, 1, NULL);
	expect_generation(&got, 1, 2);
	got = ask(true, NULL);
	assert_int_equal(got.generation.id.lineage, lineage);
	expect_generation(&got, 2, 3);
}

/* One more generation, with one more file. */
static struct got next_generation(void)
{
	static unsigned int number;
	struct got got;
	char name[16];

	(void)snprintf(name, sizeof(name), "n%u", number++);
	put(name, name);
	got = ask(true, NULL);
	if (got.status < 0)
		fail_msg("%s", got.e.text);
	drop(&got);
	return got;
}

static int hold(const struct got *got, uint8_t mount, bool end)
{
	struct source_hold h = { .volume = got->generation.id.volume,
		.lineage = got->generation.id.lineage,
		.generation = got->generation.id.generation,
		.mount = { mount },
		.end = end };
	struct err e = ERR_INIT;

	return source_set_hold(set, &h, &e);
}

/* The generations that the terms retain, as bits; `ret_n`: how many, those unknown too. */
static uint64_t retained(size_t *ret_n)
{
	uint64_t next = 1;
	size_t len = 0;
	uint8_t *packed = source_set_terms(set, 0, &next, &len);
	Granary__Terms *terms = granary__terms__unpack(NULL, len, packed);
	uint64_t bits = 0;

	assert_non_null(terms);
	assert_int_equal(next, 0);
	assert_int_equal(terms->n_sources, 1);
	*ret_n = terms->sources[0]->n_retained;
	for (size_t i = 0; i < *ret_n; i++) {
		const Granary__Retained *r = terms->sources[0]->retained[i];

		if (r->has_hash) {
			bits |= 1ull << r->generation;
			assert_true(r->has_end && r->end > 0);
		}
	}
	granary__terms__free_unpacked(terms, NULL);
	free(packed);
	return bits;
}

static void expect_retained(uint64_t bits, size_t unknown)
{
	size_t n;

	assert_int_equal(retained(&n), bits);
	assert_int_equal(n, (size_t)__builtin_popcountll(bits) + unknown);
}

/* The last two, and what mounts show, at most eight. */
static void test_retention(void **state)
{
	struct got made[13];
	struct got got;
	json_t *json;

	(void)state;
	for (unsigned int i = 1; i <= 4; i++)
		made[i] = next_generation();
	assert_int_equal(count_tables(), 2);
	expect_retained(1 << 4 | 1 << 3, 0);
	assert_int_equal(hold(&made[3], 1, false), 0);
	assert_int_equal(hold(&made[4], 2, false), 0);
	assert_int_equal(hold(&made[1], 3, false), -ESTALE); /* its table is gone */
	for (unsigned int i = 5; i <= 12; i++) {
		made[i] = next_generation();
		assert_int_equal(hold(&made[i], (uint8_t)i, false), 0);
	}
	/* 3 and 4 are mounted, but there are eight newer ones. */
	assert_int_equal(count_tables(), GENERATIONS_KEPT);
	expect_retained(0xff << 5, 0);
	json = source_set_json(set);
	assert_non_null(
		strstr(json_string_value(json_object_get(json_array_get(json, 0), "notice")),
			"generation 4"));
	json_decref(json);
	assert_int_equal(hold(&made[4], 2, false), -ESTALE);
	got = ask_table(&made[4].generation.id.volume, 0, 4, NULL);
	assert_int_equal(got.status, -ESTALE);
	got = ask_table(&made[4].generation.id.volume, 0, 5, NULL);
	expect_generation(&got, 5, 7);
	for (unsigned int i = 5; i <= 12; i++)
		assert_int_equal(hold(&made[i], (uint8_t)i, i != 7), 0);
	expect_retained(1 << 12 | 1 << 11 | 1 << 7, 0);
	(void)next_generation();
	assert_int_equal(count_tables(), 3);
	expect_retained(1 << 13 | 1 << 12 | 1 << 7, 0);
}

/* Many generations soon after a start: the one that a mount shows stays, whoever else might come. */
static void test_held_in_grace(void **state)
{
	struct got first;

	(void)state;
	close_set();
	grace_ns = 3600 * CLOCK_SECOND;
	open_set();
	first = next_generation();
	assert_int_equal(hold(&first, 1, false), 0);
	for (unsigned int i = 0; i < 2 * GENERATIONS_KEPT; i++)
		(void)next_generation();
	assert_int_equal(hold(&first, 1, false), 0);
	assert_int_equal(count_tables(), GENERATIONS_KEPT);
}

/* A restart forgets the mounts, not that a generation was held; and first gives nothing up. */
static void test_holds_survive_restart(void **state)
{
	struct got made[5];

	(void)state;
	for (unsigned int i = 1; i <= 4; i++) {
		made[i] = next_generation();
		assert_int_equal(hold(&made[i], 1, i > 2), 0); /* 1 and 2 stay mounted */
	}
	expect_retained(1 << 4 | 1 << 3 | 1 << 2 | 1 << 1, 0);
	assert_int_equal(hold(&made[2], 1, true), 0);
	close_set();
	open_set();
	expect_retained(1 << 4 | 1 << 3 | 1 << 1, 0);
	grace_ns = 3600 * CLOCK_SECOND;
	close_set();
	open_set();
	expect_retained(0, 0);
	(void)next_generation();
	assert_int_equal(count_tables(), 5); /* 2 was not asked for again, but nobody knows */
	grace_ns = 0;
	hold_ns = 0;
	close_set();
	open_set();
	expect_retained(1 << 5 | 1 << 4, 0);
	(void)next_generation();
	assert_int_equal(count_tables(), 2);
}

/* What a mount shows and this master never made is named, so that no worker drops it. */
static void test_unknown_generation_held(void **state)
{
	struct got got = next_generation();
	struct got foreign = got;

	(void)state;
	foreign.generation.id.lineage ^= 1;
	assert_int_equal(hold(&foreign, 1, false), -ESTALE);
	expect_retained(1 << 1, 1);
	foreign.generation.id.generation = 77;
	assert_int_equal(hold(&foreign, 2, false), -ESTALE);
	assert_int_equal(hold(&foreign, 3, false), -ESTALE);
	expect_retained(1 << 1, 2);
	assert_int_equal(hold(&foreign, 2, true), 0);
	assert_int_equal(hold(&foreign, 3, true), 0);
	expect_retained(1 << 1, 1);
	foreign.generation.id.volume.bytes[0] ^= 1;
	assert_int_equal(hold(&foreign, 1, false), -ENXIO);
	/* More mounts than are told apart: everything counts as held. */
	for (unsigned int i = 0; i < HOLDS_MAX; i++) {
		struct source_hold h = { .volume = got.generation.id.volume,
			.lineage = got.generation.id.lineage,
			.generation = 1 };
		struct err e = ERR_INIT;

		memcpy(h.mount, &i, sizeof(i));
		assert_int_equal(source_set_hold(set, &h, &e), 0);
	}
	for (unsigned int i = 0; i < 4; i++)
		(void)next_generation();
	assert_int_equal(count_tables(), 5);
}

static void copy_state(const char *from, const char *to)
{
	char command[256];

	(void)snprintf(command, sizeof(command), "rm -rf %s/%s && cp -a %s/%s %s/%s", dir, to, dir,
		from, dir, to);
	assert_int_equal(system(command), 0);
}

/* State rolled back to generation 1; others have seen generation 2 with other contents. */
static void test_restored_from_old_copy(void **state)
{
	struct got got = ask(true, NULL);
	uint64_t lineage = got.generation.id.lineage;
	struct volume_id volume = got.generation.id.volume;
	struct source_seen seen;
	struct source_seen older;

	(void)state;
	older = seen_of(&got);
	expect_generation(&got, 1, 2);
	close_set();
	copy_state("state", "backup");
	open_set();
	put("c", "first");
	got = ask(true, NULL);
	seen = seen_of(&got);
	expect_generation(&got, 2, 3);
	close_set();
	copy_state("backup", "state");
	open_set();
	/* who has seen what is in the history changes nothing */
	got = ask_table(&volume, 0, 0, &older);
	assert_int_equal(got.generation.id.lineage, lineage);
	expect_generation(&got, 1, 2);
	/* newer than anything here: a new lineage, without asking the origin */
	got = ask_table(&volume, lineage, 2, &seen);
	assert_int_equal(got.status, -ESTALE);
	got = ask_table(&volume, 0, 0, &seen);
	assert_int_not_equal(got.generation.id.lineage, lineage);
	lineage = got.generation.id.lineage;
	expect_generation(&got, 1, 2);
	/* once: the new lineage contradicts nobody */
	got = ask(true, &seen);
	assert_int_equal(got.generation.id.lineage, lineage);
	assert_string_equal(got.notice, "");
	expect_generation(&got, 2, 3);
}

/* The same number with another hash, found out by the mount that opens the source. */
static void test_other_hash(void **state)
{
	struct got got = ask(true, NULL);
	uint64_t lineage = got.generation.id.lineage;
	struct source_seen seen = seen_of(&got);

	(void)state;
	expect_generation(&got, 1, 2);
	got = ask(true, &seen);
	assert_int_equal(got.generation.id.lineage, lineage);
	expect_generation(&got, 1, 2);
	put("c", "first");
	got = ask(true, &seen);
	expect_generation(&got, 2, 3);
	seen = seen_of(&got);
	seen.hash[0] ^= 1;
	got = ask(true, &seen);
	assert_int_not_equal(got.generation.id.lineage, lineage);
	assert_non_null(strstr(got.notice, "a new lineage was started"));
	assert_non_null(strstr(got.notice, "(generation 2, seen 2)"));
	expect_generation(&got, 1, 3);
}

static void test_table_lost(void **state)
{
	struct got got = ask(true, NULL);
	uint64_t lineage = got.generation.id.lineage;
	char command[128];

	(void)state;
	expect_generation(&got, 1, 2);
	(void)snprintf(command, sizeof(command), "rm -f %s/state/tables/*", dir);
	assert_int_equal(system(command), 0);
	got = ask(false, NULL);
	assert_int_not_equal(got.generation.id.lineage, lineage);
	assert_non_null(strstr(got.notice, "lost"));
	expect_generation(&got, 1, 2);
}

static void test_origin_refuses(void **state)
{
	struct got got;

	(void)state;
	assert_int_equal(rename(in("origin"), "/var/tmp/granary-so-away"), 0);
	got = ask(true, NULL);
	assert_true(got.status < 0);
	assert_true(strlen(got.e.text) > 0);
	assert_int_equal(rename("/var/tmp/granary-so-away", in("origin")), 0);
	got = ask(true, NULL);
	expect_generation(&got, 1, 2);
}

/* An S3 server that nobody runs: a first mount is refused with the line, a later one is served from
 * what is known. */
static void test_origin_away(void **state)
{
	struct ufs_config s3 = { 0 };
	struct err e = ERR_INIT;
	struct got got = { .wait = { .config = &s3, .refresh = true, .on_done = on_done },
		.status = 1 };
	json_t *json;

	(void)state;
	setenv("AWS_ACCESS_KEY_ID", "x", 1);
	setenv("AWS_SECRET_ACCESS_KEY", "y", 1);
	assert_int_equal(ufs_config_parse("s3://bucket/p", &s3, &e), 0);
	s3.endpoint = strdup("http://127.0.0.1:1");
	source_open(set, &got.wait);
	assert_int_equal(got.status, -ECONNREFUSED);
	assert_non_null(strstr(got.e.text, "127.0.0.1"));
	json = source_set_json(set);
	assert_int_equal(json_array_size(json), 1);
	assert_non_null(json_object_get(json_array_get(json, 0), "last_error"));
	json_decref(json);
	ufs_config_release(&s3);
}

/* A store over the real one that can be told to take nothing. */
struct full_store {
	struct store base;
	struct store *real;
	bool full;
};

static int full_get(struct store *s, const char *key, struct buf *value)
{
	struct full_store *f = container_of(s, struct full_store, base);

	return f->real->ops->get(f->real, key, value);
}

static int full_write(struct store *s, const struct store_change *changes, unsigned int n)
{
	struct full_store *f = container_of(s, struct full_store, base);

	return f->full ? -ENOSPC : f->real->ops->write(f->real, changes, n);
}

static int full_scan(struct store *s, const char *prefix, store_visit visit, void *arg)
{
	struct full_store *f = container_of(s, struct full_store, base);

	return f->real->ops->scan(f->real, prefix, visit, arg);
}

static void full_close(struct store *s)
{
	(void)s;
}

static const struct store_ops full_ops = { full_get, full_write, full_scan, full_close };

/* A generation that is not durable is not handed out, and its number and offsets are free for
 * another try. */
static void test_store_full(void **state)
{
	struct full_store full = { .base = { &full_ops }, .real = store, .full = true };
	const struct source_set_config config = {
		.store = &full.base,
		.tables = "",
		.epoch = 1,
		.listing_bytes = 64 * MiB,
		.limits = UFS_LIMITS_DEFAULT,
	};
	struct source_set_config with_tables = config;
	struct source_set *other;
	struct source_set *mine = set;
	struct err e = ERR_INIT;
	char tables[128];
	struct got got;

	(void)state;
	(void)snprintf(tables, sizeof(tables), "%s/state/tables", dir);
	with_tables.tables = tables;
	assert_int_equal(source_set_new(&with_tables, &other, &e), 0);
	set = other;
	got = ask(true, NULL);
	assert_int_equal(got.status, -ENOSPC);
	assert_non_null(strstr(got.e.text, "does not take"));
	full.full = false;
	got = ask(true, NULL);
	expect_generation(&got, 1, 2);
	source_set_free(other);
	set = mine;
}

struct asker {
	pthread_t thread;
	struct got got;
};

static void *ask_thread(void *arg)
{
	struct asker *asker = arg;
	uint64_t deadline = clock_mono_ns() + 30 * CLOCK_SECOND;

	asker->got = (struct got){ .status = 1,
		.wait = { .config = &origin, .refresh = true, .on_done = on_done } };
	source_open(set, &asker->got.wait);
	while (clock_mono_ns() < deadline &&
		__atomic_load_n(&asker->got.status, __ATOMIC_ACQUIRE) == 1)
		clock_sleep_ns(CLOCK_MS);
	return NULL;
}

/* Many at once end up with one generation. */
static void test_many_askers(void **state)
{
	struct asker askers[16];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(askers); i++)
		assert_int_equal(
			pthread_create(&askers[i].thread, NULL, ask_thread, &askers[i]), 0);
	for (size_t i = 0; i < ARRAY_SIZE(askers); i++) {
		pthread_join(askers[i].thread, NULL);
		assert_memory_equal(askers[i].got.generation.id.hash,
			askers[0].got.generation.id.hash, SHA256_BYTES);
		assert_int_equal(askers[i].got.generation.id.generation, 1);
	}
	for (size_t i = 0; i < ARRAY_SIZE(askers); i++)
		expect_generation(&askers[i].got, 1, 2);
	assert_int_equal(count_tables(), 1);
}

/* ---- over the wire --------------------------------------------------------------------------- */

struct wire {
	struct loop *loop;
	struct pool *pool;
	struct pool *small;
	struct slots slots;
	struct service service;
	struct rpc_server *server;
	struct rpc_client *client;
};

static void wire_open(struct wire *w)
{
	struct err e = ERR_INIT;
	char address[128];

	*w = (struct wire){ .loop = loop_new("test"),
		.pool = pool_new("test-work", 4, 64),
		.small = pool_new("test-small", 2, 64) };
	assert_int_equal(slots_open(store, epoch, "unix:/none", &w->slots, &e), 0);
	w->service.sources = set;
	w->service.slots = &w->slots;
	w->service.pool = w->pool;
	w->service.small = w->small;
	(void)snprintf(address, sizeof(address), "unix:%s/rpc", dir);
	assert_int_equal(
		rpc_server_new(w->loop, address, &service_ops, &w->service, &w->server, &e), 0);
	assert_int_equal(rpc_client_new(w->loop, address, &w->client, &e), 0);
}

static void wire_close(struct wire *w)
{
	rpc_client_free(w->client);
	rpc_server_free(w->server);
	pool_free(w->small);
	pool_free(w->pool);
	loop_free(w->loop);
	slots_release(&w->slots);
}

static int call(
	struct wire *w, struct rpc_call *call, uint8_t op, void *message, size_t len, struct err *e)
{
	*call = (struct rpc_call){
		.frame = { .op = op },
		.payload = NET_PAYLOAD_NONE,
		.deadline_ns = clock_mono_ns() + 10 * CLOCK_SECOND,
		.reply_fd = -1,
	};
	call->payload.parts[0].data = message;
	call->payload.parts[0].len = len;
	call->payload.n = len ? 1 : 0;
	return rpc_call_wait(w->client, call, e);
}

static int call_with_refresh(
	struct wire *w, struct rpc_call *rpc, const char *prefix, bool refresh, struct err *e)
{
	Granary__OpenSource m = GRANARY__OPEN_SOURCE__INIT;
	Granary__Source source = GRANARY__SOURCE__INIT;
	uint8_t packed[1024];
	size_t len;

	source.has_scheme = 1;
	source.scheme = UFS_FILE;
	source.prefix = (char *)(uintptr_t)prefix;
	m.source = &source;
	m.has_refresh = 1;
	m.refresh = refresh;
	len = granary__open_source__pack(&m, packed);
	return call(w, rpc, FRAME_OPEN_SOURCE, packed, len, e);
}

static int call_open(struct wire *w, struct rpc_call *rpc, const char *prefix, struct err *e)
{
	return call_with_refresh(w, rpc, prefix, true, e);
}

static void check_hold_over_the_wire(struct wire *w, struct generation_id *held)
{
	Granary__Hold m = GRANARY__HOLD__INIT;
	Granary__Terms *terms;
	struct rpc_call rpc;
	struct err e = ERR_INIT;
	uint8_t mount[HOLD_MOUNT_BYTES] = { 1 };
	uint8_t packed[256];

	m.has_volume = m.has_lineage = m.has_generation = m.has_mount = 1;
	m.volume = (ProtobufCBinaryData){ VOLUME_ID_LEN, held->volume.bytes };
	m.lineage = held->lineage;
	m.generation = held->generation;
	m.mount = (ProtobufCBinaryData){ sizeof(mount), mount };
	assert_int_equal(call(w, &rpc, FRAME_HOLD, packed, granary__hold__pack(&m, packed), &e), 0);
	m.generation = 99;
	assert_int_equal(
		call(w, &rpc, FRAME_HOLD, packed, granary__hold__pack(&m, packed), &e), -ESTALE);
	assert_non_null(strstr(e.text, "mount again"));
	free(rpc.reply_payload);
	m.mount.len = 3;
	assert_int_equal(
		call(w, &rpc, FRAME_HOLD, packed, granary__hold__pack(&m, packed), &e), -EBADMSG);
	free(rpc.reply_payload);
	assert_int_equal(call(w, &rpc, FRAME_GET_TERMS, NULL, 0, &e), 0);
	assert_int_equal(rpc.reply.offset, 0);
	terms = granary__terms__unpack(NULL, rpc.reply.payload, rpc.reply_payload);
	assert_non_null(terms);
	assert_true(terms->n_sources >= 1);
	assert_int_equal(terms->sources[0]->n_retained, 2); /* and what the mount says it shows */
	assert_memory_equal(terms->sources[0]->retained[0]->hash.data, held->hash, SHA256_BYTES);
	granary__terms__free_unpacked(terms, NULL);
	free(rpc.reply_payload);
}

static void test_over_the_wire(void **state)
{
	struct wire w;
	struct rpc_call rpc;
	struct err e = ERR_INIT;
	struct table *table = NULL;
	struct generation_id held;
	Granary__Generation *g;
	Granary__SlotTable *slots;

	(void)state;
	wire_open(&w);
	assert_int_equal(call_open(&w, &rpc, origin.prefix, &e), 0);
	g = granary__generation__unpack(NULL, rpc.reply.payload, rpc.reply_payload);
	assert_non_null(g);
	assert_int_equal(g->generation, 1);
	assert_string_equal(g->source->prefix, origin.prefix);
	assert_true(g->listed);
	assert_int_equal(table_open(rpc.reply_fd, &table, &e), 0);
	assert_memory_equal(table_info(table)->id.hash, g->hash.data, SHA256_BYTES);
	assert_int_equal(table_info(table)->live_files, 2);
	held = table_info(table)->id;
	table_unref(table);
	granary__generation__free_unpacked(g, NULL);
	free(rpc.reply_payload);

	assert_true(call_open(&w, &rpc, "/nowhere/at/all/", &e) < 0);
	assert_non_null(strstr(e.text, "nowhere"));
	free(rpc.reply_payload);
	assert_int_equal(
		call(&w, &rpc, FRAME_OPEN_SOURCE, (char[]){ "\xff\xff\xff" }, 3, &e), -EBADMSG);
	free(rpc.reply_payload);
	assert_int_equal(call(&w, &rpc, FRAME_GET_TABLE, (char[]){ "" }, 0, &e), -EINVAL);
	free(rpc.reply_payload);

	assert_int_equal(call(&w, &rpc, FRAME_GET_SLOTS, NULL, 0, &e), 0);
	slots = granary__slot_table__unpack(NULL, rpc.reply.payload, rpc.reply_payload);
	assert_non_null(slots);
	assert_int_equal(slots->slots.len, SLOTS_BYTES);
	assert_int_equal(slots->n_workers, 1);
	assert_string_equal(slots->workers[0]->address, "unix:/none");
	granary__slot_table__free_unpacked(slots, NULL);
	free(rpc.reply_payload);
	check_hold_over_the_wire(&w, &held);
	wire_close(&w);
}

/* ---- origins that hang ----------------------------------------------------------------------- */

#define HANGING 64u

/* Connections come about and nobody ever answers: the backlog's. */
static int listen_silently(char endpoint[64])
{
	struct sockaddr_in address = { .sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(address);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(fd, 1024), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &len), 0);
	(void)snprintf(endpoint, 64, "http://127.0.0.1:%u", ntohs(address.sin_port));
	return fd;
}

struct hanging {
	struct rpc_call call;
	_Atomic bool done;
	uint8_t packed[256];
};

static void on_hanging_done(struct rpc_call *call, int status)
{
	struct hanging *h = container_of(call, struct hanging, call);

	assert_true(status < 0);
	rpc_call_release(call);
	atomic_store(&h->done, true);
}

static void open_hanging(struct wire *w, struct hanging *h, unsigned int number, char *endpoint)
{
	Granary__OpenSource m = GRANARY__OPEN_SOURCE__INIT;
	Granary__Source source = GRANARY__SOURCE__INIT;
	char bucket[32];

	(void)snprintf(bucket, sizeof(bucket), "bucket-%u", number);
	source.has_scheme = source.has_anonymous = source.has_path_style = 1;
	source.scheme = UFS_S3;
	source.anonymous = source.path_style = 1;
	source.endpoint = endpoint;
	source.region = (char[]){ "r" };
	source.bucket = bucket;
	source.prefix = (char[]){ "" };
	m.source = &source;
	m.has_refresh = 1;
	m.refresh = 1;
	*h = (struct hanging){ .call = { .frame = { .op = FRAME_OPEN_SOURCE },
				       .payload = NET_PAYLOAD_NONE,
				       .on_done = on_hanging_done,
				       .reply_fd = -1 } };
	h->call.payload.parts[0].data = h->packed;
	h->call.payload.parts[0].len = granary__open_source__pack(&m, h->packed);
	h->call.payload.n = 1;
	rpc_call(w->client, &h->call);
}

/* Mounts keep what protects them, and what they need to go on, while every thread lists. */
static void test_hanging_origins(void **state)
{
	struct hanging *hanging = calloc(HANGING, sizeof(*hanging));
	struct generation_id held;
	struct rpc_call rpc;
	struct err e = ERR_INIT;
	struct got first;
	struct wire w;
	char endpoint[64];
	int fd = listen_silently(endpoint);

	(void)state;
	close_set();
	patience_ns = 600 * CLOCK_SECOND;
	open_set();
	first = ask(true, NULL);
	held = first.generation.id;
	drop(&first);
	wire_open(&w);
	for (unsigned int i = 0; i < HANGING; i++)
		open_hanging(&w, &hanging[i], i, endpoint);
	check_hold_over_the_wire(&w, &held);
	assert_int_equal(call_with_refresh(&w, &rpc, origin.prefix, false, &e), 0);
	rpc_call_release(&rpc);
	for (unsigned int i = 0; i < HANGING; i++)
		assert_false(atomic_load(&hanging[i].done));
	source_set_stop(set);
	wire_close(&w);
	for (unsigned int i = 0; i < HANGING; i++)
		assert_true(atomic_load(&hanging[i].done));
	(void)close(fd);
	free(hanging);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_policy_in_the_answer, setup, teardown),
		cmocka_unit_test_setup_teardown(test_generations, setup, teardown),
		cmocka_unit_test_setup_teardown(test_restart, setup, teardown),
		cmocka_unit_test_setup_teardown(test_retention, setup, teardown),
		cmocka_unit_test_setup_teardown(test_holds_survive_restart, setup, teardown),
		cmocka_unit_test_setup_teardown(test_held_in_grace, setup, teardown),
		cmocka_unit_test_setup_teardown(test_unknown_generation_held, setup, teardown),
		cmocka_unit_test_setup_teardown(test_restored_from_old_copy, setup, teardown),
		cmocka_unit_test_setup_teardown(test_other_hash, setup, teardown),
		cmocka_unit_test_setup_teardown(test_table_lost, setup, teardown),
		cmocka_unit_test_setup_teardown(test_origin_refuses, setup, teardown),
		cmocka_unit_test_setup_teardown(test_origin_away, setup, teardown),
		cmocka_unit_test_setup_teardown(test_store_full, setup, teardown),
		cmocka_unit_test_setup_teardown(test_many_askers, setup, teardown),
		cmocka_unit_test_setup_teardown(test_over_the_wire, setup, teardown),
		cmocka_unit_test_setup_teardown(test_hanging_origins, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
