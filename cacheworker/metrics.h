/*
 * What a worker counts of each source, of each tier, and of readers that had to wait; written for
 * /metrics with labels. The number of values is bounded: of the sources the METRICS_SOURCES with
 * the most bytes have values of their own, the rest have one, "other".
 *
 * Threads: any.
 */
#pragma once

#include "admin/admin.h"
#include "admin/metrics.h"
#include "base/histogram.h"

struct worker;

#define METRICS_SOURCES 20u

/* Where the bytes of answers came from; per source. */
struct source_use {
	counter_t file_bytes;   /* readers on this node were given a descriptor for them */
	counter_t tier_bytes;   /* copied out of a tier */
	counter_t origin_bytes; /* as they came from the origin */
	counter_t peer_bytes;   /* as they came from other workers */
	counter_t bypass_bytes; /* fetched, not admitted to a tier */
	counter_t hits;         /* requests */
	counter_t waits;        /* requests that waited for the origin */
};

#define WORKER_HISTOGRAMS(X)                                                           \
	X(file, "granary_worker_fetch_seconds", "from", "file",                        \
		"From a reader's request to its answer, by where the bytes came from") \
	X(tier, "granary_worker_fetch_seconds", "from", "tier",                        \
		"From a reader's request to its answer, by where the bytes came from") \
	X(origin, "granary_worker_fetch_seconds", "from", "origin",                    \
		"From a reader's request to its answer, by where the bytes came from") \
	X(get, "granary_worker_origin_get_seconds", NULL, NULL,                        \
		"From asking the origin for a unit to its last byte, retries included")
HISTOGRAM_STRUCT(worker_histograms, WORKER_HISTOGRAMS);

/* What a reader waited for that waited long. */
enum stall {
	STALL_MASTER, /* its source was not known yet */
	STALL_MEMORY, /* no memory for what it asked for */
	STALL_DISK,
	STALL_ORIGIN,
	N_STALLS,
};

#define STALL_NS 1000000000ull /* a request that took longer stalled */

struct worker_stalls {
	counter_t times[N_STALLS];
	counter_t ns[N_STALLS];
};

/*
 * What a reader's request for one unit was spent on that came from the origin, in order. Kept apart by how long the requests took,
 * in the buckets of `granary_worker_fetch_seconds`, so that the slowest of them tell what they waited for.
 */
#define WAIT_PARTS(X)                                                               \
	X(PLAN, "plan")   /* until what is absent was asked for */                  \
	X(QUEUE, "queue") /* until the request was sent: retries, bounds, places */ \
	X(FIRST_BYTE, "first_byte")                                                 \
	X(BODY, "body")                                                             \
	X(JOINED, "joined") /* in place of these three: it came as a neighbour */   \
	X(REPLY, "reply")   /* from the last byte on */
#define WAIT_PART(NAME, name) WAIT_##NAME,
enum wait_part { WAIT_PARTS(WAIT_PART) N_WAIT_PARTS };

struct worker_waits {
	counter_t ns[HISTOGRAM_BOUNDS + 1][N_WAIT_PARTS];
};

struct source;
/* {"url", "file_bytes", "tier_bytes", ...} of a source that has its table; NULL without memory. */
json_t *worker_use_json(const struct source *source);

/* {"master": 0, ...}: requests that stalled, by what they waited for; NULL without memory. */
json_t *worker_stalls_json(const struct worker *w);

/* For admin_server_add_metrics(), with the worker. */
void worker_metrics(void *arg, struct metrics *m);
/* For admin_server_on_ready(). */
void worker_ready(void *arg, json_t *reasons);
int worker_metrics_add(struct worker *w) __must_check;
