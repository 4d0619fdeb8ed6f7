/*
 * The retry decorator: failures are tried again, with exponential backoff and full jitter, until a
 * request's deadline. What was received stays received: the next attempt asks for the rest.
 *
 *	attempt under way (the lower's) -> failed -> waiting for its timer (on our loop)
 *	-> under way ... -> done
 *
 * - A reader waits for whatever may pass, or an operator may mend: an origin that is away,
 *   overloaded or confused, a refused key, a policy, a certificate. The end is -ETIMEDOUT, at the
 *   deadline and not before, with the line of the last failure.
 * - That the object was changed or removed does not pass. An object store is many servers, though,
 *   and one of them may be behind, or wrong for a moment: it is believed when it comes several
 *   times in a row, within about a second.
 * - For a LIST a person waits: what is not an overload or a lost connection ends after as many.
 *
 * A read that waits for RETRY_TELL_NS is logged with its cause, once. One that still waits after
 * its deadline, for a place or for keys, is ended here.
 */
#include "ufs/retry_internal.h"
#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

#define RETRY_LAST_NS (100 * CLOCK_MS) /* before the deadline no attempt begins any more */

struct retry *retry_of(struct ufs *ufs)
{
	return container_of(ufs, struct retry, base);
}

/* Nobody wants it any more. */
static bool is_over(struct attempt *a)
{
	bool over;

	pthread_mutex_lock(&a->retry->lock);
	over = a->retry->closing || a->cancelled;
	pthread_mutex_unlock(&a->retry->lock);
	return over;
}

static void finish(struct attempt *a, int status, const struct err *e)
{
	struct ufs_get *outer = a->outer;
	struct err line = ERR_INIT;

	if (status < 0) {
		if (a->attempts > 1 && e && status != -ECANCELED)
			(void)err_set(&line, status, "%.900s (after %u attempts in %llu s)",
				e->text, a->attempts,
				(unsigned long long)((clock_mono_ns() - a->started_ns) /
						     CLOCK_SECOND));
		else if (e)
			line = *e;
		(void)err_default(&line, status, "origin"); /* returns status */
	}
	pthread_mutex_lock(&a->retry->lock);
	outer->priv = NULL; /* from here on a promotion is late */
	list_remove(&a->by_age);
	pthread_mutex_unlock(&a->retry->lock);
	a->magic = 0;
	free(a);
	outer->on_done(outer, status, status < 0 ? &line : NULL);
}

static void cancel(struct attempt *a)
{
	struct err e = ERR_INIT;

	(void)err_set(&e, -ECANCELED, "the request was given up");
	finish(a, -ECANCELED, &e);
}

static void on_progress(struct ufs_get *get, uint64_t bytes)
{
	struct attempt *a = get->arg;

	a->outer->got = a->received + bytes;
	a->outer->on_progress(a->outer, a->outer->got);
}

static void on_done(struct ufs_get *get, int status, const struct err *e);

static int submit(struct attempt *a)
{
	struct ufs_get *outer = a->outer;
	struct retry *retry = a->retry;
	int r;

	a->get.key = outer->key;
	a->get.key_len = outer->key_len;
	a->get.tag = outer->tag;
	a->get.tag_len = outer->tag_len;
	a->get.size = outer->size;
	a->get.offset = outer->offset + a->received;
	a->get.length = outer->length - a->received;
	a->get.buf = (char *)outer->buf + a->received;
	a->get.on_progress = outer->on_progress ? on_progress : NULL;
	a->get.on_done = on_done;
	a->get.arg = a;
	a->get.deadline_ns = a->deadline_ns;
	a->attempts++;
	/* Under the lock, as promotions are: none falls between the class that is read here and the
	 * lower's queue. The attempt may be gone after. */
	pthread_mutex_lock(&retry->lock);
	a->get.class = a->class;
	r = ufs_get(retry->base.lower, &a->get);
	pthread_mutex_unlock(&retry->lock);
	return r;
}

/* ---- the loop's thread: attempts that wait --------------------------------------------------- */

static void on_timer(void *arg)
{
	struct attempt *a = arg;
	int r;

	CHECK_MAGIC(a, RETRY_MAGIC);
	list_remove(&a->link);
	a->timer = NULL;
	counter_add(&a->retry->base.counters->retries, 1);
	if (is_over(a)) {
		cancel(a);
		return;
	}
	r = submit(a);
	if (r < 0)
		finish(a, a->late ? -ETIMEDOUT : r, &a->e);
}

static void on_task(struct loop_task *task)
{
	struct attempt *a = container_of(task, struct attempt, task);

	if (is_over(a)) {
		cancel(a);
		return;
	}
	a->timer = loop_timer_start(a->retry->loop, a->delay_ns, on_timer, a);
	if (a->timer)
		list_push_back(&a->retry->waiting, &a->link);
	else
		finish(a, a->status, &a->e); /* no memory for a timer: the failure stands */
}

static void cancel_waiting(void *arg)
{
	struct retry *retry = arg;
	struct list *node;

	loop_timer_stop(retry->tick);
	retry->tick = NULL;
	while ((node = list_pop_front(&retry->waiting)) != NULL) {
		struct attempt *a = list_entry(node, struct attempt, link);

		loop_timer_stop(a->timer);
		cancel(a);
	}
}

static void cancel_marked(struct loop_task *task)
{
	struct retry *retry = container_of(task, struct retry, cancel_task);
	struct list ended = LIST_INIT(ended);
	struct list *node;

	pthread_mutex_lock(&retry->lock);
	retry->cancels = false;
	list_for_each_safe (at, &retry->waiting) {
		if (!list_entry(at, struct attempt, link)->cancelled)
			continue;
		list_remove(at);
		list_push_back(&ended, at);
	}
	pthread_mutex_unlock(&retry->lock);
	while ((node = list_pop_front(&ended)) != NULL) {
		struct attempt *a = list_entry(node, struct attempt, link);

		loop_timer_stop(a->timer);
		cancel(a);
	}
}

/* ---- the origin's thread --------------------------------------------------------------------- */

static bool may_try_again(struct attempt *a, int status)
{
	uint64_t now = clock_mono_ns();
	uint64_t left = a->deadline_ns > now ? a->deadline_ns - now : 0;

	if (retry_is_final(status) || a->refusals >= RETRY_REFUSALS_MAX || left < RETRY_LAST_NS)
		return false;
	a->delay_ns = retry_backoff_ns(a->fruitless, a->get.retry_after_ns);
	if (a->refusals)
		a->delay_ns = min(a->delay_ns, RETRY_REFUSAL_CAP_NS);
	if (a->delay_ns >= left)
		a->delay_ns = left / 2;
	return true;
}

/* Notes how an attempt ended. True when nobody wants the request any more. One that the deadline
 * cut off has nothing to say: what the attempts before met counts. */
static bool note_failure(struct attempt *a, int status, const struct err *e)
{
	bool over;

	pthread_mutex_lock(&a->retry->lock);
	if (a->failures && status == -ETIMEDOUT && a->get.cause == UFS_CAUSE_NONE) {
		over = a->retry->closing || a->cancelled;
		a->refusals = 0;
		pthread_mutex_unlock(&a->retry->lock);
		return over;
	}
	over = a->retry->closing || a->cancelled;
	if (!retry_refuses(status))
		a->refusals = 0;
	else
		a->refusals = status == a->status ? a->refusals + 1 : 1;
	a->failures++;
	a->status = status;
	a->e = e ? *e : ERR_INIT;
	a->cause = a->get.cause;
	pthread_mutex_unlock(&a->retry->lock);
	return over;
}

/* What the lower says of an attempt that was cut off here. */
static int take_cut_off(struct attempt *a, int status, const struct err **e, struct err *line)
{
	bool late;

	pthread_mutex_lock(&a->retry->lock);
	late = a->late && status == -ECANCELED;
	pthread_mutex_unlock(&a->retry->lock);
	if (!late)
		return status;
	a->get.cause = UFS_CAUSE_NONE;
	ufs_count_end(&a->retry->base, -ETIMEDOUT, UFS_CAUSE_NONE, 0);
	*e = line;
	return err_set(line, -ETIMEDOUT, "no answer before the deadline of the read");
}

static void on_done(struct ufs_get *get, int status, const struct err *e)
{
	struct attempt *a = get->arg;
	struct err line = ERR_INIT;

	CHECK_MAGIC(a, RETRY_MAGIC);
	status = take_cut_off(a, status, &e, &line);
	a->received += get->got;
	a->fruitless = get->got ? 0 : a->fruitless + 1;
	a->outer->got = a->received;
	a->outer->cause = get->cause;
	if (status == 0 || a->received == a->outer->length)
		finish(a, 0, NULL); /* whole, even if the end of the answer was not */
	else if (note_failure(a, status, e))
		cancel(a);
	else if (may_try_again(a, status))
		loop_post(a->retry->loop, &a->task);
	else
		finish(a, retry_is_final(status) || retry_refuses(status) ? status : -ETIMEDOUT,
			&a->e);
}

/* ---- the table ------------------------------------------------------------------------------- */

static int add(struct retry *retry, struct attempt *a)
{
	pthread_mutex_lock(&retry->lock);
	if (retry->closing) {
		pthread_mutex_unlock(&retry->lock);
		return -ECANCELED;
	}
	a->outer->priv = a;
	list_push_back(&retry->fresh, &a->by_age);
	if (!retry->ticking) {
		retry->ticking = true;
		loop_post(retry->loop, &retry->tick_task);
	}
	pthread_mutex_unlock(&retry->lock);
	return 0;
}

static int retry_get(struct ufs *ufs, struct ufs_get *outer)
{
	struct retry *retry = retry_of(ufs);
	struct attempt *a = calloc(1, sizeof(*a));
	int r;

	if (!a)
		return -ENOMEM;
	a->magic = RETRY_MAGIC;
	a->retry = retry;
	a->outer = outer;
	a->task.run = on_task;
	a->class = outer->class;
	a->started_ns = clock_mono_ns();
	a->deadline_ns = a->started_ns + ufs->limits.deadline_ns;
	list_init(&a->link);
	list_init(&a->by_age);
	r = add(retry, a);
	if (r == 0)
		r = submit(a);
	if (r < 0) {
		pthread_mutex_lock(&retry->lock);
		outer->priv = NULL;
		list_remove(&a->by_age);
		pthread_mutex_unlock(&retry->lock);
		free(a);
	}
	return r;
}

static void retry_promote(struct ufs *ufs, struct ufs_get *outer, enum ufs_class class)
{
	struct retry *retry = retry_of(ufs);
	struct attempt *a;

	pthread_mutex_lock(&retry->lock);
	a = outer->priv;
	if (a) {
		CHECK_MAGIC(a, RETRY_MAGIC);
		if (class < a->class)
			a->class = class;
		/* Under our lock, so that the attempt cannot end meanwhile; the lower's lock
		 * ranks below. */
		ufs_promote(ufs->lower, &a->get, class);
	}
	pthread_mutex_unlock(&retry->lock);
}

static void retry_cancel(struct ufs *ufs, struct ufs_get *outer)
{
	struct retry *retry = retry_of(ufs);
	struct attempt *a;

	pthread_mutex_lock(&retry->lock);
	a = outer->priv;
	if (a) {
		CHECK_MAGIC(a, RETRY_MAGIC);
		a->cancelled = true;
		/* Under our lock, as above. It is under way, or waits on our loop. */
		ufs_cancel(ufs->lower, &a->get);
		if (!retry->cancels)
			loop_post(retry->loop, &retry->cancel_task);
		retry->cancels = true;
	}
	pthread_mutex_unlock(&retry->lock);
}

/* What waits ends first; then what is under way, by the lower's end. Nothing starts any more. */
static void retry_free(struct ufs *ufs)
{
	struct retry *retry = retry_of(ufs);

	pthread_mutex_lock(&retry->lock);
	retry->closing = true;
	pthread_mutex_unlock(&retry->lock);
	loop_call(retry->loop, cancel_waiting, retry);
	ufs_free(ufs->lower);
	loop_free(retry->loop);
	pthread_mutex_destroy(&retry->lock);
	ufs_base_release(ufs);
	free(retry);
}

static const struct ufs_ops retry_ops = {
	.name = "retry",
	.get = retry_get,
	.promote = retry_promote,
	.find_wait = retry_find_wait,
	.cancel = retry_cancel,
	.list_page = retry_list_page,
	.probe = retry_probe,
	.free = retry_free,
};

int ufs_retry_new(struct ufs *lower, struct ufs **ret_ufs)
{
	struct retry *retry = calloc(1, sizeof(*retry));

	if (!retry)
		return -ENOMEM;
	retry->loop = loop_new("ufs-retry");
	if (!retry->loop || ufs_base_init(&retry->base, &retry_ops, lower, &lower->limits) < 0) {
		loop_free(retry->loop);
		free(retry);
		return -ENOMEM;
	}
	pthread_mutex_init(&retry->lock, NULL);
	list_init(&retry->waiting);
	list_init(&retry->fresh);
	list_init(&retry->told);
	retry->tick_task.run = retry_wait_start;
	retry->cancel_task.run = cancel_marked;
	*ret_ufs = &retry->base;
	return 0;
}
