/* A worker whose tiers cannot be opened. See tierless.h. */
#include "cacheworker/tierless.h"
#include "base/clock.h"
#include "base/log.h"

#include <signal.h>
#include <unistd.h>

#define CHECK_EVERY (2 * CLOCK_SECOND)

bool tierless_may(int status)
{
	return status < 0 && status != -EBUSY && status != -EINVAL && status != -ENOMEM &&
	       status != -EAGAIN && status != -EPROTONOSUPPORT;
}

static uint64_t await_tiers(void *arg)
{
	struct worker *w = arg;
	struct tier_set *set = NULL;

	if (tier_set_open(w->config->tiers, w->config->n_tiers, &set, NULL) < 0)
		return CHECK_EVERY;
	tier_set_free(set);
	log_info("tier can be used again", "path=\"%s\" next=\"ends, to be started with it\"",
		w->config->tier);
	(void)kill(getpid(), SIGTERM); /* this process: as when an operator ends it */
	return PERIODIC_IDLE;
}

void tierless_start(struct worker *w)
{
	w->tierless = (struct periodic_work){ .name = "tierless", .run = await_tiers, .arg = w };
	periodic_start(w->work, &w->tierless, CHECK_EVERY);
}

void tierless_stop(struct worker *w)
{
	periodic_stop(&w->tierless);
}
