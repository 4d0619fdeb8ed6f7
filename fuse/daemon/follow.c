/* Newer generations of a mount. See follow.h. */
#include "fuse/daemon/follow.h"
#include "fuse/daemon/live.h"
#include "base/backoff.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/periodic.h"
#include "mount/mounter.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_NS     (CLOCK_SECOND / 5)
#define AGAIN_LEAST (5 * CLOCK_SECOND)
#define AGAIN_MOST  (60 * CLOCK_SECOND)

/* What people may want to know: of several sources the sum of their generations, and the oldest. */
struct report {
	bool heard;            /* the master has answered */
	bool follows;          /* it says that the newest is to be shown */
	bool behind;           /* that is another one than is shown */
	uint64_t generation;   /* shown */
	uint64_t newest;       /* known; of another lineage than shown: any number */
	int64_t shown_ms;      /* since 1970: what is shown was the origin's then; 0: not known */
	int64_t now_ms;        /* the time at the master, since 1970; 0: unknown */
	bool listed;           /* the requested listings have completed */
	bool listing;          /* a background listing is pending */
	uint64_t behind_since; /* monotonic ns; 0: the newest is shown */
	char why[ERR_TEXT_MAX];
};

struct follow {
	struct cachefuse *c;
	struct pool *pool; /* for `work` */
	struct periodic_work work;
	pthread_mutex_t lock; /* of `report`; a leaf */
	struct report report;
	/* Of the work. */
	bool listing;           /* struct report */
	struct backoff backoff; /* between tries */
	uint64_t again_ns;
};

/* It was mounted to follow. */
static bool is_wanted(const struct cachefuse *c)
{
	return c->options.follow_dataset || c->options.follow || c->options.refresh_behind;
}

bool follow_is_live(const struct cachefuse *c)
{
	return c->engine == &engine_fuse && is_wanted(c);
}

bool follow_possible(const struct engine *engine, struct err *e)
{
	if (engine == &engine_fuse || (mounter_is_apart() && mounter_may_attach_beneath()))
		return true;
	(void)err_set(e, -EOPNOTSUPP,
		"the native engine can switch generations only as root on Linux 6.5 "
		"or newer: use --engine fuse");
	return false;
}

size_t follow_key(const struct cachefuse *c, char *out, size_t size)
{
	int n = 0;

	if (c->options.follow_dataset)
		n = snprintf(out, size, " follow=%s", c->options.dataset);
	else if (c->options.follow)
		n = snprintf(out, size, " follow=%" PRIu64, c->options.follow);
	return (size_t)max(n, 0);
}

/* ---- what is to be done ---------------------------------------------------------------------- */

/* Did a listing that began after `since` (monotonic) find the generation shown? Compares ages, never clocks of two hosts. */
static bool is_fresh(const struct client_hold_news *news, uint64_t since)
{
	return news->shown_ms && news->now_ms >= news->shown_ms &&
	       (uint64_t)(news->now_ms - news->shown_ms) < (news->heard_ns - since) / CLOCK_MS;
}

/* Has the requested listing completed? follow == false: the master does not list for this mount (a token, or a dataset
 * that was rolled back). */
static bool is_listed(const struct client_hold_news *news)
{
	return news->now_ms >= news->since_ms &&
	       (!news->follow ||
		       (news->newest_ms >= news->since_ms && news->newest_ms <= news->now_ms));
}

static bool follows_on(const struct cachefuse *c)
{
	return c->options.follow || c->options.follow_dataset;
}

/* What the master said of one source. */
static void look_at(const struct follow *f, struct report *r, const struct slots_source *shown,
	struct client_hold *hold)
{
	struct client_hold_news news;

	client_hold_news(hold, &news);
	r->heard &= news.heard_ns != 0;
	r->listed &= news.since_ms ? is_listed(&news) : is_fresh(&news, f->c->started);
	r->now_ms = max(r->now_ms, news.now_ms);
	if (news.shown_ms && (!r->shown_ms || news.shown_ms < r->shown_ms))
		r->shown_ms = news.shown_ms;
	if (!(f->listing || follows_on(f->c)) || !news.follow || !news.generation) {
		r->newest += shown->generation;
		return;
	}
	r->follows = true;
	r->newest += news.generation;
	r->behind |= news.lineage != shown->lineage || news.generation > shown->generation;
}

static void request_all(const struct cachefuse *c)
{
	for (uint32_t i = 0; i < c->sources.n; i++)
		if (!c->sources.all[i].shares)
			source_request(c, c->sources.all[i].hold);
}

static void end_listing(struct follow *f, const struct report *r)
{
	if (!r->now_ms)
		log_warn("no background listing", "mountpoint=\"%s\" why=\"%s\"", f->c->mountpoint,
			"the master is of an older version");
	else
		log_info("background listing done", "mountpoint=\"%s\" generation=%" PRIu64,
			f->c->mountpoint, r->generation);
	slots_live(f->c->slots)->listed = 1; /* a restarted daemon must not list again */
	f->listing = false;
	f->c->listing_since_ms = 0;
}

/* Requests one listing that begins after this mount, and pins the mount to the generation that it finds. A mount that
 * also follows goes on following. */
static void look_at_listing(struct follow *f, const struct report *r)
{
	int64_t before = f->c->listing_since_ms;

	if (!f->listing || !r->heard)
		return;
	if (!r->now_ms || (r->listed && !r->behind))
		end_listing(f, r);
	else if (!before || r->now_ms < before) /* the master's clock was set back */
		f->c->listing_since_ms = r->now_ms;
	if (f->c->listing_since_ms != before)
		request_all(f->c);
}

/* With several sources, waits for all listings: natively, the next daemon is pinned. */
static bool may_move(const struct follow *f, const struct report *r)
{
	return r->listed || !f->listing || follows_on(f->c);
}

/* True when something newer is to be shown. */
static bool look(struct follow *f)
{
	const struct slots_sources *shown = slots_sources(f->c->slots);
	struct report now = { .heard = true, .listed = true };
	struct report *r = &f->report;

	for (uint32_t i = 0; i < f->c->sources.n; i++) {
		if (f->c->sources.all[i].shares)
			continue; /* counted with the one it shares with */
		now.generation += shown->all[i].generation;
		look_at(f, &now, &shown->all[i], f->c->sources.all[i].hold);
	}
	look_at_listing(f, &now);
	now.listing = f->listing;
	pthread_mutex_lock(&f->lock);
	if (!now.heard && r->heard) { /* of what is shown since a moment ago */
		now.heard = true;
		now.follows |= r->follows;
		now.shown_ms = r->shown_ms;
	}
	if (now.behind)
		now.behind_since = r->behind_since ? r->behind_since : clock_mono_ns();
	if (now.behind)
		memcpy(now.why, r->why, sizeof(now.why));
	*r = now;
	pthread_mutex_unlock(&f->lock);
	if (!now.behind) {
		f->again_ns = 0;
		backoff_reset(&f->backoff);
	}
	return now.behind && may_move(f, &now);
}

static void try_newer(struct follow *f)
{
	char why[ERR_TEXT_MAX] = "";
	struct err e = ERR_INIT;
	int r = f->c->live ? live_move(f->c, why, &e) : mounter_newer(why, &e);

	f->again_ns = clock_mono_ns() + backoff_next(&f->backoff);
	if (r < 0) {
		(void)err_default(&e, r,
			"a mounted generation cannot be replaced with this kernel, or by this "
			"user");
		(void)snprintf(why, sizeof(why), "%s", e.text);
	}
	pthread_mutex_lock(&f->lock);
	memcpy(f->report.why, why, sizeof(f->report.why));
	pthread_mutex_unlock(&f->lock);
	if (r < 0)
		LOG_LIMITED(LOG_WARN, "newer generation not shown",
			"mountpoint=\"%s\" why=\"%s\" next=\"tried again\"", f->c->mountpoint, why);
}

static uint64_t run(void *arg)
{
	struct follow *f = arg;

	if ((look(f) || live_pending(f->c)) && clock_mono_ns() >= f->again_ns)
		try_newer(f);
	return LOOK_NS;
}

/* ---- life ------------------------------------------------------------------------------------ */

static void release(struct follow *f)
{
	pool_free(f->pool);
	pthread_mutex_destroy(&f->lock);
	free(f);
}

int follow_open(struct cachefuse *c)
{
	struct err e = ERR_INIT;
	struct follow *f;

	if (!is_wanted(c))
		return 0;
	if (!follow_possible(mounted_engine(c->mounted), &e) &&
		!c->notice[0]) /* of a dataset: others may */
		(void)snprintf(c->notice, sizeof(c->notice),
			"the dataset follows its sources, and this mount cannot: it stays with "
			"what it shows now");
	f = calloc(1, sizeof(*f));
	if (!f)
		return -ENOMEM;
	f->c = c;
	f->listing = f->report.listing = c->options.refresh_behind && !slots_live(c->slots)->listed;
	f->backoff = (struct backoff){ .min_ns = AGAIN_LEAST, .max_ns = AGAIN_MOST };
	pthread_mutex_init(&f->lock, NULL);
	f->pool = pool_new("fuse-follow", 1, 1);
	if (!f->pool) {
		release(f);
		return -EAGAIN;
	}
	f->work = (struct periodic_work){ .name = "follow", .run = run, .arg = f };
	request_all(c);
	c->follow = f;
	periodic_start(f->pool, &f->work, 0);
	return 0;
}

void follow_close(struct cachefuse *c)
{
	struct follow *f = c->follow;

	if (!f)
		return;
	live_stop(c);
	periodic_stop(&f->work);
	c->follow = NULL;
	release(f);
}

/* ---- told ------------------------------------------------------------------------------------ */

static void get_report(const struct cachefuse *c, struct report *ret)
{
	pthread_mutex_lock(&c->follow->lock);
	*ret = c->follow->report;
	pthread_mutex_unlock(&c->follow->lock);
}

/* Since what is shown was the origin's; 0 where that is not known. */
static double lag_seconds(const struct report *r)
{
	int64_t now = (int64_t)(clock_wall_ns() / CLOCK_MS);

	return r->shown_ms ? (double)max(now - r->shown_ms, (int64_t)0) / 1e3 : 0;
}

static double behind_seconds(const struct report *r)
{
	return r->behind_since ? (double)(clock_mono_ns() - r->behind_since) / 1e9 : 0;
}

/* The background listing is done and nothing is followed. */
static bool is_pinned(const struct cachefuse *c, const struct report *r)
{
	return !follows_on(c) && !r->listing;
}

uint64_t follow_hold_every(const struct cachefuse *c)
{
	struct report r;

	if (!c->follow)
		return CLIENT_HOLD_EVERY;
	get_report(c, &r);
	return is_pinned(c, &r) ? CLIENT_HOLD_EVERY : FOLLOW_HOLD_EVERY;
}

json_t *follow_json(const struct cachefuse *c)
{
	struct report r;
	json_t *json;

	if (!c->follow)
		return json_null();
	get_report(c, &r);
	if (is_pinned(c, &r))
		return json_null();
	json = json_pack("{s:b, s:b, s:I, s:I, s:f}", "follows", r.heard && r.follows, "listing",
		(int)r.listing, "generation", (json_int_t)r.generation, "newest",
		(json_int_t)r.newest, "behind_s", behind_seconds(&r));
	/* Remarks: without memory they are left out. */
	if (json && r.shown_ms)
		(void)json_object_set_new(json, "lag_s", json_real(lag_seconds(&r)));
	if (json && r.why[0])
		(void)json_object_set_new(json, "why", json_string(r.why));
	return json;
}

void follow_metrics(const struct cachefuse *c, struct metrics *m)
{
	static const struct metric_family lag = { "granary_follow_lag_seconds", GAUGE, "seconds",
		"Since the listing began that found what a mount that follows its source shows" };
	static const struct metric_family behind = { "granary_follow_behind_seconds", GAUGE,
		"seconds",
		"Time since a mount that follows its source has seen a newer generation" };
	static const struct metric_family follows = { "granary_follow", GAUGE, "boolean",
		"Does the mount follow its source?" };
	struct report r = { 0 };

	if (c->follow)
		get_report(c, &r);
	if (is_pinned(c, &r))
		r = (struct report){ 0 };
	metrics_one(m, &follows, r.heard && r.follows);
	metrics_family(m, &lag);
	metrics_real(m, &lag, NULL, lag_seconds(&r));
	metrics_family(m, &behind);
	metrics_real(m, &behind, NULL, behind_seconds(&r));
}
