/* What the dashboard shows. See dashboard.h. */
#include "master/dashboard.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "base/periodic.h"
#include "master/events.h"
#include "master/history.h"
#include "master/service.h"
#include "master/workers.h"

#include <stdlib.h>
#include <string.h>

#define POINTS_DEFAULT 120u
#define POINTS_OF_ALL  240u /* in an answer about every dataset: that is long enough */

struct dashboard {
	struct dashboard_config config;
	struct history *history;
	struct workers *workers;
	struct pool *pool; /* for `work` */
	struct periodic_work work;
	uint64_t next_ns; /* the next sample */
};

/* ---- samples --------------------------------------------------------------------------------- */

static uint64_t number(const json_t *json, const char *name)
{
	json_int_t n = json_integer_value(json_object_get(json, name));

	return n > 0 ? (uint64_t)n : 0;
}

static void sample_dataset(struct dashboard *d, const json_t *json)
{
	const json_t *cached = json_object_get(json, "cached_ratio");
	const char *uuid = json_string_value(json_object_get(json, "uuid"));
	const char *name = json_string_value(json_object_get(json, "name"));
	uint64_t missed = number(json, "miss_bytes");
	struct history_dataset dataset = {
		.uuid = uuid,
		.name = name,
		.counts = { .read = number(json, "hit_bytes") + missed,
			.missed = missed,
			.origin = number(json, "origin_bytes") },
		.cached = json_is_number(cached) ? json_number_value(cached) : -1,
	};

	if (uuid && name)
		history_dataset(d->history, &dataset);
}

static bool sample_datasets(struct dashboard *d)
{
	struct dataset *all = NULL;
	bool whole = true;
	uint32_t n = 0;

	if (dataset_set_all(d->config.datasets, &all, &n) < 0)
		return false;
	for (uint32_t i = 0; i < n; i++) {
		json_t *json = dataset_json(d->config.datasets, &all[i]);

		whole &= json != NULL;
		sample_dataset(d, json);
		json_decref(json);
		dataset_release(&all[i]);
	}
	free(all);
	return whole;
}

/* Without memory there are gaps. */
static void sample(struct dashboard *d)
{
	uint64_t now = clock_mono_ns();
	struct history_cluster cluster;
	struct source_sum sum;

	workers_sum(d->workers, &cluster);
	source_set_sum(d->config.sources, &sum);
	cluster.counts = (struct history_counts){ .read = sum.hit_bytes + sum.miss_bytes,
		.missed = sum.miss_bytes,
		.origin = sum.origin_bytes };
	history_begin(d->history, now, (int64_t)(clock_wall_ns() / CLOCK_SECOND), &cluster);
	history_end(d->history, sample_datasets(d));
}

static uint64_t run(void *arg)
{
	struct dashboard *d = arg;
	uint64_t now;

	sample(d);
	now = clock_mono_ns();
	d->next_ns = max(d->next_ns + d->config.step_ns, now);
	return d->next_ns - now;
}

/* ---- life ------------------------------------------------------------------------------------ */

int dashboard_new(
	const struct dashboard_config *config, struct dashboard **ret_dashboard, struct err *e)
{
	struct dashboard *d = calloc(1, sizeof(*d));

	if (!d)
		return err_set(e, -ENOMEM, "out of memory");
	d->config = *config;
	d->history = history_new(config->step_ns);
	d->workers = workers_new(config->membership);
	if (d->history && d->workers && events_open() == 0)
		d->pool = pool_new("dashboard", 1, 1);
	if (!d->pool) {
		dashboard_free(d);
		return err_set(e, -ENOMEM, "no memory or thread for the dashboard: free some");
	}
	audit_watch(event_audit, NULL);
	d->work = (struct periodic_work){ .name = "dashboard", .run = run, .arg = d };
	d->next_ns = clock_mono_ns();
	periodic_start(d->pool, &d->work, 0);
	*ret_dashboard = d;
	return 0;
}

void dashboard_free(struct dashboard *d)
{
	if (!d)
		return;
	audit_watch(NULL, NULL);
	periodic_stop(&d->work);
	pool_free(d->pool);
	events_close();
	workers_free(d->workers);
	history_free(d->history);
	free(d);
}

void dashboard_report(struct dashboard *d, const Granary__WorkerReport *m)
{
	if (d)
		workers_report(d->workers, m);
}

struct workers *dashboard_workers(struct dashboard *d)
{
	return d->workers;
}

/* ---- routes ---------------------------------------------------------------------------------- */

int dashboard_api_history(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	const struct service *service = arg;
	const char *name = request->query(request, "dataset");
	uint64_t most = name ? HISTORY_POINTS : POINTS_OF_ALL;
	uint64_t seconds = 0;
	uint64_t points = 0;
	int r = admin_query_number(request, "seconds", 0, &seconds, e);

	if (r == 0)
		r = admin_query_number(request, "points", POINTS_DEFAULT, &points, e);
	if (r < 0)
		return r;
	if (points == 0 || points > most)
		return err_set(e, -EINVAL, "'points' must be 1 to %u%s", (unsigned int)most,
			name ? "" : ", or to 2880 with 'dataset'");
	return history_json(
		service->dashboard->history, name, seconds, (uint32_t)points, ret_json, e);
}
