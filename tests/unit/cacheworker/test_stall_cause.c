/* What a request that took long is said to have waited for, in the status and in /metrics. */
#include "tests/unit/cacheworker/world.h"
#include "cacheworker/fetch_internal.h"
#include <sys/socket.h>
#include <sys/un.h>

/* When it ended, how long ago it began and when its source was known; ns. */
struct example {
	uint64_t took;
	uint64_t until_known; /* of that; 0: it never was */
	bool waited;          /* for a unit */
	bool starved;         /* which had no memory */
	bool cancelled;
	const char *cause; /* NULL: it did not stall */
};

static void end_one(struct world *w, const struct example *x)
{
	uint64_t now = clock_mono_ns();
	struct rpc_request request = { .cancelled = x->cancelled };
	struct fetch fetch = { .worker = &w->worker,
		.request = &request,
		.began_ns = now - x->took,
		.planned_ns = x->until_known ? now - x->took + x->until_known : 0,
		.waited = x->waited,
		.starved = x->starved };

	fetch_note_end(&fetch, NULL);
}

static int64_t in_status(const struct world *w, const char *cause)
{
	json_t *json = worker_stalls_json(&w->worker);
	int64_t n = json_integer_value(json_object_get(json, cause));

	json_decref(json);
	return n;
}

/* What the worker's own HTTP says. */
static void get_metrics(const struct world *w, struct buf *out)
{
	static const char ask[] = "GET /metrics HTTP/1.0\r\nHost: x\r\n\r\n";
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char part[4096];
	ssize_t n;

	(void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", w->worker.config->admin);
	assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(write(fd, ask, sizeof(ask) - 1), sizeof(ask) - 1);
	while ((n = read(fd, part, sizeof(part))) > 0)
		assert_int_equal(buf_append(out, part, (size_t)n), 0);
	(void)close(fd);
}

static void expect_metric(const char *text, const char *cause, unsigned int n)
{
	char line[128];

	(void)snprintf(
		line, sizeof(line), "\ngranary_worker_stalls_total{cause=\"%s\"} %u\n", cause, n);
	if (!strstr(text, line))
		fail_msg("not there: %s", line + 1);
}

static void test_causes(void **state)
{
	static const struct example examples[] = {
		{ .took = 20 * CLOCK_SECOND, .until_known = 18 * CLOCK_SECOND, .cause = "master" },
		{ .took = 20 * CLOCK_SECOND, .cause = "master" },
		{ .took = 20 * CLOCK_SECOND,
			.until_known = 18 * CLOCK_SECOND,
			.waited = true,
			.starved = true,
			.cause = "master" },
		{ .took = 20 * CLOCK_SECOND,
			.until_known = 1,
			.waited = true,
			.starved = true,
			.cause = "memory" },
		{ .took = 20 * CLOCK_SECOND, .until_known = 1, .cause = "disk" },
		{ .took = 20 * CLOCK_SECOND, .until_known = CLOCK_SECOND, .cause = "disk" },
		{ .took = 20 * CLOCK_SECOND, .until_known = 1, .waited = true, .cause = "origin" },
		{ .took = 1, .until_known = 1, .waited = true, .starved = true },
		{ .took = 20 * CLOCK_SECOND, .until_known = 1, .waited = true, .cancelled = true },
	};
	struct world *w = world_new(1 * GiB, 1);
	_cleanup_(buf_release) struct buf out = BUF_INIT(4 * MiB);
	const char *text;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(examples); i++) {
		const char *cause = examples[i].cause;
		int64_t before = cause ? in_status(w, cause) : 0;

		end_one(w, &examples[i]);
		if (cause)
			assert_int_equal(in_status(w, cause), before + 1);
	}
	get_metrics(w, &out);
	text = buf_str(&out);
	expect_metric(text, "master", 3);
	expect_metric(text, "memory", 1);
	expect_metric(text, "disk", 2);
	expect_metric(text, "origin", 1);
	assert_non_null(strstr(text, "\ngranary_worker_stall_seconds_total{cause=\"disk\"} 40"));
	world_free(w);
}

/* The parts of a waiting request add up to its duration. */
static void test_parts(void **state)
{
	struct world *w = world_new(1 * GiB, 1);
	_cleanup_(buf_release) struct buf out = BUF_INIT(4 * MiB);
	uint64_t ns = 0;

	(void)state;
	(void)world_read_range(w, world_offset_of(w, 0), BLOCK_BYTES, 0);
	for (unsigned int i = 0; i <= HISTOGRAM_BOUNDS; i++)
		for (unsigned int part = 0; part < N_WAIT_PARTS; part++)
			ns += counter_get(&w->worker.waits.ns[i][part]);
	assert_true(ns > 0);
	assert_true(ns <= counter_get(&w->worker.histograms.origin.sum_ns));
	get_metrics(w, &out);
	assert_non_null(
		strstr(buf_str(&out), "\ngranary_worker_origin_wait_seconds_total{took=\""));
	assert_non_null(strstr(buf_str(&out), "part=\"reply\"}"));
	world_free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_causes),
		cmocka_unit_test(test_parts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
