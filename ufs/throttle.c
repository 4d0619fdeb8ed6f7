/*
 * The throttle decorator: an operator's bounds on bytes and requests a second.
 *
 * Two buckets of tokens, each of a quarter of a second's worth at most. A request goes when neither
 * is empty, and takes what it asks for, if need be more than is there: the next ones wait until that
 * is paid. So the rate holds over any few seconds, whatever the sizes are. What an attempt asked
 * for counts, not what it brought.
 *
 * What waits is in a queue for its class, and demand goes first. It is the request itself that is
 * linked here, until it goes to the lower origin, where the same link is used. Without bounds
 * nothing waits, and there is no thread.
 */
#include "ufs/ufs_internal.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/loop.h"

#include <pthread.h>
#include <stdlib.h>

#define THROTTLE_BURST  0.25     /* seconds */
#define THROTTLE_MIN_NS CLOCK_MS /* no timer for less */

struct bucket {
	double rate;   /* a second; 0: no bound */
	double tokens; /* below 0: owed */
};

struct throttle {
	struct ufs base;
	struct loop_task task;

	pthread_mutex_t lock;            /* of the following; ranks above the lower origin's */
	struct loop *loop;               /* once there was a bound */
	struct list queues[UFS_CLASSES]; /* struct ufs_get; their priv is this throttle */
	struct list cancelled;
	struct bucket bytes;
	struct bucket requests;
	uint64_t filled_ns; /* when tokens were last added */
	bool closing;
	bool posted; /* the task */

	/* The loop's thread only. */
	struct loop_timer *timer;
};

static struct throttle *throttle_of(struct ufs *ufs)
{
	return container_of(ufs, struct throttle, base);
}

/* ---- tokens, under the lock ------------------------------------------------------------------ */

static void fill(struct bucket *b, double seconds)
{
	b->tokens = min(b->rate * THROTTLE_BURST, b->tokens + b->rate * seconds);
}

static void fill_locked(struct throttle *t)
{
	uint64_t now = clock_mono_ns();
	double seconds = (double)(now - t->filled_ns) / (double)CLOCK_SECOND;

	fill(&t->bytes, seconds);
	fill(&t->requests, seconds);
	t->filled_ns = now;
}

static bool has(const struct bucket *b)
{
	return b->rate <= 0 || b->tokens > 0;
}

static void take(struct bucket *b, double tokens)
{
	if (b->rate > 0)
		b->tokens -= tokens;
}

/* Until `b` has something. */
static double wait_s(const struct bucket *b)
{
	return has(b) ? 0 : (1 - b->tokens) / b->rate;
}

static uint64_t wait_ns_locked(const struct throttle *t)
{
	double seconds = max(wait_s(&t->bytes), wait_s(&t->requests));

	return max((uint64_t)(seconds * (double)CLOCK_SECOND), (uint64_t)THROTTLE_MIN_NS);
}

/* ---- waiting --------------------------------------------------------------------------------- */

static void post_locked(struct throttle *t)
{
	if (t->posted || t->closing || !t->loop)
		return;
	t->posted = true;
	loop_post(t->loop, &t->task);
}

static bool is_idle_locked(const struct throttle *t)
{
	for (int class = UFS_DEMAND; class < UFS_CLASSES; class ++)
		if (!list_empty(&t->queues[class]))
			return false;
	return true;
}

static struct ufs_get *next_locked(struct throttle *t)
{
	for (int class = UFS_DEMAND; class < UFS_CLASSES; class ++) {
		struct list *node = list_pop_front(&t->queues[class]);

		if (node)
			return list_entry(node, struct ufs_get, link);
	}
	return NULL;
}

/* To the lower origin, under the lock: a promotion or a cancel finds it here or there. */
static int pass_on_locked(struct throttle *t, struct ufs_get *get)
{
	get->priv = NULL;
	take(&t->bytes, (double)get->length);
	take(&t->requests, 1);
	return ufs_get(t->base.lower, get);
}

static void end_all(struct list *gets)
{
	struct err e = ERR_INIT;
	struct list *node;

	(void)err_set(&e, -ECANCELED, "the request was given up");
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

	pthread_mutex_lock(&t->lock);
	t->posted = false;
	list_splice_back(&ended, &t->cancelled);
	fill_locked(t);
	while (!t->closing && has(&t->bytes) && has(&t->requests)) {
		struct ufs_get *get = next_locked(t);

		if (!get)
			break;
		if (pass_on_locked(t, get) < 0) /* it is closing */
			list_push_back(&ended, &get->link);
	}
	/* Anew: one from before may stand for another rate. */
	loop_timer_stop(TAKE(t->timer));
	if (!t->closing && !is_idle_locked(t))
		t->timer = loop_timer_start(t->loop, wait_ns_locked(t), on_timer, t);
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
	fill_locked(t);
	if (t->closing) {
		r = -ECANCELED;
	} else if (has(&t->bytes) && has(&t->requests) && is_idle_locked(t)) {
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

/* 0: it may be sent now; else after so long it is to be asked again. */
static uint64_t list_wait_ns(struct throttle *t)
{
	uint64_t ns = 0;

	pthread_mutex_lock(&t->lock);
	fill_locked(t);
	if (has(&t->requests))
		take(&t->requests, 1);
	else
		ns = wait_ns_locked(t);
	pthread_mutex_unlock(&t->lock);
	return ns;
}

static int throttle_list_page(struct ufs *ufs, const struct ufs_page_request *request,
	struct ufs_page *page, struct err *e)
{
	uint64_t ns;

	while (!ufs_list_is_over(ufs, request) && (ns = list_wait_ns(throttle_of(ufs))) > 0)
		ufs_list_sleep(ufs, request, ns);
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
	t->closing = true;
	pthread_mutex_unlock(&t->lock);
	if (t->loop)
		loop_call(t->loop, cancel_waiting, t);
	ufs_free(ufs->lower);
	if (t->loop)
		loop_free(t->loop);
	pthread_mutex_destroy(&t->lock);
	ufs_base_release(ufs);
	free(t);
}

static const struct ufs_ops throttle_ops = {
	.name = "throttle",
	.get = throttle_get,
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

/* What is owed was asked for at the old rate: it is paid in the time that it would have taken, or
 * sooner. */
static void set_rate(struct bucket *b, uint64_t rate)
{
	double old = b->rate;

	b->rate = (double)rate;
	if (b->tokens < 0 && b->rate < old)
		b->tokens *= b->rate / old;
	b->tokens = min(b->tokens, b->rate * THROTTLE_BURST);
}

int ufs_throttle_set(struct ufs *ufs, uint64_t bytes_per_s, uint64_t requests_per_s)
{
	struct throttle *t = throttle_of(ufs);
	int r = 0;

	pthread_mutex_lock(&t->lock);
	if (!t->loop && (bytes_per_s || requests_per_s)) {
		t->loop = loop_new("ufs-throttle");
		r = t->loop ? 0 : -ENOMEM;
	}
	if (r == 0) {
		fill_locked(t);
		set_rate(&t->bytes, bytes_per_s);
		set_rate(&t->requests, requests_per_s);
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
	list_init(&t->cancelled);
	t->task.run = on_task;
	t->filled_ns = clock_mono_ns();
	r = ufs_throttle_set(&t->base, lower->limits.bytes_per_s, lower->limits.requests_per_s);
	if (r < 0) {
		pthread_mutex_destroy(&t->lock);
		free(t); /* the lower one stays the caller's */
		return r;
	}
	*ret_ufs = &t->base;
	return 0;
}
