/* Events: what repeats is counted. */
#include "base/clock.h"
#include "tests/clock/test_clock.h"
#include "tests/unit/kube/fake_kube.h"
#include "kube/kube_event.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <unistd.h>

struct world {
	struct fake_kube fake;
	struct kube *kube;
	struct kube_events *events;
	char config[64];
};

static int set_up(void **state)
{
	struct world *w = calloc(1, sizeof(*w));
	struct err e = ERR_INIT;

	fake_kube_start(&w->fake);
	(void)snprintf(w->config, sizeof(w->config), "/tmp/test_kube_event.%d", (int)getpid());
	fake_kube_config(&w->fake, w->config, "good");
	assert_int_equal(
		kube_new(&(struct kube_choice){ .config = w->config }, NULL, &w->kube, &e), 0);
	w->events = kube_events_new(w->kube, "cachecsi", "node-1");
	assert_non_null(w->events);
	*state = w;
	return 0;
}

static int tear_down(void **state)
{
	struct world *w = *state;

	kube_events_free(w->events);
	kube_free(w->kube);
	fake_kube_stop(&w->fake);
	(void)unlink(w->config);
	free(w);
	return 0;
}

static void report(struct world *w, const char *pod, const char *message)
{
	assert_int_equal(kube_event_send(w->events, &(struct kube_event){ .api_version = "v1",
							    .kind = "Pod",
							    .name_space = "ml",
							    .name = pod,
							    .uid = "u-1",
							    .warning = true,
							    .reason = "MountFailed",
							    .message = message }),
		0);
}

/* All events of the store, in the order of their names. */
static json_t *all(struct world *w)
{
	json_t *found = json_array();
	const char *path;
	json_t *object;

	pthread_mutex_lock(&w->fake.lock);
	json_object_foreach (w->fake.objects, path, object)
		if (strstr(path, "/events/"))
			json_array_append_new(found, json_deep_copy(object));
	pthread_mutex_unlock(&w->fake.lock);
	return found;
}

static void wait_for(struct world *w, unsigned int posts, unsigned int patches)
{
	test_wait(fake_kube_count(&w->fake, "POST ") == posts &&
		  fake_kube_count(&w->fake, "PATCH ") == patches);
}

static long long count_of(const json_t *event)
{
	return json_integer_value(json_object_get(event, "count"));
}

static void an_event_names_its_object(void **state)
{
	struct world *w = *state;
	json_t *events;
	const json_t *about;

	report(w, "train-0", "dataset 'x' not found");
	wait_for(w, 1, 0);
	events = all(w);
	about = json_object_get(json_array_get(events, 0), "involvedObject");
	assert_string_equal(json_string_value(json_object_get(about, "name")), "train-0");
	assert_string_equal(json_string_value(json_object_get(about, "uid")), "u-1");
	assert_string_equal(
		json_string_value(json_object_get(json_array_get(events, 0), "type")), "Warning");
	assert_non_null(fake_kube_last(&w->fake, "POST /api/v1/namespaces/ml/events?"));
	json_decref(events);
}

static void what_repeats_is_counted(void **state)
{
	struct world *w = *state;
	json_t *events;

	for (unsigned int i = 0; i < 5; i++)
		report(w, "train-0", "the same");
	report(w, "train-1", "the same");
	wait_for(w, 2, 4);
	events = all(w);
	assert_int_equal(json_array_size(events), 2);
	assert_int_equal(
		count_of(json_array_get(events, 0)) + count_of(json_array_get(events, 1)), 6);
	json_decref(events);
}

static void many_that_are_similar_become_one(void **state)
{
	struct world *w = *state;
	char message[64];
	json_t *events;
	const char *last;

	for (unsigned int i = 0; i < 20; i++) {
		(void)snprintf(message, sizeof(message), "attempt %u", i);
		report(w, "train-0", message);
	}
	wait_for(w, 11, 9);
	last = fake_kube_last(&w->fake, "PATCH ");
	assert_non_null(strstr(last, "(combined from similar events): attempt 19"));
	events = all(w);
	assert_int_equal(json_array_size(events), 11);
	json_decref(events);
}

static void what_repeats_without_end_is_dropped(void **state)
{
	struct world *w = *state;
	unsigned int sent;

	for (unsigned int i = 0; i < 60; i++)
		report(w, "train-0", "the same");
	test_wait(kube_events_dropped(w->events) + fake_kube_count(&w->fake, "PATCH ") + 1 == 60);
	sent = fake_kube_count(&w->fake, "PATCH ");
	assert_in_range(sent, 24, 25);
	test_advance(301 * CLOCK_SECOND);
	report(w, "train-0", "the same");
	wait_for(w, 1, sent + 1);
}

static void what_the_server_removed_is_made_again(void **state)
{
	struct world *w = *state;
	json_t *events;
	char path[512];

	report(w, "train-0", "the same");
	wait_for(w, 1, 0);
	events = all(w);
	(void)snprintf(path, sizeof(path), "/api/v1/namespaces/ml/events/%s",
		json_string_value(json_object_get(
			json_object_get(json_array_get(events, 0), "metadata"), "name")));
	json_decref(events);
	fake_kube_put(&w->fake, path, NULL);
	report(w, "train-0", "the same");
	wait_for(w, 2, 1);
	events = all(w);
	assert_int_equal(json_array_size(events), 1);
	assert_int_equal(count_of(json_array_get(events, 0)), 1);
	json_decref(events);
}

static void what_is_refused_is_dropped(void **state)
{
	struct world *w = *state;

	fake_kube_set(&w->fake, token, "another");
	report(w, "train-0", "first");
	test_wait(kube_events_dropped(w->events) == 1);
	fake_kube_set(&w->fake, token, NULL);
	report(w, "train-0", "first");
	test_wait(fake_kube_count(&w->fake, "POST ") == 2);
	assert_int_equal(fake_kube_count(&w->fake, "PATCH "), 0);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		CASE(an_event_names_its_object),
		CASE(what_repeats_is_counted),
		CASE(many_that_are_similar_become_one),
		CASE(what_repeats_without_end_is_dropped),
		CASE(what_the_server_removed_is_made_again),
		CASE(what_is_refused_is_dropped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
