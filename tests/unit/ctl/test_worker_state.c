/* What people are told of a worker's state. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "ctl/worker_command.h"

static void check(const char *state, bool heard, const char *second_tier, const char *wanted)
{
	json_t *worker = json_pack("{s:s, s:[{s:s}, {s:s}]}", "state", state, "tiers", "state",
		"ok", "state", second_tier);

	assert_non_null(worker);
	if (heard)
		assert_int_equal(json_object_set_new(worker, "last_seen_s", json_integer(0)), 0);
	assert_string_equal(worker_state(worker), wanted);
	json_decref(worker);
}

static void test_words(void **state)
{
	(void)state;
	check("up", true, "ok", "up");
	check("up", true, "suspect", "suspect");
	check("up", true, "stalled", "suspect");
	check("up", true, "out", "suspect");
	check("up", false, "ok", "unknown"); /* a master was restored */
	check("up", false, "suspect", "unknown");
	check("down", true, "suspect", "down");
	check("down", false, "ok", "down");
	check("out", false, "ok", "out");
	check("draining", true, "out", "draining");
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_words) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
