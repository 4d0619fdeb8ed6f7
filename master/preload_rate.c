/* How fast a preload goes. See preload_rate.h. */
#include "master/preload_rate.h"
#include "base/clock.h"

#define LEAST_NS  (200 * CLOCK_MS) /* between reports that are compared */
#define SMOOTH_NS (3 * CLOCK_SECOND)
#define SILENT_NS (10 * CLOCK_SECOND)
#define ETA_MAX   (100.0 * 86400)

void preload_rate_add(struct preload_rate *rate, uint64_t now_ns, uint64_t bytes)
{
	uint64_t passed = now_ns - rate->at_ns;
	double now;

	if (rate->at_ns && bytes >= rate->bytes && passed < LEAST_NS)
		return;
	if (rate->at_ns && bytes >= rate->bytes && passed < SILENT_NS) {
		now = (double)(bytes - rate->bytes) * (double)CLOCK_SECOND / (double)passed;
		if (rate->rate < 0)
			rate->rate = now;
		else
			rate->rate +=
				(now - rate->rate) * (double)passed / (double)(passed + SMOOTH_NS);
	}
	rate->at_ns = now_ns;
	rate->bytes = bytes;
}

uint64_t preload_rate_get(const struct preload_rate *rate, uint64_t now_ns)
{
	if (rate->rate <= 0 || now_ns - rate->at_ns > SILENT_NS)
		return 0;
	return (uint64_t)rate->rate;
}

int64_t preload_rate_eta(const struct preload_rate *rate, uint64_t now_ns, uint64_t bytes)
{
	uint64_t speed = preload_rate_get(rate, now_ns);
	double seconds;

	if (bytes == 0)
		return 0;
	if (speed == 0)
		return -1;
	seconds = (double)bytes / (double)speed;
	return seconds > ETA_MAX ? -1 : (int64_t)(seconds + 0.999);
}
