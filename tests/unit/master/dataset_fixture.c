#include "tests/unit/master/dataset_fixture.h"
#include "tests/clock/test_clock.h"

#define POOL_THREADS 2u
#define POOL_QUEUE   64u

struct dataset_fixture df;
struct spy spy;

static int spy_get(struct store *s, const char *key, struct buf *value)
{
	(void)s;
	return spy.real->ops->get(spy.real, key, value);
}

static int spy_write(struct store *s, const struct store_change *changes, unsigned int n)
{
	int r;

	(void)s;
	spy.writes++;
	spy.changes = n;
	r = spy.refuses ? -ENOSPC : spy.real->ops->write(spy.real, changes, n);
	if (spy.on_write)
		spy.on_write(changes);
	return r;
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

static void on_change(void *arg)
{
	(void)arg;
	df.told++;
}

static void open_all(void)
{
	static struct ufs_limits limits;
	struct dataset_set_config config = { .limits = &limits, .on_change = on_change };
	struct source_set_config of_sources;

	limits = fixture_limits(CLOCK_SECOND);
	if (store_rocksdb_open(fixture_in("state/store"), &spy.real, &df.e) < 0)
		fail_msg("%s", df.e.text);
	spy.store.ops = &spy_ops;
	df.store = &spy.store;
	of_sources = fixture_sources(df.store, 1);
	if (source_set_new(&of_sources, &df.sources, &df.e) < 0)
		fail_msg("%s", df.e.text);
	df.pool = pool_new("datasets", POOL_THREADS, POOL_QUEUE);
	assert_non_null(df.pool);
	config.store = df.store;
	config.sources = df.sources;
	config.pool = df.pool;
	if (dataset_set_new(&config, &df.set, &df.e) < 0)
		fail_msg("%s", df.e.text);
}

static void close_all(void)
{
	pool_free(df.pool);
	dataset_set_free(df.set);
	source_set_free(df.sources);
	store_close(df.store);
	df.pool = NULL;
	df.set = NULL;
	df.sources = NULL;
	df.store = NULL;
}

void df_drain(void)
{
	pool_free(df.pool);
	df.pool = NULL;
}

void df_reopen(void)
{
	close_all();
	open_all();
}

int df_setup(void **state)
{
	(void)state;
	df.e = ERR_INIT;
	df.told = 0;
	spy.refuses = false;
	spy.on_write = NULL;
	if (fixture_make() < 0)
		return -1;
	fixture_put("a", "aaa");
	fixture_put("b", "bbbbb");
	open_all();
	return 0;
}

int df_teardown(void **state)
{
	(void)state;
	close_all();
	return fixture_remove();
}

json_t *df_body(const char *text)
{
	struct buf json = BUF_INIT(4096);
	json_t *parsed = NULL;

	for (; *text; text++) {
		int r = *text == '@' ? buf_puts(&json, fixture_dir)
				     : buf_append(&json, *text == '\'' ? "\"" : text, 1);

		assert_int_equal(r, 0);
	}
	assert_int_equal(admin_json_parse(json.data, json.len, 0, &parsed, NULL), 0);
	buf_release(&json);
	return parsed;
}

static _Atomic unsigned int holding, held_ended;
static _Atomic bool released;

static void hold(struct pool_job *job)
{
	(void)job;
	holding++;
	test_wait(atomic_load(&released));
	held_ended++;
}

void df_create_unlisted(const char *text, struct dataset *ret)
{
	struct pool_job jobs[POOL_THREADS + POOL_QUEUE] = { 0 };
	json_t *json = df_body(text);

	released = false;
	holding = held_ended = 0;
	for (unsigned int i = 0; i < ARRAY_SIZE(jobs); i++) {
		if (i == POOL_THREADS)
			test_wait(atomic_load(&holding) == POOL_THREADS);
		jobs[i].run = hold;
		assert_int_equal(pool_submit(df.pool, &jobs[i]), 0);
	}
	assert_int_equal(dataset_create(df.set, json, false, NULL, ret, &df.e), 0);
	released = true;
	test_wait(atomic_load(&held_ended) == ARRAY_SIZE(jobs));
	json_decref(json);
}

int df_create(const char *text)
{
	json_t *json = df_body(text);
	struct dataset d = { 0 };
	int r = dataset_create(df.set, json, true, NULL, &d, &df.e);

	json_decref(json);
	dataset_release(&d);
	return r;
}

int df_update(const char *name, const char *text)
{
	json_t *json = df_body(text);
	struct dataset d = { 0 };
	int r = dataset_update(df.set, name, json, true, NULL, &d, &df.e);

	json_decref(json);
	dataset_release(&d);
	return r;
}

struct dataset df_find(const char *name)
{
	struct dataset d = { 0 };

	if (dataset_set_find(df.set, name, &d, &df.e) < 0)
		fail_msg("%s", df.e.text);
	return d;
}

json_t *df_shown(const char *name)
{
	struct dataset d = df_find(name);
	json_t *json = dataset_json(df.set, &d);

	assert_non_null(json);
	dataset_release(&d);
	return json;
}

static void listed(
	struct source_wait *wait, int status, struct source_answer *a, const struct err *why)
{
	_Atomic bool *done = wait->arg;

	(void)a;
	if (status < 0)
		fail_msg("%s", why->text);
	atomic_store(done, true);
}

void df_list_mount(const char *name, uint32_t mount)
{
	struct dataset d = df_find(name);
	_Atomic bool done = false;
	struct source_wait wait = { .config = &d.mounts[mount].config,
		.policy = d.policy,
		.refresh = true,
		.on_done = listed,
		.arg = &done };

	source_open(df.sources, &wait);
	test_wait(atomic_load(&done));
	dataset_release(&d);
}

void df_list(const char *name)
{
	df_list_mount(name, 0);
}

void df_expect(int r, int code, const char *part)
{
	assert_int_equal(r, code);
	if (!strstr(df.e.text, part))
		fail_msg("'%s' is not in: %s", part, df.e.text);
}
