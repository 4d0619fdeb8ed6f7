/* Names of what policies say. See policy.h. */
#include "base/policy.h"
#include "base/check.h"

#include <errno.h>
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
	return before.quota != policy->quota || before.priority != policy->priority ||
	       before.pin != policy->pin || before.evict != policy->evict ||
	       before.origin_bandwidth != policy->origin_bandwidth ||
	       before.origin_requests != policy->origin_requests;
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
