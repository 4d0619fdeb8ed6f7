/*
 * What makes a program a debug program, in every one of them: crash points, the first line of the
 * fault plane (GRANARY_FAULTS), and its route:
 *
 *	GET /v1/debug/faults			{"faults": "LINE", "times": "tier.eio=3"}
 *	PUT /v1/debug/faults {"faults": "LINE"}	replaces it
 *
 * It is linked as an object: its constructor runs before main().
 */
#include "admin/admin_internal.h"
#include "base/cleanup.h"
#include "tests/debug/crash.h"
#include "tests/debug/faults.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int get_faults(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	_cleanup_(buf_release) struct buf line = BUF_INIT(FAULTS_LINE_BYTES);
	_cleanup_(buf_release) struct buf times = BUF_INIT(FAULTS_LINE_BYTES);
	int r = faults_text(faults_global(), &line, &times);

	(void)arg;
	(void)request;
	if (r == 0)
		*ret_json =
			json_pack("{s:s, s:s}", "faults", buf_str(&line), "times", buf_str(&times));
	if (r < 0 || !*ret_json)
		return err_set(e, -ENOMEM, "out of memory");
	return 0;
}

static int put_faults(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	const char *line = json_string_value(json_object_get(request->body, "faults"));
	int r;

	if (!line)
		return err_set(e, -EINVAL, "write it like {\"faults\": \"tier.eio=0.01\"}");
	r = faults_set(faults_global(), line, e);
	return r < 0 ? r : get_faults(arg, request, ret_json, e);
}

static const struct admin_route routes[] = {
	{ "GET", "/v1/debug/faults", get_faults, NULL },
	{ "PUT", "/v1/debug/faults", put_faults, "debug.faults" },
	{ 0 },
};

__attribute__((constructor)) static void begin(int argc, char **argv)
{
	const char *line = getenv("GRANARY_FAULTS");
	struct err e = ERR_INIT;

	if (argc == 2 && strcmp(argv[1], "--crash-points") == 0) {
		crash_points_print();
		exit(0); /* nothing else was started. NOLINT(concurrency-mt-unsafe) */
	}
	crash_points_install();
	admin_debug_routes = routes;
	if (line && faults_set(faults_global(), line, &e) < 0)
		(void)fprintf(stderr, "GRANARY_FAULTS: %s\n", e.text);
}
