/* Values of jobs as YAML: whatever is written is read again as the same. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "ctl/yaml_out.h"
#include "jobs/manifest.h"

#define DOCUMENTS 1000 /* GRANARY_DOCUMENTS: more */
#define VALUES    100

static uint64_t state_of_random = 88172645463325252u;

static uint32_t next(uint32_t below)
{
	state_of_random ^= state_of_random << 13;
	state_of_random ^= state_of_random >> 7;
	state_of_random ^= state_of_random << 17;
	return (uint32_t)(state_of_random >> 11) % below;
}

/* Words that YAML takes for something else, and characters that mean something there. */
static const char *const pieces[] = { "yes", "no", "on", "y", "n", "~", "null", "true", "0123",
	"0x1f", "1e3", "1_000", ".5", "-", "--- ", "...", ": ", " #", "#", "'", "\"", "\\", "\n",
	"\n\n", "\t", " ", "{", "}", "[", "]", ",", "&a", "*a", "!t", "|", ">", "%", "@", "`", "?",
	"<<", "=", "12:30", "2001-01-01", "\x01", "\x7f", "é", "日本", "\xf0\x9f\x98\x80",
	"\xe2\x80\xa8", "\xef\xbb\xbf", "\xc2\x85", "\xc2\xa0", "a", "B", "+1", ".inf", ".nan",
	"$(x)", "${y}", "\r", "\r\n" };

static json_t *random_text(void)
{
	char text[256] = "";
	uint32_t n = next(6);

	for (uint32_t i = 0; i < n; i++)
		(void)strncat(
			text, pieces[next(ARRAY_SIZE(pieces))], sizeof(text) - strlen(text) - 1);
	return json_string(text);
}

static json_t *random_value(unsigned int depth)
{
	uint32_t kind = next(depth > 0 ? 10 : 8);
	json_t *value;

	if (kind == 5)
		return json_integer((json_int_t)next(1u << 31) * (next(2) ? 1 : -1));
	if (kind == 6)
		return json_boolean(next(2));
	if (kind == 7)
		return json_real((double)next(1u << 30) / 64);
	if (kind < 8)
		return random_text();
	value = kind == 8 ? json_object() : json_array();
	for (uint32_t i = next(4); i > 0; i--) {
		json_t *key = random_text();

		if (kind == 8)
			assert_int_equal(json_object_set_new(value, json_string_value(key),
						 random_value(depth - 1)),
				0);
		else
			assert_int_equal(json_array_append_new(value, random_value(depth - 1)), 0);
		json_decref(key);
	}
	return value;
}

static void round_trips(void **state)
{
	static char text[1 << 20];
	const char *more = getenv("GRANARY_DOCUMENTS"); // NOLINT(concurrency-mt-unsafe): one thread
	unsigned long documents = more ? strtoul(more, NULL, 10) : DOCUMENTS;

	(void)state;
	for (unsigned long d = 0; d < documents; d++) {
		json_t *values = json_array();
		json_t *object;
		json_t *again = json_array();
		struct err e = ERR_INIT;
		FILE *out = fmemopen(text, sizeof(text), "w");

		for (unsigned int i = 0; i < VALUES; i++)
			assert_int_equal(json_array_append_new(values, random_value(3)), 0);
		object = json_pack("{s:o}", "values", values);
		assert_int_equal(yaml_out(object, out), 0);
		assert_int_equal(fclose(out), 0);
		if (manifest_read("x", text, strlen(text), again, &e) < 0)
			fail_msg("%s", e.text);
		if (!json_equal(json_array_get(again, 0), object))
			fail_msg("not the same: %s", text);
		json_decref(object);
		json_decref(again);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(round_trips),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
