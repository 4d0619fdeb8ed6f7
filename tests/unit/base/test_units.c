/* Sizes and durations: what people write, what they must not, and the edges of the range. */
#include "base/units.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct good {
	const char *text;
	uint64_t value;
};

static void sizes_are_read(void **state)
{
	static const struct good good[] = {
		{ "0", 0 },
		{ "none", 0 },
		{ "1048576", MiB },
		{ "4096B", 4096 },
		{ "64k", 64 * KiB },
		{ "64K", 64 * KiB },
		{ "3m", 3 * MiB },
		{ "3g", 3 * GiB },
		{ "3t", 3 * TiB },
		{ "20GiB", 20 * GiB },
		{ "512 MiB", 512 * MiB },
		{ "512mib", 512 * MiB },
		{ "7KiB", 7 * KiB },
		{ "2TiB", 2 * TiB },
		{ "7kB", 7000 },
		{ "7MB", 7000000 },
		{ "7GB", 7000000000 },
		{ "1.5TB", 1500000000000 },
		{ "0.5GiB", 512 * MiB },
		{ "007B", 7 },
		{ "9007199254740993", 9007199254740993 }, /* past what a double holds */
		{ "9223372036854775807", INT64_MAX },
		{ "8388607TiB", 8388607 * TiB },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		uint64_t value = 77;

		if (units_parse_size(good[i].text, &value, NULL) != 0 || value != good[i].value)
			fail_msg("%s is %llu", good[i].text, (unsigned long long)value);
	}
}

/* Ten of what? */
static void small_numbers_need_a_unit(void **state)
{
	static const char *const bad[] = { "1", "10", "500", "1048575", "1.5", "0.001" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct err e = ERR_INIT;
		uint64_t value = 77;
		char advice[64];

		if (units_parse_size(bad[i], &value, &e) != -EINVAL || value != 77)
			fail_msg("%s was taken", bad[i]);
		(void)snprintf(advice, sizeof(advice), "'%s' has no unit: write %sMiB or %sGiB",
			bad[i], bad[i], bad[i]);
		assert_non_null(strstr(e.text, advice));
		e = ERR_INIT;
		if (units_parse_rate(bad[i], &value, &e) != -EINVAL || value != 77)
			fail_msg("%s was taken as a rate", bad[i]);
		assert_non_null(strstr(e.text, "500MB/s"));
	}
}

static void durations_are_read(void **state)
{
	static const struct good good[] = {
		{ "17ns", 17 },
		{ "3us", 3000 },
		{ "250ms", 250000000 },
		{ "30s", 30000000000 },
		{ "1.5s", 1500000000 },
		{ "5m", 300000000000 },
		{ "2h", 7200000000000 },
		{ "1d", 86400000000000 },
		{ "0s", 0 },
		{ "none", 0 },
		{ "106751d", 106751 * 86400000000000ull },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		uint64_t value = 77;

		if (units_parse_duration(good[i].text, &value, NULL) != 0 || value != good[i].value)
			fail_msg("%s is %llu", good[i].text, (unsigned long long)value);
	}
}

static void what_is_no_size_is_named(void **state)
{
	static const char *const bad[] = { "", " 1", "-1", "+1", "GiB", ".5GiB", "1XiB", "1GiBs",
		"1 2", "0x10", "1e3", "inf", "nan", "1,5GiB", "1.2.3", "20s", "1GiB " };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct err e = ERR_INIT;
		uint64_t value = 77;

		if (units_parse_size(bad[i], &value, &e) != -EINVAL || value != 77)
			fail_msg("'%s' was taken", bad[i]);
		assert_int_equal(e.code, -EINVAL);
		assert_non_null(strstr(e.text, bad[i]));
		assert_non_null(strstr(e.text, "GiB"));
	}
}

static void what_is_no_duration_is_named(void **state)
{
	static const char *const bad[] = { "", "30", "-1s", "s", "5 minutes", "1GiB", "0x1s",
		"1y" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct err e = ERR_INIT;
		uint64_t value = 77;

		if (units_parse_duration(bad[i], &value, &e) != -EINVAL || value != 77)
			fail_msg("'%s' was taken", bad[i]);
		assert_non_null(strstr(e.text, bad[i]));
		assert_non_null(strstr(e.text, "30s"));
	}
}

static void what_is_too_much_is_refused(void **state)
{
	static const char *const sizes[] = { "9223372036854775808", "18446744073709551616",
		"99999999999999999999999", "8388608TiB", "8388608.0TiB", "16777217TiB" };
	struct err e = ERR_INIT;
	uint64_t value = 77;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++)
		if (units_parse_size(sizes[i], &value, &e) != -ERANGE)
			fail_msg("%s was taken", sizes[i]);
	assert_non_null(strstr(e.text, "too large"));
	assert_int_equal(units_parse_duration("106752d", &value, &e), -ERANGE);
	assert_non_null(strstr(e.text, "too long"));
	assert_int_equal(value, 77);
}

static void rates_are_read(void **state)
{
	static const struct good good[] = {
		{ "500MB/s", 500000000 },
		{ "1GiB/s", GiB },
		{ "64M", 64 * MiB },
		{ "4Gbit/s", 500000000 },
		{ "100Mbit", 12500000 },
		{ "8 bit/s", 1 },
		{ "1.5MB/s", 1500000 },
	};
	static const char *const bad[] = { "", "/s", "fast", "5/s/s", "MB/s", "-1MB/s", "5MB/m",
		"5 parrots per second and many more of them" };
	uint64_t value = 77;
	struct err e = ERR_INIT;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		if (units_parse_rate(bad[i], &value, &e) != -EINVAL)
			fail_msg("%s was taken", bad[i]);
		assert_non_null(strstr(e.text, "not a rate"));
	}
	assert_int_equal(units_parse_rate("9999999999TiB/s", &value, &e), -ERANGE);
	assert_int_equal(value, 77);
	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		assert_int_equal(units_parse_rate(good[i].text, &value, &e), 0);
		assert_int_equal(value, good[i].value);
	}
}

static void ratios_are_rounded_down(void **state)
{
	char text[16];

	(void)state;
	assert_true(units_ratio(939, 1000) == 0.939);
	assert_true(units_ratio(9999, 10000) == 0.999);
	assert_true(units_ratio(7, 7) == 1);
	assert_true(units_ratio(0, 7) == 0);
	assert_string_equal(units_percent(939, 1000, text, sizeof(text)), "93.9%");
	assert_string_equal(units_percent(99999, 100000, text, sizeof(text)), "99.9%");
	assert_string_equal(units_percent(3, 3, text, sizeof(text)), "100.0%");
	assert_string_equal(units_percent(0, 3, text, sizeof(text)), "0.0%");
}

static void ages_are_printed(void **state)
{
	static const struct {
		const char *text;
		int64_t seconds;
	} cases[] = { { "0s", -5 }, { "0s", 0 }, { "119s", 119 }, { "2m", 120 }, { "119m", 7199 },
		{ "2h", 7200 }, { "47h", 172799 }, { "2d", 172800 }, { "365d", 31536000 } };
	char text[24];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		assert_string_equal(units_age(cases[i].seconds, text, sizeof(text)), cases[i].text);
}

static void durations_are_printed(void **state)
{
	static const struct {
		const char *text;
		uint64_t ns;
	} cases[] = { { "0.0us", 0 }, { "999.0us", 999000 }, { "1.0ms", 1000000 },
		{ "1.5s", 1500000000 }, { "119.0s", 119000000000 }, { "2.0m", 120000000000 },
		{ "119.0m", 7140000000000 }, { "2.5h", 9000000000000 } };
	char text[24];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		assert_string_equal(units_duration(cases[i].ns, text, sizeof(text)), cases[i].text);
}

static void sizes_are_printed(void **state)
{
	static const struct good good[] = {
		{ "0B", 0 },
		{ "1023B", 1023 },
		{ "1.0KiB", 1024 },
		{ "1.4GiB", 1503238553 },
		{ "99.9KiB", 102298 },
		{ "100KiB", 102400 },
		{ "1023KiB", 1023 * KiB + 511 },
		{ "1.0MiB", 1023 * KiB + 600 }, /* rounds up: not 1024KiB */
		{ "512MiB", 512 * MiB },
		{ "2.0TiB", 2 * TiB },
		{ "1.0PiB", 1024 * TiB },
		{ "16.0EiB", UINT64_MAX },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		char out[16];

		assert_string_equal(units_size(good[i].value, out, sizeof(out)), good[i].text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sizes_are_read),
		cmocka_unit_test(small_numbers_need_a_unit),
		cmocka_unit_test(durations_are_read),
		cmocka_unit_test(what_is_no_size_is_named),
		cmocka_unit_test(what_is_no_duration_is_named),
		cmocka_unit_test(what_is_too_much_is_refused),
		cmocka_unit_test(rates_are_read),
		cmocka_unit_test(ages_are_printed),
		cmocka_unit_test(durations_are_printed),
		cmocka_unit_test(sizes_are_printed),
		cmocka_unit_test(ratios_are_rounded_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
