/*
 * What was, for charts: points at fixed steps of the last while, in memory, beginning anew with the
 * master. Each series has HISTORY_POINTS of them (24 hours at a step of 30 s); the oldest goes.
 *
 *	GET /v1/history?dataset=NAME&seconds=S&points=P
 *
 * Bounded: HISTORY_SERIES datasets, fewer where the memory for it (ARENA_HISTORY) is used up; those
 * that found no room are counted, and have no history.
 *
 * Threads: one samples (begin, dataset..., end), any ask.
 */
#pragma once

#include "admin/admin.h"

#define HISTORY_POINTS 2880u
#define HISTORY_SERIES 64u
#define HISTORY_STALLS 4u /* causes: master, memory, disk, origin */

/* What a dataset, or all of them, counted since some start; what is not known is 0. */
struct history_counts {
	uint64_t read;   /* bytes given to readers */
	uint64_t missed; /* of them, as they came from the origin */
	uint64_t origin; /* bytes fetched, also ahead of readers */
};

struct history_cluster {
	struct history_counts counts;
	uint64_t used;
	uint64_t capacity;
	uint64_t stalls[HISTORY_STALLS]; /* requests that took long, by cause */
};

struct history_dataset {
	const char *uuid;
	const char *name;
	struct history_counts counts;
	double cached; /* 0 to 1; below 0: not known */
};

struct history;

/* `step_ns` between two samples. NULL without memory. */
struct history *history_new(uint64_t step_ns);
void history_free(struct history *h); /* NULL is allowed */

/* A sample: begin, then each dataset, then end, all of one thread. `now_ns` is monotonic, `time_s` since
 * 1970. A counter
 * that fell grew by nothing that is known; what is seen for the first time has no rates yet. A dataset that is not reported
 * is forgotten when all were reported (`whole`), else it has a gap. */
void history_begin(
	struct history *h, uint64_t now_ns, int64_t time_s, const struct history_cluster *cluster);
void history_dataset(struct history *h, const struct history_dataset *dataset);
void history_end(struct history *h, bool whole);

/*
 * {"step_s", "times": [...], "cluster": {...}, "datasets": [...], "left_out"} of the last `seconds`
 * (0: all there is) in at most `points` points, each the sum or mean of those it stands for. `name`:
 * of that dataset alone; NULL: of all. -ENOENT: it has no history; -ENOMEM.
 */
int history_json(struct history *h, const char *name, uint64_t seconds, uint32_t points,
	json_t **ret_json, struct err *e) __must_check;
