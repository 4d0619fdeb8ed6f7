/*
 * Writes what /metrics answers: the text format of Prometheus (0.0.4), or OpenMetrics 1.0 when that
 * was asked for.
 *
 * A family is begun once, then its values follow. Errors stay until the end: the callers need not
 * look. Label values may be anything: they are escaped, and cut.
 */
#pragma once

#include <stdbool.h>
#include "base/buf.h"
#include "base/counter.h"
#include "base/histogram.h"

struct metrics {
	struct buf *out;
	bool open; /* OpenMetrics */
	int error; /* 0, or the first negative errno */
};

struct metric_family {
	const char *name;
	enum counter_kind kind; /* a COUNTER's name ends with _total */
	const char *unit;
	const char *help;
};

struct metric_label {
	const char *name;
	const char *value; /* NULL: as if empty */
};

/* METRIC_LABELS({ "tier", path }, { "kind", "ram" }) */
#define METRIC_LABELS(...) ((const struct metric_label[]){ __VA_ARGS__, { NULL, NULL } })

void metrics_family(struct metrics *m, const struct metric_family *family);
/* `labels` ends with a NULL name; NULL: none. */
void metrics_value(struct metrics *m, const struct metric_family *family,
	const struct metric_label *labels, uint64_t value);
/* For what is not whole: seconds. */
void metrics_real(struct metrics *m, const struct metric_family *family,
	const struct metric_label *labels, double value);
/* A family with one value and no label. */
void metrics_one(struct metrics *m, const struct metric_family *family, uint64_t value);

void metrics_counters(
	struct metrics *m, const struct counter_info *table, uint32_t n, const void *counters);
/* Rows of one name follow each other in the table. */
void metrics_histograms(
	struct metrics *m, const struct histogram_info *table, uint32_t n, const void *histograms);
/* What the format ends with. */
void metrics_end(struct metrics *m);
