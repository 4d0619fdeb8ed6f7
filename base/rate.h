/*
 * A rate limiter: a token bucket that fills with time and that may be overdrawn. A request may begin while the bucket
 * is not empty, and may take more tokens than it has; later requests wait until the debt is paid. So the
 * rate holds over any few seconds, whatever the size of the requests.
 *
 * A value without a lock or a clock: the owner's lock covers it, and `now_ns` is the caller's monotonic time.
 */
#pragma once

#include <stdint.h>

struct rate {
	double per_s;   /* tokens a second; 0: no bound */
	double burst_s; /* capacity, in seconds of per_s */
	double tokens;  /* below 0: owed */
	uint64_t at_ns; /* when tokens were last added */
};

/* A full bucket. A zeroed one has no bound. */
#define RATE_INIT(per_s_, burst_s_) \
	((struct rate){ .per_s = (per_s_), .burst_s = (burst_s_), .tokens = (per_s_) * (burst_s_) })

/* Another rate, 0: no bound. A debt is paid in the time that it would have taken, or sooner; without a bound it is
 * forgiven. A bound where there was none begins with an empty bucket. */
void rate_set(struct rate *r, uint64_t now_ns, double per_s);

/* What the bucket has; INFINITY without a bound. */
double rate_left(struct rate *r, uint64_t now_ns);
/* Time until the bucket is not empty, in ns; 0 if it is not. At most UINT64_MAX / 2. */
uint64_t rate_wait_ns(struct rate *r, uint64_t now_ns);
void rate_take(struct rate *r, double tokens);
