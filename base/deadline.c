/* See deadline.h. */
#include "base/deadline.h"

#include <errno.h>

uint64_t deadline_left(uint64_t deadline_ns, uint64_t now_ns)
{
	if (deadline_ns == 0)
		return UINT64_MAX;
	return deadline_ns > now_ns ? deadline_ns - now_ns : 0;
}

uint64_t deadline_earlier(uint64_t a_ns, uint64_t b_ns)
{
	if (a_ns == 0 || b_ns == 0)
		return max(a_ns, b_ns);
	return min(a_ns, b_ns);
}

uint64_t deadline_later(uint64_t a_ns, uint64_t b_ns)
{
	return a_ns == 0 || b_ns == 0 ? 0 : max(a_ns, b_ns);
}

uint64_t deadline_share(uint64_t deadline_ns, uint64_t now_ns, uint32_t parts, uint64_t least_ns)
{
	uint64_t left = deadline_left(deadline_ns, now_ns);

	return deadline_ns ? now_ns + min(max(left / parts, least_ns), left) : 0;
}

int deadline_to_ms(uint64_t deadline_ns, uint64_t now_ns, uint32_t *ret_ms)
{
	uint64_t left = deadline_left(deadline_ns, now_ns);

	if (left < CLOCK_MS)
		return -ETIMEDOUT;
	*ret_ms = deadline_ns ? (uint32_t)min(left / CLOCK_MS, (uint64_t)UINT32_MAX) : 0;
	return 0;
}

uint64_t deadline_from_ms(uint32_t left_ms, uint64_t now_ns)
{
	return left_ms ? now_ns + left_ms * CLOCK_MS : 0;
}
