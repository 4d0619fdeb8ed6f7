/* Names of what a sealed extent may be. See seal.h. */
#include "proto/seal.h"

const char *seal_state_name(enum seal_state state)
{
	static const char *const names[] = {
		[SEAL_ABSENT] = "absent",
		[SEAL_INCOMPLETE] = "incomplete",
		[SEAL_VERIFYING] = "verifying",
		[SEAL_SEALED] = "sealed",
		[SEAL_REFUSED] = "refused",
	};

	return (unsigned int)state < SEAL_STATES ? names[state] : "unknown";
}

const char *seal_why_text(enum seal_why why)
{
	static const char *const texts[] = {
		[SEAL_WHY_NONE] = "",
		[SEAL_WHY_FINDING] = "damage was found; it is repaired and verified again",
		[SEAL_WHY_MOVING] = "its chunks are being moved into the extent",
		[SEAL_WHY_QUIET] = "complete a moment ago",
		[SEAL_WHY_NOT_HELD] = "the whole volume does not fit into this node's tiers",
		[SEAL_WHY_SIZE] = "the worker's extents have another size than the image's",
		[SEAL_WHY_TIER] = "the tier's disk is not in service",
		[SEAL_WHY_TABLE] = "the worker does not have this generation's table",
	};

	return (unsigned int)why < SEAL_WHYS ? texts[why] : "unknown";
}
