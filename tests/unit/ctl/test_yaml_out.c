/* JSON as YAML: what a reader takes for what it was. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "admin/admin.h"
#include "ctl/yaml_out.h"

static char text[4096];

static int write_yaml(json_t *json)
{
	FILE *out = fmemopen(text, sizeof(text), "w");
	int r;

	assert_non_null(out);
	memset(text, 0, sizeof(text));
	r = yaml_out(json, out);
	assert_int_equal(fclose(out), 0);
	json_decref(json);
	return r;
}

static void values(void **state)
{
	(void)state;
	assert_int_equal(write_yaml(json_pack("{s:s, s:i, s:f, s:b, s:n, s:s, s:[i,s], s:{}, s:[]}",
				 "name", "dogs", "files", 12, "share", 0.5, "pin", 1, "quota",
				 "word", "yes", "list", 1, "two", "none", "empty")),
		0);
	assert_non_null(strstr(text, "name: dogs\n"));
	assert_non_null(strstr(text, "files: 12\n"));
	assert_non_null(strstr(text, "share: 0.5\n"));
	assert_non_null(strstr(text, "pin: true\n"));
	assert_non_null(strstr(text, "quota: null\n"));
	assert_null(strstr(text, "word: yes\n")); /* it would be a truth */
	assert_non_null(strstr(text, "none: {}\n"));
	assert_non_null(strstr(text, "empty: []\n"));
}

static void too_deep(void **state)
{
	json_t *json = json_array();

	(void)state;
	for (unsigned int i = 0; i < 100; i++) {
		json_t *outer = json_array();

		assert_int_equal(json_array_append_new(outer, json), 0);
		json = outer;
	}
	assert_int_equal(write_yaml(json), -E2BIG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(values),
		cmocka_unit_test(too_deep),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
