/* Keeping to a rate. See preload_pace.h. */
#include "cacheworker/preload_pace.h"
#include "base/check.h"
#include "base/clock.h"

#define FILL_MOST_NS (100 * CLOCK_MS) /* what is in it at most, as time */

static double bytes_in(const struct preload_pace *pace, uint64_t ns)
{
	return (double)pace->rate * (double)ns / (double)CLOCK_SECOND;
}

uint64_t preload_pace_wait(struct preload_pace *pace, uint64_t now_ns)
{
	double most = max(bytes_in(pace, FILL_MOST_NS), 1.0);
	double came;
	uint64_t ns;

	if (!pace->rate)
		return 0;
	came = pace->seen_ns ? bytes_in(pace, now_ns - pace->seen_ns) : most;
	if (came >= 1) { /* else what passed counts the next time */
		pace->bytes = (int64_t)min((double)pace->bytes + came, most);
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
