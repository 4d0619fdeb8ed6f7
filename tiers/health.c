/* The health of a tier's disk. See health_internal.h. */
#include "tiers/health_internal.h"
#include "base/check.h"
#include "base/clock.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

void health_init(struct health *h)
{
	*h = (struct health){ .state = HEALTH_OK };
	pthread_mutex_init(&h->lock, NULL);
}

void health_release(struct health *h)
{
	pthread_mutex_destroy(&h->lock);
}

enum health_state health_get(const struct health *h)
{
	return (enum health_state)atomic_load_explicit(&h->state, memory_order_relaxed);
}

const char *health_name(enum health_state state)
{
	static const char *const names[] = {
		[HEALTH_OK] = "ok",
		[HEALTH_SUSPECT] = "suspect",
		[HEALTH_OUT] = "out",
	};

	return names[state];
}

bool health_counts(int code)
{
	switch (code) {
	case 0:
	case -ENOSPC:
	case -EDQUOT:
	case -ENOMEM:
	case -EMFILE:
	case -ENFILE:
	case -EINTR:
	case -ENOENT:
	case -ENODATA:
		return false;
	default:
		return true;
	}
}

static void set_state_locked(struct health *h, enum health_state state)
{
	atomic_store_explicit(&h->state, (int)state, memory_order_relaxed);
}

static uint32_t recent_locked(const struct health *h, uint64_t now)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < HEALTH_OUT_MIN; i++)
		n += h->errors[i] && now - h->errors[i] < HEALTH_WINDOW_NS;
	return n;
}

enum health_state health_error(struct health *h, uint64_t now)
{
	enum health_state state;
	uint32_t recent;

	pthread_mutex_lock(&h->lock);
	h->errors[h->next++ % HEALTH_OUT_MIN] = now;
	recent = recent_locked(h, now);
	state = health_get(h);
	if (recent >= HEALTH_OUT_MIN && state != HEALTH_OUT)
		h->last_probe = now; /* what failed just now is given some time */
	if (recent >= HEALTH_OUT_MIN)
		state = HEALTH_OUT;
	else if (recent >= HEALTH_SUSPECT_MIN && state == HEALTH_OK)
		state = HEALTH_SUSPECT;
	set_state_locked(h, state);
	pthread_mutex_unlock(&h->lock);
	return state;
}

void health_took(struct health *h, uint64_t now, uint64_t ns)
{
	if (ns < HEALTH_STALL_NS)
		return;
	pthread_mutex_lock(&h->lock);
	h->errors[h->next++ % HEALTH_OUT_MIN] = now;
	if (health_get(h) == HEALTH_OK)
		set_state_locked(h, HEALTH_SUSPECT);
	pthread_mutex_unlock(&h->lock);
}

void health_stalls(struct health *h, uint64_t now)
{
	pthread_mutex_lock(&h->lock);
	h->last_stall = now;
	if (health_get(h) == HEALTH_OK)
		set_state_locked(h, HEALTH_SUSPECT);
	pthread_mutex_unlock(&h->lock);
}

void health_suspect(struct health *h)
{
	pthread_mutex_lock(&h->lock);
	if (health_get(h) == HEALTH_OK)
		set_state_locked(h, HEALTH_SUSPECT);
	pthread_mutex_unlock(&h->lock);
}

void health_fail(struct health *h)
{
	pthread_mutex_lock(&h->lock);
	if (health_get(h) != HEALTH_OUT)
		h->last_probe = clock_mono_ns();
	set_state_locked(h, HEALTH_OUT);
	pthread_mutex_unlock(&h->lock);
}

void health_tick(struct health *h, uint64_t now)
{
	if (health_get(h) != HEALTH_SUSPECT)
		return;
	pthread_mutex_lock(&h->lock);
	if (health_get(h) == HEALTH_SUSPECT && recent_locked(h, now) == 0 &&
		(h->last_stall == 0 || now - h->last_stall >= HEALTH_WINDOW_NS))
		set_state_locked(h, HEALTH_OK);
	pthread_mutex_unlock(&h->lock);
}

bool health_probe_due(struct health *h, uint64_t now, bool wanted)
{
	bool due;

	pthread_mutex_lock(&h->lock);
	due = (wanted || health_get(h) == HEALTH_OUT) && now - h->last_probe >= HEALTH_PROBE_NS;
	if (due)
		h->last_probe = now;
	pthread_mutex_unlock(&h->lock);
	return due;
}

void health_recovered(struct health *h)
{
	pthread_mutex_lock(&h->lock);
	memset(h->errors, 0, sizeof(h->errors));
	h->last_stall = 0;
	set_state_locked(h, HEALTH_OK);
	pthread_mutex_unlock(&h->lock);
}
