/* Workers, as they describe themselves. See workers.h. */
#include "master/workers.h"
#include "base/cleanup.h"
#include "base/units.h"
#include "master/events.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_BYTES 256u

struct tier {
	char path[TEXT_BYTES];
	char kind[16];
	char state[16];
	char reason[TEXT_BYTES];
	uint64_t capacity;
	uint64_t used;
};

/* There is one in a cluster of slots.h. */
struct workers {
	const struct slots *slots;
	pthread_mutex_t lock;
	uint64_t heard_ns; /* 0: never in this run of the master */
	bool silent;       /* and that was noted */
	uint64_t run;
	uint64_t uptime_s;
	char version[32];
	struct tier *tiers;
	uint32_t n_tiers;
	uint64_t capacity;
	uint64_t stalls[HISTORY_STALLS];
	uint64_t stall_ns[HISTORY_STALLS];
};

struct workers *workers_new(const struct slots *slots)
{
	struct workers *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->slots = slots;
	pthread_mutex_init(&w->lock, NULL);
	return w;
}

void workers_free(struct workers *w)
{
	if (!w)
		return;
	pthread_mutex_destroy(&w->lock);
	free(w->tiers);
	free(w);
}

static void worker_name(const struct workers *w, char out[32])
{
	(void)snprintf(out, 32, "worker %u", w->slots->worker.number); /* fits */
}

/* ---- reports --------------------------------------------------------------------------------- */

static void take_text(char *out, size_t size, const char *from)
{
	(void)snprintf(out, size, "%s", from ? from : ""); /* cut: for people */
}

static void take_tier(struct tier *to, const Granary__TierReport *m)
{
	take_text(to->path, sizeof(to->path), m->path);
	take_text(to->kind, sizeof(to->kind), m->kind);
	take_text(to->state, sizeof(to->state), m->state);
	take_text(to->reason, sizeof(to->reason), m->reason);
	to->capacity = m->capacity;
	to->used = m->used;
}

/* Told of a tier that is not in the service that it was in before. */
static void note_tier(const struct workers *w, const struct tier *tier)
{
	bool ok = strcmp(tier->state, "ok") == 0;
	char name[32];

	for (uint32_t i = 0; i < w->n_tiers; i++)
		if (strcmp(w->tiers[i].path, tier->path) == 0 &&
			strcmp(w->tiers[i].state, tier->state) == 0)
			return;
	if (ok && w->n_tiers == 0)
		return; /* of a worker that was not known: as it should be */
	worker_name(w, name);
	event_note(ok ? EVENT_INFO : EVENT_WARN, "tier", tier->path, "%s: %s%s%s", name,
		tier->state, tier->reason[0] ? ": " : "", tier->reason);
}

/* Without memory: as they were. */
static void take_tiers_locked(struct workers *w, const Granary__WorkerReport *m)
{
	uint32_t n = (uint32_t)min(m->n_tiers, (size_t)WORKER_TIERS_MAX);
	struct tier *tiers = calloc(n + 1, sizeof(*tiers));

	if (!tiers)
		return;
	for (uint32_t i = 0; i < n; i++) {
		take_tier(&tiers[i], m->tiers[i]);
		note_tier(w, &tiers[i]);
	}
	free(w->tiers);
	w->tiers = tiers;
	w->n_tiers = n;
}

static void take_stalls_locked(struct workers *w, const Granary__WorkerReport *m)
{
	for (size_t i = 0; i < HISTORY_STALLS; i++) {
		w->stalls[i] = i < m->n_stalls ? m->stalls[i] : 0;
		w->stall_ns[i] = i < m->n_stall_ns ? m->stall_ns[i] : 0;
	}
}

static void note_report_locked(const struct workers *w, const Granary__WorkerReport *m)
{
	char name[32];
	char size[16];

	worker_name(w, name);
	if (w->heard_ns == 0 || (m->has_run && m->run != w->run))
		event_note(EVENT_INFO, "worker", name, "%s: version %s, capacity %s",
			w->heard_ns == 0 ? "is there" : "was started again",
			m->version ? m->version : "unknown",
			units_size(m->capacity, size, sizeof(size)));
	else if (w->silent)
		event_note(EVENT_INFO, "worker", name, "is heard of again");
}

void workers_report(struct workers *w, const Granary__WorkerReport *m)
{
	if (!w)
		return;
	pthread_mutex_lock(&w->lock);
	note_report_locked(w, m);
	w->heard_ns = clock_mono_ns();
	w->silent = false;
	w->run = m->run;
	w->uptime_s = m->uptime_s;
	w->capacity = m->capacity;
	take_text(w->version, sizeof(w->version), m->version);
	take_tiers_locked(w, m);
	take_stalls_locked(w, m);
	pthread_mutex_unlock(&w->lock);
}

static bool is_silent(const struct workers *w, uint64_t now_ns)
{
	return w->heard_ns && now_ns > w->heard_ns && now_ns - w->heard_ns > WORKER_SILENT_NS;
}

void workers_look(struct workers *w, uint64_t now_ns)
{
	char name[32];

	pthread_mutex_lock(&w->lock);
	if (!w->silent && is_silent(w, now_ns)) {
		w->silent = true;
		worker_name(w, name);
		event_note(EVENT_ERROR, "worker", name, "is not heard of any more");
	}
	pthread_mutex_unlock(&w->lock);
}

void workers_sum(struct workers *w, struct history_cluster *ret_cluster)
{
	struct history_cluster sum = { 0 };

	pthread_mutex_lock(&w->lock);
	sum.capacity = w->capacity;
	for (uint32_t i = 0; i < w->n_tiers; i++)
		sum.used += w->tiers[i].used;
	memcpy(sum.stalls, w->stalls, sizeof(sum.stalls));
	pthread_mutex_unlock(&w->lock);
	*ret_cluster = sum;
}

/* ---- for people ------------------------------------------------------------------------------ */

static json_t *tiers_json(const struct workers *w)
{
	json_t *all = json_array();

	for (uint32_t i = 0; i < w->n_tiers; i++) {
		const struct tier *t = &w->tiers[i];

		(void)json_array_append_new(all, /* failures are counted */
			json_pack("{s:o, s:o, s:o, s:o, s:I, s:I}", "path",
				admin_json_string(t->path), "kind", admin_json_string(t->kind),
				"state", admin_json_string(t->state), "reason",
				admin_json_string(t->reason), "capacity", (json_int_t)t->capacity,
				"used", (json_int_t)t->used));
	}
	return all;
}

static json_t *stalls_json(const uint64_t stalls[HISTORY_STALLS], uint64_t unit)
{
	return json_pack("{s:I, s:I, s:I, s:I}", "master", (json_int_t)(stalls[0] / unit), "memory",
		(json_int_t)(stalls[1] / unit), "disk", (json_int_t)(stalls[2] / unit), "origin",
		(json_int_t)(stalls[3] / unit));
}

static json_t *worker_json(const struct workers *w)
{
	uint64_t now = clock_mono_ns();
	const char *state = !w->heard_ns ? "unknown" : is_silent(w, now) ? "down" : "up";
	json_t *json = json_pack("{s:i, s:s, s:s}", "number", (int)w->slots->worker.number,
		"address", w->slots->address, "state", state);

	if (!json || !w->heard_ns)
		return json;
	/* As above. */
	(void)json_object_set_new(json, "version", admin_json_string(w->version));
	(void)json_object_set_new(json, "uptime_s",
		json_integer((json_int_t)(w->uptime_s + (now - w->heard_ns) / CLOCK_SECOND)));
	(void)json_object_set_new(json, "heard_s_ago",
		json_integer((json_int_t)((now - w->heard_ns) / CLOCK_SECOND)));
	(void)json_object_set_new(json, "capacity", json_integer((json_int_t)w->capacity));
	(void)json_object_set_new(json, "tiers", tiers_json(w));
	(void)json_object_set_new(json, "stalls", stalls_json(w->stalls, 1));
	(void)json_object_set_new(json, "stall_seconds", stalls_json(w->stall_ns, CLOCK_SECOND));
	return json;
}

json_t *workers_json(struct workers *w)
{
	uint64_t failures = admin_json_failures();
	json_t *all = json_array();

	pthread_mutex_lock(&w->lock);
	if (w->slots->address)
		(void)json_array_append_new(all, worker_json(w)); /* as above */
	pthread_mutex_unlock(&w->lock);
	if (admin_json_failures() == failures)
		return all;
	json_decref(all);
	return NULL;
}
