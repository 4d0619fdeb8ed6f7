/* Rows of a bench. See bench_report.h. */
#include "ctl/bench_report.h"
#include "base/clock.h"
#include "base/cleanup.h"
#include "ctl/columns.h"

#include <string.h>

#define ORIGIN_SHARE \
	2 /* a row of which more than one in two bytes came from there is the origin's */

struct bench_row *bench_report_add(struct bench_report *report, const char *test, const char *of,
	const char *state, unsigned int threads)
{
	ensure(report->n < BENCH_ROWS_MAX);
	report->rows[report->n] =
		(struct bench_row){ .test = test, .of = of, .state = state, .threads = threads };
	return &report->rows[report->n++];
}

static bool is_mount(const struct bench_row *row)
{
	return strcmp(row->of, "mount") == 0;
}

static bool is_names(const struct bench_row *row)
{
	return strcmp(row->test, "stat") == 0 || strcmp(row->test, "open") == 0;
}

static const struct bench_row *find(
	const struct bench_report *report, const char *test, const char *of, unsigned int threads)
{
	for (unsigned int i = 0; i < report->n; i++) {
		const struct bench_row *row = &report->rows[i];

		if (strcmp(row->of, of) == 0 && strcmp(row->test, test) == 0 &&
			row->threads == threads && !row->skipped)
			return row;
	}
	return NULL;
}

const struct bench_row *bench_report_limit(
	const struct bench_report *report, const struct bench_row *row)
{
	if (!is_mount(row) || row->skipped)
		return NULL;
	if (is_names(row))
		return find(report, row->test, "local", row->threads);
	if (row->from_origin * ORIGIN_SHARE > row->result.bytes)
		return find(report, "read", "origin", BENCH_ORIGIN_CONNECTIONS);
	if (strcmp(row->state, "warm") == 0 ||
		(!report->sealed && row->counted && row->from_mount * 2 < row->result.bytes))
		return find(report, row->test, "memory", row->threads);
	return find(report, row->test, "disk", row->threads);
}

static double rate(const struct bench_row *row)
{
	return bench_rate(
		is_names(row) ? row->result.operations : row->result.bytes, row->result.ns);
}

double bench_report_ratio(const struct bench_row *row, const struct bench_row *limit)
{
	return limit && rate(limit) > 0 ? rate(row) / rate(limit) : -1;
}

/* ---- json ------------------------------------------------------------------------------------ */

static json_t *set_json(const struct bench_set *set)
{
	return json_pack(
		"{s:I, s:I}", "files", (json_int_t)set->n, "bytes", (json_int_t)set->bytes);
}

static json_t *real(double value)
{
	return value < 0 ? json_null() : json_real(value);
}

static double seconds(uint64_t ns)
{
	return (double)ns / (double)CLOCK_SECOND;
}

static void add_result(json_t *json, const struct bench_row *row)
{
	const struct bench_result *r = &row->result;
	json_t *more = json_pack("{s:f, s:I, s:I, s:I, s:f, s:f, s:f, s:f}", "took_s",
		seconds(r->ns), "operations", (json_int_t)r->operations, "bytes",
		(json_int_t)r->bytes, "errors", (json_int_t)r->errors, "operations_per_s",
		bench_rate(r->operations, r->ns), "bytes_per_s", bench_rate(r->bytes, r->ns),
		"p50_s", seconds(r->p50_ns), "p99_s", seconds(r->p99_ns));

	(void)json_object_update(json, more); /* counted, as all that is made here */
	json_decref(more);
	if (r->errors > 0)
		(void)json_object_set_new(json, "error",
			json_pack("{s:s, s:s}", "path", r->failed, "cause", err_name(r->error)));
}

static json_t *row_json(const struct bench_report *report, const struct bench_row *row)
{
	const struct bench_row *limit = bench_report_limit(report, row);
	json_t *json = json_pack("{s:s, s:s, s:i, s:s*}", "test", row->test, "of", row->of,
		"threads", (int)row->threads, "skipped", row->skipped);

	if (!json)
		return NULL;
	if (row->state[0])
		(void)json_object_set_new(json, "state", json_string(row->state));
	if (!row->skipped)
		add_result(json, row);
	if (!is_mount(row))
		return json;
	if (row->counted)
		(void)json_object_set_new(json, "from",
			json_pack("{s:I, s:I}", "mount_bytes", (json_int_t)row->from_mount,
				"origin_bytes", (json_int_t)row->from_origin));
	(void)json_object_set_new(json, "limit", limit ? json_string(limit->of) : json_null());
	(void)json_object_set_new(json, "of_limit", real(bench_report_ratio(row, limit)));
	return json;
}

json_t *bench_report_json(const struct bench_report *report)
{
	json_t *tests = json_array();
	json_t *limits = json_array();

	for (unsigned int i = 0; i < report->n; i++)
		(void)json_array_append_new(is_mount(&report->rows[i]) ? tests : limits,
			row_json(report, &report->rows[i])); /* counted, as above */
	return json_pack("{s:s, s:s, s:s, s:s, s:b, s:b, s:o, s:o, s:o, s:o}", "mountpoint",
		report->mountpoint, "source", report->source, "dir", report->dir, "engine",
		report->engine, "sealed", report->sealed, "more_files", report->cut, "small",
		set_json(report->small), "large", set_json(report->large), "tests", tests, "limits",
		limits);
}

/* ---- table ----------------------------------------------------------------------------------- */

static void result_text(const struct bench_row *row, char *out, size_t size)
{
	const struct bench_result *r = &row->result;
	double each = bench_rate(r->operations, r->ns);
	char bytes[24];

	if (row->skipped) {
		(void)snprintf(out, size, "-");
		return;
	}
	(void)units_size((uint64_t)bench_rate(r->bytes, r->ns), bytes, sizeof(bytes));
	if (is_names(row) || strcmp(row->test, "first byte") == 0)
		(void)snprintf(out, size, "%.0f/s", each); /* fits, as all below */
	else if (strcmp(row->test, "small") == 0 && is_mount(row))
		(void)snprintf(out, size, "%.0f files/s, %s/s", each, bytes);
	else
		(void)snprintf(out, size, "%s/s", bytes);
}

static void p99_text(const struct bench_row *row, char *out, size_t size)
{
	if (row->skipped || row->result.operations == 0)
		(void)snprintf(out, size, "-"); /* fits */
	else
		(void)units_duration(row->result.p99_ns, out, size);
}

/* Where a row's bytes came from, as far as daemons count. */
static void from_text(
	const struct bench_report *report, const struct bench_row *row, char *out, size_t size)
{
	uint64_t origin = min(row->from_origin, row->result.bytes);
	uint64_t tier =
		row->from_mount > origin ? min(row->from_mount, row->result.bytes) - origin : 0;
	uint64_t rest = row->result.bytes - origin - min(tier, row->result.bytes - origin);
	const struct {
		const char *name;
		uint64_t bytes;
	} parts[] = { { "origin", origin }, { "tier", tier },
		{ report->sealed ? "tier's file or memory" : "memory", rest } };
	size_t at = 0;

	(void)snprintf(out, size, "-");
	for (size_t i = 0; i < ARRAY_SIZE(parts) && row->counted && !is_names(row); i++) {
		char bytes[24];

		if (parts[i].bytes == 0 || at >= size)
			continue;
		at += (size_t)snprintf(out + at, size - at, "%s%s %s", at ? ", " : "",
			parts[i].name, units_size(parts[i].bytes, bytes, sizeof(bytes)));
	}
}

static int add_line(
	const struct bench_report *report, struct columns *table, const struct bench_row *row)
{
	const struct bench_row *limit = bench_report_limit(report, row);
	double ratio = bench_report_ratio(row, limit);
	char threads[16];
	char result[64];
	char p99[24];
	char from[96];
	char limit_text[96] = "-";
	char ratio_text[16] = "-";

	(void)snprintf(threads, sizeof(threads), "%u", row->threads); /* fits, as all below */
	result_text(row, result, sizeof(result));
	p99_text(row, p99, sizeof(p99));
	from_text(report, row, from, sizeof(from));
	if (limit) {
		char its[64];

		result_text(limit, its, sizeof(its));
		(void)snprintf(limit_text, sizeof(limit_text), "%s %s", limit->of, its);
	}
	if (ratio >= 0)
		(void)units_percent(ratio, 1, ratio_text, sizeof(ratio_text));
	return columns_add(
		table, (const char *[]){ row->test, row->state, threads, result, p99,
			       row->skipped ? row->skipped : from, limit_text, ratio_text });
}

static void print_limits(const struct bench_report *report, FILE *out)
{
	const char *said = NULL;

	for (unsigned int i = 0; i < report->n; i++) {
		const struct bench_row *row = &report->rows[i];
		char result[64];
		char p99[24];
		char median[24];

		if (is_mount(row) || (strcmp(row->of, "origin") != 0 && !row->skipped))
			continue;
		result_text(row, result, sizeof(result));
		p99_text(row, p99, sizeof(p99));
		if (row->skipped && (!said || strcmp(said, row->skipped) != 0))
			(void)fprintf(out, "%s: not measured: %s\n", row->of, row->skipped);
		if (row->skipped)
			said = row->skipped;
		else
			(void)fprintf(out, "%s, %s, %u connection%s: %s, median %s, p99 %s\n",
				row->of, row->test, row->threads, row->threads == 1 ? "" : "s",
				result, units_duration(row->result.p50_ns, median, sizeof(median)),
				p99);
	}
}

int bench_report_print(const struct bench_report *report, FILE *out)
{
	static const char *const titles[] = { "TEST", "STATE", "THREADS", "RESULT", "P99", "FROM",
		"LIMIT", "OF LIMIT" };
	_cleanup_(columns_release) struct columns table = { 0 };
	char small[24];
	char large[24];
	int r = columns_init(&table, titles, ARRAY_SIZE(titles), 0x9c);

	for (unsigned int i = 0; i < report->n && r == 0; i++)
		if (is_mount(&report->rows[i]))
			r = add_line(report, &table, &report->rows[i]);
	if (r < 0)
		return r;
	(void)fprintf(out,
		"%s: %s, engine %s%s\nfiles: %u small (%s), %u large (%s)%s: \"found\" in the "
		"present state of the caches, \"dropped\" after the kernel dropped their pages, "
		"\"warm\" read before\n",
		report->dir, report->source, report->engine, report->sealed ? ", sealed" : "",
		report->small->n, units_size(report->small->bytes, small, sizeof(small)),
		report->large->n, units_size(report->large->bytes, large, sizeof(large)),
		report->cut ? " of more" : "");
	columns_print(&table, out);
	print_limits(report, out);
	return 0;
}
