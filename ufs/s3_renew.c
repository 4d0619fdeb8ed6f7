/*
 * Sending again what failed because the bucket is elsewhere, or because the keys are no longer
 * valid. See s3_internal.h.
 *
 * What was learnt holds for the requests that follow. Those that were under way meanwhile fail as
 * the first did, and see by their epoch that it was learnt already.
 *
 * Keys are read by a thread of their own, files being slow at times; the exchanges that need them
 * are parked here. A file that did not change is not read again within a second.
 */
#include "ufs/s3_internal.h"
#include "base/clock.h"
#include "base/log.h"

#include <stdlib.h>

#define S3_RESENDS_MAX  3u
#define S3_RENEW_GAP_NS CLOCK_SECOND

struct s3_renew {
	struct s3 *s3;
	struct pool *pool;
	struct pool_job job;
	struct loop_task done;
	struct credentials fresh; /* the job's, then the loop's */
	int status;               /* of looking for them */

	/* The loop's thread only. */
	bool running;
	uint64_t looked_ns; /* when they were last looked for */
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

/* A thread of the pool. */
static void look(struct pool_job *job)
{
	struct s3_renew *renew = container_of(job, struct s3_renew, job);

	renew->status = credentials_find(renew->s3->config.profile, &renew->fresh, NULL);
	loop_post(renew->s3->loop, &renew->done);
}

static void take_fresh(struct s3 *s3, struct s3_renew *renew)
{
	if (renew->status == 0 && !credentials_same(&s3->credentials, &renew->fresh)) {
		struct credentials old = s3->credentials;

		s3->credentials = renew->fresh;
		renew->fresh = (struct credentials){ 0 };
		reset_signer(s3);
		credentials_release(&old);
		LOG_LIMITED(LOG_INFO, "credentials read again", "bucket=%s key=%s from=\"%s\"",
			s3->config.bucket, s3->credentials.access_key, s3->credentials.place);
	}
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
		if (!renew->pool)
			renew->pool = pool_new("ufs-keys", 1, 1);
		if (!renew->pool || pool_submit(renew->pool, &renew->job) < 0)
			return false;
		renew->running = true;
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
	s3_renew_cancel(s3, all, NULL);
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
