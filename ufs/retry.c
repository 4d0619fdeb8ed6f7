/*
 * The retry decorator: failures that pass are tried again, with exponential backoff and full
 * jitter, until a request's deadline. What was received stays received: the next attempt asks for
 * the rest.
 *
 *	attempt under way (the lower's) -> failed -> waiting for its timer (on our loop)
 *	-> under way ... -> done
 *
 * Refusals (a changed or missing object, a refused key, a missing bucket) do not pass by waiting. An
 * object store is many servers, though, and one of them may be behind, or wrong for a moment: a
 * refusal is believed when the same comes several times in a row, within about a second. So is an
 * answer that is none to the question asked (another range, no range).
 */
#include "ufs/ufs_internal.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/loop.h"

#include <pthread.h>
#include <stdlib.h>

#define RETRY_MAGIC          0x55525452u
#define RETRY_ATTEMPTS_MAX   64u
#define RETRY_REFUSALS_MAX   8u /* in a row; then it is true */
#define RETRY_PROBES_MAX     3u
#define RETRY_BASE_NS        (100 * CLOCK_MS)
#define RETRY_CAP_NS         (10 * CLOCK_SECOND)
#define RETRY_REFUSAL_CAP_NS (250 * CLOCK_MS) /* a reader waits for an error that is likely true */

struct retry {
	struct ufs base;
	struct loop *loop;
	pthread_mutex_t lock; /* closing, and the priv of the callers' requests */
	bool closing;
	struct list waiting; /* attempts with a timer; the loop's thread only */
};

struct attempt {
	uint32_t magic;
	struct list link; /* retry.waiting */
	struct loop_task task;
	struct loop_timer *timer;
	struct retry *retry;
	struct ufs_get get; /* to the lower origin */
	struct ufs_get *outer;
	uint64_t received; /* by earlier attempts */
	uint64_t deadline_ns;
	uint64_t started_ns;
	uint64_t delay_ns;
	_Atomic enum ufs_class class; /* as promoted; the next attempt's */
	unsigned int attempts;
	unsigned int fruitless; /* attempts in a row that brought nothing: the backoff's exponent */
	unsigned int refusals;  /* the same refusal in a row */
	int status;             /* of the last attempt */
	struct err e;
};

static struct retry *retry_of(struct ufs *ufs)
{
	return container_of(ufs, struct retry, base);
}

static bool passes(int status)
{
	return status == -EAGAIN || status == -EIO || status == -ECONNREFUSED ||
	       status == -ECONNRESET || status == -EHOSTUNREACH || status == -ENETUNREACH ||
	       status == -ETIMEDOUT || status == -ENOMEM;
}

static bool refuses(int status)
{
	return status == -ESTALE || status == -ENOENT || status == -EACCES ||
	       status == -EKEYREJECTED || status == -ENXIO || status == -EREMCHG ||
	       status == -EPROTO;
}

/* Full jitter: anything up to the cap, so that many who failed together do not come back
 * together. */
static uint64_t backoff_ns(unsigned int fruitless, uint64_t asked_ns)
{
	static _Atomic uint64_t calls;
	uint64_t seed[2] = { clock_mono_ns(), atomic_fetch_add(&calls, 1) };
	unsigned int doublings = min(fruitless, 10u);
	uint64_t cap = min(RETRY_CAP_NS, RETRY_BASE_NS << doublings);

	return max(hash_xxh3(seed, sizeof(seed), 0) % cap, asked_ns);
}

static bool is_closing(struct retry *retry)
{
	bool closing;

	pthread_mutex_lock(&retry->lock);
	closing = retry->closing;
	pthread_mutex_unlock(&retry->lock);
	return closing;
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
	pthread_mutex_unlock(&a->retry->lock);
	a->magic = 0;
	free(a);
	outer->on_done(outer, status, status < 0 ? &line : NULL);
}

static void cancel(struct attempt *a)
{
	struct err e = ERR_INIT;

	(void)err_set(&e, -ECANCELED, "the origin is being closed");
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
	a->get.class = a->class;
	a->attempts++;
	return ufs_get(a->retry->base.lower, &a->get);
}

/* ---- the loop's thread: attempts that wait --------------------------------------------------- */

static void on_timer(void *arg)
{
	struct attempt *a = arg;

	CHECK_MAGIC(a, RETRY_MAGIC);
	list_remove(&a->link);
	a->timer = NULL;
	counter_add(&a->retry->base.counters->retries, 1);
	if (submit(a) < 0)
		cancel(a);
}

static void on_task(struct loop_task *task)
{
	struct attempt *a = container_of(task, struct attempt, task);

	if (is_closing(a->retry)) {
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

	while ((node = list_pop_front(&retry->waiting)) != NULL) {
		struct attempt *a = list_entry(node, struct attempt, link);

		loop_timer_stop(a->timer);
		cancel(a);
	}
}

/* ---- the origin's thread --------------------------------------------------------------------- */

static bool may_try_again(struct attempt *a, int status)
{
	uint64_t now = clock_mono_ns();

	if (!passes(status) && !refuses(status))
		return false;
	if (a->attempts >= RETRY_ATTEMPTS_MAX || a->refusals >= RETRY_REFUSALS_MAX)
		return false;
	a->delay_ns = backoff_ns(a->fruitless, a->get.retry_after_ns);
	if (a->refusals && status != -EPROTO) /* a broken proxy takes longer */
		a->delay_ns = min(a->delay_ns, (uint64_t)RETRY_REFUSAL_CAP_NS);
	return now + a->delay_ns < a->deadline_ns;
}

static void on_done(struct ufs_get *get, int status, const struct err *e)
{
	struct attempt *a = get->arg;

	CHECK_MAGIC(a, RETRY_MAGIC);
	a->received += get->got;
	a->fruitless = get->got ? 0 : a->fruitless + 1;
	a->refusals = !refuses(status) ? 0 : status == a->status ? a->refusals + 1 : 1;
	a->outer->got = a->received;
	if (status == 0 || (passes(status) && a->received == a->outer->length)) {
		finish(a, 0, NULL); /* whole, even if the end of the answer was not */
	} else if (is_closing(a->retry)) {
		cancel(a);
	} else if (may_try_again(a, status)) {
		a->status = status;
		a->e = e ? *e : ERR_INIT;
		loop_post(a->retry->loop, &a->task);
	} else {
		finish(a, status, e);
	}
}

/* ---- the table ------------------------------------------------------------------------------- */

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
	pthread_mutex_lock(&retry->lock);
	outer->priv = a;
	r = retry->closing ? -ECANCELED : 0;
	pthread_mutex_unlock(&retry->lock);
	if (r == 0)
		r = submit(a);
	if (r < 0) {
		outer->priv = NULL;
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

static int retry_list_page(struct ufs *ufs, const struct ufs_page_request *request,
	struct ufs_page *page, struct err *e)
{
	struct retry *retry = retry_of(ufs);
	uint64_t deadline = clock_mono_ns() + ufs->limits.deadline_ns;

	for (unsigned int attempt = 0;; attempt++) {
		int r = ufs_list_page(ufs->lower, request, page, e);
		uint64_t delay = backoff_ns(attempt, page->retry_after_ns);

		if (r == 0 || !passes(r) || attempt + 1 >= RETRY_ATTEMPTS_MAX ||
			is_closing(retry) || clock_mono_ns() + delay >= deadline)
			return r;
		counter_add(&ufs->counters->retries, 1);
		clock_sleep_ns(delay);
	}
}

/* A person waits: only what a busy server answers is asked again. */
static int retry_probe(struct ufs *ufs, struct err *e)
{
	for (unsigned int attempt = 1;; attempt++) {
		int r = ufs_probe(ufs->lower, e);

		if ((r != -EAGAIN && r != -EIO) || attempt == RETRY_PROBES_MAX)
			return r;
		counter_add(&ufs->counters->retries, 1);
		clock_sleep_ns(backoff_ns(attempt, 0));
	}
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
	*ret_ufs = &retry->base;
	return 0;
}
