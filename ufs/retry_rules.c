/* What is asked for again, and when. See retry_internal.h. */
#include "ufs/retry_internal.h"
#include "base/clock.h"
#include "base/hash.h"

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

/* Full jitter: anything up to the cap, so that many who failed together do not come back
 * together. */
uint64_t retry_backoff_ns(unsigned int fruitless, uint64_t asked_ns)
{
	static _Atomic uint64_t calls;
	uint64_t seed[2] = { clock_mono_ns(), atomic_fetch_add(&calls, 1) };
	unsigned int doublings = min(fruitless, 10u);
	uint64_t cap = min(RETRY_CAP_NS, RETRY_BASE_NS << doublings);

	return max(hash_xxh3(seed, sizeof(seed), 0) % cap, min(asked_ns, RETRY_AFTER_MAX_NS));
}
