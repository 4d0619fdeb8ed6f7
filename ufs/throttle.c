/*
 * The throttle decorator: an operator's bounds on bytes and requests a second. What an attempt asked
 * for counts, not what it brought. A GET concerns both bounds, a LIST that of requests.
 *
 * What waits is in a queue for its class, and demand goes first. It is the request itself that is
 * linked here, until it goes to the lower origin, where the same link is used. LISTs wait in a queue
 * of their own, each in its thread, which is woken when its turn has come; where both may go, GETs
 * and LISTs take turns: a dataset that is read is still listed, and the reverse. Each origin has
 * queues and bounds of its own: none waits for another's. Without bounds nothing waits, and no
 * loop is used.
 */
#include "ufs/ufs_internal.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/rate.h"
#include "ufs/shared_loop.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#define THROTTLE_MIN_NS  CLOCK_MS /* no timer for less */
#define THROTTLE_BURST_S 0.25

/* A LIST that waits, in its thread. */
struct list_wait {
	struct list link; /* throttle.lists, until it may be sent */
	bool may_go;
	pthread_cond_t go;
};

struct throttle {
	struct ufs base;
	struct loop_task task;

	pthread_mutex_t lock;            /* of the following; ranks above the lower origin's */
	struct loop *loop;               /* once there was a bound */
	struct list queues[UFS_CLASSES]; /* struct ufs_get; their priv is this throttle */
	struct list lists;               /* struct list_wait */
	struct list cancelled;
	struct rate bytes;
	struct rate requests;
	bool list_next; /* the last one that waited and went was a GET */
	bool closing;
	bool posted; /* the task */

	/* The loop's thread only. */
	struct loop_timer *timer;
};

static struct throttle *throttle_of(struct ufs *ufs)
{
	return container_of(ufs, struct throttle, base);
}

/* ---- waiting --------------------------------------------------------------------------------- */

static void post_locked(struct throttle *t)
{
	if (t->posted || t->closing || !t->loop)
		return;
	t->posted = true;
	loop_post(t->loop, &t->task);
}

/* Of the first class in which one waits; NULL: none does. */
static const struct list *waiting_gets_locked(const struct throttle *t)
{
	for (int class = UFS_DEMAND; class < UFS_CLASSES; class ++)
		if (!list_empty(&t->queues[class]))
			return &t->queues[class];
	return NULL;
}

static bool is_idle_locked(const struct throttle *t)
{
	return list_empty(&t->lists) && !waiting_gets_locked(t);
}

/* Until a GET may go. */
static uint64_t get_ns_locked(struct throttle *t, uint64_t now)
{
	return max(rate_wait_ns(&t->bytes, now), rate_wait_ns(&t->requests, now));
}

/* Until the first of those that wait may go. */
static uint64_t wait_ns_locked(struct throttle *t, uint64_t now)
{
	uint64_t ns = UINT64_MAX;

	if (waiting_gets_locked(t))
		ns = get_ns_locked(t, now);
	if (!list_empty(&t->lists))
		ns = min(ns, rate_wait_ns(&t->requests, now));
	return max(ns, (uint64_t)THROTTLE_MIN_NS);
}

/* To the lower origin, under the lock: a promotion or a cancel finds it here or there. */
static int pass_on_locked(struct throttle *t, struct ufs_get *get)
{
	get->priv = NULL;
	rate_take(&t->bytes, (double)get->length);
	rate_take(&t->requests, 1);
	return ufs_get(t->base.lower, get);
}

static void wake_list_locked(struct throttle *t)
{
	struct list_wait *wait = list_entry(t->lists.next, struct list_wait, link);

	list_remove(&wait->link);
	rate_take(&t->requests, 1);
	wait->may_go = true;
	pthread_cond_signal(&wait->go);
}

/* Lets one go. False: none may. What the lower origin did not take is added to `ended`. */
static bool start_one_locked(struct throttle *t, uint64_t now, struct list *ended)
{
	const struct list *gets = waiting_gets_locked(t);
	bool may_get = gets && get_ns_locked(t, now) == 0;
	bool may_list = !list_empty(&t->lists) && rate_wait_ns(&t->requests, now) == 0;

	if (may_list && (t->list_next || !may_get)) {
		t->list_next = false;
		wake_list_locked(t);
	} else if (may_get) {
		struct ufs_get *get = list_entry(gets->next, struct ufs_get, link);

		t->list_next = true;
		list_remove(&get->link);
		if (pass_on_locked(t, get) < 0) /* it is closing */
			list_push_back(ended, &get->link);
	}
	return may_get || may_list;
}

static void end_all(struct list *gets)
{
	struct err e = ERR_INIT;
	struct list *node;

	(void)err_set(&e, -ECANCELED, "the request was canceled");
	while ((node = list_pop_front(gets)) != NULL) {
		struct ufs_get *get = list_entry(node, struct ufs_get, link);

		get->on_done(get, -ECANCELED, &e);
	}
}

static void on_timer(void *arg);

/* The loop's thread: starts what may go, and a timer for the rest. */
static void run(struct throttle *t)
{
	struct list ended = LIST_INIT(ended);
	uint64_t now;

	pthread_mutex_lock(&t->lock);
	now = clock_mono_ns();
	t->posted = false;
	list_splice_back(&ended, &t->cancelled);
	while (!t->closing && start_one_locked(t, now, &ended))
		;
	/* Anew: one from before may stand for another rate. */
	loop_timer_stop(TAKE(t->timer));
	if (!t->closing && !is_idle_locked(t))
		t->timer = loop_timer_start(t->loop, wait_ns_locked(t, now), on_timer, t);
	pthread_mutex_unlock(&t->lock);
	end_all(&ended);
}

static void on_timer(void *arg)
{
	struct throttle *t = arg;

	t->timer = NULL;
	run(t);
}

static void on_task(struct loop_task *task)
{
	run(container_of(task, struct throttle, task));
}

/* ---- the table ------------------------------------------------------------------------------- */

static int throttle_get(struct ufs *ufs, struct ufs_get *get)
{
	struct throttle *t = throttle_of(ufs);
	int r = 0;

	pthread_mutex_lock(&t->lock);
	if (t->closing) {
		r = -ECANCELED;
	} else if (is_idle_locked(t) && get_ns_locked(t, clock_mono_ns()) == 0) {
		r = pass_on_locked(t, get);
	} else {
		get->priv = t;
		list_init(&get->link);
		list_push_back(&t->queues[get->class], &get->link);
		counter_add(&ufs->counters->throttled, 1);
		post_locked(t);
	}
	pthread_mutex_unlock(&t->lock);
	return r;
}

static void throttle_promote(struct ufs *ufs, struct ufs_get *get, enum ufs_class class)
{
	struct throttle *t = throttle_of(ufs);

	pthread_mutex_lock(&t->lock);
	if (get->priv != t) {
		ufs_promote(ufs->lower, get, class);
	} else if (!atomic_load(&get->cancelled) && !t->closing && class < get->class) {
		list_remove(&get->link);
		get->class = class;
		list_push_back(&t->queues[class], &get->link);
		post_locked(t);
	}
	pthread_mutex_unlock(&t->lock);
}

static void throttle_cancel(struct ufs *ufs, struct ufs_get *get)
{
	struct throttle *t = throttle_of(ufs);

	pthread_mutex_lock(&t->lock);
	if (get->priv != t) {
		ufs_cancel(ufs->lower, get);
	} else if (!atomic_exchange(&get->cancelled, true) && !t->closing) {
		list_remove(&get->link);
		list_push_back(&t->cancelled, &get->link);
		post_locked(t);
	}
	pthread_mutex_unlock(&t->lock);
}

/* Waits for its turn, or until the LIST has no waiter any more, which is checked now and
 * then. */
static void wait_for_turn_locked(struct throttle *t, const struct ufs_page_request *request)
{
	struct list_wait wait = { .may_go = false };
	pthread_condattr_t monotonic;

	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&wait.go, &monotonic);
	pthread_condattr_destroy(&monotonic);
	list_push_back(&t->lists, &wait.link);
	counter_add(&t->base.counters->lists_throttled, 1);
	post_locked(t);
	while (!wait.may_go && !ufs_list_is_over(&t->base, request)) {
		uint64_t until = clock_mono_ns() + UFS_LIST_LOOK_NS;
		struct timespec at = { .tv_sec = (time_t)(until / CLOCK_SECOND),
			.tv_nsec = (long)(until % CLOCK_SECOND) };

		(void)pthread_cond_timedwait(&wait.go, &t->lock, &at); /* either way it is looked */
	}
	if (!wait.may_go)
		list_remove(&wait.link);
	pthread_cond_destroy(&wait.go);
}

static int throttle_list_page(struct ufs *ufs, const struct ufs_page_request *request,
	struct ufs_page *page, struct err *e)
{
	struct throttle *t = throttle_of(ufs);

	pthread_mutex_lock(&t->lock);
	if (is_idle_locked(t) && rate_wait_ns(&t->requests, clock_mono_ns()) == 0)
		rate_take(&t->requests, 1);
	else
		wait_for_turn_locked(t, request);
	pthread_mutex_unlock(&t->lock);
	return ufs_list_page(ufs->lower, request, page, e);
}

static int throttle_probe(struct ufs *ufs, struct err *e)
{
	return ufs_probe(ufs->lower, e);
}

static void cancel_waiting(void *arg)
{
	struct throttle *t = arg;
	struct list ended = LIST_INIT(ended);

	loop_timer_stop(t->timer);
	t->timer = NULL;
	pthread_mutex_lock(&t->lock);
	for (int class = UFS_DEMAND; class < UFS_CLASSES; class ++)
		list_splice_back(&ended, &t->queues[class]);
	list_splice_back(&ended, &t->cancelled);
	pthread_mutex_unlock(&t->lock);
	end_all(&ended);
}

static void throttle_free(struct ufs *ufs)
{
	struct throttle *t = throttle_of(ufs);

	pthread_mutex_lock(&t->lock);
	ensure(list_empty(&t->lists)); /* no listing is under way: ufs.h */
	t->closing = true;
	pthread_mutex_unlock(&t->lock);
	if (t->loop)
		loop_call(t->loop, cancel_waiting, t);
	ufs_free(ufs->lower);
	shared_loop_put(t->loop);
	pthread_mutex_destroy(&t->lock);
	ufs_base_release(ufs);
	free(t);
}

/* A reader's request waits until what was sent before it is paid for. */
static uint64_t throttle_range_bytes(struct ufs *ufs)
{
	uint64_t bytes = ufs_range_bytes(ufs->lower);
	uint64_t bound = counter_get(&ufs->counters->bound_bytes);

	return bound ? min(bytes, (uint64_t)((double)bound * THROTTLE_BURST_S)) : bytes;
}

static const struct ufs_ops throttle_ops = {
	.name = "throttle",
	.get = throttle_get,
	.range_bytes = throttle_range_bytes,
	.promote = throttle_promote,
	.cancel = throttle_cancel,
	.list_page = throttle_list_page,
	.probe = throttle_probe,
	.free = throttle_free,
};

bool ufs_is_throttle(const struct ufs *ufs)
{
	return ufs->ops == &throttle_ops;
}

int ufs_throttle_set(struct ufs *ufs, uint64_t bytes_per_s, uint64_t requests_per_s)
{
	struct throttle *t = throttle_of(ufs);
	int r = 0;

	pthread_mutex_lock(&t->lock);
	if (!t->loop && (bytes_per_s || requests_per_s)) {
		t->loop = shared_loop_get();
		r = t->loop ? 0 : -ENOMEM;
	}
	if (r == 0) {
		rate_set(&t->bytes, clock_mono_ns(), (double)bytes_per_s);
		rate_set(&t->requests, clock_mono_ns(), (double)requests_per_s);
		counter_set(&ufs->counters->bound_bytes, bytes_per_s);
		counter_set(&ufs->counters->bound_requests, requests_per_s);
		post_locked(t);
	}
	pthread_mutex_unlock(&t->lock);
	return r;
}

int ufs_throttle_new(struct ufs *lower, struct ufs **ret_ufs)
{
	struct throttle *t = calloc(1, sizeof(*t));
	int r;

	if (!t)
		return -ENOMEM;
	r = ufs_base_init(&t->base, &throttle_ops, lower, &lower->limits);
	if (r < 0) {
		free(t);
		return r;
	}
	pthread_mutex_init(&t->lock, NULL);
	for (int class = UFS_DEMAND; class < UFS_CLASSES; class ++)
		list_init(&t->queues[class]);
	list_init(&t->lists);
	list_init(&t->cancelled);
	t->task.run = on_task;
	t->bytes.burst_s = t->requests.burst_s = THROTTLE_BURST_S;
	r = ufs_throttle_set(&t->base, lower->limits.bytes_per_s, lower->limits.requests_per_s);
	if (r < 0) {
		pthread_mutex_destroy(&t->lock);
		free(t); /* the lower one stays the caller's */
		return r;
	}
	*ret_ufs = &t->base;
	return 0;
}
