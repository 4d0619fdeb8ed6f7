/* The text of /metrics. See metrics.h. */
#include "admin/metrics.h"
#include "base/utf8.h"

#include <stdio.h>
#include <string.h>

#define LABEL_BYTES 256u /* of a value */

static void note(struct metrics *m, int r)
{
	if (m->error == 0)
		m->error = r;
}

/* Inside the quotes of a label. */
static void label_value(struct metrics *m, const char *text)
{
	const char *s = text;
	size_t used = 0;

	while (*s && used < LABEL_BYTES) {
		size_t n = utf8_bytes(s);

		if (*s == '\n')
			note(m, buf_puts(m->out, "\\n"));
		else if (*s == '"' || *s == '\\')
			note(m, buf_printf(m->out, "\\%c", *s));
		else if (n == 0 || (n == 1 && (*s < 0x20 || *s == 0x7f)))
			note(m, buf_puts(m->out, "?"));
		else
			note(m, buf_append(m->out, s, n));
		s += n ? n : 1;
		used += n ? n : 1;
	}
}

/* `{a="b",le="0.1"}`, or nothing. */
static void label_set(struct metrics *m, const struct metric_label *labels, const char *le)
{
	const char *gap = "{";

	for (; labels && labels->name; labels++) {
		note(m, buf_printf(m->out, "%s%s=\"", gap, labels->name));
		label_value(m, labels->value ? labels->value : "");
		note(m, buf_puts(m->out, "\""));
		gap = ",";
	}
	if (le)
		note(m, buf_printf(m->out, "%sle=\"%s\"", gap, le));
	if (le || *gap == ',')
		note(m, buf_puts(m->out, "}"));
}

/* What OpenMetrics calls the family: a counter's without _total. */
static int family_length(const struct metrics *m, const char *name, bool counter)
{
	size_t len = strlen(name);

	return (int)(m->open && counter ? len - strlen("_total") : len);
}

static void header(
	struct metrics *m, const char *name, const char *type, const char *help, const char *unit)
{
	int len = family_length(m, name, strcmp(type, "counter") == 0);

	note(m, buf_printf(m->out, "# HELP %.*s %s (%s)\n# TYPE %.*s %s\n", len, name, help, unit,
			len, name, type));
}

void metrics_family(struct metrics *m, const struct metric_family *family)
{
	header(m, family->name, family->kind == GAUGE ? "gauge" : "counter", family->help,
		family->unit);
}

void metrics_value(struct metrics *m, const struct metric_family *family,
	const struct metric_label *labels, uint64_t value)
{
	note(m, buf_puts(m->out, family->name));
	label_set(m, labels, NULL);
	note(m, buf_printf(m->out, " %llu\n", (unsigned long long)value));
}

void metrics_real(struct metrics *m, const struct metric_family *family,
	const struct metric_label *labels, double value)
{
	note(m, buf_puts(m->out, family->name));
	label_set(m, labels, NULL);
	note(m, buf_printf(m->out, " %.9f\n", value));
}

void metrics_one(struct metrics *m, const struct metric_family *family, uint64_t value)
{
	metrics_family(m, family);
	metrics_value(m, family, NULL, value);
}

void metrics_counters(
	struct metrics *m, const struct counter_info *table, uint32_t n, const void *counters)
{
	for (uint32_t i = 0; i < n; i++) {
		const struct metric_family family = { table[i].name, table[i].kind, table[i].unit,
			table[i].help };

		metrics_one(m, &family, counter_read(&table[i], counters));
	}
}

/* ---- histograms ------------------------------------------------------------------------------ */

static void histogram_text(struct metrics *m, const char *name, const struct metric_label *labels,
	const struct histogram *h)
{
	uint64_t sum = counter_get(&h->sum_ns);
	uint64_t count = 0;
	char le[32];

	/* The count is that of the buckets, whatever is noted meanwhile. */
	for (unsigned int i = 0; i <= HISTOGRAM_BOUNDS; i++) {
		count += counter_get(&h->buckets[i]);
		if (i < HISTOGRAM_BOUNDS)
			(void)snprintf(le, sizeof(le), "%.6f",
				(double)histogram_bound_ns(i) / 1e9); /* fits */
		else
			(void)snprintf(le, sizeof(le), "+Inf");
		note(m, buf_printf(m->out, "%s_bucket", name));
		label_set(m, labels, le);
		note(m, buf_printf(m->out, " %llu\n", (unsigned long long)count));
	}
	note(m, buf_printf(m->out, "%s_sum", name));
	label_set(m, labels, NULL);
	note(m, buf_printf(m->out, " %.9f\n%s_count", (double)sum / 1e9, name));
	label_set(m, labels, NULL);
	note(m, buf_printf(m->out, " %llu\n", (unsigned long long)count));
}

void metrics_histograms(
	struct metrics *m, const struct histogram_info *table, uint32_t n, const void *histograms)
{
	for (uint32_t i = 0; i < n; i++) {
		const struct histogram_info *row = &table[i];
		const struct metric_label labels[] = { { row->label, row->value }, { NULL, NULL } };

		if (i == 0 || strcmp(table[i - 1].name, row->name) != 0)
			header(m, row->name, "histogram", row->help, "seconds");
		histogram_text(m, row->name, labels,
			(const struct histogram *)(const void *)((const char *)histograms +
								 row->offset));
	}
}

void metrics_end(struct metrics *m)
{
	if (m->open)
		note(m, buf_puts(m->out, "# EOF\n"));
}
