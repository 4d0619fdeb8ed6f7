/* What the worker hears from the master of preloads, and says. See preload.h. */
#include "base/arena.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "cacheworker/copies.h"
#include "cacheworker/preload_internal.h"
#include "cacheworker/retention.h"
#include "proto/granary.pb-c.h"

#include <stdlib.h>
#include <string.h>

#define REPORT_NS  (250 * CLOCK_MS)
#define PARK_NS    (10 * CLOCK_SECOND) /* without a job the master answers once there is one */
#define ANSWER_NS  (5 * CLOCK_SECOND)
#define TROUBLE_NS CLOCK_SECOND
#define FIGURES_NS (5 * CLOCK_SECOND) /* for a report; without it figures are as old as they say */
#define BURST_S    0.1

/* ---- reports --------------------------------------------------------------------------------- */

/* `until_ns`: what is cached was reported as it was then, so a job that ended later runs. */
static void job_message(const struct preload_job *job, uint64_t until_ns, Granary__PreloadReport *m)
{
	bool ended = job->phase == LOAD_ENDED && job->ended_ns <= until_ns;
	const struct preload_tally *t = &job->tally;

	granary__preload_report__init(m);
	m->has_id = m->has_state = m->has_lineage = m->has_generation = true;
	m->has_files = m->has_files_done = m->has_files_failed = true;
	m->has_run = true;
	m->run = job->preloads->run;
	m->has_bytes = m->has_bytes_done = m->has_bytes_fetched = true;
	m->id = job->id;
	m->state = ended ? job->outcome : PRELOAD_RUNNING;
	m->reason = strdup(ended ? job->reason : ""); /* NULL: said the next time */
	m->lineage = job->lineage;
	m->generation = job->generation;
	m->files = t->files;
	m->files_done = t->files_done;
	m->files_failed = t->files_failed;
	m->bytes = t->bytes;
	m->bytes_done = t->bytes_done;
	m->bytes_fetched = t->bytes_fetched;
	m->has_bytes_copied = m->has_epoch = m->has_sequence = true;
	m->bytes_copied = t->bytes_copied;
	m->epoch = job->walk.epoch;
	m->sequence = job->walk.sequence;
}

static Granary__PreloadFailure *failure_message(const struct preload_failure *failure)
{
	Granary__PreloadFailure *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	granary__preload_failure__init(m);
	m->has_key = true;
	m->key.data = malloc(failure->key_len);
	m->reason = strdup(failure->reason);
	if (!m->key.data || !m->reason) {
		granary__preload_failure__free_unpacked(m, NULL);
		return NULL;
	}
	memcpy(m->key.data, failure->key, failure->key_len);
	m->key.len = failure->key_len;
	return m;
}

/* NULL without memory. */
static Granary__PreloadReport *report_of_locked(const struct preload_job *job, uint64_t until_ns)
{
	const struct preload_tally *t = &job->tally;
	Granary__PreloadReport *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	job_message(job, until_ns, m);
	m->failures = t->n_failures ? calloc(t->n_failures, sizeof(*m->failures)) : NULL;
	for (uint32_t i = 0; m->failures && i < t->n_failures; i++) {
		m->failures[m->n_failures] = failure_message(&t->failures[i]);
		m->n_failures += m->failures[m->n_failures] != NULL;
	}
	return m;
}

/*
 * The master shows what is cached by what a worker reports every few seconds: the end of a job follows a report that was made
 * after it, so that a preload which is complete is shown as such. Returns until when jobs may have ended for that.
 */
static uint64_t report_ended(struct preloads *p)
{
	uint64_t last = 0;

	pthread_mutex_lock(&p->lock);
	list_for_each (node, &p->jobs) {
		const struct preload_job *job = list_entry(node, struct preload_job, link);

		if (job->phase == LOAD_ENDED)
			last = max(last, job->ended_ns);
	}
	p->ended = false;
	pthread_mutex_unlock(&p->lock);
	if (last > p->figured_ns) {
		retention_report(p->worker, last, FIGURES_NS);
		/* Once, also when no report was taken: other jobs wait for this work. */
		p->figured_ns = last;
	}
	return last;
}

/* All jobs, packed, to be freed; NULL without memory. *ret_jobs: how many. */
static uint8_t *pack_reports(
	struct preloads *p, uint64_t until_ns, size_t *ret_len, uint32_t *ret_jobs)
{
	Granary__PreloadReports *all = calloc(1, sizeof(*all));
	uint8_t *packed = NULL;

	if (!all)
		return NULL;
	granary__preload_reports__init(all);
	all->has_worker = true;
	all->worker = p->worker->member.id;
	pthread_mutex_lock(&p->lock);
	all->jobs = calloc(p->n_jobs + 1, sizeof(*all->jobs));
	list_for_each (node, &p->jobs) {
		Granary__PreloadReport *m;

		m = all->jobs
			    ? report_of_locked(list_entry(node, struct preload_job, link), until_ns)
			    : NULL;
		if (m)
			all->jobs[all->n_jobs++] = m;
	}
	*ret_jobs = p->n_jobs;
	pthread_mutex_unlock(&p->lock);
	if (all->jobs && all->n_jobs == *ret_jobs) {
		*ret_len = granary__preload_reports__get_packed_size(all);
		packed = malloc(*ret_len + 1);
	}
	if (packed)
		(void)granary__preload_reports__pack(all, packed); /* the size is known */
	granary__preload_reports__free_unpacked(all, NULL);
	return packed;
}

/* ---- answers --------------------------------------------------------------------------------- */

static bool is_valid(const Granary__PreloadJob *m)
{
	return m->id != 0 && m->volume.len == VOLUME_ID_LEN && m->bandwidth <= PRELOAD_RATE_MAX;
}

static struct preload_job *job_new(struct preloads *p, const Granary__PreloadJob *m)
{
	struct preload_job *job = calloc(1, sizeof(*job));

	if (!job)
		return NULL;
	job->refs = 1;
	job->preloads = p;
	job->id = m->id;
	job->began_ns = clock_mono_ns();
	job->rate = RATE_INIT((double)m->bandwidth, BURST_S);
	job->exact = m->exact;
	job->part = m->part;
	job->end = m->has_end ? m->end : UINT64_MAX;
	list_init(&job->link);
	list_init(&job->again);
	memcpy(job->volume.bytes, m->volume.data, VOLUME_ID_LEN);
	if (meant_init(&job->meant, m->paths, m->n_paths, m->subtree, m->at) < 0) {
		preload_job_unref_locked(job); /* there is no other reference */
		return NULL;
	}
	return job;
}

static struct preload_job *find_locked(struct preloads *p, uint64_t id)
{
	list_for_each (node, &p->jobs) {
		struct preload_job *job = list_entry(node, struct preload_job, link);

		if (job->id == id)
			return job;
	}
	return NULL;
}

static void follow_job_locked(struct preloads *p, const Granary__PreloadJob *m)
{
	struct preload_job *job = find_locked(p, m->id);

	if (!job && p->n_jobs < PRELOAD_ACTIVE_MAX) {
		job = job_new(p, m);
		if (!job)
			return; /* with the next answer */
		list_push_back(&p->jobs, &job->link);
		p->n_jobs++;
		periodic_poke(&p->walker);
	}
	if (!job)
		return;
	job->known = true;
	rate_set(&job->rate, clock_mono_ns(), (double)m->bandwidth); /* it may be another one now */
	job->copies = m->has_copies && copies_valid(m->copies) ? m->copies : COPIES_UNSAID;
	if (job->copies != COPIES_UNSAID)
		copies_note_policy(p->worker, &job->volume, job->copies);
	if (job->phase == LOAD_OPENING) { /* there may be a newer one by now */
		job->lineage = m->lineage;
		job->generation = m->generation;
	}
}

static void follow(struct preloads *p, const Granary__PreloadJobs *jobs)
{
	pthread_mutex_lock(&p->lock);
	list_for_each (node, &p->jobs)
		list_entry(node, struct preload_job, link)->known = false;
	for (size_t i = 0; i < jobs->n_jobs; i++)
		if (is_valid(jobs->jobs[i]))
			follow_job_locked(p, jobs->jobs[i]);
	list_for_each_safe (node, &p->jobs) {
		struct preload_job *job = list_entry(node, struct preload_job, link);

		if (job->known)
			continue;
		job->dropped = true;
		list_remove(&job->link);
		p->n_jobs--;
		preload_drop_again_locked(job);
		preload_job_unref_locked(job);
	}
	pthread_mutex_unlock(&p->lock);
}

/* ---- the work -------------------------------------------------------------------------------- */

static void on_answer(struct master_ask *ask)
{
	struct preloads *p = container_of(ask, struct preloads, ask);

	atomic_store(&p->answered, true);
	periodic_poke(&p->asker);
}

/* Without a job the master answers once there is one. */
static int ask(struct preloads *p)
{
	const struct frame frame = { .op = FRAME_PRELOAD };
	size_t len = 0;
	_cleanup_free_ uint8_t *packed = pack_reports(p, report_ended(p), &len, &p->reported);
	int r = packed ? 0 : -ENOMEM;

	p->ask.on_answer = on_answer;
	atomic_store(&p->answered, false);
	if (r == 0)
		r = master_ask(p->worker, frame, packed, len, p->reported ? ANSWER_NS : PARK_NS,
			false, &p->ask);
	p->asking = r == 0;
	return r;
}

/* What the master answered. */
static int take_answer(struct preloads *p, struct err *e)
{
	struct master_answer answer;
	Granary__PreloadJobs *jobs = NULL;
	int r = master_ask_end(p->worker, &p->ask, &answer, e);

	p->asking = false;
	if (r == 0)
		jobs = granary__preload_jobs__unpack(NULL, answer.reply.payload,
			answer.payload ? answer.payload : (const uint8_t *)"");
	if (r == 0 && !jobs)
		r = err_set(e, -EBADMSG,
			"the master's answer cannot be decoded; use the same version on both "
			"sides");
	if (jobs) {
		follow(p, jobs);
		granary__preload_jobs__free_unpacked(jobs, NULL);
	}
	master_answer_release(&answer);
	return r;
}

void preload_ask_release(struct preloads *p)
{
	struct master_answer answer;
	int r;

	if (!p->asking)
		return;
	r = master_ask_end(p->worker, &p->ask, &answer, NULL);
	(void)r; /* the worker closes */
	master_answer_release(&answer);
	p->asking = false;
}

void preload_ended_locked(struct preloads *p)
{
	p->ended = true;
	periodic_poke(&p->asker);
}

uint64_t preload_ask(void *arg)
{
	struct preloads *p = arg;
	struct err e = ERR_INIT;
	uint64_t ns = PERIODIC_IDLE;
	bool closing;
	int r;

	pthread_mutex_lock(&p->lock);
	closing = p->closing;
	pthread_mutex_unlock(&p->lock);
	if (closing || (p->asking && !atomic_load(&p->answered)))
		return PERIODIC_IDLE;
	if (!p->asking)
		return ask(p) < 0 ? TROUBLE_NS : PERIODIC_IDLE;
	r = take_answer(p, &e);
	if (r == -ETIMEDOUT && p->reported == 0)
		r = 0; /* there is still no job */
	if (r < 0)
		log_debug("preloads not reported", "reason=\"%s\" next=\"sent again\"", e.text);
	pthread_mutex_lock(&p->lock);
	if (r < 0)
		ns = TROUBLE_NS;
	else if (p->ended)
		ns = 0;
	else
		ns = p->n_jobs ? REPORT_NS : PRELOAD_PAUSE_NS;
	pthread_mutex_unlock(&p->lock);
	return ns;
}
