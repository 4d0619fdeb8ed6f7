/*
 * What workers say of themselves with each question about terms: tiers, stalls, version; who came and
 * who has not been heard of. For people only: placement goes by slots.h.
 *
 *	GET /v1/workers		{"workers": [{"number", "address", "state", "tiers": [...], ...}]}
 *
 * Threads: any; the lock is a leaf but for events.
 */
#pragma once

#include "admin/admin.h"
#include "base/clock.h"
#include "master/history.h"
#include "master/slots.h"
#include "proto/granary.pb-c.h"

#define WORKER_TIERS_MAX 64u
#define WORKER_SILENT_NS (40 * CLOCK_SECOND) /* they ask every 8 to 12 s: three times were missed */

struct workers;

/* `slots` is borrowed. NULL without memory. */
struct workers *workers_new(const struct slots *slots);
void workers_free(struct workers *w); /* NULL is allowed */

/* Takes down a report. NULL is allowed. */
void workers_report(struct workers *w, const Granary__WorkerReport *m);
/* Notes who has not been heard of for WORKER_SILENT_NS at `now_ns`. */
void workers_look(struct workers *w, uint64_t now_ns);
/* What all of them have, and how often readers stalled; not what these were given. */
void workers_sum(struct workers *w, struct history_cluster *ret_cluster);
/* The array of workers; NULL without memory. */
json_t *workers_json(struct workers *w);
