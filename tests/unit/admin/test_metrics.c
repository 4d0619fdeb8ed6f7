/* The text of /metrics: families, labels of any bytes, histograms, both formats. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <string.h>
#include "admin/metrics.h"

static const struct metric_family reads = { "granary_reads_total", COUNTER, "requests", "Reads" };
static const struct metric_family space = { "granary_space_bytes", GAUGE, "bytes", "Room" };

static void test_families(void **state)
{
	static const char want[] = "# HELP granary_reads_total Reads (requests)\n"
				   "# TYPE granary_reads_total counter\n"
				   "granary_reads_total{from=\"tier\",source=\"s3://b/p\"} 7\n"
				   "granary_reads_total{from=\"origin\"} 18446744073709551615\n"
				   "# HELP granary_space_bytes Room (bytes)\n"
				   "# TYPE granary_space_bytes gauge\n"
				   "granary_space_bytes 12\n";
	static const char open_want[] = "# HELP granary_reads Reads (requests)\n"
					"# TYPE granary_reads counter\n"
					"granary_reads_total 3\n"
					"# HELP granary_space_bytes Room (bytes)\n"
					"# TYPE granary_space_bytes gauge\n"
					"granary_space_bytes 12\n"
					"# EOF\n";
	struct buf out = BUF_INIT(4096);
	struct metrics m = { .out = &out };

	(void)state;
	metrics_family(&m, &reads);
	metrics_value(&m, &reads, METRIC_LABELS({ "from", "tier" }, { "source", "s3://b/p" }), 7);
	metrics_value(&m, &reads, METRIC_LABELS({ "from", "origin" }), UINT64_MAX);
	metrics_one(&m, &space, 12);
	metrics_end(&m);
	assert_int_equal(m.error, 0);
	assert_string_equal(buf_str(&out), want);
	buf_clear(&out);
	m.open = true;
	metrics_one(&m, &reads, 3);
	metrics_one(&m, &space, 12);
	metrics_end(&m);
	assert_string_equal(buf_str(&out), open_want);
	buf_release(&out);
}

static void test_labels(void **state)
{
	char long_value[600];
	struct buf out = BUF_INIT(4096);
	struct metrics m = { .out = &out };

	(void)state;
	metrics_value(&m, &space,
		METRIC_LABELS(
			{ "a", "x\"y\\z\nw" }, { "b", "\xc3\xa9\xff\x01\xe2\x82" }, { "c", NULL }),
		1);
	assert_string_equal(buf_str(&out),
		"granary_space_bytes{a=\"x\\\"y\\\\z\\nw\",b=\"\xc3\xa9????\",c=\"\"} 1\n");
	/* Overlong, a surrogate, beyond Unicode: a reader would refuse everything. */
	buf_clear(&out);
	metrics_value(&m, &space,
		METRIC_LABELS({ "a", "\xe0\x80\x80\xed\xa0\x80" },
			{ "b", "\xf0\x80\x80\x80\xf4\x90\x80\x80" },
			{ "c", "\xe0\xa0\x80\xed\x9f\xbf\xf0\x90\x80\x80\xf4\x8f\xbf\xbf" }),
		1);
	assert_string_equal(buf_str(&out),
		"granary_space_bytes{a=\"??????\",b=\"????????\",c=\"\xe0\xa0\x80\xed\x9f\xbf"
		"\xf0\x90\x80\x80\xf4\x8f\xbf\xbf\"} 1\n");
	buf_clear(&out);
	memset(long_value, 'k', sizeof(long_value) - 1);
	long_value[sizeof(long_value) - 1] = '\0';
	metrics_value(&m, &space, METRIC_LABELS({ "a", long_value }), 1);
	assert_int_equal(strlen(buf_str(&out)), strlen("granary_space_bytes{a=\"\"} 1\n") + 256);
	assert_int_equal(m.error, 0);
	out.max = out.len + 10;
	metrics_one(&m, &space, 1);
	assert_int_equal(m.error, -ENOBUFS); /* said at the end, not cut */
	buf_release(&out);
}

#define TEST_HISTOGRAMS(X)                                                 \
	X(tier, "granary_fetch_seconds", "from", "tier", "Of a fetch")     \
	X(origin, "granary_fetch_seconds", "from", "origin", "Of a fetch") \
	X(other, "granary_other_seconds", NULL, NULL, "Of something else")
HISTOGRAM_STRUCT(test_histograms, TEST_HISTOGRAMS);

static void test_histograms(void **state)
{
	static const struct histogram_info rows[] = {
#define ROW(symbol, name, label, value, help) \
	HISTOGRAM_ROW(test_histograms, symbol, name, label, value, help)
		TEST_HISTOGRAMS(ROW)
#undef ROW
	};
	struct test_histograms all = { 0 };
	struct buf out = BUF_INIT(65536);
	struct metrics m = { .out = &out };
	const char *help;

	(void)state;
	histogram_note(&all.tier, 1000);
	histogram_note(&all.tier, 40000);
	histogram_note(&all.tier, 1000000000000ull);
	histogram_note(&all.other, 500000000);
	metrics_histograms(&m, rows, 3, &all);
	assert_int_equal(m.error, 0);
	help = strstr(buf_str(&out), "# HELP granary_fetch_seconds Of a fetch (seconds)\n"
				     "# TYPE granary_fetch_seconds histogram\n");
	assert_ptr_equal(help, buf_str(&out));
	assert_null(strstr(help + 1, "# HELP granary_fetch_seconds")); /* once */
	assert_non_null(
		strstr(help, "\ngranary_fetch_seconds_bucket{from=\"tier\",le=\"0.000032\"} 1\n"
			     "granary_fetch_seconds_bucket{from=\"tier\",le=\"0.000064\"} 2\n"));
	assert_non_null(
		strstr(help, "\ngranary_fetch_seconds_bucket{from=\"tier\",le=\"268.435456\"} 2\n"
			     "granary_fetch_seconds_bucket{from=\"tier\",le=\"+Inf\"} 3\n"
			     "granary_fetch_seconds_sum{from=\"tier\"} 1000.000041000\n"
			     "granary_fetch_seconds_count{from=\"tier\"} 3\n"));
	assert_non_null(strstr(help, "\ngranary_fetch_seconds_count{from=\"origin\"} 0\n"));
	assert_non_null(strstr(help, "\ngranary_other_seconds_bucket{le=\"+Inf\"} 1\n"
				     "granary_other_seconds_sum 0.500000000\n"
				     "granary_other_seconds_count 1\n"));
	buf_release(&out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_families),
		cmocka_unit_test(test_labels),
		cmocka_unit_test(test_histograms),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
