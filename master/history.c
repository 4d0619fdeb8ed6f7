/* Points of the past. See history.h. */
#include "master/history.h"
#include "base/arena.h"
#include "base/clock.h"
#include "base/list.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Rates are per second; below 0: not known, as is `cached`. */
struct point {
	float read;
	float missed;
	float origin;
	float cached;
};

struct cluster_point {
	float read;
	float missed;
	float origin;
	float used;
	float capacity;
	float stalls[HISTORY_STALLS]; /* in the step */
};

struct series {
	struct list link;
	char uuid[64];
	char name[64];
	bool reported; /* in this sample */
	struct history_counts before;
	struct point points[HISTORY_POINTS];
};

/* Sample n, from 0 on, is at n % HISTORY_POINTS of each array. */
struct history {
	pthread_mutex_t lock; /* a leaf */
	uint64_t step_ns;
	uint64_t n;       /* samples taken */
	uint64_t last_ns; /* monotonic: of the last one */
	double elapsed;   /* seconds before this one; 0: it is the first */
	int64_t times[HISTORY_POINTS];
	struct cluster_point cluster[HISTORY_POINTS];
	struct history_cluster before;
	struct list series;
	uint32_t n_series;
	uint32_t left_out;
};

struct history *history_new(uint64_t step_ns)
{
	struct history *h = arena_calloc(ARENA_HISTORY, 1, sizeof(*h));

	if (!h)
		return NULL;
	h->step_ns = step_ns;
	list_init(&h->series);
	pthread_mutex_init(&h->lock, NULL);
	return h;
}

static void series_free(struct history *h, struct series *s)
{
	list_remove(&s->link);
	h->n_series--;
	arena_free(ARENA_HISTORY, s, sizeof(*s));
}

void history_free(struct history *h)
{
	if (!h)
		return;
	list_for_each_safe (node, &h->series)
		series_free(h, list_entry(node, struct series, link));
	pthread_mutex_destroy(&h->lock);
	arena_free(ARENA_HISTORY, h, sizeof(*h));
}

/* ---- samples --------------------------------------------------------------------------------- */

/* Sums over several workers fall when one of them is started again: what the others counted ever since is not new. */
static uint64_t grown(uint64_t now, uint64_t before)
{
	return now >= before ? now - before : 0;
}

/* A second of what a counter grew by; below 0: there was none before. */
static float rate(const struct history *h, uint64_t now, uint64_t before)
{
	return h->elapsed > 0 ? (float)((double)grown(now, before) / h->elapsed) : -1;
}

void history_begin(
	struct history *h, uint64_t now_ns, int64_t time_s, const struct history_cluster *cluster)
{
	struct cluster_point *p;

	pthread_mutex_lock(&h->lock);
	p = &h->cluster[h->n % HISTORY_POINTS];
	h->elapsed =
		h->n > 0 ? (double)max(now_ns - h->last_ns, CLOCK_MS) / (double)CLOCK_SECOND : 0;
	h->last_ns = now_ns;
	h->times[h->n % HISTORY_POINTS] = time_s;
	h->left_out = 0;
	*p = (struct cluster_point){
		.read = rate(h, cluster->counts.read, h->before.counts.read),
		.missed = rate(h, cluster->counts.missed, h->before.counts.missed),
		.origin = rate(h, cluster->counts.origin, h->before.counts.origin),
		.used = (float)cluster->used,
		.capacity = (float)cluster->capacity,
	};
	for (unsigned int i = 0; i < HISTORY_STALLS && h->n > 0; i++)
		p->stalls[i] = (float)grown(cluster->stalls[i], h->before.stalls[i]);
	h->before = *cluster;
	list_for_each (node, &h->series)
		list_entry(node, struct series, link)->reported = false;
	pthread_mutex_unlock(&h->lock);
}

static struct series *find_locked(struct history *h, const char *uuid)
{
	list_for_each (node, &h->series) {
		struct series *s = list_entry(node, struct series, link);

		if (strcmp(s->uuid, uuid) == 0)
			return s;
	}
	return NULL;
}

/* NULL: there is no room. */
static struct series *add_locked(struct history *h, const struct history_dataset *dataset)
{
	struct series *s =
		h->n_series < HISTORY_SERIES ? arena_calloc(ARENA_HISTORY, 1, sizeof(*s)) : NULL;

	if (!s)
		return NULL;
	(void)snprintf(s->uuid, sizeof(s->uuid), "%s", dataset->uuid); /* 32 digits */
	for (unsigned int i = 0; i < HISTORY_POINTS; i++)
		s->points[i] = (struct point){ -1, -1, -1, -1 };
	list_push_back(&h->series, &s->link);
	h->n_series++;
	return s;
}

void history_dataset(struct history *h, const struct history_dataset *dataset)
{
	struct series *s;
	bool known;

	pthread_mutex_lock(&h->lock);
	s = find_locked(h, dataset->uuid);
	known = s != NULL;
	if (!s)
		s = add_locked(h, dataset);
	if (s) {
		const struct history_counts *now = &dataset->counts;
		struct point *p = &s->points[h->n % HISTORY_POINTS];

		(void)snprintf(s->name, sizeof(s->name), "%s", dataset->name); /* it may change */
		*p = (struct point){ -1, -1, -1, (float)dataset->cached };
		if (known) {
			p->read = rate(h, now->read, s->before.read);
			p->missed = rate(h, now->missed, s->before.missed);
			p->origin = rate(h, now->origin, s->before.origin);
		}
		s->before = *now;
		s->reported = true;
	} else {
		h->left_out++;
	}
	pthread_mutex_unlock(&h->lock);
}

void history_end(struct history *h, bool whole)
{
	pthread_mutex_lock(&h->lock);
	list_for_each_safe (node, &h->series) {
		struct series *s = list_entry(node, struct series, link);

		if (!s->reported && whole)
			series_free(h, s);
		else if (!s->reported)
			s->points[h->n % HISTORY_POINTS] = (struct point){ -1, -1, -1, -1 };
	}
	h->n++;
	pthread_mutex_unlock(&h->lock);
}

/* ---- for people ------------------------------------------------------------------------------ */

/* Which samples an answer is made of: `n` points of `group` samples, the last of them the newest. */
struct span {
	uint64_t first;
	uint32_t group;
	uint32_t n;
};

static struct span span_of(const struct history *h, uint64_t seconds, uint32_t points)
{
	uint64_t there = min(h->n, (uint64_t)HISTORY_POINTS);
	uint64_t wanted = there;
	struct span span = { 0 };

	if (seconds && seconds < UINT64_MAX / CLOCK_SECOND)
		wanted = min(there, (seconds * CLOCK_SECOND + h->step_ns - 1) / h->step_ns);
	if (wanted == 0 || points == 0)
		return span;
	span.group = (uint32_t)((wanted + points - 1) / points);
	span.n = (uint32_t)((wanted + span.group - 1) / span.group);
	/* The first point may be of fewer samples than there are in a group. */
	span.first = h->n - wanted;
	return span;
}

/* Samples of point i: [*ret_from, *ret_to). */
static void range_of(const struct history *h, const struct span *span, uint32_t i,
	uint64_t *ret_from, uint64_t *ret_to)
{
	uint64_t to = h->n - (uint64_t)(span->n - 1 - i) * span->group;

	*ret_to = to;
	*ret_from = max(to > span->group ? to - span->group : 0, span->first);
}

/* What workers say may be any number. */
static json_t *whole(double value)
{
	if (value < 0)
		return json_null();
	return json_integer(value < 0x1p62 ? (json_int_t)(value + 0.5) : INT64_MAX);
}

/* To three digits: a diagram shows no more. */
static json_t *share(double value)
{
	return value < 0 ? json_null() : json_real(round(value * 1000) / 1000);
}

/* Sums over the samples that know a value. */
struct means {
	double read, missed, origin, cached;
	uint32_t rates; /* that were added up; 0: none is known */
};

/* Over this point and the one before: workers say what was missed, and mounts what they read, at
 * times of their own. */
static double hit_of(const struct means *m, const struct means *before)
{
	double read = m->read + before->read;
	double missed = m->missed + before->missed;

	if (m->rates == 0 || m->read <= 0)
		return -1;
	return missed >= read ? 0 : 1 - missed / read;
}

static void add_rates(struct means *m, float read, float missed, float origin)
{
	if (read < 0)
		return;
	m->read += (double)read;
	m->missed += (double)missed;
	m->origin += (double)origin;
	m->rates++;
}

static double mean(const struct means *m, double sum)
{
	return m->rates ? sum / m->rates : -1;
}

struct lists {
	json_t *read, *origin, *hit;
	struct means before;
};

static struct lists lists_new(void)
{
	return (struct lists){ .read = json_array(), .origin = json_array(), .hit = json_array() };
}

/* Failures are counted (admin_json_failures()), as everywhere below. */
static void lists_add(struct lists *lists, const struct means *m)
{
	(void)json_array_append_new(lists->read, whole(mean(m, m->read)));
	(void)json_array_append_new(lists->origin, whole(mean(m, m->origin)));
	(void)json_array_append_new(lists->hit, share(hit_of(m, &lists->before)));
	lists->before = *m;
}

static json_t *series_json(const struct history *h, const struct span *span, const struct series *s)
{
	struct lists lists = lists_new();
	json_t *cached = json_array();

	for (uint32_t i = 0; i < span->n; i++) {
		struct means m = { .cached = -1 };
		uint64_t from;
		uint64_t to;

		range_of(h, span, i, &from, &to);
		for (uint64_t n = from; n < to; n++) {
			const struct point *p = &s->points[n % HISTORY_POINTS];

			add_rates(&m, p->read, p->missed, p->origin);
			if (p->cached >= 0)
				m.cached = (double)p->cached; /* the last one */
		}
		lists_add(&lists, &m);
		(void)json_array_append_new(cached, share(m.cached));
	}
	return json_pack("{s:s, s:s, s:o, s:o, s:o, s:o}", "name", s->name, "uuid", s->uuid,
		"cached_ratio", cached, "hit_ratio", lists.hit, "read_bytes_per_s", lists.read,
		"origin_bytes_per_s", lists.origin);
}

static json_t *cluster_json(const struct history *h, const struct span *span)
{
	static const char *const causes[HISTORY_STALLS] = { "master", "memory", "disk", "origin" };
	struct lists lists = lists_new();
	json_t *used = json_array();
	json_t *capacity = json_array();
	json_t *stalls = json_object();

	for (unsigned int c = 0; c < HISTORY_STALLS; c++)
		(void)json_object_set_new(stalls, causes[c], json_array());
	for (uint32_t i = 0; i < span->n; i++) {
		struct means m = { 0 };
		double times[HISTORY_STALLS] = { 0 };
		const struct cluster_point *p = NULL;
		uint64_t from;
		uint64_t to;

		range_of(h, span, i, &from, &to);
		for (uint64_t n = from; n < to; n++) {
			p = &h->cluster[n % HISTORY_POINTS];
			add_rates(&m, p->read, p->missed, p->origin);
			for (unsigned int c = 0; c < HISTORY_STALLS; c++)
				times[c] += (double)p->stalls[c];
		}
		lists_add(&lists, &m);
		(void)json_array_append_new(used, whole(p ? (double)p->used : -1));
		(void)json_array_append_new(capacity, whole(p ? (double)p->capacity : -1));
		for (unsigned int c = 0; c < HISTORY_STALLS; c++)
			(void)json_array_append_new(
				json_object_get(stalls, causes[c]), whole(times[c]));
	}
	return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "used", used, "capacity", capacity,
		"hit_ratio", lists.hit, "read_bytes_per_s", lists.read, "origin_bytes_per_s",
		lists.origin, "stalls", stalls);
}

static json_t *times_json(const struct history *h, const struct span *span)
{
	json_t *times = json_array();

	for (uint32_t i = 0; i < span->n; i++) {
		uint64_t from;
		uint64_t to;

		range_of(h, span, i, &from, &to);
		(void)json_array_append_new(
			times, json_integer((json_int_t)h->times[(to - 1) % HISTORY_POINTS]));
	}
	return times;
}

int history_json(struct history *h, const char *name, uint64_t seconds, uint32_t points,
	json_t **ret_json, struct err *e)
{
	uint64_t failures = admin_json_failures();
	json_t *datasets = json_array();
	struct span span;
	json_t *json;

	pthread_mutex_lock(&h->lock);
	span = span_of(h, seconds, points);
	list_for_each (node, &h->series) {
		const struct series *s = list_entry(node, struct series, link);

		if (!name || strcmp(s->name, name) == 0)
			(void)json_array_append_new(datasets, series_json(h, &span, s));
	}
	if (name && json_array_size(datasets) == 0) {
		pthread_mutex_unlock(&h->lock);
		json_decref(datasets);
		return err_set(e, -ENOENT, "no history of a dataset of that name");
	}
	json = json_pack("{s:f, s:o, s:o, s:o, s:I}", "step_s",
		(double)h->step_ns / (double)CLOCK_SECOND * max(span.group, 1u), "times",
		times_json(h, &span), "cluster", cluster_json(h, &span), "datasets", datasets,
		"left_out", (json_int_t)h->left_out);
	pthread_mutex_unlock(&h->lock);
	if (json && admin_json_failures() == failures) {
		*ret_json = json;
		return 0;
	}
	json_decref(json);
	return err_set(e, -ENOMEM, "out of memory");
}
