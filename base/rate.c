/* A token bucket. See rate.h. */
#include "base/rate.h"
#include "base/check.h"
#include "base/clock.h"

#include <math.h>

/* Callers that share a bucket may have read the clock before they took its lock: time that goes back adds nothing. */
static void fill(struct rate *r, uint64_t now_ns)
{
	if (now_ns <= r->at_ns)
		return;
	r->tokens += r->per_s * (double)(now_ns - r->at_ns) / (double)CLOCK_SECOND;
	r->tokens = min(r->tokens, r->per_s * r->burst_s);
	r->at_ns = now_ns;
}

void rate_set(struct rate *r, uint64_t now_ns, double per_s)
{
	double old = r->per_s;

	fill(r, now_ns);
	r->per_s = per_s;
	if (per_s <= 0)
		r->tokens = 0;
	else if (r->tokens < 0 && per_s < old)
		r->tokens *= per_s / old;
	r->tokens = min(r->tokens, per_s * r->burst_s);
}

double rate_left(struct rate *r, uint64_t now_ns)
{
	fill(r, now_ns);
	return r->per_s > 0 ? r->tokens : INFINITY;
}

uint64_t rate_wait_ns(struct rate *r, uint64_t now_ns)
{
	double ns;

	if (rate_left(r, now_ns) > 0)
		return 0;
	ns = ceil(-r->tokens / r->per_s * (double)CLOCK_SECOND) + 1;
	return ns < (double)(UINT64_MAX / 2) ? (uint64_t)ns : UINT64_MAX / 2;
}

void rate_take(struct rate *r, double tokens)
{
	if (r->per_s > 0)
		r->tokens -= tokens;
}
