/* GETs that wait for long: they are logged, or looked up, and those that are still there after their
 * deadline are ended. See retry_internal.h. */
#include "ufs/retry_internal.h"
#include "base/clock.h"
#include "base/log.h"

#include <stdio.h>
#include <string.h>

#define RETRY_TELL_NS  (10 * CLOCK_SECOND)
#define RETRY_TICK_NS  CLOCK_SECOND
#define RETRY_TELL_MAX 5u /* lines a tick; the rest follows with the next ones */

/* What is said of one of them. */
struct tale {
	char key[128];
	uint64_t offset, length, waited_s;
	unsigned int failures;
	enum ufs_cause cause;
	char reason[512];
};

static void tell(const struct tale *t)
{
	LOG_LIMITED(LOG_WARN, "read waits for the origin",
		"key=\"%s\" offset=%llu length=%llu waited_s=%llu failed_attempts=%u cause=%s "
		"reason=\"%s\" next=\"tried again until its deadline\"",
		t->key, (unsigned long long)t->offset, (unsigned long long)t->length,
		(unsigned long long)t->waited_s, t->failures,
		t->failures ? ufs_cause_name(t->cause) : "no_answer", t->reason);
}

/* The next one that was not logged and that has waited long enough. */
static bool next_tale_locked(struct retry *retry, uint64_t now, struct tale *t)
{
	struct attempt *a;

	if (list_empty(&retry->fresh))
		return false;
	a = list_entry(retry->fresh.next, struct attempt, by_age);
	if (now - a->started_ns < min(RETRY_TELL_NS, retry->base.limits.deadline_ns / 4))
		return false;
	list_remove(&a->by_age);
	list_push_back(&retry->noted, &a->by_age);
	counter_add(&retry->base.counters->waits, 1);
	*t = (struct tale){ .offset = a->outer->offset,
		.length = a->outer->length,
		.waited_s = (now - a->started_ns) / CLOCK_SECOND,
		.failures = a->failures,
		.cause = a->cause };
	(void)snprintf(t->key, sizeof(t->key), "%.*s", (int)min(a->outer->key_len, 120u),
		a->outer->key); /* cut: for the eye */
	(void)snprintf(t->reason, sizeof(t->reason), "%.500s", a->e.text);
	return true;
}

/* Requests end by their deadline where they are under way; one that waits there for a place, or for
 * keys from a disk that does not answer, is ended here. */
static void cut_off_locked(struct retry *retry, const struct list *all, uint64_t now)
{
	list_for_each (node, all) {
		struct attempt *a = list_entry(node, struct attempt, by_age);

		if (now < a->deadline_ns + RETRY_TICK_NS)
			continue;
		if (a->late)
			continue;
		a->late = true;
		retry_object_late_locked(a);
		if (a->lower)
			ufs_cancel(retry->base.lower, &a->get);
	}
}

static void on_tick(void *arg);

static void tick_later(struct retry *retry)
{
	retry->tick = loop_timer_start(retry->loop, RETRY_TICK_NS, on_tick, retry);
	if (retry->tick)
		return;
	pthread_mutex_lock(&retry->lock);
	retry->ticking = false; /* no memory for a timer: the next request tries again */
	pthread_mutex_unlock(&retry->lock);
}

static void on_tick(void *arg)
{
	struct retry *retry = arg;
	uint64_t now = clock_mono_ns();
	struct tale tales[RETRY_TELL_MAX];
	uint32_t n = 0;
	bool more;

	retry->tick = NULL;
	pthread_mutex_lock(&retry->lock);
	while (n < ARRAY_SIZE(tales) && next_tale_locked(retry, now, &tales[n]))
		n++;
	cut_off_locked(retry, &retry->noted, now);
	cut_off_locked(retry, &retry->fresh, now);
	retry_object_open_locked(retry); /* a reader's may have been held for too long */
	more = !retry->closing && (!list_empty(&retry->fresh) || !list_empty(&retry->noted));
	retry->ticking = more;
	pthread_mutex_unlock(&retry->lock);
	for (uint32_t i = 0; i < n; i++)
		tell(&tales[i]);
	if (more)
		tick_later(retry);
}

void retry_wait_start(struct loop_task *task)
{
	struct retry *retry = container_of(task, struct retry, tick_task);
	bool closing;

	pthread_mutex_lock(&retry->lock);
	closing = retry->closing;
	pthread_mutex_unlock(&retry->lock);
	if (!closing)
		tick_later(retry);
}

/* Of one list, which is sorted by age. */
static const struct attempt *find_locked(const struct list *all, const char *key, uint32_t key_len)
{
	list_for_each (node, all) {
		const struct attempt *a = list_entry(node, struct attempt, by_age);

		if (a->outer->key_len == key_len && memcmp(a->outer->key, key, key_len) == 0)
			return a;
	}
	return NULL;
}

bool retry_find_wait(struct ufs *ufs, const char *key, uint32_t key_len, struct ufs_wait *ret_wait)
{
	struct retry *retry = retry_of(ufs);
	const struct attempt *a;

	pthread_mutex_lock(&retry->lock);
	a = find_locked(&retry->noted, key, key_len); /* older than the fresh ones */
	if (!a)
		a = find_locked(&retry->fresh, key, key_len);
	if (a) {
		*ret_wait = (struct ufs_wait){ .waited_ns = clock_mono_ns() - a->started_ns,
			.failures = a->failures,
			.cause = a->cause };
		(void)snprintf(ret_wait->reason, sizeof(ret_wait->reason), "%.500s",
			a->e.text); /* cut: for people */
	}
	pthread_mutex_unlock(&retry->lock);
	return a != NULL;
}
