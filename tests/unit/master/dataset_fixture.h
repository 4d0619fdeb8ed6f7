/*
 * A set of datasets over a real store, in a directory that is the origin, too. Header only: each test is
 * one program.
 */
#pragma once

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/units.h"
#include "master/dataset.h"
#include "tests/unit/master/fixture.h"

static struct store *store;
static struct source_set *sources;
static struct dataset_set *set;
static struct pool *pool;
static _Atomic unsigned int told; /* how often the workers were */

/* The store, which may refuse, and counts. */
static struct {
	struct store store;
	struct store *real;
	_Atomic bool refuses;
	_Atomic unsigned int writes;
	_Atomic unsigned int changes; /* of the last one */
} spy;

static int spy_get(struct store *s, const char *key, struct buf *value)
{
	(void)s;
	return spy.real->ops->get(spy.real, key, value);
}

static int spy_write(struct store *s, const struct store_change *changes, unsigned int n)
{
	(void)s;
	spy.writes++;
	spy.changes = n;
	return spy.refuses ? -ENOSPC : spy.real->ops->write(spy.real, changes, n);
}

static int spy_scan(struct store *s, const char *prefix, store_visit visit, void *arg)
{
	(void)s;
	return spy.real->ops->scan(spy.real, prefix, visit, arg);
}

static void spy_close(struct store *s)
{
	(void)s;
	spy.real->ops->close(spy.real);
}

static const struct store_ops spy_ops = {
	.get = spy_get, .write = spy_write, .scan = spy_scan, .close = spy_close
};

static struct err e;

static inline void on_change(void *arg)
{
	(void)arg;
	told++;
}

static inline void open_all(void)
{
	static struct ufs_limits limits;
	struct dataset_set_config config = { .limits = &limits, .on_change = on_change };
	struct source_set_config of_sources;

	limits = fixture_limits(CLOCK_SECOND);
	if (store_rocksdb_open(in("state/store"), &spy.real, &e) < 0)
		fail_msg("%s", e.text);
	spy.store.ops = &spy_ops;
	store = &spy.store;
	of_sources = fixture_sources(store, 1);
	if (source_set_new(&of_sources, &sources, &e) < 0)
		fail_msg("%s", e.text);
	pool = pool_new("datasets", 2, 16);
	assert_non_null(pool);
	config.store = store;
	config.sources = sources;
	config.pool = pool;
	if (dataset_set_new(&config, &set, &e) < 0)
		fail_msg("%s", e.text);
}

static inline void close_all(void)
{
	pool_free(pool);
	dataset_set_free(set);
	source_set_free(sources);
	store_close(store);
	pool = NULL;
	set = NULL;
	sources = NULL;
	store = NULL;
}

/* Waits for listings that nobody else waits for. */
static inline void drain(void)
{
	pool_free(pool);
	pool = NULL;
}

static inline void reopen(void)
{
	close_all();
	open_all();
}

static inline int setup(void **state)
{
	(void)state;
	e = ERR_INIT;
	told = 0;
	spy.refuses = false;
	if (fixture_make() < 0)
		return -1;
	put("a", "aaa");
	put("b", "bbbbb");
	open_all();
	return 0;
}

static inline int teardown(void **state)
{
	(void)state;
	close_all();
	return fixture_remove();
}

/* A body of JSON with ' for " and @ for the directory. */
static inline json_t *body(const char *text)
{
	struct buf json = BUF_INIT(4096);
	json_t *parsed = NULL;

	for (; *text; text++) {
		int r = *text == '@' ? buf_puts(&json, dir)
				     : buf_append(&json, *text == '\'' ? "\"" : text, 1);

		assert_int_equal(r, 0);
	}
	assert_int_equal(admin_json_parse(json.data, json.len, 0, &parsed, NULL), 0);
	buf_release(&json);
	return parsed;
}

#define SOURCE "'mounts':[{'url':'file://@/origin'}]"

static inline int create(const char *text)
{
	json_t *json = body(text);
	struct dataset d = { 0 };
	int r = dataset_create(set, json, true, &d, &e);

	json_decref(json);
	dataset_release(&d);
	return r;
}

static inline int update(const char *name, const char *text)
{
	json_t *json = body(text);
	struct dataset d = { 0 };
	int r = dataset_update(set, name, json, true, &d, &e);

	json_decref(json);
	dataset_release(&d);
	return r;
}

static inline struct dataset find(const char *name)
{
	struct dataset d = { 0 };

	if (dataset_set_find(set, name, &d, &e) < 0)
		fail_msg("%s", e.text);
	return d;
}

static inline json_t *shown(const char *name)
{
	struct dataset d = find(name);
	json_t *json = dataset_json(set, &d);

	assert_non_null(json);
	dataset_release(&d);
	return json;
}

static inline void listed(
	struct source_wait *wait, int status, struct source_answer *a, const struct err *why)
{
	_Atomic bool *done = wait->arg;

	(void)a;
	if (status < 0)
		fail_msg("%s", why->text);
	atomic_store(done, true);
}

/* Lists its source now, and waits for it: another thread may do that. */
static inline void list_mount(const char *name, uint32_t mount)
{
	struct dataset d = find(name);
	_Atomic bool done = false;
	struct source_wait wait = { .config = &d.mounts[mount].config,
		.policy = d.policy,
		.refresh = true,
		.on_done = listed,
		.arg = &done };

	source_open(sources, &wait);
	while (!atomic_load(&done))
		clock_sleep_ns(CLOCK_MS);
	dataset_release(&d);
}

static inline void list(const char *name)
{
	list_mount(name, 0);
}

static inline void expect(int r, int code, const char *part)
{
	assert_int_equal(r, code);
	if (!strstr(e.text, part))
		fail_msg("'%s' is not in: %s", part, e.text);
}
