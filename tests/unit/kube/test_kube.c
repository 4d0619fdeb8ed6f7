/* Requests to an API server that throttles, fails, conflicts, and goes away. */
#include "base/clock.h"
#include "tests/clock/test_clock.h"
#include "tests/unit/kube/fake_kube.h"
#include "kube/kube.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <unistd.h>

static const struct kube_kind pods = { .api_version = "v1", .plural = "pods" };
static const struct kube_kind jobs = { .api_version = "kubeflow.org/v1", .plural = "pytorchjobs" };
static const struct kube_write by = { .manager = "cachectl" };

struct world {
	struct fake_kube fake;
	struct kube *kube;
	_Atomic bool given_up;
	struct err e;
	char config[64];
};

static int set_up(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	fake_kube_start(&w->fake);
	(void)snprintf(w->config, sizeof(w->config), "/tmp/test_kube.%d", (int)getpid());
	fake_kube_config(&w->fake, w->config, "good");
	assert_int_equal(kube_new(&(struct kube_choice){ .config = w->config }, &w->given_up,
				 &w->kube, &w->e),
		0);
	*state = w;
	return 0;
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

static json_t *pod(const char *name)
{
	return json_pack(
		"{s:s, s:s, s:{s:s}}", "apiVersion", "v1", "kind", "Pod", "metadata", "name", name);
}

static int create(struct world *w, const char *name)
{
	json_t *object = pod(name);
	int r = kube_create(w->kube, &pods, NULL, object, &by, NULL, &w->e);

	json_decref(object);
	return r;
}

static void creates_reads_patches_and_deletes(void **state)
{
	struct world *w = *state;
	json_t *patch = json_pack("{s:{s:i}}", "spec", "x", 2);
	json_t *got = NULL;

	fake_kube_set(&w->fake, token, "good");
	assert_int_equal(create(w, "a"), 0);
	assert_non_null(fake_kube_last(&w->fake,
		"POST /api/v1/namespaces/team/pods?fieldManager=cachectl&fieldValidation=Strict "));
	assert_int_equal(create(w, "a"), -EEXIST);
	assert_int_equal(kube_patch(w->kube, &pods, "team", "a", NULL, patch, &by, &got, &w->e), 0);
	assert_int_equal(json_integer_value(json_object_get(json_object_get(got, "spec"), "x")), 2);
	assert_non_null(strstr(fake_kube_last(&w->fake, "PATCH "), "merge-patch+json"));
	json_decref(got);
	assert_int_equal(kube_get(w->kube, &pods, NULL, "a", &got, &w->e), 0);
	assert_int_equal(kube_delete(w->kube, &pods, NULL, "a", "other", &by, &w->e), -EBUSY);
	assert_int_equal(
		kube_delete(w->kube, &pods, NULL, "a",
			json_string_value(json_object_get(json_object_get(got, "metadata"), "uid")),
			&by, &w->e),
		0);
	json_decref(got);
	assert_int_equal(kube_get(w->kube, &pods, NULL, "a", &got, &w->e), -ENOENT);
	assert_int_equal(w->fake.server.n_conns, 1); /* one connection for all */
	json_decref(patch);
}

static void applies_and_checks_without_storing(void **state)
{
	struct world *w = *state;
	struct kube_write dry = { .manager = "cachectl", .dry_run = true, .force = true };
	json_t *object = pod("a");

	assert_int_equal(kube_apply(w->kube, &pods, NULL, "a", object, &dry, NULL, &w->e), 0);
	assert_non_null(strstr(fake_kube_last(&w->fake, "PATCH "), "&dryRun=All&force=true "));
	assert_non_null(strstr(fake_kube_last(&w->fake, "PATCH "), "apply-patch+yaml"));
	assert_null(fake_kube_object(&w->fake, "/api/v1/namespaces/team/pods/a"));
	json_decref(object);
}

static void sends_again_what_passes(void **state)
{
	struct world *w = *state;
	json_t *got = NULL;
	uint64_t began;

	fake_kube_set(&w->fake, throttles, 2);
	fake_kube_set(&w->fake, retry_after, 7);
	began = clock_mono_ns();
	assert_int_equal(create(w, "a"), 0);
	assert_true(clock_mono_ns() - began >= 14 * CLOCK_SECOND);
	fake_kube_set(&w->fake, fails, 2);
	fake_kube_set(&w->fake, closes, 1);
	assert_int_equal(kube_get(w->kube, &pods, NULL, "a", &got, &w->e), 0);
	json_decref(got);
	fake_kube_set(&w->fake, fails, 100);
	assert_int_equal(kube_get(w->kube, &pods, NULL, "a", &got, &w->e), -EIO);
	assert_non_null(strstr(w->e.text, "leader changed"));
	fake_kube_set(&w->fake, fails, 0);
	fake_kube_set(&w->fake, loses, 1);
	assert_int_equal(create(w, "b"), -EEXIST); /* its own, whose answer was lost */
	assert_int_equal(fake_kube_count(&w->fake, "POST "), 5);
}

static void gives_up_what_lasts(void **state)
{
	struct world *w = *state;
	json_t *got = NULL;
	uint64_t began = clock_mono_ns();

	fake_kube_set(&w->fake, throttles, 1000);
	fake_kube_set(&w->fake, retry_after, 9);
	assert_int_equal(kube_get(w->kube, &pods, NULL, "a", &got, &w->e), -EAGAIN);
	assert_true(clock_mono_ns() - began <= KUBE_PATIENCE_NS + CLOCK_SECOND);
	atomic_store(&w->given_up, true);
	assert_int_equal(kube_get(w->kube, &pods, NULL, "a", &got, &w->e), -ECANCELED);
}

static void says_why_it_is_refused(void **state)
{
	struct world *w = *state;
	json_t *got = NULL;

	fake_kube_set(&w->fake, conflicts, 1);
	assert_int_equal(create(w, "a"), -EBUSY);
	fake_kube_set(&w->fake, token, "another");
	assert_int_equal(create(w, "a"), -EKEYREJECTED);
	assert_non_null(strstr(w->e.text, "context 'fake'"));
	assert_null(strstr(w->e.text, "good"));
	assert_int_equal(kube_get(w->kube, &pods, "..", "a", &got, &w->e), -EINVAL);
	assert_int_equal(kube_get(w->kube, &pods, NULL, "a/../b?c d", &got, &w->e), -EKEYREJECTED);
	assert_non_null(
		fake_kube_last(&w->fake, "GET /api/v1/namespaces/team/pods/a%2F..%2Fb%3Fc%20d "));
}

static void a_server_that_is_away(void **state)
{
	struct world *w = *state;
	json_t *got = NULL;

	fake_kube_stop(&w->fake);
	assert_int_equal(create(w, "a"), -ECONNREFUSED);
	assert_int_equal(kube_get(w->kube, &pods, NULL, "a", &got, &w->e), -ECONNREFUSED);
	assert_non_null(strstr(w->e.text, "Kubernetes at http://127.0.0.1"));
	fake_kube_start(&w->fake);
}

struct seen {
	unsigned int n;
	unsigned int restarts;
};

static int see(void *arg, json_t *object)
{
	struct seen *seen = arg;

	assert_non_null(json_object_get(object, "metadata"));
	seen->n++;
	return 0;
}

static int restart(void *arg)
{
	struct seen *seen = arg;

	seen->restarts++;
	seen->n = 0;
	return 0;
}

static void lists_by_pages(void **state)
{
	struct world *w = *state;
	struct seen seen = { 0 };
	char *version = NULL;
	char path[64];

	for (unsigned int i = 0; i < 2 * KUBE_PAGE_OBJECTS + 1; i++) {
		json_t *object;

		(void)snprintf(path, sizeof(path), "p%u", i);
		object = pod(path);
		json_object_set_new(json_object_get(object, "metadata"), "labels",
			json_pack("{s:s}", "half", i % 2 ? "odd" : "even"));
		(void)snprintf(path, sizeof(path), "/api/v1/namespaces/n%u/pods/p%u", i % 3, i);
		fake_kube_put(&w->fake, path, object);
	}
	assert_int_equal(kube_list(w->kube, &pods, &(struct kube_query){ .name_space = "" }, see,
				 NULL, &seen, &version, &w->e),
		0);
	assert_int_equal(seen.n, 2 * KUBE_PAGE_OBJECTS + 1);
	assert_string_equal(version, "1001");
	free(version);
	assert_int_equal(fake_kube_count(&w->fake, "GET /api/v1/pods?limit=500"), 3);

	seen = (struct seen){ 0 };
	fake_kube_set(&w->fake, expires, 1); /* the second page is gone */
	assert_int_equal(kube_list(w->kube, &pods, &(struct kube_query){ .name_space = "" }, see,
				 restart, &seen, NULL, &w->e),
		0);
	assert_int_equal(seen.n, 2 * KUBE_PAGE_OBJECTS + 1);
	assert_int_equal(seen.restarts, 1);

	seen = (struct seen){ 0 };
	assert_int_equal(kube_list(w->kube, &pods,
				 &(struct kube_query){ .name_space = "n0", .labels = "half=odd" },
				 see, NULL, &seen, NULL, &w->e),
		0);
	assert_int_equal(seen.n, 167);
}

static void finds_kinds_once(void **state)
{
	struct world *w = *state;
	struct kube_resource found;

	assert_int_equal(
		kube_find_kind(w->kube, "kubeflow.org/v1", "PyTorchJob", &found, &w->e), 0);
	assert_string_equal(found.plural, jobs.plural);
	assert_false(found.cluster_wide);
	assert_int_equal(kube_find_kind(w->kube, "kubeflow.org/v1", "TFJob", &found, &w->e), 0);
	assert_int_equal(kube_find_kind(w->kube, "v1", "Node", &found, &w->e), 0);
	assert_true(found.cluster_wide);
	assert_int_equal(fake_kube_count(&w->fake, "GET "), 2);
	assert_int_equal(
		kube_find_kind(w->kube, "kubeflow.org/v1", "Nothing", &found, &w->e), -ENOENT);
	assert_int_equal(kube_find_kind(w->kube, "none.org/v1", "X", &found, &w->e), -ENOENT);
	assert_non_null(strstr(w->e.text, "does not have kind X of none.org/v1"));
}

static int see_text(void *arg, const char *data, size_t len)
{
	return buf_append(arg, data, len);
}

static int stop_text(void *arg, const char *data, size_t len)
{
	(void)arg;
	(void)data;
	return len ? -ENOSPC : 0;
}

static void reads_a_log(void **state)
{
	struct world *w = *state;
	_cleanup_(buf_release) struct buf text = BUF_INIT(100);
	json_t *object = pod("a");

	json_object_set_new(json_object_get(object, "metadata"), "annotations",
		json_pack("{s:s}", "fake/log", "one\ntwo\n"));
	fake_kube_put(&w->fake, "/api/v1/namespaces/team/pods/a", object);
	assert_int_equal(kube_call_text(w->kube, "/api/v1/namespaces/team/pods/a/log", see_text,
				 &text, &w->e),
		0);
	assert_string_equal(text.data, "one\ntwo\n");
	assert_int_equal(kube_call_text(w->kube, "/api/v1/namespaces/team/pods/a/log", stop_text,
				 NULL, &w->e),
		-ENOSPC);
	assert_int_equal(kube_call_text(w->kube, "/api/v1/namespaces/team/pods/b/log", see_text,
				 &text, &w->e),
		-ENOENT);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		CASE(creates_reads_patches_and_deletes),
		CASE(applies_and_checks_without_storing),
		CASE(sends_again_what_passes),
		CASE(gives_up_what_lasts),
		CASE(says_why_it_is_refused),
		CASE(a_server_that_is_away),
		CASE(lists_by_pages),
		CASE(finds_kinds_once),
		CASE(reads_a_log),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
