/* Time: monotonic nanoseconds for deadlines and rates, wall time for people and for origins. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define CLOCK_SECOND 1000000000ull
#define CLOCK_MS     1000000ull

uint64_t clock_mono_ns(void);
uint64_t clock_wall_ns(void); /* since 1970-01-01 UTC */

/* Sleeps the calling thread; never on a loop. */
void clock_sleep_ns(uint64_t ns);

/* "2026-01-31T10:00:00.123Z"; size >= 32. */
void clock_wall_text(char *out, size_t size);

/* Of seconds since 1970: "2026-01-31T10:00:00Z", or words when the year has more than four digits. Returns `out`. */
#define CLOCK_TEXT_MAX 32u
const char *clock_text(uint64_t seconds, char out[CLOCK_TEXT_MAX]);

/* RFC 1123 ("Wed, 21 Oct 2015 07:28:00 GMT") or ISO 8601 ("2015-10-21T07:28:00.000Z") to seconds
 * since 1970 UTC; -EINVAL when it is neither, of another zone or of no such day. */
int clock_parse(const char *s, int64_t *ret_seconds);
