/* What workers report of preloads, and the answers. See preload.h. */
#include "base/cleanup.h"
#include "base/log.h"
#include "master/preload_internal.h"
#include "proto/granary.pb-c.h"

#include <string.h>

#define STORE_NS (10 * CLOCK_SECOND) /* how far a job is, into the store */

/* ---- answers --------------------------------------------------------------------------------- */

static void job_message(const struct preloads *p, const struct preload *job,
	const struct record_generation *g, Granary__PreloadJob *m)
{
	struct tier_policy policy;

	granary__preload_job__init(m);
	m->has_id = m->has_volume = m->has_lineage = m->has_generation = m->has_bandwidth = true;
	m->id = job->record.id;
	m->volume = (ProtobufCBinaryData){ VOLUME_ID_LEN,
		(uint8_t *)(uintptr_t)job->record.volume.bytes };
	m->lineage = g->id.lineage;
	m->generation = g->id.generation;
	m->n_paths = job->record.n_paths;
	m->paths = (char **)(uintptr_t)job->record.paths;
	m->bandwidth = preload_share_locked(p, job);
	m->has_exact = true;
	m->exact = job->record.exact;
	m->has_end = g->end != 0;
	m->end = g->end;
	m->subtree = job->record.subtree;
	m->at = job->record.at;
	m->has_part = true;
	m->part = job->record.part;
	m->has_copies = source_set_policy(p->config.sources, &job->record.volume, &policy) == 0;
	m->copies = m->has_copies ? policy.copies : 0;
}

uint8_t *preload_pack_jobs_locked(struct preloads *p, size_t *ret_len)
{
	Granary__PreloadJob jobs[PRELOAD_ACTIVE_MAX];
	Granary__PreloadJob *all[PRELOAD_ACTIVE_MAX];
	Granary__PreloadJobs m = GRANARY__PRELOAD_JOBS__INIT;
	uint8_t *packed;

	m.jobs = all;
	list_for_each (node, &p->all) {
		const struct preload *job = list_entry(node, struct preload, link);
		struct record_generation g;

		if (!preload_is_active(job) || m.n_jobs == PRELOAD_ACTIVE_MAX ||
			preload_find_generation(p, &job->record, &g) < 0)
			continue; /* preload_look_after() ends it */
		job_message(p, job, &g, &jobs[m.n_jobs]);
		all[m.n_jobs] = &jobs[m.n_jobs];
		m.n_jobs++;
	}
	*ret_len = granary__preload_jobs__get_packed_size(&m);
	packed = malloc(*ret_len + 1);
	if (packed)
		(void)granary__preload_jobs__pack(&m, packed); /* the size is known */
	return packed;
}

static void reply_jobs(struct preloads *p, struct rpc_request *request)
{
	struct net_payload payload = NET_PAYLOAD_NONE;
	uint8_t *packed;
	size_t len;

	pthread_mutex_lock(&p->lock);
	packed = preload_pack_jobs_locked(p, &len);
	pthread_mutex_unlock(&p->lock);
	if (packed) {
		payload.parts[0].data = packed;
		payload.parts[0].len = len;
		payload.n = 1;
		payload.release = free;
		payload.arg = packed;
	}
	rpc_reply(request, packed ? 0 : -ENOMEM, NULL, payload);
}

void preload_wake(struct preloads *p)
{
	struct list ready = LIST_INIT(ready);
	struct list *node;

	pthread_mutex_lock(&p->lock);
	list_splice_back(&ready, &p->parked);
	pthread_mutex_unlock(&p->lock);
	for (;;) {
		pthread_mutex_lock(&p->lock); /* one of them may be cancelled meanwhile */
		node = list_pop_front(&ready);
		pthread_mutex_unlock(&p->lock);
		if (!node)
			return;
		reply_jobs(p, list_entry(node, struct rpc_request, link));
	}
}

/* True: it is answered once there is a job, or its worker is gone. */
static bool park(struct preloads *p, struct rpc_request *request)
{
	bool active = false;

	pthread_mutex_lock(&p->lock);
	list_for_each (node, &p->all)
		active |= preload_is_active(list_entry(node, struct preload, link));
	if (!active && !atomic_load(&request->cancelled)) {
		list_push_back(&p->parked, &request->link);
		pthread_mutex_unlock(&p->lock);
		return true;
	}
	pthread_mutex_unlock(&p->lock);
	return false;
}

void preloads_cancelled(struct preloads *p, struct rpc_request *request)
{
	bool mine;

	pthread_mutex_lock(&p->lock);
	mine = !list_empty(&request->link);
	list_remove(&request->link);
	pthread_mutex_unlock(&p->lock);
	if (mine)
		rpc_reply(request, -ECANCELED, NULL, NET_PAYLOAD_NONE);
}

/* ---- reports --------------------------------------------------------------------------------- */

/* Under `writing`. */
static void take_report(struct preloads *p, uint64_t worker, const Granary__PreloadReport *m)
{
	enum preload_state now = PRELOAD_CANCELLED;
	enum preload_state next = PRELOAD_RUNNING;
	char reason[PRELOAD_REASON_BYTES];
	uint64_t stored_ns = 0;
	struct preload *job;
	int r = 0;

	pthread_mutex_lock(&p->lock);
	job = preload_find_locked(p, m->id);
	if (job && preload_is_active(job)) {
		now = job->record.state;
		stored_ns = job->stored_ns;
		preload_take_part_locked(p, job, worker, m);
		next = preload_outcome_locked(p, job, reason);
	}
	pthread_mutex_unlock(&p->lock);
	if (preload_ended(now))
		return; /* it hears of that by its absence from the answer */
	if (next != PRELOAD_RUNNING)
		r = preload_set_state(p, m->id, next, reason);
	else if (now == PRELOAD_WAITING)
		r = preload_set_state(p, m->id, PRELOAD_RUNNING, NULL);
	else if (clock_mono_ns() - stored_ns >= STORE_NS)
		preload_store_progress(p, m->id);
	if (r < 0 && r != -EEXIST)
		LOG_LIMITED(LOG_WARN, "a preload's state was not stored",
			"error=%s next=\"its worker reports it again\"", err_name(r));
}

void preload_look_after(struct preloads *p)
{
	struct volume_id used[PRELOAD_ACTIVE_MAX];
	uint64_t lost[PRELOAD_ACTIVE_MAX];
	struct record_generation g;
	uint32_t n_used = 0;
	uint32_t n_lost = 0;

	pthread_mutex_lock(&p->lock);
	list_for_each (node, &p->all) {
		const struct preload *job = list_entry(node, struct preload, link);
		const struct preload_record *record = &job->record;

		if (!preload_is_active(job) || n_used == PRELOAD_ACTIVE_MAX)
			continue;
		used[n_used++] = record->volume;
		if (record->exact && preload_find_generation(p, record, &g) < 0)
			lost[n_lost++] = record->id;
	}
	pthread_mutex_unlock(&p->lock);
	for (uint32_t i = 0; i < n_used; i++)
		source_set_touch(p->config.sources, &used[i]);
	for (uint32_t i = 0; i < n_lost; i++)
		(void)preload_set_state(p, lost[i], PRELOAD_FAILED, /* else with the next answer */
			"its generation was removed: preload the present one");
}

void preloads_answer(struct preloads *p, struct rpc_request *request)
{
	Granary__PreloadReports *m =
		granary__preload_reports__unpack(NULL, request->frame.payload, request->payload);
	struct err e = ERR_INIT;
	bool parks;

	if (!m) {
		(void)err_set(&e, -EBADMSG,
			"the request cannot be decoded; use the same version on both "
			"sides"); /* its code */
		rpc_reply_err(request, e.code, &e);
		return;
	}
	preload_look_at_owners(p);
	pthread_mutex_lock(&p->writing);
	for (size_t i = 0; i < m->n_jobs; i++)
		take_report(p, m->worker, m->jobs[i]);
	preload_look_after(p);
	pthread_mutex_unlock(&p->writing);
	parks = m->n_jobs == 0;
	granary__preload_reports__free_unpacked(m, NULL);
	if (!parks || !park(p, request))
		reply_jobs(p, request);
}
