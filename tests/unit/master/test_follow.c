/*
 * What is listed again by itself: when, for whose sake, and what comes of it, over a real store and
 * a directory as the origin.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
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
#include "master/follow.h"
#include "master/source_internal.h"
#include "tests/clock/test_clock.h"
#include "tests/unit/master/fixture.h"

static struct store *store;
static struct source_set *sources;
static struct dataset_set *set;
static struct pool *pool;
static struct err e;

static int setup(void **state)
{
	static struct ufs_limits limits;
	struct source_set_config of_sources;

	(void)state;
	e = ERR_INIT;
	limits = fixture_limits(CLOCK_SECOND);
	if (fixture_make() < 0)
		return -1;
	fixture_put("a", "aaa");
	if (store_rocksdb_open(fixture_in("state/store"), &store, &e) < 0)
		return -1;
	of_sources = fixture_sources(store, 1);
	pool = pool_new("datasets", 2, 16);
	if (!pool || source_set_new(&of_sources, &sources, &e) < 0)
		return -1;
	const struct dataset_set_config config = {
		.store = store, .sources = sources, .pool = pool, .limits = &limits
	};

	return dataset_set_new(&config, &set, &e);
}

static int teardown(void **state)
{
	(void)state;
	pool_free(pool);
	dataset_set_free(set);
	source_set_free(sources);
	store_close(store);
	return fixture_remove();
}

/* '…' for "…", and @ for the directory. */
static json_t *body(const char *text)
{
	char full[1024];
	size_t n = 0;
	json_t *json;

	for (const char *c = text; *c; c++) {
		const char *with = *c == '@' ? fixture_dir : NULL;

		n += (size_t)snprintf(full + n, sizeof(full) - n, "%s",
			with ? with : (char[]){ *c == '\'' ? '"' : *c, '\0' });
		assert_true(n < sizeof(full));
	}
	json = json_loads(full, 0, NULL);
	assert_non_null(json);
	return json;
}

static struct volume_id create(const char *text)
{
	_cleanup_(dataset_release) struct dataset d = { 0 };
	json_t *json = body(text);

	if (dataset_create(set, json, true, NULL, &d, &e) < 0)
		fail_msg("%s", e.text);
	json_decref(json);
	return d.mounts[0].volume;
}

static uint64_t newest(const struct volume_id *volume)
{
	struct source_view view;

	return source_set_view(sources, volume, &view) < 0 ? 0 : view.newest.id.generation;
}

static struct source *source_of(const struct volume_id *volume)
{
	struct source *source;

	pthread_mutex_lock(&sources->lock);
	source = source_find_locked(sources, volume);
	pthread_mutex_unlock(&sources->lock);
	assert_non_null(source);
	return source;
}

/* Its first listing has ended, not only made the generation: its thread would go on with the waits of a test. */
static bool is_listed(const struct volume_id *volume)
{
	const struct source *source;
	bool flying;

	pthread_mutex_lock(&sources->lock);
	source = source_find_locked(sources, volume);
	flying = !source || source->flying;
	pthread_mutex_unlock(&sources->lock);
	return !flying && newest(volume) == 1;
}

static bool take_due(struct volume_id *ret)
{
	struct ufs_config config;
	int r = source_set_follow_due(sources, ret, &config);

	if (r == 0)
		ufs_config_release(&config);
	else
		assert_int_equal(r, -ENOENT);
	return r == 0;
}

#define PINNED "{'name':'x','mounts':[{'url':'file://@/origin'}]}"

/* ---------------------------------------------------------------------------------------------- */

static void when_it_is_due(void **state)
{
	struct volume_id volume = create(PINNED);
	struct source_follow every = { volume, FOLLOW_MOST_S };
	struct volume_id due;

	(void)state;
	test_wait(is_listed(&volume));
	assert_false(take_due(&due)); /* nobody wants it */
	source_set_follow(sources, &every, 1);
	assert_false(take_due(&due)); /* in a day */
	every.interval_s = 1;         /* somebody more impatient */
	source_set_follow(sources, &every, 1);
	assert_false(take_due(&due)); /* not at once */
	test_advance(1100 * CLOCK_MS);
	assert_true(take_due(&due));
	assert_true(volume_id_equal(&due, &volume));
	test_advance(1100 * CLOCK_MS);
	assert_false(take_due(&due)); /* one is in progress */
	source_set_followed(sources, &volume, -EIO);
	test_advance(1100 * CLOCK_MS);
	assert_false(take_due(&due)); /* after twice the interval */
	test_advance(1100 * CLOCK_MS);
	assert_true(take_due(&due));
	source_set_followed(sources, &volume, 0);
	source_set_follow(sources, NULL, 0);
	test_advance(1100 * CLOCK_MS);
	assert_false(take_due(&due)); /* not any more */
}

static void for_the_sake_of_a_mount(void **state)
{
	struct volume_id volume = create(PINNED);
	struct source_hold hold = {
		.volume = volume, .generation = 1, .mount = "m", .follow_s = 1
	};
	struct source_news news;
	struct source_view view;
	struct volume_id due;

	(void)state;
	test_wait(is_listed(&volume));
	assert_int_equal(source_set_view(sources, &volume, &view), 0);
	assert_int_equal(view.follow_s, 0);
	hold.lineage = view.newest.id.lineage;
	assert_int_equal(source_set_hold(sources, &hold, &e), 0);
	assert_int_equal(source_set_view(sources, &volume, &view), 0);
	assert_int_equal(view.follow_s, 1);
	assert_false(take_due(&due));
	test_advance(1100 * CLOCK_MS);
	assert_true(take_due(&due));
	source_set_followed(sources, &due, 0);
	assert_int_equal(source_set_news(sources, &hold, &news), 0);
	assert_true(news.kept);
	assert_int_equal(news.newest.generation, 1);
	assert_true(news.shown_ms > 0);
	hold.end = true;
	assert_int_equal(source_set_hold(sources, &hold, &e), 0);
	assert_int_equal(source_set_view(sources, &volume, &view), 0);
	assert_int_equal(view.follow_s, 0);
	hold.volume.bytes[0] ^= 1;
	assert_int_equal(source_set_news(sources, &hold, &news), -ENXIO);
	assert_int_equal(news.newest.generation, 0);
}

static void set_time(const struct volume_id *volume, uint64_t ns)
{
	struct source *source = source_of(volume);

	pthread_mutex_lock(&sources->lock);
	source->follow_ns = ns;
	pthread_mutex_unlock(&sources->lock);
}

static void set_current(const struct volume_id *volume, int64_t ms)
{
	struct source *source = source_of(volume);

	pthread_mutex_lock(&sources->lock);
	source->generations[source->n - 1].current_ms = ms;
	pthread_mutex_unlock(&sources->lock);
}

/* By a listing that begins when it wants, or later; then no more. */
static void once_for_the_sake_of_a_mount(void **state)
{
	struct volume_id volume = create(PINNED);
	struct source_hold hold = { .volume = volume, .generation = 1, .mount = "m" };
	struct source_news news;
	struct source_view view;
	struct volume_id due;

	(void)state;
	test_wait(is_listed(&volume));
	assert_int_equal(source_set_view(sources, &volume, &view), 0);
	assert_true(view.newest.current_ms > 0); /* the listing said so */
	hold.lineage = view.newest.id.lineage;
	hold.since_ms = 1000;
	set_current(&volume, 1000);
	assert_int_equal(source_set_hold(sources, &hold, &e), 0);
	assert_false(take_due(&due)); /* that was listed then */
	hold.since_ms = 1001;
	assert_int_equal(source_set_hold(sources, &hold, &e), 0);
	assert_true(take_due(&due)); /* at once */
	assert_true(volume_id_equal(&due, &volume));
	assert_false(take_due(&due)); /* one is in progress */
	source_set_followed(sources, &volume, -EIO);
	assert_false(take_due(&due));
	test_advance(1100 * CLOCK_MS);
	assert_false(take_due(&due)); /* after two seconds */
	test_advance(1100 * CLOCK_MS);
	assert_true(take_due(&due));
	source_set_followed(sources, &volume, 0);
	assert_false(take_due(&due)); /* one that began too early: again, but not at once */
	test_advance(1100 * CLOCK_MS);
	assert_true(take_due(&due));
	set_current(&volume, 1001);
	source_set_followed(sources, &volume, 0);
	test_advance(5 * CLOCK_SECOND);
	assert_false(take_due(&due)); /* it was listed */
	assert_int_equal(source_set_news(sources, &hold, &news), 0);
	assert_int_equal(news.shown_ms, 1001);
	assert_true(news.now_ms > 1001);
	assert_int_equal(news.newest_ms, 1001);
	set_current(&volume, news.now_ms + 3600000); /* the clock was set back since */
	assert_true(take_due(&due));
	source_set_followed(sources, &volume, 0);
	set_current(&volume, 1000);
	hold.since_ms = news.now_ms + 3600000;
	assert_int_equal(source_set_hold(sources, &hold, &e), 0);
	test_advance(1100 * CLOCK_MS);
	assert_false(take_due(&due)); /* nor is what was said by a later clock */
	hold.since_ms = 1001;
	assert_int_equal(source_set_hold(sources, &hold, &e), 0);
	set_time(&volume, clock_mono_ns() + 86400 * CLOCK_SECOND); /* a day after a failure */
	source_of(&volume)->follow_fails = 1;
	assert_false(take_due(&due));
	test_advance(3 * CLOCK_SECOND);
	assert_true(take_due(&due));
	source_set_followed(sources, &volume, -EIO);
	hold.end = true;
	assert_int_equal(source_set_hold(sources, &hold, &e), 0);
	assert_false(take_due(&due)); /* nobody waits for it any more */
}

/* ---- several at once ------------------------------------------------------------------------- */

/* Whose time came first is first, and what there was no room for is neither late nor at fault. */
static void the_longest_overdue_is_first(void **state)
{
	struct volume_id volumes[2] = { create(PINNED) };
	uint64_t now = clock_mono_ns();
	struct volume_id due;

	(void)state;
	fixture_put("../other/b", "b");
	volumes[1] = create("{'name':'y','mounts':[{'url':'file://@/other'}]}");
	test_wait(newest(&volumes[0]) == 1);
	test_wait(newest(&volumes[1]) == 1);
	source_set_follow(
		sources, (struct source_follow[]){ { volumes[0], 3600 }, { volumes[1], 3600 } }, 2);
	assert_false(take_due(&due));
	set_time(&volumes[0], now - 1);
	set_time(&volumes[1], now - 2);
	assert_true(take_due(&due));
	assert_true(volume_id_equal(&due, &volumes[1]));
	source_set_follow_later(sources, &due);
	assert_true(take_due(&due));
	assert_true(volume_id_equal(&due, &volumes[1]));
	assert_int_equal(source_of(&due)->follow_fails, 0);
	source_set_followed(sources, &due, 0);
	assert_true(take_due(&due));
	assert_true(volume_id_equal(&due, &volumes[0]));
	source_set_followed(sources, &due, 0);
	assert_false(take_due(&due));
}

/* ---- what changes meanwhile ------------------------------------------------------------------ */

struct asker {
	struct source_wait wait;
	pthread_t thread;
	_Atomic bool flies;
	_Atomic bool go_on;
	_Atomic bool done;
};

static void stay(struct source_wait *wait)
{
	struct asker *asker = container_of(wait, struct asker, wait);

	atomic_store(&asker->flies, true);
	test_wait(atomic_load(&asker->go_on));
}

static void served(
	struct source_wait *wait, int status, struct source_answer *answer, const struct err *why)
{
	(void)answer;
	(void)why;
	assert_int_equal(status, 0);
	atomic_store(&container_of(wait, struct asker, wait)->done, true);
}

static void *open_source(void *arg)
{
	source_open(sources, arg);
	return NULL;
}

static void ask(const struct ufs_config *config, bool as_known)
{
	struct asker asker = { .wait = { .config = config,
				       .as_known = as_known,
				       .refresh = true,
				       .on_done = served } };

	source_open(sources, &asker.wait);
	assert_true(atomic_load(&asker.done));
}

/* A listing that waited for its turn knows how the source was reached then: that is not news. */
static void an_older_way_does_not_come_back(void **state)
{
	struct volume_id volume = create(PINNED);
	struct source *source;
	struct ufs_config before;
	struct ufs_config after;

	(void)state;
	test_wait(is_listed(&volume));
	pool_free(pool); /* nobody else lists */
	pool = NULL;
	source = source_of(&volume);
	assert_int_equal(ufs_config_copy(&source->record.config, &before), 0);
	assert_int_equal(ufs_config_copy(&before, &after), 0);
	after.requester_pays = true;
	ask(&after, false);
	assert_true(source->record.config.requester_pays);
	ask(&before, true);
	assert_true(source->record.config.requester_pays);
	ask(&before, false);
	assert_false(source->record.config.requester_pays);
	/* An endpoint that a local caller names is allowed from then on, whoever names it again. */
	source->record.config.no_local = after.no_local = true;
	ask(&after, false);
	assert_true(source->record.config.no_local);
	ask(&before, false);
	assert_false(source->record.config.no_local);
	ask(&after, false);
	assert_false(source->record.config.no_local);
	ufs_config_release(&before);
	ufs_config_release(&after);
}

static bool has_waiter(struct source *source)
{
	bool has;

	pthread_mutex_lock(&sources->lock);
	has = !list_empty(&source->waiters);
	pthread_mutex_unlock(&sources->lock);
	return has;
}

/* What it waits for may be answered by another's flight after it has stopped. */
static void answered_after_its_end(void **state)
{
	struct volume_id volume = create("{'name':'x','mounts':[{'url':'file://@/origin'}],"
					 "'consistency':'follow','interval_s':1}");
	const struct follow_config config = { .sources = sources, .datasets = set };
	struct asker asker = { .wait = { .refresh = true, .policy_now = stay, .on_done = served } };
	struct ufs_config copy;
	struct source *source;
	struct follow *follow;

	(void)state;
	test_wait(is_listed(&volume));
	pool_free(pool);
	pool = NULL;
	source = source_of(&volume);
	assert_int_equal(ufs_config_copy(&source->record.config, &copy), 0);
	asker.wait.config = &copy;
	assert_int_equal(pthread_create(&asker.thread, NULL, open_source, &asker.wait), 0);
	test_wait(atomic_load(&asker.flies));
	follow = follow_new(&config);
	assert_non_null(follow);
	test_wait(has_waiter(source));
	follow_stop(follow);
	atomic_store(&asker.go_on, true);
	assert_int_equal(pthread_join(asker.thread, NULL), 0);
	assert_true(atomic_load(&asker.done));
	assert_false(source->following); /* it was answered, too */
	follow_free(follow);
	ufs_config_release(&copy);
}

/* Datasets of sources of their own, each with a generation. */
static void create_followed(struct volume_id *volumes, uint32_t n)
{
	char text[160];
	char name[32];

	for (uint32_t i = 0; i < n; i++) {
		assert_int_equal(file_mkdirs(fixture_in("of-%u", i), 0755), 0);
		(void)snprintf(name, sizeof(name), "../of-%u/a", i);
		fixture_put(name, "a");
		(void)snprintf(text, sizeof(text),
			"{'name':'x%u','mounts':[{'url':'file://@/of-%u'}],'consistency':'follow'}",
			i, i);
		volumes[i] = create(text);
		test_wait(newest(&volumes[i]) == 1);
	}
	pool_free(pool); /* nobody else lists */
	pool = NULL;
}

static void wait_in(struct source *source, struct asker *asker)
{
	*asker = (struct asker){ .wait = { .policy_now = stay, .on_done = served } };
	pthread_mutex_lock(&sources->lock);
	list_push_back(&source->waiters, &asker->wait.link);
	pthread_mutex_unlock(&sources->lock);
}

static bool is_following(struct source *source)
{
	bool following;

	pthread_mutex_lock(&sources->lock);
	following = source->following;
	pthread_mutex_unlock(&sources->lock);
	return following;
}

/* Of more sources than are listed at once the last waits its turn, while its dataset is deleted. */
static void deleted_while_it_is_due(void **state)
{
	enum { AT_ONCE = 4, ALL };
	const struct follow_config config = { .sources = sources, .datasets = set };
	struct volume_id volumes[ALL];
	struct asker askers[AT_ONCE];
	struct follow *follow;

	(void)state;
	create_followed(volumes, ALL);
	for (uint32_t i = 0; i < AT_ONCE; i++)
		wait_in(source_of(&volumes[i]), &askers[i]);
	source_set_follow(sources,
		(struct source_follow[ALL]){ { volumes[0], 60 }, { volumes[1], 60 },
			{ volumes[2], 60 }, { volumes[3], 60 }, { volumes[4], 60 } },
		ALL);
	for (uint32_t i = 0; i < ALL; i++)
		set_time(&volumes[i], 1 + i);
	fixture_put("../of-4/b", "b");
	follow = follow_new(&config);
	assert_non_null(follow);
	for (uint32_t i = 0; i < AT_ONCE; i++)
		test_wait(atomic_load(&askers[i].flies));
	test_wait(is_following(source_of(&volumes[AT_ONCE])));
	assert_int_equal(dataset_delete(set, "x4", true, &e), 0);
	for (uint32_t i = 0; i < AT_ONCE; i++)
		atomic_store(&askers[i].go_on, true);
	test_wait(!is_following(source_of(&volumes[AT_ONCE])));
	for (uint32_t i = 0; i < AT_ONCE; i++)
		test_wait(atomic_load(&askers[i].done));
	assert_int_equal(newest(&volumes[AT_ONCE]), 1);
	follow_stop(follow);
	follow_free(follow);
}

/* Nor is it for its access settings, though mounts keep the source. */
static void deleted_before_its_turn(void **state)
{
	struct volume_id volume = create(PINNED);
	struct asker asker = { .wait = { .policy_now = stay, .on_done = served } };
	struct source_hold hold = { .volume = volume, .generation = 1, .mount = "m" };
	_cleanup_(dataset_release) struct dataset d = { 0 };
	json_t *json = body("{'mounts':[{'path':'/','requester_pays':true}]}");
	struct source_view view;
	struct source *source;
	struct ufs_config copy;

	(void)state;
	test_wait(is_listed(&volume));
	assert_int_equal(source_set_view(sources, &volume, &view), 0);
	hold.lineage = view.newest.id.lineage;
	assert_int_equal(source_set_hold(sources, &hold, &e), 0);
	source = source_of(&volume);
	assert_int_equal(ufs_config_copy(&source->record.config, &copy), 0);
	asker.wait.config = &copy;
	assert_int_equal(pthread_create(&asker.thread, NULL, open_source, &asker.wait), 0);
	test_wait(atomic_load(&asker.flies));
	fixture_put("b", "b");
	if (dataset_update(set, "x", json, false, NULL, &d, &e) < 0)
		fail_msg("%s", e.text);
	test_wait(has_waiter(source));
	assert_int_equal(dataset_delete(set, "x", true, &e), 0);
	atomic_store(&asker.go_on, true);
	assert_int_equal(pthread_join(asker.thread, NULL), 0); /* it flies for both */
	assert_int_equal(newest(&volume), 1);
	assert_false(source->record.config.requester_pays);
	json_decref(json);
	ufs_config_release(&copy);
}

static void what_a_dataset_says(void **state)
{
	struct dataset d = { 0 };
	static const struct {
		const char *text;
		int r;
		enum dataset_consistency consistency;
		uint64_t interval_s;
	} cases[] = {
		{ "{'consistency':'follow'}", 0, DATASET_FOLLOW, 0 },
		{ "{'interval_s':5}", 0, DATASET_FOLLOW, 5 },
		{ "{'consistency':'follow'}", 0, DATASET_FOLLOW, 5 },
		{ "{'interval_s':0}", -EINVAL, DATASET_FOLLOW, 5 },
		{ "{'interval_s':86401}", -EINVAL, DATASET_FOLLOW, 5 },
		{ "{'interval_s':'5'}", -EINVAL, DATASET_FOLLOW, 5 },
		{ "{'consistency':'guess'}", -EINVAL, DATASET_FOLLOW, 5 },
		{ "{'interval_s':null}", 0, DATASET_FOLLOW, 0 },
		{ "{'consistency':'pinned'}", 0, DATASET_PINNED, 0 },
		{ "{'interval_s':5}", -EINVAL, DATASET_PINNED, 0 },
		{ "{'consistency':'follow','interval_s':7}", 0, DATASET_FOLLOW, 7 },
		{ "{'consistency':null}", 0, DATASET_PINNED, 0 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		json_t *json = body(cases[i].text);

		assert_int_equal(dataset_take_consistency(&d, json, &e), cases[i].r);
		assert_int_equal(d.consistency, cases[i].consistency);
		assert_int_equal(d.interval_s, cases[i].interval_s);
		json_decref(json);
	}
}

static uint32_t count_follows(uint32_t *ret_first_s)
{
	struct source_follow *all = NULL;
	uint32_t n = 0;

	assert_int_equal(dataset_set_follow(set, &all, &n), 0);
	if (n)
		*ret_first_s = all[0].interval_s;
	free(all);
	return n;
}

/* Pinned, followed, rolled back; and the same of the record that the next master reads. */
static void which_datasets(void **state)
{
	_cleanup_(dataset_release) struct dataset d = { 0 };
	_cleanup_(dataset_release) struct dataset again = { 0 };
	_cleanup_(buf_release) struct buf text = BUF_INIT(STORE_VALUE_BYTES);
	struct volume_id volume = create(PINNED);
	json_t *json = body("{'consistency':'follow'}");
	uint32_t s = 0;

	(void)state;
	test_wait(is_listed(&volume));
	assert_int_equal(count_follows(&s), 0);
	assert_int_equal(dataset_set_find(set, "x", &d, &e), 0);
	assert_int_equal(dataset_take_consistency(&d, json, &e), 0);
	json_decref(json);
	assert_true(dataset_follows(&d, &volume));
	assert_int_equal(dataset_interval_s(&d), DATASET_INTERVAL_S);
	d.interval_s = 9;
	assert_int_equal(dataset_encode(&d, &text), 0);
	assert_int_equal(dataset_decode(text.data, text.len, &again), 0);
	assert_int_equal(again.consistency, DATASET_FOLLOW);
	assert_int_equal(again.interval_s, 9);
	create("{'name':'y','mounts':[{'url':'file://@/origin'}],'consistency':'follow',"
	       "'interval_s':3}");
	assert_int_equal(count_follows(&s), 1);
	assert_int_equal(s, 3);
	d.shown[d.n_shown++] = (struct dataset_generation){ volume, 1, 1 };
	assert_false(dataset_follows(&d, &volume));
}

static void all_of_it(void **state)
{
	struct volume_id volume = create("{'name':'x','mounts':[{'url':'file://@/origin'}],"
					 "'consistency':'follow','interval_s':1}");
	const struct follow_config config = { .sources = sources, .datasets = set };
	struct follow *follow;

	(void)state;
	test_wait(is_listed(&volume));
	follow = follow_new(&config);
	assert_non_null(follow);
	fixture_put("b", "bb");
	test_wait(newest(&volume) == 2);
	test_advance(5 * CLOCK_SECOND);
	assert_int_equal(newest(&volume), 2); /* nothing differs, no generation */
	assert_int_equal(unlink(fixture_in("origin/a")), 0);
	test_wait(newest(&volume) == 3);
	source_set_stop(sources);
	follow_free(follow);
	follow_free(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(when_it_is_due, setup, teardown),
		cmocka_unit_test_setup_teardown(for_the_sake_of_a_mount, setup, teardown),
		cmocka_unit_test_setup_teardown(once_for_the_sake_of_a_mount, setup, teardown),
		cmocka_unit_test_setup_teardown(the_longest_overdue_is_first, setup, teardown),
		cmocka_unit_test_setup_teardown(an_older_way_does_not_come_back, setup, teardown),
		cmocka_unit_test_setup_teardown(answered_after_its_end, setup, teardown),
		cmocka_unit_test_setup_teardown(deleted_while_it_is_due, setup, teardown),
		cmocka_unit_test_setup_teardown(deleted_before_its_turn, setup, teardown),
		cmocka_unit_test(what_a_dataset_says),
		cmocka_unit_test_setup_teardown(which_datasets, setup, teardown),
		cmocka_unit_test_setup_teardown(all_of_it, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
