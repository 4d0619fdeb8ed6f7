/* Time: the two spellings of origins, what is neither, and that clocks go forward. */
#include "base/clock.h"
#include "base/check.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>

static void both_spellings_are_read(void **state)
{
	static const struct {
		const char *text;
		int64_t seconds;
	} good[] = {
		{ "Wed, 21 Oct 2015 07:28:00 GMT", 1445412480 },
		{ "2015-10-21T07:28:00.000Z", 1445412480 },
		{ "2015-10-21T07:28:00Z", 1445412480 },
		{ "2015-10-21T07:28:00", 1445412480 },
		{ "2015-10-21T07:28:00.123456789Z", 1445412480 },
		{ "2015-10-21T07:28:00+00:00", 1445412480 },
		{ "Thu, 01 Jan 1970 00:00:00 GMT", 0 },
		{ "1969-12-31T23:59:59Z", -1 },
		{ "2024-02-29T00:00:00Z", 1709164800 },
		{ "2016-12-31T23:59:60Z", 1483228800 },
		{ "2106-02-07T06:28:16Z", 4294967296 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		int64_t seconds = 77;

		if (clock_parse(good[i].text, &seconds) != 0 || seconds != good[i].seconds)
			fail_msg("%s is %lld", good[i].text, (long long)seconds);
	}
}

static void what_is_neither_is_refused(void **state)
{
	static const char *const bad[] = { "", "yesterday", "1445412480", "2015-10-21",
		"2015-10-21 07:28:00", "2015-10-21T07:28:00+02:00", "2015-10-21T07:28:00.Z",
		"2015-10-21T07:28:00Zjunk", "2015-13-01T00:00:00Z", "2015-10-21T24:00:00Z",
		"2015-02-31T00:00:00Z", "2015-02-29T10:10:10Z", "Wed, 21 Oct 2015 07:28:00 CET",
		"Wed, 21 Oct 2015 07:28:00 GMT+2", "Wed, 21 Oct 2015 07:28:00",
		"Wed, 21 Okt 2015 07:28:00 GMT", "Sat, 31 Feb 2015 07:28:00 GMT" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		int64_t seconds = 77;

		if (clock_parse(bad[i], &seconds) != -EINVAL || seconds != 77)
			fail_msg("'%s' was taken", bad[i]);
	}
}

static void the_wall_is_written_as_it_is_read(void **state)
{
	char text[32];
	int64_t before = (int64_t)(clock_wall_ns() / CLOCK_SECOND);
	int64_t seconds;

	(void)state;
	clock_wall_text(text, sizeof(text));
	assert_int_equal(strlen(text), strlen("2026-01-31T10:00:00.123Z"));
	assert_int_equal(clock_parse(text, &seconds), 0);
	assert_true(seconds >= before);
	assert_true(seconds <= (int64_t)(clock_wall_ns() / CLOCK_SECOND));
}

static void times_are_written(void **state)
{
	static const struct {
		uint64_t seconds;
		const char *text;
	} cases[] = {
		{ 0, "1970-01-01T00:00:00Z" },
		{ 1445412480, "2015-10-21T07:28:00Z" },
		{ 253402300799, "9999-12-31T23:59:59Z" },
		{ 253402300800, "after the year 9999" },
		{ (uint64_t)1 << 62, "after the year 9999" },
		{ UINT64_MAX, "after the year 9999" },
	};
	char text[CLOCK_TEXT_MAX];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		assert_string_equal(clock_text(cases[i].seconds, text), cases[i].text);
}

static void sleeping_takes_its_time(void **state)
{
	uint64_t before = clock_mono_ns();

	(void)state;
	clock_sleep_ns(20 * CLOCK_MS); /* what is tested */
	assert_true(clock_mono_ns() - before >= 20 * CLOCK_MS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(both_spellings_are_read),
		cmocka_unit_test(what_is_neither_is_refused),
		cmocka_unit_test(the_wall_is_written_as_it_is_read),
		cmocka_unit_test(times_are_written),
		cmocka_unit_test(sleeping_takes_its_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
