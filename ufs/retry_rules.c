/* What is asked for again, and when. See retry_internal.h. */
#include "ufs/retry_internal.h"
#include "base/backoff.h"
#include "base/clock.h"

#define RETRY_BASE_NS      (100 * CLOCK_MS)
#define RETRY_CAP_NS       (10 * CLOCK_SECOND)
#define RETRY_AFTER_MAX_NS (60 * CLOCK_SECOND) /* of what an origin asks for by Retry-After */

/* Lost connections and overload: they pass by themselves. */
bool retry_passes(int status)
{
	return status == -EAGAIN || status == -EIO || status == -ECONNREFUSED ||
	       status == -ECONNRESET || status == -EHOSTUNREACH || status == -ENETUNREACH ||
	       status == -ETIMEDOUT || status == -ENOMEM;
}

/* Said of the object: waiting does not mend it. */
bool retry_refuses(int status)
{
	return status == -ESTALE || status == -ENOENT;
}

/* Asking again is no use: not the origin's doing, or for long. */
bool retry_is_final(int status)
{
	return status == -ECANCELED || status == -EINVAL || status == -ENAMETOOLONG ||
	       status == -EPERM; /* an archived object takes hours, and somebody who asks */
}

uint64_t retry_backoff_ns(unsigned int fruitless, uint64_t asked_ns)
{
	return backoff_ns(&(struct backoff){ .min_ns = RETRY_BASE_NS,
		.max_ns = RETRY_CAP_NS,
		.spread = BACKOFF_FULL,
		.doublings = fruitless,
		.asked_ns = min(asked_ns, RETRY_AFTER_MAX_NS) });
}
