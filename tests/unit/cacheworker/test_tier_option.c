/* --tier: every part of it, and every way to be wrong. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "base/units.h"
#include "cacheworker/tier_option.h"

static struct tier_options options;

static int parse(uint64_t capacity, const char *first, const char *second, struct err *e)
{
	struct option_list given = { .values = { first, second }, .n = second ? 2 : 1 };

	return tier_options_parse(&options, &given, capacity, true, "/state", e);
}

static void test_good(void **state)
{
	struct err e = ERR_INIT;
	uint64_t rest;

	(void)state;
	assert_int_equal(parse(3 * GiB, "/cache", NULL, &e), 0);
	assert_string_equal(options.configs[0].path, "/cache");
	assert_int_equal(options.configs[0].capacity, 3 * GiB);
	assert_int_equal(options.configs[0].kind, TIER_KIND_ASK);
	assert_true(options.configs[0].create);
	assert_string_equal(options.configs[0].remembered, "/state");
	assert_int_equal(options.ram, 0);
	assert_int_equal(tier_options_memory(&options, 64 * MiB, 32 * MiB, &rest, &e), 0);
	assert_int_equal(rest, 64 * MiB);

	assert_int_equal(parse(GiB, "/a", "/b", &e), 0);
	assert_int_equal(options.configs[0].capacity, GiB);
	assert_int_equal(options.configs[1].capacity, 0);

	assert_int_equal(parse(0, "/ram,capacity=1GiB,kind=ram", "/d,kind=hdd", &e), 0);
	assert_int_equal(options.configs[0].kind, TIER_RAM);
	assert_int_equal(options.configs[0].capacity, GiB);
	assert_int_equal(options.configs[1].kind, TIER_HDD);
	assert_int_equal(options.configs[1].capacity, 0);
	assert_int_equal(options.ram, GiB);
	assert_string_equal(tier_options_home(&options), "/d");
	assert_int_equal(tier_options_memory(&options, GiB + 32 * MiB, 32 * MiB, &rest, &e), 0);
	assert_int_equal(rest, 32 * MiB);
	assert_int_equal(tier_options_memory(&options, GiB + MiB, 32 * MiB, &rest, &e), -EINVAL);
	assert_non_null(strstr(e.text, "1.0GiB"));
}

static void refused(uint64_t capacity, const char *first, const char *second, const char *text)
{
	struct err e = ERR_INIT;

	assert_int_equal(parse(capacity, first, second, &e), -EINVAL);
	if (!strstr(e.text, text))
		fail_msg("%s", e.text);
}

static void test_bad(void **state)
{
	char *path = test_calloc(1, PATH_MAX + 8);

	(void)state;
	memset(path, 'x', PATH_MAX + 4);
	refused(0, path, NULL, "too long");
	test_free(path);
	refused(0, ",kind=ssd", NULL, "no directory");
	refused(0, "/a,kind=tape", NULL, "auto|ram|nvme|ssd|hdd");
	refused(0, "/a,size=1GiB", NULL, "DIR[,kind=KIND][,capacity=SIZE]");
	refused(0, "/a,capacity=much", NULL, "--tier /a,capacity=much");
	refused(0, "/a,kind=ram", NULL, "needs a capacity");
	refused(0, "/a", "/a,kind=ssd", "given twice");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),
		cmocka_unit_test(test_bad),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
