/* Monotonic and wall time. See clock.h. */
#include "base/clock.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define YEAR_9999_ENDS 253402300799ull /* its last second, since 1970 */

static uint64_t read_ns(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return (uint64_t)ts.tv_sec * CLOCK_SECOND + (uint64_t)ts.tv_nsec;
}

uint64_t clock_mono_ns(void)
{
	return read_ns(CLOCK_MONOTONIC);
}

uint64_t clock_wall_ns(void)
{
	return read_ns(CLOCK_REALTIME);
}

void clock_sleep_ns(uint64_t ns)
{
	struct timespec ts = { .tv_sec = (time_t)(ns / CLOCK_SECOND),
		.tv_nsec = (long)(ns % CLOCK_SECOND) };

	while (nanosleep(&ts, &ts) != 0 && errno == EINTR)
		;
}

void clock_wall_text(char *out, size_t size)
{
	uint64_t now = clock_wall_ns();
	time_t seconds = (time_t)(now / CLOCK_SECOND);
	unsigned int ms = (unsigned int)(now % CLOCK_SECOND / CLOCK_MS);
	struct tm tm;
	size_t n;

	gmtime_r(&seconds, &tm);
	n = strftime(out, size, "%Y-%m-%dT%H:%M:%S", &tm);
	(void)snprintf(out + n, size - n, ".%03uZ", ms); /* fits by contract */
}

const char *clock_text(uint64_t seconds, char out[CLOCK_TEXT_MAX])
{
	time_t at = (time_t)seconds;
	struct tm tm;

	if (seconds > YEAR_9999_ENDS || !gmtime_r(&at, &tm) ||
		strftime(out, CLOCK_TEXT_MAX, "%Y-%m-%dT%H:%M:%SZ", &tm) == 0)
		(void)snprintf(out, CLOCK_TEXT_MAX, "after the year 9999"); /* fits */
	return out;
}

/* What may follow the seconds of ISO 8601: a fraction, then nothing, Z or +00:00: always UTC. */
static bool iso_tail(const char *s)
{
	if (*s == '.') {
		size_t digits = strspn(s + 1, "0123456789");

		if (digits == 0)
			return false;
		s += 1 + digits;
	}
	return *s == '\0' || strcmp(s, "Z") == 0 || strcmp(s, "+00:00") == 0;
}

/* `n` digits; false when one is none. */
static bool take_digits(const char *s, unsigned int n, int *ret_value)
{
	int value = 0;

	for (unsigned int i = 0; i < n; i++) {
		if (s[i] < '0' || s[i] > '9')
			return false;
		value = value * 10 + (s[i] - '0');
	}
	*ret_value = value;
	return true;
}

/* "2015-10-21T07:28:00", what a listing holds once per object: several times faster than strptime.
 * Returns what follows it, NULL when it is written in another way. */
static const char *take_iso(const char *s, struct tm *tm)
{
	if (strlen(s) < 19 || s[4] != '-' || s[7] != '-' || s[10] != 'T' || s[13] != ':' ||
		s[16] != ':' || !take_digits(s, 4, &tm->tm_year) ||
		!take_digits(s + 5, 2, &tm->tm_mon) || !take_digits(s + 8, 2, &tm->tm_mday) ||
		!take_digits(s + 11, 2, &tm->tm_hour) || !take_digits(s + 14, 2, &tm->tm_min) ||
		!take_digits(s + 17, 2, &tm->tm_sec))
		return NULL;
	tm->tm_year -= 1900;
	tm->tm_mon -= 1;
	if (tm->tm_mon < 0 || tm->tm_mon > 11 || tm->tm_mday < 1 || tm->tm_mday > 31 ||
		tm->tm_hour > 23 || tm->tm_min > 59 || tm->tm_sec > 60)
		return NULL;
	return s + 19;
}

int clock_parse(const char *s, int64_t *ret_seconds)
{
	struct tm tm = { 0 };
	const char *iso = take_iso(s, &tm);
	const char *end = iso ? NULL : strptime(s, "%a, %d %b %Y %H:%M:%S GMT", &tm);
	int day;
	bool leap;
	time_t t;

	if (end && *end != '\0')
		return -EINVAL;
	if (!end && !iso) {
		tm = (struct tm){ 0 };
		iso = strptime(s, "%Y-%m-%dT%H:%M:%S", &tm);
	}
	if (!end && (!iso || !iso_tail(iso)))
		return -EINVAL;
	day = tm.tm_mday;
	leap = tm.tm_sec == 60; /* may end the day */
	t = timegm(&tm);
	if (tm.tm_mday != day && !leap) /* 31 February */
		return -EINVAL;
	*ret_seconds = (int64_t)t;
	return 0;
}
