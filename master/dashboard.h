/*
 * The dashboard: a page that the master serves (master/dashboard/), and what it shows beyond what
 * other routes say: points of the past (history.h), events (events.h), workers (workers.h).
 * docs/dashboard.md.
 *
 * A thread of its own takes a sample every step: of a dataset what GET /v1/datasets says.
 *
 * Threads: new, free from main; the rest any.
 */
#pragma once

#include "admin/admin.h"
#include "base/clock.h"
#include "master/dataset.h"
#include "master/membership.h"
#include "proto/granary.pb-c.h"

#define DASHBOARD_STEP       (30 * CLOCK_SECOND)
#define DASHBOARD_STEP_LEAST CLOCK_SECOND

struct dashboard;
struct workers;

struct dashboard_config {
	struct dataset_set *datasets; /* borrowed, as the following */
	struct source_set *sources;
	struct membership *membership;
	uint64_t step_ns; /* between two points */
};

int dashboard_new(const struct dashboard_config *config, struct dashboard **ret_dashboard,
	struct err *e) __must_check;
/* Before the datasets' end. NULL is allowed. */
void dashboard_free(struct dashboard *d);
/* What a worker says of itself. NULL is allowed. */
void dashboard_report(struct dashboard *d, const Granary__WorkerReport *m);

/* What they said; borrowed. */
struct workers *dashboard_workers(struct dashboard *d);

/* The page and its files, for admin_server_set_pages(). Made of master/dashboard/. */
extern const struct admin_page dashboard_pages[];

/* Handlers of the routes; `arg` of each is a struct service. */
int dashboard_api_history(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e);
