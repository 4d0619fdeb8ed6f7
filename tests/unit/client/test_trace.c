/* What is said of a read that waited. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "client/client_trace.h"

static void test_nothing_waited_for(void **state)
{
	struct client_trace *trace = NULL;
	char text[CLIENT_TRACE_TEXT];

	(void)state;
	client_trace_note(&trace, "w1", 0, CLIENT_TRACE_LEAST - 1);
	assert_null(trace); /* no memory was taken */
	assert_string_equal(client_trace_text(trace, text), "");
}

static void test_in_order_and_added_up(void **state)
{
	struct client_trace *trace = NULL;
	char text[CLIENT_TRACE_TEXT];

	(void)state;
	client_trace_note(&trace, "w1", -ECANCELED, 2310 * CLOCK_MS);
	client_trace_note(&trace, "pause", 0, 100 * CLOCK_MS);
	client_trace_note(&trace, "w2", -ECANCELED, 70 * CLOCK_MS);
	client_trace_note(&trace, "pause", 0, 300 * CLOCK_MS);
	client_trace_note(&trace, "w1", 0, 50 * CLOCK_MS);
	assert_string_equal(client_trace_text(trace, text),
		"w1 2.31s ECANCELED, pause 0.40s 2 times, w2 0.07s ECANCELED, w1 0.05s");
	client_trace_free(trace);
}

static void test_bounded(void **state)
{
	struct client_trace *trace = NULL;
	char text[CLIENT_TRACE_TEXT];
	char name[200];

	(void)state;
	for (int i = 0; i < 20; i++) {
		snprintf(name, sizeof(name), "worker-%d", i);
		client_trace_note(&trace, name, 0, CLOCK_SECOND);
	}
	assert_non_null(
		strstr(client_trace_text(trace, text), "worker-6 1.00s, others 13.00s 13 times"));
	client_trace_free(trace);
	trace = NULL;
	for (int i = 0; i < 20; i++) {
		memset(name, 'a' + i, sizeof(name) - 1);
		name[sizeof(name) - 1] = '\0';
		client_trace_note(&trace, name, 0, CLOCK_SECOND);
		client_trace_note(&trace, name, 0, CLOCK_SECOND);
	}
	assert_true(strlen(client_trace_text(trace, text)) < CLIENT_TRACE_TEXT);
	assert_non_null(strstr(text, "aaa 2.00s 2 times, bbb"));
	client_trace_free(trace);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nothing_waited_for),
		cmocka_unit_test(test_in_order_and_added_up),
		cmocka_unit_test(test_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
