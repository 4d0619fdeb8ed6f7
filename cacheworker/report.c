/* How much of each volume is here. See report.h. */
#include "cacheworker/report.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/version.h"
#include "cacheworker/copies.h"
#include "cacheworker/evict_job.h"
#include "cacheworker/kept.h"
#include "cacheworker/source.h"
#include "proto/granary.pb-c.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define REPORTS_MAX 4096u /* as many sources as a master takes */

struct report {
	struct volume_id volume;
	uint64_t changes; /* in the volume when `cached` was counted; UINT64_MAX: never */
	uint64_t cached;
	uint64_t copies;     /* part of it: of chunks that others own */
	uint64_t classified; /* worker.classified, likewise */
	uint64_t origin;     /* bytes fetched */
	uint64_t hit;        /* bytes copied to readers out of tiers */
	uint64_t miss;       /* and as they came from the origin */
	uint64_t evicted;    /* number followed last */
	uint64_t evicted_bytes;
	uint64_t evicted_paths; /* likewise, of orders that name objects */
	uint64_t evicted_paths_bytes;
};

static struct report *find(struct worker *w, const struct volume_id *volume)
{
	struct retention *retention = &w->retention;
	struct report *grown;

	for (uint32_t i = 0; i < retention->n_reports; i++)
		if (volume_id_equal(&retention->reports[i].volume, volume))
			return &retention->reports[i];
	if (retention->n_reports == REPORTS_MAX)
		return NULL;
	grown = reallocarray(retention->reports, retention->n_reports + 1, sizeof(*grown));
	if (!grown)
		return NULL;
	retention->reports = grown;
	grown += retention->n_reports++;
	*grown = (struct report){ .volume = *volume, .changes = UINT64_MAX };
	if (kept_evicted_load(w, volume, &grown->evicted) < 0)
		grown->evicted = 0; /* never */
	if (kept_evicted_paths_load(w, volume, &grown->evicted_paths) < 0)
		grown->evicted_paths = 0;
	return grown;
}

/* Each volume that is open here is reported from the first report on, whether or not the master has asked about it. */
static void find_open(struct worker *w)
{
	struct volume_id *volumes;
	uint32_t n = 0;
	uint32_t max = 0;

	pthread_mutex_lock(&w->sources.lock);
	list_for_each (node, &w->sources.all)
		max++;
	volumes = calloc(max + 1, sizeof(*volumes));
	list_for_each (node, &w->sources.all) {
		const struct source *source = list_entry(node, struct source, link);

		if (volumes && source->table && source->ufs)
			volumes[n++] = source->volume;
	}
	pthread_mutex_unlock(&w->sources.lock);
	for (uint32_t i = 0; i < n; i++)
		(void)find(w, &volumes[i]); /* without memory: in the next report */
	free(volumes);
}

/* What has changed is counted anew: that looks at every chunk. */
static void count(struct worker *w, struct report *report)
{
	struct tier_volume_status st = { 0 };
	uint64_t lineages[KEPT_LINEAGES];
	uint64_t classified;
	uint32_t n;

	if (!tier_volume_status(w->tiers, &report->volume, &st))
		st.changes = 0;
	classified = atomic_load(&w->classified);
	if (st.changes == report->changes && classified == report->classified)
		return;
	report->changes = st.changes;
	report->classified = classified;
	report->cached = report->copies = 0;
	n = tier_set_lineages(w->tiers, &report->volume, lineages, KEPT_LINEAGES);
	for (uint32_t i = 0; i < n; i++) {
		report->cached += tier_set_volume_bytes(w->tiers, &report->volume, lineages[i]);
		report->copies += tier_set_copy_bytes(w->tiers, &report->volume, lineages[i]);
	}
}

static void count_bytes(struct worker *w, struct report *report)
{
	struct ufs_counters origin;

	report->origin = report->hit = report->miss = 0;
	pthread_mutex_lock(&w->sources.lock);
	list_for_each (node, &w->sources.all) {
		const struct source *source = list_entry(node, struct source, link);

		if (!source->table || !source->ufs ||
			!volume_id_equal(&source->volume, &report->volume))
			continue;
		source_origin_counters(source, &origin);
		report->origin += counter_get(&origin.bytes);
		report->hit += counter_get(&source->use.tier_bytes);
		report->miss += counter_get(&source->use.origin_bytes);
	}
	pthread_mutex_unlock(&w->sources.lock);
}

static void drop(struct worker *w, struct report *report, uint64_t evict)
{
	uint64_t lineages[KEPT_LINEAGES];
	uint32_t n = tier_set_lineages(w->tiers, &report->volume, lineages, KEPT_LINEAGES);
	uint64_t bytes = 0;
	int r;

	for (uint32_t i = 0; i < n; i++)
		bytes += tier_set_drop(w->tiers, &report->volume, lineages[i], NULL, NULL);
	counter_add(&w->counters.dropped_bytes, bytes);
	log_info("evicted by order", "number=%" PRIu64 " bytes=%" PRIu64, evict, bytes);
	r = kept_evicted_save(w, &report->volume, evict);
	if (r < 0)
		log_warn("eviction not stored",
			"error=%s next=\"a restart of the worker evicts again\"", err_name(r));
	report->evicted = evict;
	report->evicted_bytes = bytes;
	report->changes = UINT64_MAX;
}

bool report_note(struct worker *w, const struct volume_id *volume, uint64_t evict)
{
	struct report *report = find(w, volume);
	bool news = report && evict > report->evicted;

	if (!report)
		return false;
	if (news)
		drop(w, report, evict);
	return news;
}

/* It is reported to the master. */
static void followed_paths(struct report *report, uint64_t serial, uint64_t bytes)
{
	report->evicted_paths = serial;
	report->evicted_paths_bytes = bytes;
	report->changes = UINT64_MAX;
}

bool report_note_paths(
	struct worker *w, const struct volume_id *volume, const Granary__EvictPaths *order)
{
	struct report *report = find(w, volume);
	int r;

	if (!report || order->serial <= report->evicted_paths)
		return false;
	r = evict_job_start(w, volume, order);
	if (r == -EINVAL) {
		log_warn("eviction by path not done",
			"number=%" PRIu64
			" reason=\"invalid pattern\" next=\"use the same version on both sides\"",
			order->serial);
		r = kept_evicted_paths_save(w, volume, order->serial);
		if (r < 0)
			log_debug("order not remembered", "error=%s next=\"refused again\"",
				err_name(r));
		followed_paths(report, order->serial, 0); /* it cannot ever be */
		return true;
	}
	if (r < 0)
		log_debug("eviction by path not begun",
			"number=%" PRIu64 " error=%s next=\"tried again\"", order->serial,
			err_name(r));
	return false;
}

void report_take_evicted(struct worker *w)
{
	struct evict_outcome outcome;
	struct report *report;

	if (!evict_job_take(w, &outcome) || outcome.status < 0)
		return;
	report = find(w, &outcome.volume);
	if (report)
		followed_paths(report, outcome.serial, outcome.sum.bytes);
}

/* What people see of the worker itself: packed before it goes. */
struct self {
	struct tier_status *status;
	Granary__TierReport *tiers;
	Granary__TierReport **pointers;
	uint32_t n;
	uint64_t stalls[N_STALLS];
	uint64_t stall_ns[N_STALLS];
};

static void self_release(struct self *self)
{
	free(self->status);
	free(self->tiers);
	free(self->pointers);
}

static void tier_message(const struct tier_status *st, Granary__TierReport *m)
{
	granary__tier_report__init(m);
	m->path = (char *)(uintptr_t)st->path; /* read only */
	m->kind = (char *)(uintptr_t)tier_kind_name(st->kind);
	m->state = (char *)(uintptr_t)st->state;
	m->reason = (char *)(uintptr_t)st->why;
	m->has_capacity = m->has_used = 1;
	m->capacity = st->capacity;
	m->used = st->used;
}

static int add_self(struct worker *w, struct self *self, Granary__WorkerReport *m)
{
	self->n = tier_set_count(w->tiers);
	self->status = calloc(self->n + 1, sizeof(*self->status));
	self->tiers = calloc(self->n + 1, sizeof(*self->tiers));
	self->pointers = calloc(self->n + 1, sizeof(*self->pointers));
	if (!self->status || !self->tiers || !self->pointers)
		return -ENOMEM;
	m->has_capacity = m->has_run = m->has_uptime_s = 1;
	for (uint32_t i = 0; i < self->n; i++) {
		tier_set_status(w->tiers, i, &self->status[i]);
		tier_message(&self->status[i], &self->tiers[i]);
		self->pointers[i] = &self->tiers[i];
		m->capacity += self->status[i].capacity;
	}
	m->n_tiers = self->n;
	m->tiers = self->pointers;
	for (unsigned int i = 0; i < N_STALLS; i++) {
		self->stalls[i] = counter_get(&w->stalls.times[i]);
		self->stall_ns[i] = counter_get(&w->stalls.ns[i]);
	}
	m->n_stalls = m->n_stall_ns = N_STALLS;
	m->stalls = self->stalls;
	m->stall_ns = self->stall_ns;
	m->version = (char *)(uintptr_t)GRANARY_VERSION; /* read only */
	m->has_id = true;
	m->id = w->member.id;
	m->run = w->retention.run;
	m->uptime_s = (clock_mono_ns() - w->started_ns) / CLOCK_SECOND;
	return 0;
}

uint8_t *report_message(struct worker *w, size_t *ret_len)
{
	Granary__WorkerReport m = GRANARY__WORKER_REPORT__INIT;
	_cleanup_(self_release) struct self self = { 0 };
	_cleanup_free_ Granary__VolumeReport *volumes = NULL;
	_cleanup_free_ Granary__VolumeReport **pointers = NULL;
	uint8_t *packed;
	uint32_t n;

	find_open(w);
	n = w->retention.n_reports;
	volumes = calloc(n + 1, sizeof(*volumes));
	pointers = calloc(n + 1, sizeof(void *));
	if (!volumes || !pointers || add_self(w, &self, &m) < 0)
		return NULL;
	for (uint32_t i = 0; i < n; i++) {
		struct report *report = &w->retention.reports[i];
		Granary__VolumeReport *v = pointers[i] = &volumes[i];

		count(w, report); /* now: what is reported is as fresh as it can be */
		count_bytes(w, report);
		granary__volume_report__init(v);
		v->has_volume = v->has_cached_bytes = v->has_origin_bytes = 1;
		v->has_evicted = v->has_evicted_bytes = 1;
		v->volume = (ProtobufCBinaryData){ VOLUME_ID_LEN, report->volume.bytes };
		v->cached_bytes = report->cached;
		v->origin_bytes = report->origin;
		v->has_copy_bytes = v->has_whole = 1;
		v->copy_bytes = report->copies;
		v->whole = worker_keeps_whole(w, &report->volume);
		v->has_hit_bytes = v->has_miss_bytes = 1;
		v->hit_bytes = report->hit;
		v->miss_bytes = report->miss;
		v->evicted = report->evicted;
		v->evicted_bytes = report->evicted_bytes;
		v->has_evicted_paths = v->has_evicted_paths_bytes = 1;
		v->evicted_paths = report->evicted_paths;
		v->evicted_paths_bytes = report->evicted_paths_bytes;
	}
	m.n_volumes = n;
	m.volumes = pointers;
	packed = malloc(granary__worker_report__get_packed_size(&m) + 1);
	if (packed)
		*ret_len = granary__worker_report__pack(&m, packed);
	return packed;
}

void report_release(struct worker *w)
{
	free(TAKE(w->retention.reports));
	w->retention.n_reports = 0;
}
