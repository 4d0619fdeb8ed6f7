/* Waits between attempts. See backoff.h. */
#include "base/backoff.h"
#include "base/check.h"
#include "base/hash.h"

static uint64_t kernel_random(void)
{
	uint64_t number;

	hash_random(&number, sizeof(number));
	return number;
}

static uint64_t draw(uint64_t ns, struct backoff_spread spread, uint64_t (*random)(void))
{
	uint64_t from = ns / 100 * spread.from + ns % 100 * spread.from / 100;
	uint64_t to = ns / 100 * spread.to + ns % 100 * spread.to / 100;

	ensure(spread.from <= spread.to);
	return spread.to ? from + random() % (to - from + 1) : ns;
}

uint64_t backoff_spread(uint64_t ns, struct backoff_spread spread)
{
	return draw(ns, spread, kernel_random);
}

uint64_t backoff_ns(const struct backoff *b)
{
	uint64_t ns = min(b->min_ns, b->max_ns);

	ensure(b->min_ns > 0 && b->max_ns <= BACKOFF_MAX_NS);
	for (uint32_t i = 0; i < b->doublings && ns < b->max_ns; i++)
		ns = ns > b->max_ns / 2 ? b->max_ns : ns * 2;
	return max(draw(ns, b->spread, b->random ? b->random : kernel_random), b->asked_ns);
}

uint64_t backoff_next(struct backoff *b)
{
	uint64_t ns = backoff_ns(b);

	if (b->doublings < UINT32_MAX)
		b->doublings++;
	return ns;
}
