/* An eviction of some objects under way. See evict_job.h. */
#include "cacheworker/evict_job.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "cacheworker/kept.h"
#include "cacheworker/retention.h"
#include "proto/granary.pb-c.h"

#include <inttypes.h>
#include <stdlib.h>

struct evict_job {
	struct worker *worker;
	struct periodic_work work;
	struct meant meant;
	struct evict_outcome outcome; /* the work's until `done` */
	_Atomic bool done;
};

static void log_outcome(const struct evict_outcome *o)
{
	if (o->status < 0)
		log_debug("not all evicted by path", "number=%" PRIu64 " error=%s next=\"again\"",
			o->serial, err_name(o->status));
	else
		log_info("evicted by path", "number=%" PRIu64 " bytes=%" PRIu64 " left=%" PRIu64,
			o->serial, o->sum.bytes, o->sum.left);
}

static uint64_t run(void *arg)
{
	struct evict_job *job = arg;
	struct evict_outcome *o = &job->outcome;
	struct worker *w = job->worker;
	bool followed;
	int r;

	o->status = evict_paths(w, &o->volume, &job->meant, &o->sum);
	counter_add(&w->counters.dropped_bytes, o->sum.bytes);
	log_outcome(o);
	followed = o->status == 0;
	r = followed ? kept_evicted_paths_save(w, &o->volume, o->serial) : 0;
	if (r < 0)
		log_warn("eviction not stored",
			"error=%s next=\"a restart of the worker evicts again\"", err_name(r));
	atomic_store(&job->done, true);
	if (followed) /* what failed waits for its turn */
		retention_wake(w);
	return PERIODIC_IDLE;
}

static void job_free(struct evict_job *job)
{
	meant_release(&job->meant);
	free(job);
}

int evict_job_start(
	struct worker *w, const struct volume_id *volume, const Granary__EvictPaths *order)
{
	struct retention *retention = &w->retention;
	struct evict_job *job;
	int r;

	if (retention->evict_job)
		return -EBUSY;
	if (retention->evict_failed && volume_id_equal(&retention->evict_failed_volume, volume)) {
		retention->evict_failed = false; /* others first, this time */
		return -EBUSY;
	}
	job = calloc(1, sizeof(*job));
	if (!job)
		return -ENOMEM;
	job->worker = w;
	job->outcome = (struct evict_outcome){ .volume = *volume, .serial = order->serial };
	r = meant_init(&job->meant, order->paths, order->n_paths, order->subtree, order->at);
	if (r < 0) {
		free(job);
		return r;
	}
	job->work = (struct periodic_work){ .name = "evict-paths", .run = run, .arg = job };
	retention->evict_job = job;
	periodic_start(w->work, &job->work, 0);
	return 0;
}

bool evict_job_is_of(const struct worker *w, const struct volume_id *volume)
{
	const struct evict_job *job = w->retention.evict_job;

	return job && volume_id_equal(&job->outcome.volume, volume);
}

/* Waits for it, if it has not ended yet. */
static void end(struct worker *w, struct evict_outcome *ret)
{
	struct evict_job *job = TAKE(w->retention.evict_job);

	periodic_stop(&job->work);
	*ret = job->outcome;
	job_free(job);
}

bool evict_job_take(struct worker *w, struct evict_outcome *ret)
{
	struct retention *retention = &w->retention;

	if (!retention->evict_job || !atomic_load(&retention->evict_job->done))
		return false;
	end(w, ret);
	retention->evict_failed = ret->status < 0;
	retention->evict_failed_volume = ret->volume;
	return true;
}

void evict_job_close(struct worker *w)
{
	struct evict_outcome outcome;

	if (w->retention.evict_job)
		end(w, &outcome);
}
