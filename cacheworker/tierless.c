/* A worker whose tiers cannot be opened. See tierless.h. */
#include "cacheworker/tierless.h"
#include "base/clock.h"
#include "base/log.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#define LOOK_EVERY_S 2

bool tierless_may(int status)
{
	return status < 0 && status != -EBUSY && status != -EINVAL && status != -ENOMEM &&
	       status != -EAGAIN && status != -EPROTONOSUPPORT;
}

/* False: told to stop. */
static bool sleep_a_while(struct tierless *t)
{
	struct timespec until;
	int r = 0;

	(void)clock_gettime(CLOCK_MONOTONIC, &until); /* cannot fail */
	until.tv_sec += LOOK_EVERY_S;
	pthread_mutex_lock(&t->lock);
	while (!t->closing && r == 0)
		r = pthread_cond_timedwait(&t->wake, &t->lock, &until);
	r = t->closing;
	pthread_mutex_unlock(&t->lock);
	return r == 0;
}

static void *await_tiers(void *arg)
{
	struct worker *w = arg;

	while (sleep_a_while(&w->tierless)) {
		struct tier_set *set = NULL;

		if (tier_set_open(w->config->tiers, w->config->n_tiers, &set, NULL) < 0)
			continue;
		tier_set_free(set);
		log_info("tier can be used again",
			"path=\"%s\" next=\"ends, to be started with it\"", w->config->tier);
		(void)kill(getpid(), SIGTERM); /* ourselves: as when told to end */
		break;
	}
	return NULL;
}

int tierless_start(struct worker *w)
{
	struct tierless *t = &w->tierless;
	pthread_condattr_t attr;

	pthread_mutex_init(&t->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&t->wake, &attr);
	pthread_condattr_destroy(&attr);
	t->runs = pthread_create(&t->thread, NULL, await_tiers, w) == 0;
	if (t->runs)
		return 0;
	pthread_cond_destroy(&t->wake);
	pthread_mutex_destroy(&t->lock);
	return -EAGAIN;
}

void tierless_stop(struct worker *w)
{
	struct tierless *t = &w->tierless;

	if (!t->runs)
		return;
	pthread_mutex_lock(&t->lock);
	t->closing = true;
	pthread_cond_signal(&t->wake);
	pthread_mutex_unlock(&t->lock);
	pthread_join(t->thread, NULL);
	t->runs = false;
	pthread_cond_destroy(&t->wake);
	pthread_mutex_destroy(&t->lock);
}
