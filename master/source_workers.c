/* What workers have of a source, each by itself and together. See source.h. */
#include "base/cleanup.h"
#include "master/source_internal.h"
#include "placement/placement.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Not heard of for so long, what it follows is not waited for: it does so when it is there again. */
#define SILENT_NS (30 * CLOCK_SECOND)
/* Who has less than so many eighths of what the first has is not asked: it may just have begun. */
#define KEEPERS_SHARE 7u

/* A number that was not given, of a worker with damaged notes, is none. */
static uint64_t followed(uint64_t serial)
{
	return serial < INT64_MAX ? serial : 0;
}

void source_followed_locked(const struct source *source, uint64_t *ret_evict, uint64_t *ret_paths)
{
	*ret_evict = *ret_paths = 0;
	for (uint32_t i = 0; i < source->n_workers; i++) {
		const struct source_report *r = &source->workers[i].report;

		*ret_evict = max(*ret_evict, followed(r->evicted));
		*ret_paths = max(*ret_paths, followed(r->evicted_paths));
	}
}

static void add(
	struct source_report *sum, const struct source_report *r, uint64_t evict, uint64_t paths)
{
	sum->cached_bytes += r->cached_bytes;
	sum->copy_bytes += r->copy_bytes;
	sum->origin_bytes += r->origin_bytes;
	sum->hit_bytes += r->hit_bytes;
	sum->miss_bytes += r->miss_bytes;
	sum->whole |= r->whole;
	if (followed(r->evicted) == evict)
		sum->evicted_bytes += r->evicted_bytes;
	if (followed(r->evicted_paths) == paths)
		sum->evicted_paths_bytes += r->evicted_paths_bytes;
}

/* Of what is shown: a worker that is silent is not waited for, unless all are. */
static uint64_t age_of(const struct source *source, uint64_t now)
{
	uint64_t oldest = now;
	uint64_t newest = 0;

	for (uint32_t i = 0; i < source->n_workers; i++) {
		const struct source_worker *w = &source->workers[i];

		if (w->gone)
			continue;
		newest = max(newest, w->heard_ns);
		if (now - min(now, w->heard_ns) < SILENT_NS)
			oldest = min(oldest, w->heard_ns);
	}
	if (newest == 0)
		return 0;
	return now - min(now, oldest == now ? newest : oldest);
}

/* What all have followed that are heard of, or, when none is, all. */
static void take_followed(const struct source *source, uint64_t since, struct source_report *sum)
{
	uint64_t evict = UINT64_MAX;
	uint64_t paths = UINT64_MAX;

	for (uint32_t i = 0; i < source->n_workers; i++) {
		const struct source_worker *w = &source->workers[i];

		if (w->gone || w->heard_ns < since)
			continue;
		evict = min(evict, followed(w->report.evicted));
		paths = min(paths, followed(w->report.evicted_paths));
	}
	if (evict == UINT64_MAX && since > 0 && source->n_workers > 0) {
		take_followed(source, 0, sum);
		return;
	}
	sum->evicted = evict == UINT64_MAX ? 0 : evict;
	sum->evicted_paths = paths == UINT64_MAX ? 0 : paths;
}

struct source_report source_report_locked(const struct source *source)
{
	uint64_t now = clock_mono_ns();
	struct source_report sum = { 0 };
	uint64_t evict;
	uint64_t paths;

	source_followed_locked(source, &evict, &paths);
	for (uint32_t i = 0; i < source->n_workers; i++)
		add(&sum, &source->workers[i].report, evict, paths);
	sum.age_ns = age_of(source, now);
	take_followed(source, now > SILENT_NS ? now - SILENT_NS : 0, &sum);
	return sum;
}

static uint64_t bytes_of(const struct source_worker *w)
{
	return w->report.cached_bytes + w->report.copy_bytes;
}

static bool is_keeper(const struct source_worker *w, uint64_t since)
{
	return !w->gone && w->report.whole && w->report.number != PLACEMENT_NONE &&
	       w->heard_ns >= since && bytes_of(w) > 0;
}

/* Into `best`, which is in order. */
static uint32_t insert(const struct source_worker *w, const struct source_worker **best, uint32_t n)
{
	uint32_t at = n;

	while (at > 0 && bytes_of(best[at - 1]) < bytes_of(w))
		at--;
	if (at == SOURCE_KEEPERS)
		return n;
	n = min(n + 1, SOURCE_KEEPERS);
	memmove(&best[at + 1], &best[at], (n - 1 - at) * sizeof(*best));
	best[at] = w;
	return n;
}

static void find_keepers(struct source *source, uint64_t since)
{
	const struct source_worker *best[SOURCE_KEEPERS];
	uint32_t n = 0;

	for (uint32_t i = 0; i < source->n_workers; i++)
		if (is_keeper(&source->workers[i], since))
			n = insert(&source->workers[i], best, n);
	source->n_keepers = 0;
	for (uint32_t i = 0; i < n; i++)
		if (bytes_of(best[i]) >= bytes_of(best[0]) / 8 * KEEPERS_SHARE)
			source->keepers[source->n_keepers++] = best[i]->report.number;
}

bool source_keepers_locked(struct source *source, const uint16_t **ret_keepers, uint32_t *ret_n)
{
	uint64_t now = clock_mono_ns();

	if (!source->keepers_ns || now - source->keepers_ns >= CLOCK_SECOND) {
		find_keepers(source, now > SILENT_NS ? now - SILENT_NS : 0);
		source->keepers_ns = now;
	}
	*ret_keepers = source->keepers;
	*ret_n = source->n_keepers;
	return source->reported && !holds_in_grace(source->set);
}

uint64_t source_capacity_locked(const struct source_set *set)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < set->n_capacities; i++)
		sum += set->capacities[i].bytes;
	return sum;
}

/* ---- what is said ---------------------------------------------------------------------------- */

static bool says_nothing(const struct source_report *r)
{
	return !r->cached_bytes && !r->copy_bytes && !r->origin_bytes && !r->hit_bytes &&
	       !r->miss_bytes && !r->evicted && !r->evicted_paths;
}

/* The place of one that is gone, when there are no others. */
static struct source_worker *replace_locked(struct source *source, uint64_t id)
{
	for (uint32_t i = 0; i < source->n_workers; i++)
		if (source->workers[i].gone) {
			source->workers[i] = (struct source_worker){ .id = id };
			return &source->workers[i];
		}
	return NULL;
}

/* NULL: it has none, and none is made. */
static struct source_worker *worker_locked(struct source *source, uint64_t id, bool make)
{
	struct source_worker *grown;

	for (uint32_t i = 0; i < source->n_workers; i++)
		if (source->workers[i].id == id)
			return &source->workers[i];
	if (!make)
		return NULL;
	if (source->n_workers == SOURCE_WORKERS_MAX)
		return replace_locked(source, id);
	grown = reallocarray(source->workers, source->n_workers + 1, sizeof(*grown));
	if (!grown)
		return NULL; /* with the next report */
	source->workers = grown;
	grown += source->n_workers++;
	*grown = (struct source_worker){ .id = id };
	return grown;
}

void source_set_report(struct source_set *set, uint64_t id, const struct volume_id *volume,
	const struct source_report *report)
{
	struct source_worker *worker = NULL;
	struct source *source;

	pthread_mutex_lock(&set->lock);
	source = source_find_locked(set, volume);
	if (source) {
		source->reported = true;
		worker = worker_locked(source, id, !says_nothing(report));
	}
	if (worker) {
		worker->heard_ns = clock_mono_ns();
		worker->gone = false;
		worker->report = *report;
	}
	pthread_mutex_unlock(&set->lock);
}

void source_set_capacity(struct source_set *set, uint64_t id, uint64_t bytes)
{
	struct source_capacity *grown;
	uint32_t i = 0;

	pthread_mutex_lock(&set->lock);
	while (i < set->n_capacities && set->capacities[i].id != id)
		i++;
	if (i == set->n_capacities && i < SOURCE_WORKERS_MAX) {
		grown = reallocarray(set->capacities, i + 1, sizeof(*grown));
		if (grown) {
			set->capacities = grown;
			set->n_capacities++;
		}
	}
	if (i < set->n_capacities)
		set->capacities[i] = (struct source_capacity){ id, bytes };
	pthread_mutex_unlock(&set->lock);
}

static void forget_locked(struct source *source, uint64_t id)
{
	struct source_worker *worker = worker_locked(source, id, false);
	struct source_report left = { 0 };

	if (!worker)
		return;
	left.hit_bytes = worker->report.hit_bytes;
	left.miss_bytes = worker->report.miss_bytes;
	left.origin_bytes = worker->report.origin_bytes;
	if (says_nothing(&left))
		*worker = source->workers[--source->n_workers];
	else /* sums do not fall, nor jump when it is back: people are shown how they grow */
		*worker = (struct source_worker){ .id = id, .gone = true, .report = left };
}

void source_set_forget_worker(struct source_set *set, uint64_t id)
{
	pthread_mutex_lock(&set->lock);
	list_for_each (node, &set->sources)
		forget_locked(list_entry(node, struct source, link), id);
	for (uint32_t i = 0; i < set->n_capacities; i++)
		if (set->capacities[i].id == id)
			set->capacities[i] = set->capacities[--set->n_capacities];
	pthread_mutex_unlock(&set->lock);
}

void source_set_name_workers(
	struct source_set *set, bool (*name_of)(void *arg, uint64_t id, char *out), void *arg)
{
	set->name_of = name_of;
	set->name_arg = arg;
}

/* `set` NULL: without its name. */
static json_t *worker_json(const struct source_set *set, const struct source_worker *w)
{
	char name[SOURCE_NAME_BYTES];
	bool named = set && set->name_of && set->name_of(set->name_arg, w->id, name);

	return json_pack("{s:o, s:o*, s:I, s:I, s:b}", "id", json_sprintf("%016" PRIx64, w->id),
		"name", named ? admin_json_string(name) : NULL, "cached_bytes",
		(json_int_t)w->report.cached_bytes, "copy_bytes", (json_int_t)w->report.copy_bytes,
		"whole", (int)w->report.whole);
}

json_t *source_workers_json_locked(const struct source *source)
{
	json_t *all = json_array();

	for (uint32_t i = 0; i < source->n_workers; i++)
		(void)json_array_append_new(
			all, worker_json(NULL, &source->workers[i])); /* status only */
	return all;
}

/* A copy, to be freed; NULL without memory. */
static struct source_worker *copy_workers(
	struct source_set *set, const struct volume_id *volume, uint32_t *ret_n)
{
	const struct source *source;
	struct source_worker *all;

	pthread_mutex_lock(&set->lock);
	source = source_find_locked(set, volume);
	*ret_n = source ? source->n_workers : 0;
	all = calloc(*ret_n + 1, sizeof(*all));
	if (all && *ret_n > 0)
		memcpy(all, source->workers, *ret_n * sizeof(*all));
	pthread_mutex_unlock(&set->lock);
	return all;
}

json_t *source_set_workers_json(struct source_set *set, const struct volume_id *volume)
{
	uint64_t failures = admin_json_failures();
	uint32_t n;
	_cleanup_free_ struct source_worker *workers = copy_workers(set, volume, &n);
	json_t *all = workers ? json_array() : NULL;

	for (uint32_t i = 0; all && i < n; i++)
		if (workers[i].report.cached_bytes + workers[i].report.copy_bytes > 0)
			(void)json_array_append_new(
				all, worker_json(set, &workers[i])); /* failures are counted */
	if (all && admin_json_failures() == failures)
		return all;
	json_decref(all);
	return NULL;
}
