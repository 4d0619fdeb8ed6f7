/* A worker's part of a preload: what it owns, what it keeps copies of. See preload.h. */
#include "cacheworker/copies.h"
#include "cacheworker/duty.h"
#include "cacheworker/preload_internal.h"

enum preload_share preload_share_of(struct preload_job *job, uint64_t chunk)
{
	struct preload_walk *walk = &job->walk;
	struct worker *w = job->preloads->worker;

	if (walk->chunk == chunk + 1)
		return walk->share;
	walk->chunk = chunk + 1;
	walk->share = SHARE_OWNED;
	if (worker_class(w, &job->volume, chunk) == TIER_COPY)
		walk->share = worker_keeps_copy(w, &job->volume, chunk) ? SHARE_COPY : SHARE_NONE;
	return walk->share;
}

bool preload_is_stale(const struct preload_job *job)
{
	uint64_t epoch;
	uint64_t sequence;

	view_slots_version(job->preloads->worker->view, &epoch, &sequence);
	return epoch != job->walk.epoch || sequence != job->walk.sequence;
}

bool preload_is_overtaken(const struct preload_job *job)
{
	return preload_is_stale(job) ||
	       copies_version(job->preloads->worker, &job->volume) != job->walk.copies;
}

void preload_begin_walk(struct preload_job *job)
{
	struct preload_walk *walk = &job->walk;
	uint32_t copies;

	pthread_mutex_lock(&job->preloads->lock);
	copies = job->copies;
	pthread_mutex_unlock(&job->preloads->lock);
	if (copies != COPIES_UNSAID) /* what else the master tells may come later */
		copies_take_policy(job->preloads->worker, &job->volume, copies);
	walk->copies = copies_version(job->preloads->worker, &job->volume);
	pthread_mutex_lock(&job->preloads->lock); /* they are reported to the master */
	view_slots_version(job->preloads->worker->view, &walk->epoch, &walk->sequence);
	walk->begun = true;
	pthread_mutex_unlock(&job->preloads->lock);
	walk->chunk = 0;
}

/* What ended before it was walked ends so by every table. */
static bool never_walked(struct preload_job *job)
{
	if (job->walk.begun)
		return false;
	preload_begin_walk(job);
	pthread_mutex_lock(&job->preloads->lock);
	job->walk.begun = false;
	preload_ended_locked(job->preloads);
	pthread_mutex_unlock(&job->preloads->lock);
	return true;
}

void preload_walk_again(struct preload_job *job)
{
	struct preload_walk *walk = &job->walk;
	struct preload_tally *t = &job->tally;

	if (never_walked(job))
		return;
	job->there = job->due = job->copies_there = job->copies_due = 0;
	job->full_ns = 0;
	walk->at = walk->met = 0;
	pthread_mutex_lock(&job->preloads->lock);
	walk->begun = false;
	t->files_done = t->files_failed = t->bytes_done = t->bytes_copied = 0;
	t->n_failures = 0;
	job->full = job->given_up = false;
	job->timeouts = job->uncopied = 0;
	job->reason[0] = '\0';
	job->phase = LOAD_LOADING;
	pthread_mutex_unlock(&job->preloads->lock);
}
