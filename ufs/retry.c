/*
 * The retry decorator: failures are tried again, with exponential backoff and full jitter, until a
 * request's deadline. What was received stays received: the next attempt asks for the rest, unless
 * the bytes of the object do not match its checksum.
 *
 *	attempt in progress (the lower's) -> failed -> waiting for its timer (on the shared loop)
 *	-> under way ... -> done
 *
 * - A reader waits for whatever may pass, or an operator may mend: an origin that is away,
 *   overloaded or confused, a refused key, a policy, a certificate. The end is -ETIMEDOUT, at the
 *   deadline and not before, with the line of the last failure.
 * - That the object was changed or removed does not pass. An object store is many servers, though,
 *   and one of them may be behind, or wrong for a moment: a reader's request believes it the second time, half a
 *   second later. It is remembered for all requests that follow (retry_object.c). A failure that the origin marks
 *   as final is believed at once.
 * - For a LIST a person waits: what is not an overload or a lost connection ends after as many.
 *
 * A read that waits for RETRY_TELL_NS is logged with its cause, once. One that still waits after
 * its deadline, for a place or for keys, is ended here.
 */
#include "ufs/retry_internal.h"
#include "base/clock.h"
#include "base/deadline.h"
#include "ufs/shared_loop.h"

#include <stdlib.h>
#include <string.h>

#define RETRY_LAST_NS    (100 * CLOCK_MS) /* before the deadline no attempt begins any more */
#define RETRY_REFUSED_NS (500 * CLOCK_MS) /* between the two refusals that a reader waits for */
#define PARTIAL_EXPECTED 256u             /* objects of which parts are asked for */

struct retry *retry_of(struct ufs *ufs)
{
	return container_of(ufs, struct retry, base);
}

/* It is not wanted any more. */
static bool is_over(struct attempt *a)
{
	bool over;

	pthread_mutex_lock(&a->retry->lock);
	over = a->retry->closing || a->cancelled;
	pthread_mutex_unlock(&a->retry->lock);
	return over;
}

void retry_finish(struct attempt *a, int status, const struct err *e)
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
	retry_object_leave_locked(a);
	pthread_mutex_unlock(&a->retry->lock);
	a->magic = 0;
	free(a);
	outer->on_done(outer, status, status < 0 ? &line : NULL);
}

static void cancel(struct attempt *a)
{
	struct err e = ERR_INIT;

	(void)err_set(&e, -ECANCELED, "the request was canceled");
	retry_finish(a, -ECANCELED, &e);
}

static void on_progress(struct ufs_get *get, uint64_t bytes)
{
	struct attempt *a = get->arg;

	retry_object_progress(a);
	a->outer->got = a->received + bytes;
	a->outer->sent_ns = get->sent_ns;
	a->outer->first_ns = get->first_ns;
	if (a->outer->on_progress)
		a->outer->on_progress(a->outer, a->outer->got);
}

static int on_room(struct ufs_get *get, uint64_t at, struct ufs_room *ret_room)
{
	struct attempt *a = get->arg;

	return a->outer->on_room(a->outer, a->received + at, ret_room);
}

/* How many bytes are still wanted. The first attempt may be made with locks of the caller's. */
static int find_left(struct attempt *a, uint64_t *ret_left)
{
	struct ufs_room room = { .left = a->outer->length - a->received };
	int r = 0;

	if (a->outer->on_room && a->attempts > 0)
		r = a->outer->on_room(a->outer, a->received, &room);
	if (r == 0)
		*ret_left = room.left;
	return r;
}

static void on_done(struct ufs_get *get, int status, const struct err *e);

/* 1: nothing is left to ask for. */
static int submit(struct attempt *a)
{
	struct ufs_get *outer = a->outer;
	struct retry *retry = a->retry;
	uint64_t left = 0;
	int r = find_left(a, &left);

	if (r < 0 || left == 0)
		return r < 0 ? r : 1;

	a->get.key = outer->key;
	a->get.key_len = outer->key_len;
	a->get.tag = outer->tag;
	a->get.tag_len = outer->tag_len;
	a->get.size = outer->size;
	a->get.offset = outer->offset + a->received;
	a->get.length = left;
	a->get.buf = outer->buf ? (char *)outer->buf + a->received : NULL;
	a->get.on_room = outer->on_room ? on_room : NULL;
	a->get.before = a->received;
	a->get.on_progress = on_progress;
	a->get.on_done = on_done;
	a->get.arg = a;
	a->get.deadline_ns = a->deadline_ns;
	a->get.until_ns = a->until_ns;
	a->attempts++;
	/* Under the lock, as promotions are: none falls between the class that is read here and the
	 * lower's queue. The attempt may be gone after. */
	pthread_mutex_lock(&retry->lock);
	a->get.class = a->class;
	a->lower = true;
	r = ufs_get(retry->base.lower, &a->get);
	pthread_mutex_unlock(&retry->lock);
	return r;
}

/* ---- the loop's thread: attempts that wait --------------------------------------------------- */

/* By the rules for all origins, or as this origin marked the failure. */
static bool is_final(const struct attempt *a, int status)
{
	return a->get.final || retry_is_final(status);
}

/* How it ends. What the origin does not give, of whatever kind, is final for those above. */
static int end_of(const struct attempt *a, int status)
{
	if (a->refused && status == -EACCES)
		return -EPERM;
	return is_final(a, status) || retry_refuses(status) ? status : -ETIMEDOUT;
}

void retry_go(struct attempt *a)
{
	enum retry_verdict verdict;
	int r;

	if (is_over(a)) {
		cancel(a);
		return;
	}
	pthread_mutex_lock(&a->retry->lock);
	verdict = retry_object_judge_locked(a);
	pthread_mutex_unlock(&a->retry->lock);
	switch (verdict) {
	case RETRY_SEND:
		if (a->failures)
			counter_add(&a->retry->base.counters->retries, 1);
		r = submit(a);
		if (r > 0)
			retry_finish(a, 0, NULL);
		else if (r < 0)
			retry_finish(a, a->late ? -ETIMEDOUT : r, &a->e);
		break;
	case RETRY_HOLD:
		list_push_back(&a->retry->waiting, &a->link);
		break;
	case RETRY_REFUSED:
	default:
		retry_finish(a, end_of(a, a->status), &a->e);
		break;
	}
}

static void on_timer(void *arg)
{
	struct attempt *a = arg;

	CHECK_MAGIC(a, RETRY_MAGIC);
	list_remove(&a->link);
	a->timer = NULL;
	retry_go(a);
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
		retry_finish(a, a->status, &a->e); /* no memory for a timer: the failure stands */
}

/* One that was not sent as soon as it came. */
static void on_held(struct loop_task *task)
{
	struct attempt *a = container_of(task, struct attempt, task);

	a->task.run = on_task;
	retry_go(a);
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
	uint64_t left = deadline_left(a->until_ns, now);

	if (is_final(a, status) || a->refused || left < RETRY_LAST_NS)
		return false;
	a->delay_ns = retry_refuses(status) ? RETRY_REFUSED_NS
					    : retry_backoff_ns(a->fruitless, a->get.retry_after_ns);
	if (a->delay_ns >= left)
		a->delay_ns = left / 2;
	return true;
}

/* Notes how an attempt ended. True when the request is not wanted any more. One that the deadline
 * cut off has nothing to say: what the attempts before met counts. */
static bool note_failure(struct attempt *a, int status, const struct err *e)
{
	bool over;

	pthread_mutex_lock(&a->retry->lock);
	retry_object_answered_locked(a, status, a->get.got > 0);
	over = a->retry->closing || a->cancelled;
	if (a->failures && status == -ETIMEDOUT && a->get.cause == UFS_CAUSE_NONE) {
		pthread_mutex_unlock(&a->retry->lock);
		return over;
	}
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

static void succeed(struct attempt *a)
{
	pthread_mutex_lock(&a->retry->lock);
	retry_object_answered_locked(a, 0, true);
	pthread_mutex_unlock(&a->retry->lock);
	retry_finish(a, 0, NULL);
}

static void on_done(struct ufs_get *get, int status, const struct err *e)
{
	struct attempt *a = get->arg;
	struct err line = ERR_INIT;

	CHECK_MAGIC(a, RETRY_MAGIC);
	status = take_cut_off(a, status, &e, &line);
	if (get->cause == UFS_CAUSE_CHECKSUM) { /* which of the bytes are damaged is not known */
		a->received = 0;
		a->fruitless++;
	} else {
		a->received += get->got;
		a->fruitless = get->got ? 0 : a->fruitless + 1;
	}
	a->outer->got = a->received;
	a->outer->cause = get->cause;
	a->outer->sent_ns = get->sent_ns;
	a->outer->first_ns = get->first_ns;
	if (status == 0 || a->received == a->outer->length)
		succeed(a); /* whole, even if the end of the answer was not */
	else if (note_failure(a, status, e))
		cancel(a);
	else if (may_try_again(a, status))
		loop_post(a->retry->loop, &a->task);
	else
		retry_finish(a, end_of(a, status), &a->e);
}

/* ---- the table ------------------------------------------------------------------------------- */

static int add(struct retry *retry, struct attempt *a, enum retry_verdict *ret_verdict)
{
	int r;

	pthread_mutex_lock(&retry->lock);
	r = retry->closing ? -ECANCELED : retry_object_join_locked(a);
	if (r < 0) {
		pthread_mutex_unlock(&retry->lock);
		return r;
	}
	*ret_verdict = retry_object_judge_locked(a);
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
	enum retry_verdict verdict = RETRY_SEND;
	int r;

	if (!a)
		return -ENOMEM;
	a->magic = RETRY_MAGIC;
	a->retry = retry;
	a->outer = outer;
	a->class = outer->class;
	a->started_ns = clock_mono_ns();
	a->deadline_ns =
		deadline_earlier(outer->deadline_ns, a->started_ns + ufs->limits.deadline_ns);
	a->until_ns = deadline_earlier(a->deadline_ns,
		deadline_later(outer->until_ns, a->started_ns + ufs->limits.request_timeout_ns));
	list_init(&a->link);
	list_init(&a->by_age);
	r = add(retry, a, &verdict);
	a->task.run = verdict == RETRY_SEND ? on_task : on_held;
	if (r == 0 && verdict == RETRY_SEND)
		r = submit(a);
	else if (r == 0)
		loop_post(retry->loop, &a->task);
	if (r < 0) {
		pthread_mutex_lock(&retry->lock);
		outer->priv = NULL;
		list_remove(&a->by_age);
		retry_object_leave_locked(a);
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
		retry_object_raise_locked(a);
		/* Under our lock, so that the attempt cannot end meanwhile; the lower's lock
		 * ranks below. */
		if (a->lower)
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
		if (a->lower)
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
	shared_loop_put(retry->loop);
	map_release(&retry->partial);
	refused_release(&retry->refused);
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
	.refused = retry_refused,
	.note_refused = retry_note_refused,
	.forget = retry_forget,
	.list_page = retry_list_page,
	.probe = retry_probe,
	.free = retry_free,
};

int ufs_retry_new(struct ufs *lower, struct ufs **ret_ufs)
{
	struct retry *retry = calloc(1, sizeof(*retry));

	if (!retry)
		return -ENOMEM;
	retry->loop = shared_loop_get();
	if (!retry->loop || map_init(&retry->partial, PARTIAL_EXPECTED) < 0 ||
		ufs_base_init(&retry->base, &retry_ops, lower, &lower->limits) < 0) {
		map_release(&retry->partial);
		shared_loop_put(retry->loop);
		free(retry);
		return -ENOMEM;
	}
	pthread_mutex_init(&retry->lock, NULL);
	list_init(&retry->waiting);
	list_init(&retry->fresh);
	list_init(&retry->noted);
	retry->tick_task.run = retry_wait_start;
	retry->cancel_task.run = cancel_marked;
	retry->open_task.run = retry_object_open;
	*ret_ufs = &retry->base;
	return 0;
}
