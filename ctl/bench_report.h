/*
 * What `cachectl bench` has measured, row by row, and how it is shown. Threads: one.
 */
#pragma once

#include <jansson.h>
#include "ctl/bench.h"
#include "ctl/bench_origin.h"

#define BENCH_ROWS_MAX 48u

struct bench_row {
	const char *test;     /* "stat", "open", "small", "sequential", "first byte" */
	const char *of;       /* "mount"; of a limit: "local", "memory", "disk", "origin" */
	const char *state;    /* "found", "dropped", "warm"; of a limit "" */
	unsigned int threads; /* or connections */
	struct bench_result result;
	const char *skipped; /* why nothing was measured; NULL: it was */
	bool counted;        /* the daemons said what came from where */
	uint64_t from_mount; /* bytes that the mount's daemon gave to the kernel */
	uint64_t from_origin;
};

struct bench_report {
	struct bench_row rows[BENCH_ROWS_MAX];
	unsigned int n;
	/* borrowed, of the mount */
	const char *mountpoint;
	const char *source;
	const char *dir;
	const char *engine;
	bool sealed; /* the kernel reads local files: no daemon counts */
	const struct bench_set *small;
	const struct bench_set *large;
	bool cut; /* there are more files */
};

/* A row to be filled; they are never more than fit. */
struct bench_row *bench_report_add(struct bench_report *report, const char *test, const char *of,
	const char *state, unsigned int threads);

/* The limit that holds for a row of the mount; NULL: it was not measured. */
const struct bench_row *bench_report_limit(
	const struct bench_report *report, const struct bench_row *row);

/* The row's rate over that of its limit; below 0: not known. */
double bench_report_ratio(const struct bench_row *row, const struct bench_row *limit);

json_t *bench_report_json(const struct bench_report *report); /* NULL without memory */
/* -ENOMEM, -ENOBUFS. */
int bench_report_print(const struct bench_report *report, FILE *out) __must_check;
