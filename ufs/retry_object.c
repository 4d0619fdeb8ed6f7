/*
 * What is remembered of objects. See retry_internal.h.
 *
 * An origin is asked RETRY_REFUSALS_MAX times for a version that it refuses, however many want it and however often: a reader's
 * request makes up what is missing of that, one that no reader waits for is content with a single refusal. Afterwards all of
 * them end without a request, until retry_forget() or REFUSED_CHANGED_NS later.
 *
 * That an object is forbidden is believed only if a request for another one that was sent later brought bytes: else the
 * policy or the keys of the origin are to be repaired, which readers wait for.
 */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/hash.h"
#include "ufs/retry_internal.h"

#include <stdlib.h>

/* A restored object that a new listing finds as it was makes no new generation. */
#define REFUSED_CHANGED_NS (3600 * CLOCK_SECOND)
/* Policies are repaired, and objects restored from an archive, without any sign of it. */
#define REFUSED_DENIED_NS (60 * CLOCK_SECOND)
/* A reader's request is held no longer for requests that bring nothing: their connections may be stuck. */
#define RETRY_HELD_NS (2 * CLOCK_SECOND)
/* Reads here and there in a large object, each of several parts, do not begin with a round trip more. */
#define RETRY_GIVEN_NS (10 * CLOCK_SECOND)

static uint64_t object_of(const char *key, uint32_t key_len, const char *tag, uint32_t tag_len)
{
	return hash_xxh3(tag, tag_len, hash_xxh3(key, key_len, 0));
}

/* ---- objects that were given lately ----------------------------------------------------------- */

static struct given *given_locked(struct retry *retry, uint64_t object)
{
	return &retry->given[object & (RETRY_GIVEN - 1)];
}

static bool was_given_locked(struct retry *retry, uint64_t object)
{
	const struct given *given = given_locked(retry, object);

	return given->object == object && clock_mono_ns() < given->until_ns;
}

static void note_given_locked(struct attempt *a)
{
	if (!a->partial)
		return;
	a->partial->served = true;
	*given_locked(a->retry, a->object) =
		(struct given){ a->object, clock_mono_ns() + RETRY_GIVEN_NS };
}

/* ---- refusals -------------------------------------------------------------------------------- */

static bool is_denied(int status, enum ufs_cause cause)
{
	return status == -EPERM || (status == -EACCES && cause == UFS_CAUSE_FORBIDDEN);
}

/* Is that enough for a request of the class? */
static bool is_believed_locked(
	const struct retry *retry, const struct refusal *refusal, enum ufs_class class)
{
	if (!refusal)
		return false;
	if (refusal->cause == UFS_CAUSE_FORBIDDEN && retry->served_ns <= refusal->since_ns)
		return false;
	if (refusal->status == -EPERM) /* a reader sees at once that it was restored */
		return class != UFS_DEMAND;
	return refusal->times >= (class == UFS_DEMAND ? RETRY_REFUSALS_MAX : 1);
}

static void note_locked(struct attempt *a, int status)
{
	struct retry *retry = a->retry;
	bool denied = is_denied(status, a->get.cause);
	uint64_t now = clock_mono_ns();
	const struct refusal what = {
		.object = a->object,
		.until_ns = now + (denied ? REFUSED_DENIED_NS : REFUSED_CHANGED_NS),
		.times = 1,
		.status = status,
		.cause = a->get.cause,
	};

	if (!denied && !retry_refuses(status))
		return;
	if (!denied)
		a->outer->refused++;
	if (was_given_locked(retry, a->object))
		given_locked(retry, a->object)->until_ns = 0;
	/* An answer from before a listing does not contradict it. */
	if (a->forgotten == retry->forgotten)
		refused_note(&retry->refused, &what, now);
	/* Without memory its own count is all there is. */
	a->refused =
		a->outer->refused >= RETRY_REFUSALS_MAX ||
		is_believed_locked(retry, refused_find(&retry->refused, a->object, now), a->class);
}

static int remembered(const struct refusal *refusal, const struct ufs_get *get, struct err *e)
{
	int key_len = (int)min(get->key_len, 200u); /* cut: for people */

	if (retry_refuses(refusal->status))
		return err_set(e, refusal->status,
			"'%.*s' was changed or removed at the origin after it was listed: refresh "
			"the dataset to see its present objects",
			key_len, get->key);
	if (refusal->cause == UFS_CAUSE_ARCHIVED)
		return err_set(e, -EPERM,
			"'%.*s' is archived: restore it in the object store; it is tried again "
			"after a minute",
			key_len, get->key);
	return err_set(e, refusal->status,
		"permission denied for '%.*s', but not for other objects: check its permissions; "
		"it is tried again after a minute",
		key_len, get->key);
}

/* It ends without a request. The line of a failure of its own stays. */
static void take_refusal_locked(struct attempt *a, const struct refusal *refusal)
{
	a->refused = true;
	if (a->failures > 0) {
		a->status = refusal->status;
		return;
	}
	a->e = ERR_INIT;
	a->outer->remembered = true;
	a->status = remembered(refusal, a->outer, &a->e);
}

/* ---- objects of which parts are asked for ---------------------------------------------------- */

static struct partial *find_locked(const struct retry *retry, uint64_t object)
{
	struct map_node *node = map_first(&retry->partial, object);

	return node ? container_of(node, struct partial, node) : NULL;
}

int retry_object_join_locked(struct attempt *a)
{
	struct retry *retry = a->retry;
	struct partial *partial;

	a->object = object_of(a->outer->key, a->outer->key_len, a->outer->tag, a->outer->tag_len);
	/* A GET with on_room() may be cut short, and its rest fetched by another GET. */
	if (a->outer->length == a->outer->size && !a->outer->on_room)
		return 0;
	partial = find_locked(retry, a->object);
	if (!partial) {
		partial = calloc(1, sizeof(*partial));
		if (!partial)
			return -ENOMEM;
		partial->served = was_given_locked(retry, a->object);
		map_insert(&retry->partial, &partial->node, a->object);
	}
	partial->attempts++;
	a->partial = partial;
	return 0;
}

void retry_object_open_locked(struct retry *retry)
{
	if (retry->held > 0 && !retry->opens) {
		retry->opens = true;
		loop_post(retry->loop, &retry->open_task);
	}
}

static void hold_locked(struct attempt *a)
{
	a->held = true;
	a->partial->held++;
	a->retry->held++;
}

static void unhold_locked(struct attempt *a)
{
	if (!a->held)
		return;
	a->held = false;
	a->partial->held--;
	a->retry->held--;
}

/* Its object's held attempts go on, if there are any. */
static void open_object_locked(struct attempt *a)
{
	if (a->partial->held > 0)
		retry_object_open_locked(a->retry);
}

/* The attempts of its object that are in flight decide, unless a reader has waited for them for too long. */
static bool must_hold_locked(const struct attempt *a, const struct refusal *refusal, uint64_t now)
{
	const struct partial *partial = a->partial;

	return partial && !partial->served && partial->in_flight > 0 &&
	       partial->in_flight + (refusal ? refusal->times : 0) >= RETRY_REFUSALS_MAX &&
	       (a->class != UFS_DEMAND || now - a->started_ns < RETRY_HELD_NS);
}

/* Before bytes came there are no more in flight than places. */
static void take_place_locked(struct attempt *a, struct attempt *of)
{
	for (uint32_t i = 0; i < RETRY_REFUSALS_MAX; i++)
		if (a->partial->first[i] == of) {
			a->partial->first[i] = of ? NULL : a;
			return;
		}
}

static void fly_locked(struct attempt *a)
{
	a->in_flight = true;
	a->sent_ns = clock_mono_ns();
	if (!a->partial)
		return;
	a->partial->in_flight++;
	take_place_locked(a, NULL);
}

static void land_locked(struct attempt *a)
{
	if (a->in_flight && a->partial) {
		a->partial->in_flight--;
		take_place_locked(a, a);
	}
	a->in_flight = a->lower = false;
}

void retry_object_raise_locked(struct attempt *a)
{
	for (uint32_t i = 0; a->held && i < RETRY_REFUSALS_MAX; i++) {
		struct attempt *first = a->partial->first[i];

		if (!first || first->class <= a->class)
			continue;
		first->class = a->class;
		if (first->lower)
			ufs_promote(a->retry->base.lower, &first->get, a->class);
	}
}

void retry_object_leave_locked(struct attempt *a)
{
	struct partial *partial = a->partial;

	unhold_locked(a);
	land_locked(a);
	a->partial = NULL;
	if (!partial)
		return;
	if (partial->held > 0)
		retry_object_open_locked(a->retry);
	if (--partial->attempts > 0)
		return;
	map_remove(&a->retry->partial, &partial->node);
	free(partial);
}

void retry_object_late_locked(struct attempt *a)
{
	if (a->held)
		retry_object_open_locked(a->retry);
}

enum retry_verdict retry_object_judge_locked(struct attempt *a)
{
	struct retry *retry = a->retry;
	uint64_t now = clock_mono_ns();
	const struct refusal *refusal = refused_find(&retry->refused, a->object, now);

	unhold_locked(a);
	if (a->late) {
		a->status = -ETIMEDOUT;
		if (a->failures == 0)
			(void)err_set(
				&a->e, -ETIMEDOUT, "no answer before the deadline of the read");
		return RETRY_REFUSED;
	}
	if (is_believed_locked(retry, refusal, a->class)) {
		take_refusal_locked(a, refusal);
		return RETRY_REFUSED;
	}
	if (must_hold_locked(a, refusal, now)) {
		hold_locked(a);
		retry_object_raise_locked(a);
		return RETRY_HOLD;
	}
	a->forgotten = retry->forgotten;
	fly_locked(a);
	return RETRY_SEND;
}

void retry_object_answered_locked(struct attempt *a, int status, bool served)
{
	struct retry *retry = a->retry;

	if (served) {
		retry->served_ns = max(retry->served_ns, a->sent_ns);
		note_given_locked(a);
		refused_drop(&retry->refused, a->object);
	} else {
		note_locked(a, status);
	}
	land_locked(a);
	if (a->partial)
		open_object_locked(a);
}

void retry_object_progress(struct attempt *a)
{
	if (!a->partial || a->progressed)
		return;
	a->progressed = true;
	pthread_mutex_lock(&a->retry->lock);
	note_given_locked(a);
	open_object_locked(a);
	pthread_mutex_unlock(&a->retry->lock);
}

void retry_object_open(struct loop_task *task)
{
	struct retry *retry = container_of(task, struct retry, open_task);
	struct list held = LIST_INIT(held);
	struct list *node;

	pthread_mutex_lock(&retry->lock);
	retry->opens = false;
	pthread_mutex_unlock(&retry->lock);
	list_for_each_safe (at, &retry->waiting) {
		if (list_entry(at, struct attempt, link)->timer)
			continue;
		list_remove(at);
		list_push_back(&held, at);
	}
	while ((node = list_pop_front(&held)) != NULL)
		retry_go(list_entry(node, struct attempt, link));
}

/* ---- the table's ----------------------------------------------------------------------------- */

bool retry_refused(
	struct ufs *ufs, const char *key, uint32_t key_len, const char *tag, uint32_t tag_len)
{
	struct retry *retry = retry_of(ufs);
	bool is;

	pthread_mutex_lock(&retry->lock);
	is = retry->refused.sets &&
	     is_believed_locked(retry,
		     refused_find(&retry->refused, object_of(key, key_len, tag, tag_len),
			     clock_mono_ns()),
		     UFS_FILL);
	pthread_mutex_unlock(&retry->lock);
	return is;
}

void retry_note_refused(struct ufs *ufs, const char *key, uint32_t key_len, const char *tag,
	uint32_t tag_len, uint32_t times)
{
	struct retry *retry = retry_of(ufs);
	uint64_t now = clock_mono_ns();
	const struct refusal what = {
		.object = object_of(key, key_len, tag, tag_len),
		.until_ns = now + REFUSED_CHANGED_NS,
		.times = times,
		.status = -ESTALE,
	};

	pthread_mutex_lock(&retry->lock);
	refused_note(&retry->refused, &what, now);
	pthread_mutex_unlock(&retry->lock);
}

void retry_forget(struct ufs *ufs)
{
	struct retry *retry = retry_of(ufs);

	pthread_mutex_lock(&retry->lock);
	refused_release(&retry->refused);
	retry->forgotten++;
	pthread_mutex_unlock(&retry->lock);
}
