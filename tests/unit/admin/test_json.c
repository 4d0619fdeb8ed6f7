/* Values as answers show them: text, numbers and times. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "admin/admin.h"
#include "base/cleanup.h"

/* What an origin says need be no UTF-8; what people are told is. */
static void test_string(void **state)
{
	static const char *const texts[][2] = { { "", "" }, { "plain", "plain" },
		{ "gr\xc3\xbc\xc3\x9f", "gr\xc3\xbc\xc3\x9f" }, { "gr\xc3\xbc\xc3", "gr???" },
		{ "\xff/a", "?/a" } };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		json_t *json = admin_json_string(texts[i][0]);

		assert_string_equal(json_string_value(json), texts[i][1]);
		json_decref(json);
	}
}

/* Ratios and times have the digits that a person would write. */
static void test_numbers(void **state)
{
	json_t *json = json_pack("[f, f, f, o, o]", 0.939, 1.0, 0.1 + 0.2,
		admin_json_time(1769860800123000000), admin_json_time(-1500000000));
	_cleanup_free_ char *text = admin_json_text(json, JSON_COMPACT);

	(void)state;
	assert_string_equal(text, "[0.939,1.0,0.3,1769860800.123,-1.5]");
	json_decref(json);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_string),
		cmocka_unit_test(test_numbers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
