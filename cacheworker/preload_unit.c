/* A unit of a preload, from being asked for to its end. See preload_internal.h. */
#include "base/backoff.h"
#include "base/log.h"
#include "cacheworker/preload_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRIES        4u
#define AGAIN_MIN    (200 * CLOCK_MS)
#define AGAIN_MAX    CLOCK_SECOND
#define TIMEOUTS_MAX 32u /* in a row: each was tried for minutes, the others would be, too */

struct preload_file *preload_file_new(const struct table_row *row)
{
	struct preload_file *file = calloc(1, sizeof(*file) + row->key_len);

	if (!file)
		return NULL;
	file->refs = 1;
	file->key_len = row->key_len;
	memcpy(file->key, row->key, row->key_len);
	return file;
}

void preload_file_unref_locked(struct preload_job *job, struct preload_file *file)
{
	if (--file->refs > 0)
		return;
	if (file->failed)
		job->tally.files_failed++;
	else if (!file->missed && file->counts)
		job->tally.files_done++;
	free(file);
}

static void on_stored(struct flight_wait *wait, int status, const struct err *e)
{
	struct preload_unit *unit = container_of(wait, struct preload_unit, wait);
	struct preloads *p = unit->job->preloads;
	struct flight *flight = wait->flight;

	if (status == 0 && !flight->adopted && !flight->pulled) {
		pthread_mutex_lock(&p->lock);
		unit->job->tally.bytes_fetched += unit->length;
		pthread_mutex_unlock(&p->lock);
	}
	wait->flight = NULL;
	flight_unref(flight);
	preload_unit_end(unit, status, e);
}

struct preload_unit *preload_unit_new(
	struct preload_job *job, struct preload_file *file, uint64_t start, uint32_t length)
{
	struct preload_unit *unit = calloc(1, sizeof(*unit));
	struct preloads *p = job->preloads;

	if (!unit)
		return NULL;
	list_init(&unit->link);
	unit->job = job;
	unit->file = file;
	unit->start = start;
	unit->length = length;
	pthread_mutex_lock(&p->lock);
	job->refs++;
	file->refs++;
	job->in_flight++;
	p->in_flight++;
	pthread_mutex_unlock(&p->lock);
	return unit;
}

enum ufs_class preload_class(const struct preload_job *job)
{
	return job->lru ? UFS_FILL : UFS_PREFETCH;
}

int preload_unit_want(
	struct preload_unit *unit, const struct table_row *row, struct flight_batch *batch)
{
	struct preload_job *job = unit->job;
	int r;

	unit->wait = (struct flight_wait){ .stored = true, .need = UINT32_MAX, .done = on_stored };
	list_init(&unit->wait.link);
	r = flight_want_in(
		batch, job->source, row, unit->start, preload_class(job), false, &unit->wait);
	return r < 0 ? r : 0;
}

/* There may be room for others. Several at a time: the walker is another thread. */
static void leave_places_locked(struct preloads *p, uint32_t n, bool drained)
{
	ensure(p->in_flight >= n);
	p->in_flight -= n;
	if (p->in_flight <= p->max_in_flight - p->max_in_flight / 8 || drained)
		periodic_poke(&p->walker);
}

/* No longer on its way. */
static void land_locked(struct preload_unit *unit)
{
	struct preload_job *job = unit->job;

	job->in_flight--;
	leave_places_locked(job->preloads, unit->wait.yielded ? 0 : 1, job->in_flight == 0);
}

void preloads_yielded(struct worker *w, uint32_t n)
{
	struct preloads *p = w->preloads;

	pthread_mutex_lock(&p->lock);
	leave_places_locked(p, n, false);
	pthread_mutex_unlock(&p->lock);
}

static void free_locked(struct preload_unit *unit)
{
	preload_file_unref_locked(unit->job, unit->file);
	preload_job_unref_locked(unit->job);
	free(unit);
}

void preload_unit_undo(struct preload_unit *unit)
{
	struct preloads *p = unit->job->preloads;

	pthread_mutex_lock(&p->lock);
	unit->job->in_flight--;
	p->in_flight--;
	unit->file->refs--; /* the walk has another one */
	preload_job_unref_locked(unit->job);
	pthread_mutex_unlock(&p->lock);
	free(unit);
}

void preload_file_fail_locked(struct preload_job *job, struct preload_file *file, const char *why)
{
	struct preload_tally *tally = &job->tally;
	struct preload_failure *failure;

	if (file->failed) /* for another unit of it */
		return;
	file->failed = true;
	if (tally->n_failures == PRELOAD_FAILURES_MAX)
		return;
	failure = &tally->failures[tally->n_failures++];
	failure->key_len = file->key_len;
	memcpy(failure->key, file->key, failure->key_len);
	(void)snprintf(failure->reason, sizeof(failure->reason), "%.*s",
		(int)sizeof(failure->reason) - 1, why); /* cut: for people */
}

static void give_up_locked(struct preload_job *job, const struct err *e)
{
	job->given_up = true;
	(void)snprintf(job->reason, sizeof(job->reason),
		"the origin does not answer: %u objects in a row failed: %.*s", TIMEOUTS_MAX, 300,
		e && e->text[0] ? e->text : "its time is over");
}

/* What a tier did not take for a passing reason is asked for again: it is not the origin's fault. */
static bool again_locked(struct preload_unit *unit, int status, const struct err *e)
{
	struct preload_job *job = unit->job;
	bool passing = status == -ENOMEM || !e;

	if (!passing || status == -ENOSPC || unit->tries + 1 >= TRIES || job->dropped ||
		job->phase == LOAD_ENDED || job->preloads->closing)
		return false;
	unit->not_before_ns = clock_mono_ns() + backoff_ns(&(struct backoff){ .min_ns = AGAIN_MIN,
							.max_ns = AGAIN_MAX,
							.doublings = unit->tries++ });
	list_push_back(&job->again, &unit->link);
	return true;
}

static void count_locked(struct preload_unit *unit, int status, const struct err *e)
{
	struct worker_counters *counters = &unit->job->preloads->worker->counters;
	struct preload_job *job = unit->job;

	counter_add(&counters->preload_units, 1);
	if (unit->copy) { /* its owner counts it */
		job->uncopied = status == 0 ? 0 : job->uncopied + 1;
		if (status == 0)
			job->tally.bytes_copied += unit->length;
		return;
	}
	if (status == 0) {
		counter_add(&counters->preload_bytes, unit->length);
		job->tally.bytes_done += unit->length;
		job->timeouts = 0;
		return;
	}
	counter_add(&counters->preload_failed, 1);
	if (status == -ENOSPC) {
		job->full = true;
		unit->file->missed = true;
	} else {
		preload_file_fail_locked(
			job, unit->file, e && e->text[0] ? e->text : err_str(status));
	}
	if (status == -ETIMEDOUT && ++job->timeouts == TIMEOUTS_MAX)
		give_up_locked(job, e);
}

void preload_drop_again_locked(struct preload_job *job)
{
	struct list *node;

	while ((node = list_pop_front(&job->again)) != NULL)
		free_locked(list_entry(node, struct preload_unit, link));
}

void preload_unit_end(struct preload_unit *unit, int status, const struct err *e)
{
	struct preloads *p = unit->job->preloads;

	pthread_mutex_lock(&p->lock);
	land_locked(unit);
	if (status == -ECANCELED) /* closing: no outcome */
		unit->file->missed = true;
	else if (status < 0 && again_locked(unit, status, e))
		unit = NULL;
	else
		count_locked(unit, status, e);
	if (unit)
		free_locked(unit);
	pthread_mutex_unlock(&p->lock);
}
