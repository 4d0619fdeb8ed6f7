/* Watches over broken connections, forgotten versions and bookmarks. */
#include "base/clock.h"
#include "tests/clock/test_clock.h"
#include "tests/unit/kube/fake_kube.h"
#include "kube/kube_watch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <unistd.h>

#define POD   "/api/v1/namespaces/team/pods/"
#define WATCH "GET /api/v1/namespaces/team/pods?watch=1"

struct world {
	struct fake_kube fake;
	struct kube *kube;
	_Atomic bool given_up;
	pthread_t thread;
	int result;
	uint64_t end_ns;
	struct err e;
	char config[64];

	/* Counted by the watch. */
	_Atomic unsigned int listings, present, listed, added, modified, deleted;
	_Atomic bool stop;
};

static int see(void *arg, enum kube_change change, json_t *object)
{
	struct world *w = arg;
	_Atomic unsigned int *const counts[] = { &w->listings, &w->present, &w->listed, &w->added,
		&w->modified, &w->deleted };

	assert_true((object != NULL) == (change != KUBE_LISTING && change != KUBE_LISTED));
	atomic_fetch_add(counts[change], 1);
	return atomic_load(&w->stop) ? 7 : 0;
}

static void *run(void *arg)
{
	struct world *w = arg;

	w->result = kube_watch(w->kube,
		&(struct kube_watch){ .kind = { .api_version = "v1", .plural = "pods" },
			.see = see,
			.arg = w,
			.end_ns = w->end_ns },
		&w->e);
	return NULL;
}

static void put(struct world *w, const char *name)
{
	char path[128];

	(void)snprintf(path, sizeof(path), POD "%s", name);
	fake_kube_put(&w->fake, path,
		json_pack("{s:s, s:s, s:{s:s}}", "apiVersion", "v1", "kind", "Pod", "metadata",
			"name", name));
}

static int set_up(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	fake_kube_start(&w->fake);
	(void)snprintf(w->config, sizeof(w->config), "/tmp/test_kube_watch.%d", (int)getpid());
	fake_kube_config(&w->fake, w->config, "good");
	assert_int_equal(kube_new(&(struct kube_choice){ .config = w->config }, &w->given_up,
				 &w->kube, &w->e),
		0);
	put(w, "a");
	put(w, "b");
	*state = w;
	return 0;
}

static void start(struct world *w)
{
	assert_int_equal(pthread_create(&w->thread, NULL, run, w), 0);
}

static int end(struct world *w)
{
	atomic_store(&w->given_up, true);
	fake_kube_end_watches(&w->fake);
	assert_int_equal(pthread_join(w->thread, NULL), 0);
	return w->result;
}

static int tear_down(void **state)
{
	struct world *w = *state;

	kube_free(w->kube);
	fake_kube_stop(&w->fake);
	(void)unlink(w->config);
	free(w);
	return 0;
}

static void lists_then_follows(void **state)
{
	struct world *w = *state;

	start(w);
	test_wait(w->listed == 1);
	assert_int_equal(w->present, 2);
	put(w, "c");
	put(w, "c");
	fake_kube_put(&w->fake, POD "a", NULL);
	test_wait(w->added == 1 && w->modified == 1 && w->deleted == 1);
	assert_int_equal(end(w), -ECANCELED);
	assert_int_equal(w->listings, 1);
}

static void goes_on_where_it_was(void **state)
{
	struct world *w = *state;

	start(w);
	test_wait(w->listed == 1);
	fake_kube_set(&w->fake, breaks, 1); /* in the middle of this change, which comes again */
	put(w, "c");
	test_wait(w->added == 1);
	fake_kube_end_watches(&w->fake);
	put(w, "d");
	test_wait(w->added == 2);
	fake_kube_set(&w->fake, fails, 3);
	fake_kube_end_watches(&w->fake);
	put(w, "e");
	test_wait(w->added == 3);
	assert_int_equal(end(w), -ECANCELED);
	assert_int_equal(w->listings, 1);
	assert_int_equal(w->present, 2);
}

static void lists_again_what_the_server_forgot(void **state)
{
	struct world *w = *state;

	start(w);
	test_wait(w->listed == 1);
	fake_kube_set(&w->fake, forgotten, w->fake.version + 1);
	put(w, "c");
	fake_kube_end_watches(&w->fake);
	test_wait(w->listed == 2);
	assert_int_equal(w->listings, 2);
	test_wait(w->present == 5);
	fake_kube_set(&w->fake, watch_errors, 1); /* as an answer, not as its status */
	fake_kube_end_watches(&w->fake);
	test_wait(w->listed == 3);
	assert_int_equal(end(w), -ECANCELED);
}

/* Without the bookmark the version would be forgotten. */
static void a_bookmark_keeps_the_version_new(void **state)
{
	struct world *w = *state;

	start(w);
	test_wait(fake_kube_count(&w->fake, WATCH) == 1);
	for (unsigned int i = 0; i < 20; i++)
		fake_kube_put(&w->fake, "/api/v1/namespaces/other/pods/x",
			json_pack("{s:{s:s}}", "metadata", "name", "x"));
	fake_kube_bookmark(&w->fake);
	fake_kube_set(&w->fake, forgotten, w->fake.version);
	fake_kube_end_watches(&w->fake);
	test_wait(fake_kube_count(&w->fake, WATCH) == 2);
	put(w, "c");
	test_wait(w->added == 1);
	assert_int_equal(end(w), -ECANCELED);
	assert_int_equal(w->listings, 1);
}

static void ends_when_its_user_says_so(void **state)
{
	struct world *w = *state;

	start(w);
	test_wait(w->listed == 1);
	atomic_store(&w->stop, true);
	put(w, "c");
	assert_int_equal(pthread_join(w->thread, NULL), 0);
	assert_int_equal(w->result, 7);
}

static void ends_when_its_time_is_over(void **state)
{
	struct world *w = *state;

	w->end_ns = clock_mono_ns() + 1000 * CLOCK_SECOND; /* several watches */
	start(w);
	assert_int_equal(pthread_join(w->thread, NULL), 0);
	assert_int_equal(w->result, -ETIMEDOUT);
	assert_true(clock_mono_ns() < w->end_ns + 10 * CLOCK_SECOND);
	assert_true(fake_kube_count(&w->fake, WATCH) >= 4);
	assert_int_equal(w->listings, 1);
}

static void ends_when_it_may_not_read(void **state)
{
	struct world *w = *state;

	fake_kube_set(&w->fake, token, "another");
	start(w);
	assert_int_equal(pthread_join(w->thread, NULL), 0);
	assert_int_equal(w->result, -EKEYREJECTED);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		CASE(lists_then_follows),
		CASE(goes_on_where_it_was),
		CASE(lists_again_what_the_server_forgot),
		CASE(a_bookmark_keeps_the_version_new),
		CASE(ends_when_its_user_says_so),
		CASE(ends_when_its_time_is_over),
		CASE(ends_when_it_may_not_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
