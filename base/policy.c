/* Names of what policies say. See policy.h. */
#include "base/policy.h"
#include "base/check.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const char *const names[] = { [TIER_EVICT_NEVER] = "never", [TIER_EVICT_LRU] = "lru" };

bool policy_apply(struct tier_policy *policy, const struct policy_change *change)
{
	const struct tier_policy before = *policy;

	if (change->parts & POLICY_QUOTA)
		policy->quota = change->to.quota;
	if (change->parts & POLICY_PRIORITY)
		policy->priority = change->to.priority;
	if (change->parts & POLICY_PIN)
		policy->pin = change->to.pin;
	if (change->parts & POLICY_EVICT)
		policy->evict = change->to.evict;
	if (change->parts & POLICY_BANDWIDTH)
		policy->origin_bandwidth = change->to.origin_bandwidth;
	if (change->parts & POLICY_REQUESTS)
		policy->origin_requests = change->to.origin_requests;
	if (change->parts & POLICY_COPIES)
		policy->copies = change->to.copies;
	if (change->parts & POLICY_DIRECT)
		policy->direct = change->to.direct;
	return before.quota != policy->quota || before.priority != policy->priority ||
	       before.pin != policy->pin || before.evict != policy->evict ||
	       before.origin_bandwidth != policy->origin_bandwidth ||
	       before.origin_requests != policy->origin_requests ||
	       before.copies != policy->copies || before.direct != policy->direct;
}

const char *tier_evict_name(enum tier_evict evict)
{
	ensure((unsigned int)evict < ARRAY_SIZE(names));
	return names[evict];
}

int tier_evict_parse(const char *name, enum tier_evict *ret_evict)
{
	for (unsigned int i = 0; i < ARRAY_SIZE(names); i++) {
		if (strcmp(name, names[i]) == 0) {
			*ret_evict = (enum tier_evict)i;
			return 0;
		}
	}
	return -EINVAL;
}

bool copies_valid(uint64_t copies)
{
	return copies <= COPIES_MAX || copies == COPIES_EVERYWHERE;
}

void copies_name(uint32_t copies, char out[COPIES_NAME_BYTES])
{
	ensure(copies_valid(copies));
	if (copies == COPIES_AUTO)
		(void)snprintf(out, COPIES_NAME_BYTES, "auto"); /* fits, as the others */
	else if (copies == COPIES_SHARED)
		(void)snprintf(out, COPIES_NAME_BYTES, "shared");
	else if (copies == COPIES_EVERYWHERE)
		(void)snprintf(out, COPIES_NAME_BYTES, "everywhere");
	else
		(void)snprintf(out, COPIES_NAME_BYTES, "%u", copies);
}

int copies_parse(const char *text, uint32_t *ret_copies)
{
	if (strcmp(text, "auto") == 0)
		*ret_copies = COPIES_AUTO;
	else if (strcmp(text, "shared") == 0)
		*ret_copies = COPIES_SHARED;
	else if (strcmp(text, "everywhere") == 0)
		*ret_copies = COPIES_EVERYWHERE;
	else if (text[0] >= '1' && text[0] <= '0' + COPIES_MAX && text[1] == '\0')
		*ret_copies = (uint32_t)(text[0] - '0');
	else
		return -EINVAL;
	return 0;
}
