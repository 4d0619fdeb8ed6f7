/* The list of events: numbers, pages, bounds, what is said again, texts that are none; and what workers' reports make of it. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "master/events.h"
#include "master/workers.h"

/* A request with such a query. */
static const char *asked_after;
static const char *asked_limit;

static const char *query(const struct admin_request *request, const char *name)
{
	(void)request;
	return strcmp(name, "after") == 0 ? asked_after : asked_limit;
}

static json_t *ask(const char *after, const char *limit)
{
	const struct admin_request request = { .query = query };
	struct err e = ERR_INIT;
	json_t *json = NULL;

	asked_after = after;
	asked_limit = limit;
	assert_int_equal(events_api_list(NULL, &request, &json, &e), 0);
	return json;
}

static void refused(const char *after, const char *limit)
{
	const struct admin_request request = { .query = query };
	struct err e = ERR_INIT;
	json_t *json = NULL;

	asked_after = after;
	asked_limit = limit;
	assert_int_equal(events_api_list(NULL, &request, &json, &e), -EINVAL);
	assert_non_null(strstr(e.text, "must be a number"));
}

static json_int_t number(const json_t *json, const char *name)
{
	return json_integer_value(json_object_get(json, name));
}

/* Event i of an answer. */
static const json_t *event(const json_t *json, size_t i)
{
	return json_array_get(json_object_get(json, "events"), i);
}

static size_t count(const json_t *json)
{
	return json_array_size(json_object_get(json, "events"));
}

static const char *text(const json_t *json, const char *name)
{
	const char *found = json_string_value(json_object_get(json, name));

	assert_non_null(found);
	return found;
}

static int setup(void **state)
{
	(void)state;
	return events_open();
}

static int teardown(void **state)
{
	(void)state;
	events_close();
	return 0;
}

static void test_numbers(void **state)
{
	json_t *json;

	(void)state;
	json = ask(NULL, NULL);
	assert_int_equal(number(json, "last"), 0);
	assert_int_equal(count(json), 0);
	json_decref(json);
	for (int i = 1; i <= 20; i++)
		event_note(EVENT_INFO, "test", "x", "number %d", i);
	json = ask(NULL, "3");
	assert_int_equal(count(json), 3);
	assert_string_equal(text(event(json, 0), "text"), "number 18");
	assert_int_equal(number(event(json, 2), "seq"), 20);
	assert_true(json_number_value(json_object_get(event(json, 2), "time")) > 1500000000);
	json_decref(json);
	json = ask("15", "3");
	assert_int_equal(number(event(json, 0), "seq"), 16);
	assert_int_equal(count(json), 3);
	json_decref(json);
	json = ask("20", NULL);
	assert_int_equal(count(json), 0);
	json_decref(json);
	json = ask("99", NULL); /* of a run before */
	assert_int_equal(count(json), 0);
	assert_int_equal(number(json, "last"), 20);
	json_decref(json);
	refused("x", NULL);
	refused(NULL, "-1");
	refused("", NULL);
}

static void test_texts(void **state)
{
	char longer[400];
	json_t *json;

	(void)state;
	memset(longer, 'a', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = '\0';
	memcpy(longer + EVENT_TEXT_BYTES - 3, "\xe4\xb8\xad", 3); /* is cut in the middle */
	event_note(EVENT_WARN, "test", "<img src=x onerror=alert(1)>", "%s", longer);
	event_note(EVENT_ERROR, "test", "b\xff.", "not \xff text");
	event_note(EVENT_INFO, "test", NULL, "nothing");
	json = ask(NULL, NULL);
	assert_string_equal(text(event(json, 0), "on"), "<img src=x onerror=alert(1)>");
	assert_int_equal(strlen(text(event(json, 0), "text")), EVENT_TEXT_BYTES - 3);
	assert_string_equal(text(event(json, 0), "level"), "warn");
	assert_string_equal(text(event(json, 1), "text"), "not ? text");
	assert_string_equal(text(event(json, 1), "on"), "b?.");
	assert_string_equal(text(event(json, 2), "on"), "");
	json_decref(json);
}

static void test_again(void **state)
{
	json_t *json;

	(void)state;
	for (int i = 0; i < 5; i++) {
		event_note(EVENT_ERROR, "origin", "s3://b/", "refused");
		event_note(EVENT_ERROR, "origin", "s3://c/", "refused");
	}
	json = ask(NULL, NULL);
	assert_int_equal(count(json), 2);
	json_decref(json);
}

/* One process cannot push out what others did: so many a second, and so many in all. */
static void test_flood(void **state)
{
	json_t *json;

	(void)state;
	for (int i = 0; i < 5000; i++)
		event_note(EVENT_INFO, "test", "x", "number %d", i);
	json = ask(NULL, "5000");
	assert_in_range(count(json), 1, EVENTS_MAX);
	assert_in_range(number(json, "last"), 1, 2500);
	json_decref(json);
}

static void test_closed(void **state)
{
	json_t *json;

	(void)state;
	event_note(EVENT_INFO, "test", "x", "nobody listens");
	json = ask(NULL, NULL);
	assert_int_equal(number(json, "last"), 0);
	json_decref(json);
}

static void test_audit(void **state)
{
	const struct admin_caller caller = { 0 };
	json_t *on = json_pack("{s:s}", "name", "imagenet");
	json_t *id = json_pack("{s:i}", "id", 7);
	json_t *json;

	(void)state;
	event_audit(
		NULL, &(struct audit_act){ "dataset.delete", &caller, on, NULL, -EBUSY, "in use" });
	event_audit(NULL, &(struct audit_act){ "preload.cancel", &caller, id, NULL, 0, NULL });
	json = ask(NULL, NULL);
	assert_string_equal(text(event(json, 0), "on"), "imagenet");
	assert_string_equal(text(event(json, 0), "text"), "EBUSY: in use");
	assert_string_equal(text(event(json, 0), "level"), "warn");
	assert_string_equal(text(event(json, 1), "on"), "7");
	assert_string_equal(text(event(json, 1), "text"), "ok");
	json_decref(json);
	json_decref(on);
	json_decref(id);
}

/* ---- workers --------------------------------------------------------------------------------- */

struct told {
	Granary__WorkerReport report;
	Granary__TierReport tier;
	Granary__TierReport *tiers[1];
	uint64_t stalls[5];
};

static void tell_init(struct told *t)
{
	granary__worker_report__init(&t->report);
	granary__tier_report__init(&t->tier);
	t->tiers[0] = &t->tier;
	t->tier.path = (char *)(uintptr_t) "/nvme\xff"; /* read only */
	t->tier.state = (char *)(uintptr_t) "ok";
	t->tier.capacity = 1000;
	t->tier.used = 400;
	memcpy(t->stalls, (uint64_t[]){ 1, 2, 3, 4, 5 },
		sizeof(t->stalls)); /* a later one has more */
	t->report.n_tiers = 1;
	t->report.tiers = t->tiers;
	t->report.n_stalls = 5;
	t->report.stalls = t->stalls;
	t->report.has_run = 1;
	t->report.run = 1;
	t->report.capacity = 1000;
	t->report.version = (char *)(uintptr_t) "1.2.3";
}

static const json_t *worker(struct workers *w, json_t **ret_all)
{
	struct err e = ERR_INIT;

	assert_int_equal(workers_json(w, NULL, ret_all, &e), 0);
	assert_int_equal(json_array_size(*ret_all), 1);
	return json_array_get(*ret_all, 0);
}

/* What a worker reports of itself, in addition to its state in the cluster; its tiers are reported when they change. */
static void test_workers(void **state)
{
	struct membership *m;
	struct workers *w;
	struct history_cluster sum;
	struct store *store;
	struct told told;
	struct err e = ERR_INIT;
	char dir[] = "/var/tmp/granary-ev.XXXXXX";
	char command[64];
	json_t *all;
	json_t *json;
	const json_t *one;

	(void)state;
	assert_non_null(mkdtemp(dir));
	assert_int_equal(store_rocksdb_open(dir, &store, &e), 0);
	assert_int_equal(store->ops->write(store, /* as a version left it that knew of one worker */
				 &(struct store_change){ "worker/0", "00112233445566aa", 16 }, 1),
		0);
	assert_int_equal(membership_new(&(struct membership_config){ .store = store,
						.epoch = 1,
						.out_after_ns = MEMBER_OUT_NS },
				 &m, &e),
		0);
	w = workers_new(m);
	one = worker(w, &all);
	assert_string_equal(text(one, "name"), "worker-0");
	assert_null(json_object_get(one, "tiers"));
	json_decref(all);
	tell_init(&told);
	told.report.id = 7; /* nobody's */
	workers_report(w, &told.report);
	workers_sum(w, &sum);
	assert_int_equal(sum.capacity, 0);
	told.report.id = 0;
	workers_report(w, &told.report);
	one = worker(w, &all);
	assert_string_equal(text(one, "state"), "up");
	assert_string_equal(text(one, "version"), "1.2.3");
	assert_int_equal(number(json_object_get(one, "stalls"), "origin"), 4);
	assert_string_equal(
		text(json_array_get(json_object_get(one, "tiers"), 0), "path"), "/nvme?");
	json_decref(all);
	workers_sum(w, &sum);
	assert_int_equal(sum.used, 400);
	assert_int_equal(sum.capacity, 1000);
	assert_int_equal(sum.stalls[3], 4);
	assert_int_equal(workers_used(w, 0), 400);
	told.tier.state = (char *)(uintptr_t) "out";
	told.tier.reason = (char *)(uintptr_t) "its disk failed";
	workers_report(w, &told.report);
	workers_report(w, &told.report); /* said once */
	json = ask(NULL, NULL);
	assert_int_equal(count(json), 1);
	assert_string_equal(text(event(json, 0), "kind"), "tier");
	assert_string_equal(text(event(json, 0), "text"), "worker-0: out: its disk failed");
	json_decref(json);
	assert_int_equal(workers_json(w, "worker-0", &json, &e), 0);
	assert_int_equal(number(json, "number"), 0);
	json_decref(json);
	assert_int_equal(workers_json(w, "nobody", &json, &e), -ENOENT);
	workers_report(NULL, &told.report);
	workers_free(w);
	workers_free(NULL);
	membership_free(m);
	store_close(store);
	(void)snprintf(command, sizeof(command), "rm -r %s", dir);
	assert_int_equal(system(command), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_numbers, setup, teardown),
		cmocka_unit_test_setup_teardown(test_texts, setup, teardown),
		cmocka_unit_test_setup_teardown(test_again, setup, teardown),
		cmocka_unit_test(test_closed),
		cmocka_unit_test_setup_teardown(test_audit, setup, teardown),
		cmocka_unit_test_setup_teardown(test_workers, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_flood, setup, teardown), /* uses up its second */
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
