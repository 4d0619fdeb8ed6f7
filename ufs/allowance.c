/* Bounds on bytes and requests a second. See allowance.h. */
#include "ufs/allowance.h"
#include "base/check.h"
#include "base/clock.h"

#include <math.h>

static void fill(struct allowance_bucket *b, double seconds)
{
	b->tokens = min(b->rate * ALLOWANCE_BURST, b->tokens + b->rate * seconds);
}

static bool has(const struct allowance_bucket *b)
{
	return b->rate <= 0 || b->tokens > 0;
}

static void take(struct allowance_bucket *b, double tokens)
{
	if (b->rate > 0)
		b->tokens -= tokens;
}

/* Until `b` has something: a nanosecond after all is paid, and never so long that it overflows. */
static uint64_t wait_ns(const struct allowance_bucket *b)
{
	double ns;

	if (has(b))
		return 0;
	ns = ceil(-b->tokens / b->rate * (double)CLOCK_SECOND) + 1;
	return ns < (double)(UINT64_MAX / 2) ? (uint64_t)ns : UINT64_MAX / 2;
}

static void set_rate(struct allowance_bucket *b, uint64_t rate)
{
	double old = b->rate;

	b->rate = (double)rate;
	if (rate == 0)
		b->tokens = 0;
	else if (b->tokens < 0 && b->rate < old)
		b->tokens *= b->rate / old;
	b->tokens = min(b->tokens, b->rate * ALLOWANCE_BURST);
}

void allowance_init(struct allowance *a, uint64_t now_ns)
{
	*a = (struct allowance){ .filled_ns = now_ns };
}

void allowance_fill(struct allowance *a, uint64_t now_ns)
{
	double seconds = (double)(now_ns - a->filled_ns) / (double)CLOCK_SECOND;

	fill(&a->bytes, seconds);
	fill(&a->requests, seconds);
	a->filled_ns = now_ns;
}

void allowance_set(
	struct allowance *a, uint64_t now_ns, uint64_t bytes_per_s, uint64_t requests_per_s)
{
	allowance_fill(a, now_ns);
	set_rate(&a->bytes, bytes_per_s);
	set_rate(&a->requests, requests_per_s);
}

bool allowance_has_get(const struct allowance *a)
{
	return has(&a->bytes) && has(&a->requests);
}

bool allowance_has_list(const struct allowance *a)
{
	return has(&a->requests);
}

uint64_t allowance_get_ns(const struct allowance *a)
{
	return max(wait_ns(&a->bytes), wait_ns(&a->requests));
}

uint64_t allowance_list_ns(const struct allowance *a)
{
	return wait_ns(&a->requests);
}

void allowance_take(struct allowance *a, uint64_t bytes)
{
	take(&a->bytes, (double)bytes);
	take(&a->requests, 1);
}
