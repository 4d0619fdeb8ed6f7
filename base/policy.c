/* Names of what policies say. See policy.h. */
#include "base/policy.h"
#include "base/check.h"

#include <errno.h>
#include <string.h>

static const char *const names[] = { [TIER_EVICT_NEVER] = "never", [TIER_EVICT_LRU] = "lru" };

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
