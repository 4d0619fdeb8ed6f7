/*
 * Sending again what failed because the bucket is elsewhere, because the keys are no longer valid,
 * or because they may not read versions. See s3_internal.h.
 *
 * What was learnt holds for the requests that follow. Those that were under way meanwhile fail as
 * the first did, and see by their epoch that it was learnt already.
 *
 * Keys are looked for by a thread of their own, files and services being slow at times; the
 * exchanges that need them are parked here. Refused keys that did not change are not looked for
 * again within a second.
 *
 * Those that expire are looked for again before: five minutes and some more, so that many who have
 * the same do not ask at once; of short-lived ones half their time. When that fails the rest is
 * halved again. A file that is named is read every minute: somebody may have put others there.
 */
#include "ufs/s3_internal.h"
#include "base/backoff.h"
#include "base/clock.h"
#include "base/log.h"

#include <stdatomic.h>
#include <stdlib.h>

#define S3_RESENDS_MAX  3u
#define S3_RENEW_GAP_NS CLOCK_SECOND

/* Before keys expire. */
#define S3_RENEW_AHEAD_NS     (300 * CLOCK_SECOND)
#define S3_RENEW_AHEAD_SPREAD ((struct backoff_spread){ 100, 120 })
#define S3_RENEW_LONG_NS      (3 * S3_RENEW_AHEAD_NS) /* less is short-lived */
#define S3_RENEW_LATE_NS      (5 * CLOCK_SECOND)      /* between attempts, once they have expired */
#define S3_RENEW_FILE_NS      (60 * CLOCK_SECOND)

struct s3_renew {
	struct s3 *s3;
	struct pool *pool;
	struct pool_job job;
	struct loop_task done;
	struct credentials fresh; /* the job's, then the loop's */
	struct err why;           /* it failed; the same */
	int status;               /* of looking for them */
	_Atomic bool given_up;    /* the job has no waiter any more */

	/* The loop's thread only. */
	bool running;
	uint64_t looked_ns; /* when they were last looked for */
	struct loop_timer *timer;
	struct list parked; /* struct s3_exchange */
};

static bool resend(struct s3 *s3, struct s3_exchange *x, int status, enum ufs_cause cause)
{
	unsigned int resends = x->resends + 1;

	s3_http_again(x);
	x->resends = resends;
	if (x->send(x) < 0)
		return false;
	ufs_count_end(&s3->base, status, cause, 0);
	counter_add(&s3->base.counters->retries, 1);
	return true;
}

/* The day's key is derived anew. */
static void reset_signer(struct s3 *s3)
{
	s3_signer_release(&s3->signer);
	s3_signer_init(&s3->signer, s3->credentials.access_key, s3->credentials.secret_key,
		s3->place.region, "s3");
	s3->epoch++;
}

static bool learn_place(struct s3 *s3, const struct s3_failure *failure)
{
	if (!s3_place_learn(&s3->place, s3->config.bucket, failure->region, failure->endpoint))
		return false;
	reset_signer(s3);
	LOG_LIMITED(LOG_INFO, "region learnt", "bucket=%s region=%s endpoint=%s", s3->config.bucket,
		s3->place.region, s3->place.base_url);
	return true;
}

/* ---- keys ------------------------------------------------------------------------------------ */

struct credentials_query s3_renew_query(const struct s3 *s3)
{
	return (struct credentials_query){
		.reference = s3->config.credentials,
		.profile = s3->config.profile,
		.obs = s3->obs,
		.ca_file = s3->config.ca_file,
		.given_up = &s3->renew->given_up,
	};
}

/* A thread of the pool. */
static void look(struct pool_job *job)
{
	struct s3_renew *renew = container_of(job, struct s3_renew, job);
	const struct credentials_query query = s3_renew_query(renew->s3);

	renew->status = credentials_find(&query, &renew->fresh, &renew->why);
	loop_post(renew->s3->loop, &renew->done);
}

/* False: it cannot be begun. */
static bool start_look(struct s3_renew *renew)
{
	if (renew->running)
		return true;
	if (!renew->pool)
		renew->pool = pool_new("ufs-keys", 1, 1);
	if (!renew->pool || pool_submit(renew->pool, &renew->job) < 0)
		return false;
	renew->running = true;
	return true;
}

/* Until the keys are to be looked for again; 0: only when they are refused. */
static uint64_t next_look_ns(const struct s3 *s3)
{
	int64_t left_s = s3->credentials.expires - (int64_t)(clock_wall_ns() / CLOCK_SECOND);
	uint64_t left;

	if (s3->config.anonymous)
		return 0;
	if (!s3->credentials.expires)
		return credentials_of_file(s3->config.credentials) ? S3_RENEW_FILE_NS : 0;
	if (left_s <= 0)
		return S3_RENEW_LATE_NS;
	left = (uint64_t)min(left_s, (int64_t)INT32_MAX) * CLOCK_SECOND;
	if (left > S3_RENEW_LONG_NS)
		return left - backoff_spread(S3_RENEW_AHEAD_NS, S3_RENEW_AHEAD_SPREAD);
	return max(left / 2, (uint64_t)CLOCK_SECOND);
}

static void look_later(struct s3_renew *renew);

static void on_due(void *arg)
{
	struct s3_renew *renew = arg;

	renew->timer = NULL;
	if (!start_look(renew))
		look_later(renew);
}

/* Without memory for a timer they are looked for once they are refused. */
static void look_later(struct s3_renew *renew)
{
	uint64_t ns = next_look_ns(renew->s3);

	loop_timer_stop(renew->timer);
	renew->timer = ns ? loop_timer_start(renew->s3->loop, ns, on_due, renew) : NULL;
}

void s3_renew_start(struct s3 *s3)
{
	look_later(s3->renew);
}

static void take_fresh(struct s3 *s3, struct s3_renew *renew)
{
	if (renew->status == 0 && !credentials_same(&s3->credentials, &renew->fresh)) {
		struct credentials old = s3->credentials;

		s3->credentials = renew->fresh;
		renew->fresh = (struct credentials){ 0 };
		reset_signer(s3);
		credentials_release(&old);
		counter_add(&s3->base.counters->keys_renewed, 1);
		LOG_LIMITED(LOG_INFO, "credentials read again", "bucket=%s key=%s from=\"%s\"",
			s3->config.bucket, s3->credentials.access_key, s3->credentials.place);
	} else if (renew->status == 0) {
		s3->credentials.expires = renew->fresh.expires;
	} else if (renew->status != -ECANCELED) {
		counter_add(&s3->base.counters->keys_failed, 1);
		LOG_LIMITED(LOG_WARN, "credentials not renewed",
			"bucket=%s reason=\"%s\" next=\"the present ones stay in use\"",
			s3->config.bucket, renew->why.text);
	}
	renew->why = ERR_INIT;
	credentials_release(&renew->fresh);
}

/* The failure stands: the exchange ends with what it got. */
static void give_up(struct s3_exchange *x, int status)
{
	x->resends = S3_RESENDS_MAX;
	x->on_done(x, status);
}

static void on_looked(struct loop_task *task)
{
	struct s3_renew *renew = container_of(task, struct s3_renew, done);
	struct s3 *s3 = renew->s3;
	struct list ready = LIST_INIT(ready);
	struct list *node;

	renew->running = false;
	renew->looked_ns = clock_mono_ns();
	take_fresh(s3, renew);
	if (!atomic_load(&renew->given_up)) /* else a timer would keep the loop from its end */
		look_later(renew);
	list_splice_back(&ready, &renew->parked);
	while ((node = list_pop_front(&ready)) != NULL) {
		struct s3_exchange *x = list_entry(node, struct s3_exchange, link);

		/* Whether keys changed is seen by the epoch. */
		x->on_done(x, x->status);
	}
}

static bool park(struct s3 *s3, struct s3_exchange *x, int http_status)
{
	struct s3_renew *renew = s3->renew;

	if (!renew->running) {
		if (renew->looked_ns && clock_mono_ns() - renew->looked_ns < S3_RENEW_GAP_NS)
			return false;
		if (!start_look(renew))
			return false;
	}
	x->status = http_status;
	list_push_back(&renew->parked, &x->link);
	return true;
}

bool s3_send_again(struct s3 *s3, struct s3_exchange *x, int http_status, int status,
	const struct s3_failure *failure)
{
	bool keys = failure->cause == UFS_CAUSE_EXPIRED || failure->cause == UFS_CAUSE_KEY;

	if (x->resends >= S3_RESENDS_MAX)
		return false;
	/* A policy may let objects be read, and not their versions. The newest will do while it is
	 * the one that was listed, which is checked. */
	if (failure->cause == UFS_CAUSE_FORBIDDEN && x->by_version) {
		x->plain = true;
		return resend(s3, x, status, failure->cause);
	}
	if (x->epoch == s3->epoch && keys && !s3->config.anonymous)
		return park(s3, x, http_status);
	if (failure->cause == UFS_CAUSE_REDIRECT) {
		if (x->epoch == s3->epoch && !learn_place(s3, failure))
			return false;
	} else if (!keys || x->epoch == s3->epoch) {
		return false;
	}
	return resend(s3, x, status, failure->cause);
}

/* ---- life ------------------------------------------------------------------------------------ */

struct s3_renew *s3_renew_new(struct s3 *s3)
{
	struct s3_renew *renew = calloc(1, sizeof(*renew));

	if (!renew)
		return NULL;
	renew->s3 = s3;
	renew->job.run = look;
	renew->done.run = on_looked;
	list_init(&renew->parked);
	return renew;
}

void s3_renew_cancel(struct s3 *s3, bool (*want)(const struct s3_exchange *x, void *arg), void *arg)
{
	struct list ended = LIST_INIT(ended);
	struct list *node;

	list_for_each_safe (at, &s3->renew->parked) {
		if (!want(list_entry(at, struct s3_exchange, link), arg))
			continue;
		list_remove(at);
		list_push_back(&ended, at);
	}
	while ((node = list_pop_front(&ended)) != NULL)
		give_up(list_entry(node, struct s3_exchange, link), -ECANCELED);
}

static bool all(const struct s3_exchange *x, void *arg)
{
	(void)x;
	(void)arg;
	return true;
}

void s3_renew_close(struct s3 *s3)
{
	loop_timer_stop(s3->renew->timer);
	s3->renew->timer = NULL;
	s3_renew_cancel(s3, all, NULL);
	atomic_store(&s3->renew->given_up, true);
	pool_free(s3->renew->pool); /* may post `done` once more, which runs before the loop ends */
	s3->renew->pool = NULL;
}

void s3_renew_free(struct s3_renew *renew)
{
	if (!renew)
		return;
	credentials_release(&renew->fresh);
	free(renew);
}
