/* Names of what ends a lane. See lane.h. */
#include "net/lane.h"
#include "base/check.h"

static const struct {
	const char *name;
	const char *text;
} causes[] = { [LANE_WELL] = { "WELL", "" },
#define LANE_CAUSE_ROW(id, what) [LANE_##id##_CAUSE] = { #id, what },
	LANE_CAUSES(LANE_CAUSE_ROW)
#undef LANE_CAUSE_ROW
};

const char *lane_cause_name(enum lane_cause cause)
{
	ensure((unsigned int)cause < LANE_N_CAUSES);
	return causes[cause].name;
}

const char *lane_cause_text(enum lane_cause cause)
{
	ensure((unsigned int)cause < LANE_N_CAUSES);
	return causes[cause].text;
}

bool lane_end_valid(const struct lane_end *end)
{
	return end->mtu >= 1 && end->mtu <= 5 && end->qpn >= 2 && end->qpn <= 0xffffff &&
	       end->psn <= 0xffffff;
}
