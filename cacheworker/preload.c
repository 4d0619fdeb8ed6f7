/* The jobs and the work that walks for them in turn. See preload.h. */
#include "base/hash.h"
#include "cacheworker/preload_internal.h"

#include <stdlib.h>
#include <string.h>

#define IDLE_NS CLOCK_SECOND

void preload_job_unref_locked(struct preload_job *job)
{
	if (--job->refs > 0)
		return;
	preload_walk_release(job);
	table_unref(job->table);
	meant_release(&job->meant);
	free(job);
}

/* The next that had no turn in this round, referenced; or NULL. */
static struct preload_job *pick_locked(struct preloads *p, uint32_t round)
{
	list_for_each (node, &p->jobs) {
		struct preload_job *job = list_entry(node, struct preload_job, link);

		if (job->round == round || job->dropped ||
			(job->phase == LOAD_ENDED && !preload_is_stale(job)))
			continue;
		job->round = round;
		job->refs++;
		return job;
	}
	return NULL;
}

/* A turn for each job; how long to wait before the next round. */
static uint64_t run_round_locked(struct preloads *p, uint32_t round)
{
	uint64_t wait_ns = IDLE_NS;
	struct preload_job *job;

	while (!p->closing && (job = pick_locked(p, round)) != NULL) {
		enum preload_step step;
		uint64_t ns;

		pthread_mutex_unlock(&p->lock);
		step = preload_turn(job, &ns);
		pthread_mutex_lock(&p->lock);
		wait_ns = min(wait_ns, step == PRELOAD_WENT ? 0 : ns);
		if (!job->dropped) { /* in the list: the others come before it next time */
			list_remove(&job->link);
			list_push_back(&p->jobs, &job->link);
		}
		preload_job_unref_locked(job);
	}
	return wait_ns;
}

static uint64_t walk(void *arg)
{
	struct preloads *p = arg;
	uint64_t ns = PERIODIC_IDLE;

	pthread_mutex_lock(&p->lock);
	if (p->n_jobs > 0 && !p->closing)
		ns = run_round_locked(p, ++p->rounds);
	pthread_mutex_unlock(&p->lock);
	return ns;
}

int preloads_open(struct worker *w)
{
	struct preloads *p = calloc(1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	p->worker = w;
	hash_random(&p->run, sizeof(p->run));
	p->max_in_flight = w->config->origin_requests;
	list_init(&p->jobs);
	pthread_mutex_init(&p->lock, NULL);
	p->walker = (struct periodic_work){ .name = "preload", .run = walk, .arg = p };
	p->asker = (struct periodic_work){ .name = "preload-ask", .run = preload_ask, .arg = p };
	w->preloads = p;
	return 0;
}

void preloads_start(struct worker *w)
{
	struct preloads *p = w->preloads;

	periodic_start(w->work, &p->walker, 0); /* rests until there is a job */
	periodic_start(w->work, &p->asker, PRELOAD_PAUSE_NS);
}

void preloads_stop(struct worker *w)
{
	struct preloads *p = w->preloads;

	if (!p)
		return;
	pthread_mutex_lock(&p->lock);
	p->closing = true;
	pthread_mutex_unlock(&p->lock);
}

void preloads_join(struct worker *w)
{
	struct preloads *p = w->preloads;

	if (!p)
		return;
	periodic_stop(&p->walker);
	periodic_stop(&p->asker);
	preload_ask_release(p);
}

void preloads_close(struct worker *w)
{
	struct preloads *p = w->preloads;
	struct list *node;

	if (!p)
		return;
	pthread_mutex_lock(&p->lock);
	while ((node = list_pop_front(&p->jobs)) != NULL) {
		struct preload_job *job = list_entry(node, struct preload_job, link);

		preload_drop_again_locked(job);
		preload_job_unref_locked(job);
	}
	ensure(p->in_flight == 0);
	pthread_mutex_unlock(&p->lock);
	free(p->unit);
	pthread_mutex_destroy(&p->lock);
	free(p);
	w->preloads = NULL;
}
