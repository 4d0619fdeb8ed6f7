/*
 * The S3 origin: opening, and requests queued by class. See ufs.h.
 *
 * Callers put requests into queues under a lock and wake the loop; the loop's thread starts them
 * while there are places, and runs their callbacks. Demand goes first. The other classes may hold at
 * most three of four places, and start a request only while all requests together do not fill the way to
 * the origin (background.h): a reader never waits for a place behind prefetch, and where readers' requests
 * alone fill the way, they have nearly all of it.
 */
#include "ufs/s3_internal.h"
#include "base/clock.h"
#include "base/deadline.h"
#include "base/layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define S3_URL_MAX      (16u * 1024)
#define S3_LISTS_MORE   8u  /* beyond one listing's: probes */
#define S3_WINDOW_FIRST 32u /* GETs before the first answers */
#define S3_LOW_ALONE    32u /* while no reader waits: enough for a server on the same network */
#define S3_ALONE_NS     CLOCK_SECOND /* after a reader's last GET */

static struct s3 *s3_of(struct ufs *ufs)
{
	return container_of(ufs, struct s3, base);
}

/* ---- any thread ------------------------------------------------------------------------------ */

static void wake_locked(struct s3 *s3)
{
	if (!s3->woken) {
		s3->woken = true;
		loop_post(s3->loop, &s3->wake);
	}
}

static int s3_get(struct ufs *ufs, struct ufs_get *get)
{
	struct s3 *s3 = s3_of(ufs);
	int r = 0;

	list_init(&get->link);
	pthread_mutex_lock(&s3->lock);
	if (s3->closing || atomic_load(&get->cancelled)) {
		r = -ECANCELED;
	} else {
		list_push_back(&s3->queues[get->class], &get->link);
		counter_add(&ufs->counters->queued, 1);
		wake_locked(s3);
	}
	pthread_mutex_unlock(&s3->lock);
	return r;
}

/* A request that is linked is waiting, unless it was given up or all are ending: then the loop may
 * be taking it off a list of its own, without the lock. One under way, or done, is not linked. */
static bool is_waiting_locked(const struct s3 *s3, const struct ufs_get *get)
{
	return !s3->closing && !atomic_load(&get->cancelled) && get->link.next &&
	       !list_empty(&get->link);
}

static void s3_promote(struct ufs *ufs, struct ufs_get *get, enum ufs_class class)
{
	struct s3 *s3 = s3_of(ufs);

	pthread_mutex_lock(&s3->lock);
	if (is_waiting_locked(s3, get) && class < get->class) {
		list_remove(&get->link);
		get->class = class;
		list_push_back(&s3->queues[class], &get->link);
		wake_locked(s3);
	}
	pthread_mutex_unlock(&s3->lock);
}

/* The callers keep a request that may still be promoted or cancelled from ending: see retry.c. */
static void s3_cancel(struct ufs *ufs, struct ufs_get *get)
{
	struct s3 *s3 = s3_of(ufs);

	bool waiting;

	pthread_mutex_lock(&s3->lock);
	waiting = is_waiting_locked(s3, get);
	if (!atomic_exchange(&get->cancelled, true) && !s3->closing) {
		if (waiting) {
			list_remove(&get->link);
			list_push_back(&s3->cancelled, &get->link);
		} else {
			s3->cancels = true;
		}
		wake_locked(s3);
	}
	pthread_mutex_unlock(&s3->lock);
}

/* Waits for news; a call that is not wanted any more ends: at once while it has no place, else by
 * its exchange. */
static void wait_for_list_locked(struct s3 *s3, struct s3_list_call *call)
{
	uint64_t look = clock_mono_ns() + UFS_LIST_LOOK_NS;
	struct timespec until = { .tv_sec = (time_t)(look / CLOCK_SECOND),
		.tv_nsec = (long)(look % CLOCK_SECOND) };

	if (atomic_load(&call->cancelled)) {
		pthread_cond_wait(&call->done, &s3->lock); /* its exchange is being ended */
		return;
	}
	/* Looked at again. */
	(void)pthread_cond_clockwait(&call->done, &s3->lock, CLOCK_MONOTONIC, &until);
	if (call->finished || !ufs_list_is_over(&s3->base, call->request))
		return;
	if (!list_empty(&call->link)) {
		list_remove(&call->link);
		call->finished = true;
		call->status = err_set(&call->e, -ECANCELED, "the listing was canceled");
		return;
	}
	atomic_store(&call->cancelled, true);
	s3->list_cancels = true;
	wake_locked(s3);
}

int s3_list_run(struct s3 *s3, struct s3_list_call *call)
{
	call->s3 = s3;
	call->finished = false;
	pthread_cond_init(&call->done, NULL);
	pthread_mutex_lock(&s3->lock);
	if (s3->closing) {
		call->status = err_set(&call->e, -ECANCELED, "the origin is being closed");
	} else {
		list_push_back(&s3->lists, &call->link);
		wake_locked(s3);
		while (!call->finished)
			wait_for_list_locked(s3, call);
	}
	pthread_mutex_unlock(&s3->lock);
	pthread_cond_destroy(&call->done);
	return call->status;
}

/* ---- the loop's thread ----------------------------------------------------------------------- */

/* The next LIST that may start, unlinked. More than one listing at a time share the places. */
static struct s3_list_call *next_list_locked(struct s3 *s3)
{
	struct list *node = NULL;

	if (s3->lists_in_flight < window_places(&s3->list_window))
		node = list_pop_front(&s3->lists);
	return node ? list_entry(node, struct s3_list_call, link) : NULL;
}

/* How many of the places the lower classes may hold. */
static unsigned int places_for_low(unsigned int places)
{
	return max(1u, places - (places + 3) / 4);
}

/* How many requests fill the way. Without readers too many of them delay none. */
static unsigned int places_of_way(const struct s3 *s3)
{
	unsigned int places = background_places(&s3->background);
	bool alone =
		s3->in_flight == s3->in_flight_low && clock_mono_ns() - s3->demand_ns > S3_ALONE_NS;

	return alone ? max(places, S3_LOW_ALONE) : places;
}

static bool low_may_start(const struct s3 *s3, unsigned int places)
{
	if (s3->in_flight_low >= places_for_low(places))
		return false;
	return s3->in_flight_low < BACKGROUND_LEAST || s3->in_flight < places_of_way(s3);
}

/* The next GET that may start, unlinked; *ret_low when it takes one of the lower classes'
 * places. */
static struct ufs_get *next_get_locked(struct s3 *s3, bool *ret_low)
{
	unsigned int places = window_places(&s3->window);
	bool low = low_may_start(s3, places);

	if (s3->in_flight >= places)
		return NULL;
	for (int class = UFS_DEMAND; class < UFS_CLASSES; class ++) {
		struct list *node;

		if (class != UFS_DEMAND && !low)
			return NULL;
		node = list_pop_front(&s3->queues[class]);
		if (node) {
			*ret_low = class != UFS_DEMAND;
			return list_entry(node, struct ufs_get, link);
		}
	}
	return NULL;
}

void s3_get_end(struct s3 *s3, struct ufs_get *get, int status, const struct err *e)
{
	ufs_count_end(&s3->base, status, get->cause, get->got);
	get->on_done(get, status, status < 0 ? e : NULL);
}

void s3_list_end(struct s3 *s3, struct s3_list_call *call, int status, enum ufs_cause cause)
{
	ufs_count_end(&s3->base, status, cause, 0);
	pthread_mutex_lock(&s3->lock);
	call->status = status;
	call->finished = true;
	pthread_cond_signal(&call->done); /* under the lock: `call` is gone once it is released */
	if (!s3->closing && !list_empty(&s3->lists))
		wake_locked(s3);
	pthread_mutex_unlock(&s3->lock);
}

void s3_learn_window(struct s3 *s3, struct window *window, const struct s3_exchange *x,
	enum ufs_cause cause, unsigned int in_flight)
{
	struct ufs_counters *counters = s3->base.counters;
	uint64_t cuts = window->cuts;
	uint64_t now = clock_mono_ns();

	if (cause == UFS_CAUSE_SLOW_DOWN)
		window_refused(window, now, x->sent_ns);
	else if (x->latency_ns && (cause == UFS_CAUSE_NONE || cause == UFS_CAUSE_SHORT_BODY))
		window_answered(window, now, x->latency_ns, in_flight);
	counter_add(&counters->window_cuts, window->cuts - cuts);
	counter_set(window == &s3->window ? &counters->window : &counters->list_window,
		window_places(window));
}

static void start_get(struct s3 *s3, struct ufs_get *get, bool low)
{
	struct err e = ERR_INIT;
	int r;

	counter_sub(&s3->base.counters->queued, 1);
	if (deadline_left(deadline_earlier(get->deadline_ns, get->until_ns), clock_mono_ns()) ==
		0) {
		r = err_set(&e, -ETIMEDOUT,
			"%s: the deadline passed while waiting for a free request slot", s3->name);
		s3_get_end(s3, get, r, &e);
		return;
	}
	s3->in_flight++;
	s3->in_flight_low += low;
	if (!low)
		s3->demand_ns = clock_mono_ns();
	counter_add(&s3->base.counters->in_flight, 1);
	counter_add(&s3->base.counters->gets, 1);
	r = s3_get_start(s3, get, low);
	if (r < 0) {
		s3_place_free(s3, low);
		(void)err_set(
			&e, r, "%s: the request could not be sent (%s)", s3->name, err_str(r));
		s3_get_end(s3, get, r, &e);
	}
}

static void start_list(struct s3 *s3, struct s3_list_call *call)
{
	int r;

	s3->lists_in_flight++;
	r = s3_list_start(s3, call);

	if (r < 0) {
		s3->lists_in_flight--;
		(void)err_set(&call->e, r, "%s: the request could not be sent (%s)", s3->name,
			err_str(r));
		s3_list_end(s3, call, r, UFS_CAUSE_OTHER);
	} else {
		counter_add(&s3->base.counters->lists, 1);
	}
}

/* Starts what may start. The lock is not held while something starts: a failure calls back. */
static void run_queues(struct s3 *s3)
{
	for (;;) {
		struct s3_list_call *call;
		struct ufs_get *get;
		bool low = false;

		pthread_mutex_lock(&s3->lock);
		call = next_list_locked(s3);
		get = call ? NULL : next_get_locked(s3, &low);
		pthread_mutex_unlock(&s3->lock);
		if (call)
			start_list(s3, call);
		else if (get)
			start_get(s3, get, low);
		else
			return;
	}
}

/* Those that were waiting end here, those under way by their exchange. */
static void end_cancelled(struct s3 *s3, struct list *gets, bool marked)
{
	struct err e = ERR_INIT;
	struct list *node;

	(void)err_set(&e, -ECANCELED, "the request was canceled");
	while ((node = list_pop_front(gets)) != NULL) {
		counter_sub(&s3->base.counters->queued, 1);
		s3_get_end(s3, list_entry(node, struct ufs_get, link), -ECANCELED, &e);
	}
	if (marked)
		s3_get_cancel_marked(s3);
}

static void on_wake(struct loop_task *task)
{
	struct s3 *s3 = container_of(task, struct s3, wake);
	struct list cancelled = LIST_INIT(cancelled);
	bool marked;
	bool lists;

	pthread_mutex_lock(&s3->lock);
	s3->woken = false;
	list_splice_back(&cancelled, &s3->cancelled);
	marked = s3->cancels;
	s3->cancels = false;
	lists = s3->list_cancels;
	s3->list_cancels = false;
	pthread_mutex_unlock(&s3->lock);
	if (lists)
		s3_list_cancel_marked(s3);
	end_cancelled(s3, &cancelled, marked);
	run_queues(s3);
}

/* The place is filled by a task of its own, so that a callback that fails at once cannot
 * recurse. */
void s3_place_free(struct s3 *s3, bool low)
{
	s3->in_flight--;
	s3->in_flight_low -= low;
	counter_sub(&s3->base.counters->in_flight, 1);
	pthread_mutex_lock(&s3->lock);
	if (!s3->closing)
		wake_locked(s3);
	pthread_mutex_unlock(&s3->lock);
}

static void start_http(void *arg)
{
	struct s3 *s3 = arg;
	struct s3_http_config config = {
		.loop = s3->loop,
		.max_exchanges = s3->base.limits.max_requests + s3->base.limits.list_requests +
				 S3_LISTS_MORE,
		.progress_timeout_ns = s3->base.limits.request_timeout_ns,
		.way = s3->way,
	};

	s3->http = s3_http_new(&config);
	if (s3->http)
		s3_renew_start(s3);
}

/* What waits ends first, so that what is under way frees no place for it. */
static void close_on_loop(void *arg)
{
	struct s3 *s3 = arg;
	struct list gets = LIST_INIT(gets);
	struct list lists = LIST_INIT(lists);
	struct err e = ERR_INIT;
	struct list *node;

	pthread_mutex_lock(&s3->lock);
	for (int class = 0; class < UFS_CLASSES; class ++)
		list_splice_back(&gets, &s3->queues[class]);
	list_splice_back(&gets, &s3->cancelled);
	list_splice_back(&lists, &s3->lists);
	pthread_mutex_unlock(&s3->lock);
	(void)err_set(&e, -ECANCELED, "the origin is being closed");
	while ((node = list_pop_front(&gets)) != NULL) {
		counter_sub(&s3->base.counters->queued, 1);
		s3_get_end(s3, list_entry(node, struct ufs_get, link), -ECANCELED, &e);
	}
	while ((node = list_pop_front(&lists)) != NULL)
		s3_list_end(s3, list_entry(node, struct s3_list_call, link), -ECANCELED,
			UFS_CAUSE_NONE);
	s3_renew_close(s3);
	s3_sum_all(s3);
	s3_http_free(s3->http);
}

/* ---- open and free --------------------------------------------------------------------------- */

static void s3_free(struct ufs *ufs)
{
	struct s3 *s3 = s3_of(ufs);

	if (s3->loop) {
		pthread_mutex_lock(&s3->lock);
		s3->closing = true;
		pthread_mutex_unlock(&s3->lock);
		loop_call(s3->loop, close_on_loop, s3);
		loop_free(s3->loop);
	}
	s3_renew_free(s3->renew);
	s3_signer_release(&s3->signer);
	credentials_release(&s3->credentials);
	ufs_config_release(&s3->config);
	buf_release(&s3->path);
	buf_release(&s3->url);
	buf_release(&s3->line);
	pthread_mutex_destroy(&s3->lock);
	ufs_base_release(ufs);
	free(s3);
}

static uint64_t s3_range_bytes(struct ufs *ufs)
{
	(void)ufs;
	return CHUNK_BYTES;
}

static const struct ufs_ops s3_ops = {
	.name = "s3",
	.get = s3_get,
	.range_bytes = s3_range_bytes,
	.promote = s3_promote,
	.cancel = s3_cancel,
	.list_page = s3_list_page,
	.begins_lists = true,
	.probe = s3_probe,
	.free = s3_free,
};

/* Keys, unless none are wanted; endpoint and region: from the configuration, then what the
 * environment and the profile say. */
static int find_place(struct s3 *s3, struct err *e)
{
	const struct ufs_config *config = &s3->config;
	const struct credentials_query query = s3_renew_query(s3);
	struct credentials *found = &s3->credentials;
	int r = 0;

	if (config->anonymous)
		credentials_find_settings(&query, found);
	else
		r = credentials_find(&query, found, e);
	if (r == 0)
		r = s3_place_init(&s3->place, config->endpoint ? config->endpoint : found->endpoint,
			config->region ? config->region : found->region, config->bucket,
			config->path_style, s3->obs, e);
	if (config->anonymous)
		credentials_release(found);
	s3->markers = s3->obs || s3_endpoint_is_obs(&s3->place.endpoint);
	memcpy(s3->name, s3->place.base_url, sizeof(s3->name));
	return r;
}

static int open_all(struct s3 *s3, const struct ufs_config *config, struct err *e)
{
	int r = ufs_config_copy(config, &s3->config);

	s3->obs = config->scheme == UFS_OBS;
	if (credentials_are_none(config->credentials))
		s3->config.anonymous = true;
	if (r == 0)
		r = find_place(s3, e);
	if (r == 0)
		r = s3_way_find(&s3->config, &s3->place.endpoint, &s3->way, e);
	if (r < 0)
		return r;
	s3_signer_init(&s3->signer, s3->credentials.access_key, s3->credentials.secret_key,
		s3->place.region, "s3");
	s3->loop = loop_new("ufs-s3");
	if (!s3->loop)
		return -ENOMEM;
	loop_call(s3->loop, start_http, s3);
	return s3->http ? 0 : -ENOMEM;
}

static void init_windows(struct s3 *s3)
{
	const struct ufs_limits *limits = &s3->base.limits;
	unsigned int lists = limits->list_requests + S3_LISTS_MORE;

	window_init(&s3->window, min(S3_WINDOW_FIRST, limits->max_requests), limits->max_requests);
	window_init(&s3->list_window, lists, lists);
	background_init(&s3->background, places_for_low(limits->max_requests));
	counter_set(&s3->base.counters->window, window_places(&s3->window));
	counter_set(&s3->base.counters->list_window, lists);
}

int s3_open(const struct ufs_config *config, const struct ufs_limits *limits, struct ufs **ret_ufs,
	struct err *e)
{
	struct s3 *s3 = calloc(1, sizeof(*s3));
	int r;

	if (!s3)
		return err_set(e, -ENOMEM, "s3: no memory");
	pthread_mutex_init(&s3->lock, NULL);
	for (int class = 0; class < UFS_CLASSES; class ++)
		list_init(&s3->queues[class]);
	list_init(&s3->lists);
	list_init(&s3->cancelled);
	s3->wake.run = on_wake;
	s3_sum_init(s3);
	s3->path = BUF_INIT(S3_URL_MAX);
	s3->url = BUF_INIT(S3_URL_MAX);
	s3->line = BUF_INIT(S3_URL_MAX);
	s3->renew = s3_renew_new(s3);
	r = s3->renew ? ufs_base_init(&s3->base, &s3_ops, NULL, limits) : -ENOMEM;
	if (r == 0) {
		init_windows(s3);
		r = open_all(s3, config, e);
	}
	if (r < 0) {
		s3_free(&s3->base);
		return err_default(e, r, "s3");
	}
	*ret_ufs = &s3->base;
	return 0;
}
