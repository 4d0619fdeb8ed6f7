/* Keeping to a rate. See preload_pace.h. */
#include "cacheworker/preload_pace.h"
#include "base/check.h"
#include "base/clock.h"
#include "proto/preload.h"

#define FILL_MOST_NS (100 * CLOCK_MS) /* what is in it at most, as time */
#define US           1000u

/* Bytes that come in that time, which is at most a second; without overflow up to PRELOAD_RATE_MAX.
 */
static int64_t bytes_in(const struct preload_pace *pace, uint64_t ns)
{
	return (int64_t)(pace->rate * (ns / US) / (CLOCK_SECOND / US));
}

uint64_t preload_pace_wait(struct preload_pace *pace, uint64_t now_ns)
{
	uint64_t passed = pace->seen_ns ? min(now_ns - pace->seen_ns, CLOCK_SECOND) : FILL_MOST_NS;
	uint64_t ns;

	if (!pace->rate)
		return 0;
	if (bytes_in(pace, passed) > 0 || !pace->seen_ns) {
		pace->bytes = min(pace->bytes + bytes_in(pace, passed),
			max(bytes_in(pace, FILL_MOST_NS), (int64_t)1));
		pace->seen_ns = now_ns;
	}
	if (pace->bytes > 0)
		return 0;
	ns = (uint64_t)((double)(1 - pace->bytes) * (double)CLOCK_SECOND / (double)pace->rate);
	return max(ns, (uint64_t)CLOCK_MS);
}

void preload_pace_take(struct preload_pace *pace, uint64_t bytes)
{
	if (pace->rate)
		pace->bytes -= (int64_t)bytes;
}
