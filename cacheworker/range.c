/* One GET for several units. See range.h. */
#include "cacheworker/range.h"
#include "cacheworker/flight_internal.h"
#include "cacheworker/pull.h"
#include "base/clock.h"
#include "base/deadline.h"

#include <stdlib.h>
#include <string.h>

#define RANGE_MAGIC 0x72616e67u
/* A reader's unit is waited for this far behind those that land, or that readers want: the kernel reads some MiB ahead. */
#define NEAR_UNITS 4u

struct range {
	uint32_t magic;
	uint32_t all; /* units at the beginning */
	struct worker *worker;
	struct source *source;
	struct ufs *ufs; /* that was asked */
	struct ufs_get get;
	uint64_t asked_ns;
	uint64_t ends[RANGE_UNITS]; /* of units, from the begin of the range */
	/* Under flights.lock: */
	struct flight *flights[RANGE_UNITS];
	uint32_t n;       /* that it fetches: fewer once it was cut */
	uint32_t first;   /* those before are whole, and not its own any more */
	uint32_t claimed; /* the last one that the origin has a buffer of, or is to have first */
	bool left;        /* its GET was cancelled, as the source is reached in another way */
	char names[];     /* key, then tag */
};

static uint64_t begin_of(const struct range *range, uint32_t i)
{
	return i ? range->ends[i - 1] : 0;
}

/* ---- bytes ------------------------------------------------------------------------------------ */

static int on_room(struct ufs_get *get, uint64_t at, struct ufs_room *ret_room)
{
	struct range *range = container_of(get, struct range, get);
	struct flights *flights = &range->worker->flights;
	struct flight *f = NULL;
	uint64_t end;
	uint32_t i = 0;

	while (i < range->all && range->ends[i] <= at)
		i++;
	pthread_mutex_lock(&flights->lock);
	end = range->ends[range->n - 1];
	if (i < range->n && i >= range->first) {
		range->claimed = max(range->claimed, i);
		f = range->flights[i];
	}
	pthread_mutex_unlock(&flights->lock);
	*ret_room = (struct ufs_room){ 0 };
	if (!f)
		return at < end ? -EPROTO : 0; /* what was said to be there would come once more */
	if (!flight_data_new(f))
		return -ENOMEM;
	*ret_room = (struct ufs_room){ .buf = f->data + (at - begin_of(range, i)),
		.length = range->ends[i] - at,
		.left = end - at };
	return 0;
}

/* The first unit if `bytes` of the range make it whole: it is not the range's any more. Else waiters of a part of it
 * that is there are put into `ready`. */
static struct flight *take_whole(struct range *range, uint64_t bytes, struct list *ready)
{
	struct flights *flights = &range->worker->flights;
	struct flight *whole = NULL;
	uint32_t i;

	pthread_mutex_lock(&flights->lock);
	i = range->first;
	if (i < range->n && range->ends[i] <= bytes) {
		whole = range->flights[i];
		whole->range = NULL;
		range->first++;
	} else if (i < range->n && bytes > begin_of(range, i)) {
		range->flights[i]->landed = bytes - begin_of(range, i);
		flight_collect_ready_locked(range->flights[i], ready, range->flights[i]->landed);
	}
	pthread_mutex_unlock(&flights->lock);
	return whole;
}

/* Of units that have received bytes, so that they are not cut off. */
static void sum_landed(struct range *range, uint64_t bytes)
{
	for (uint32_t i = range->first; i < range->all && begin_of(range, i) < bytes; i++)
		flight_sum(range->flights[i], min(bytes, range->ends[i]) - begin_of(range, i));
}

static void on_progress(struct ufs_get *get, uint64_t bytes)
{
	struct range *range = container_of(get, struct range, get);
	struct list ready = LIST_INIT(ready);
	struct flight *whole;

	sum_landed(range, bytes);
	while ((whole = take_whole(range, bytes, &ready)) != NULL)
		flight_all_landed(whole);
	flight_tell(&ready, 0, NULL);
}

/* ---- the end ---------------------------------------------------------------------------------- */

static void range_free(struct range *range)
{
	range->magic = 0;
	free(range);
}

/* Takes what is not whole. True: it is to be asked for again, and flights.starting counts that. */
static bool take_rest(struct range *range, int status, struct flight **rest, uint32_t *ret_n)
{
	struct flights *flights = &range->worker->flights;
	uint32_t n = 0;
	bool again;

	pthread_mutex_lock(&flights->lock);
	again = range->left || range->ufs != source_ufs(range->source) ||
		(status == -ETIMEDOUT && range->get.got > 0);
	for (uint32_t i = range->first; i < range->n; i++) {
		rest[n++] = range->flights[i];
		range->flights[i]->range = NULL;
		again |= flight_outlives_locked(range->flights[i], &range->get, status);
	}
	again &= !flights->closing && n > 0;
	flights->starting += again;
	pthread_mutex_unlock(&flights->lock);
	*ret_n = n;
	return again;
}

static void ask_again(struct worker *w, struct flight **rest, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		flight_ask_origin(rest[i]);
	pthread_mutex_lock(&w->flights.lock);
	if (--w->flights.starting == 0)
		pthread_cond_broadcast(&w->flights.started);
	pthread_mutex_unlock(&w->flights.lock);
}

static void end_failed(struct range *range, int status, const struct err *e)
{
	struct flight *rest[RANGE_UNITS];
	uint32_t n;

	if (take_rest(range, status, rest, &n)) {
		ask_again(range->worker, rest, n);
		return;
	}
	if (n > 0 && range->get.refused)
		pull_tell_refused(rest[0], range->get.refused);
	for (uint32_t i = 0; i < n; i++) {
		rest[i]->get.remembered = range->get.remembered;
		flight_failed(rest[i], status, e);
	}
}

static void on_done(struct ufs_get *get, int status, const struct err *e)
{
	struct range *range = container_of(get, struct range, get);

	CHECK_MAGIC(range, RANGE_MAGIC);
	if (status == 0) {
		histogram_note(&range->worker->histograms.get, clock_mono_ns() - range->asked_ns);
		on_progress(get, get->got);
		ensure(range->first == range->n); /* it is cut behind what the origin claims */
	} else {
		end_failed(range, status, e);
	}
	range_free(range);
}

/* ---- the beginning ---------------------------------------------------------------------------- */

/* NULL without memory. It is not shared yet. */
static struct range *range_new(struct flight **flights, uint32_t n)
{
	const struct flight *first = flights[0];
	const struct ufs_get *of = &first->get;
	struct range *range = calloc(1, sizeof(*range) + of->key_len + of->tag_len);

	if (!range)
		return NULL;
	range->magic = RANGE_MAGIC;
	range->worker = first->worker;
	range->source = first->source;
	range->n = range->all = n;
	memcpy(range->flights, flights, n * sizeof(*flights));
	memcpy(range->names, of->key, of->key_len);
	memcpy(range->names + of->key_len, of->tag, of->tag_len);
	for (uint32_t i = 0; i < n; i++)
		range->ends[i] = begin_of(range, i) + flights[i]->length;
	range->get = (struct ufs_get){
		.key = range->names,
		.key_len = of->key_len,
		.tag = range->names + of->key_len,
		.tag_len = of->tag_len,
		.size = of->size,
		.offset = first->object_offset,
		.length = range->ends[n - 1],
		.class = UFS_PREFETCH,
		.on_room = on_room,
		.on_progress = on_progress,
		.on_done = on_done,
	};
	return range;
}

/* Its flights are its own from now on, or it is freed. */
static int ask_locked(struct range *range)
{
	struct flights *flights = &range->worker->flights;
	int r = flights->closing ? -ECANCELED : 0;

	range->get.until_ns = range->flights[0]->until_ns;
	for (uint32_t i = 0; i < range->n; i++) {
		range->get.class = min(range->get.class, range->flights[i]->class);
		range->get.until_ns =
			deadline_later(range->get.until_ns, range->flights[i]->until_ns);
	}
	range->ufs = source_ufs(range->source);
	range->asked_ns = clock_mono_ns();
	if (r == 0)
		r = ufs_get(range->ufs, &range->get);
	for (uint32_t i = 0; r == 0 && i < range->n; i++)
		range->flights[i]->range = range;
	counter_add(&range->worker->counters.ranges, r == 0);
	if (r < 0)
		range_free(range);
	return r;
}

static int ask(struct flight **flights, uint32_t n)
{
	struct range *range = range_new(flights, n);
	struct worker *w = flights[0]->worker;
	int r;

	if (!range)
		return -ENOMEM;
	pthread_mutex_lock(&w->flights.lock);
	r = ask_locked(range);
	/* Readers may have come before it was one range. */
	for (uint32_t i = 0; r == 0 && i < n; i++)
		range_raise_locked(flights[i]);
	pthread_mutex_unlock(&w->flights.lock);
	return r;
}

bool range_joins(const struct flight *last, const struct flight *next)
{
	return last->get.size > UNIT_BYTES &&
	       next->start - next->object_offset == last->start - last->object_offset &&
	       next->start == last->start + last->length && last->get.class != UFS_DEMAND &&
	       next->get.class == last->get.class;
}

/* How many of them one GET asks for. */
static uint32_t units_of(struct flight **flights, uint32_t n)
{
	uint64_t most = ufs_range_bytes(source_ufs(flights[0]->source));
	uint64_t bytes = flights[0]->length;
	uint32_t i = 1;

	while (i < min(n, (uint32_t)RANGE_UNITS) && range_joins(flights[i - 1], flights[i]) &&
		bytes + flights[i]->length <= most)
		bytes += flights[i++]->length;
	return i;
}

void range_start(struct flight **flights, uint32_t n)
{
	while (n > 0) {
		uint32_t units = units_of(flights, n);
		bool asked = units > 1 && ask(flights, units) == 0;

		for (uint32_t i = 0; i < units && !asked; i++)
			flight_ask_origin(flights[i]);
		flights += units;
		n -= units;
	}
}

/* ---- readers, and other ways ------------------------------------------------------------------ */

static uint32_t index_of(const struct range *range, const struct flight *f)
{
	uint32_t i = range->first;

	while (i < range->n && range->flights[i] != f)
		i++;
	ensure(i < range->n);
	return i;
}

/* Would its reader wait for much that no reader wants? */
static bool is_far(const struct range *range, uint32_t place)
{
	uint32_t wanted = max(range->claimed, range->first);

	for (uint32_t i = wanted + 1; i < place; i++)
		if (range->flights[i]->class == UFS_DEMAND)
			wanted = i;
	return place > wanted + NEAR_UNITS;
}

static bool cut_locked(struct range *range, uint32_t place)
{
	struct range *rest = range_new(range->flights + place, range->n - place);

	if (!rest || ask_locked(rest) < 0)
		return false;
	range->n = place;
	counter_add(&range->worker->counters.ranges_cut, 1);
	return true;
}

void range_raise_locked(struct flight *f)
{
	struct range *range = f->range;
	uint32_t place = index_of(range, f);

	if (f->class >= range->get.class && f->class != UFS_DEMAND)
		return;
	if (f->class == UFS_DEMAND && !range->left && is_far(range, place) &&
		cut_locked(range, place))
		return;
	ufs_promote(range->ufs, &range->get, f->class);
}

void range_leave_locked(struct flight *f)
{
	struct range *range = f->range;

	if (range->left || range->ufs == source_ufs(range->source))
		return;
	range->left = true;
	ufs_cancel(range->ufs, &range->get);
}
