/*
 * cachectl refresh: what the origin has now, at a mount point that stays mounted. Asks the keeper,
 * and waits until the newer generation is shown.
 */
#include "admin/admin.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/option.h"
#include "ctl/command.h"
#include "ctl/fleet.h"
#include "ctl/keeper_start.h"
#include "ctl/target.h"
#include "ctl/yaml_out.h"

#include <stdio.h>
#include <string.h>

#define ASK_NS  (10 * CLOCK_SECOND)
#define POLL_NS (20 * CLOCK_MS)

struct refresh_options {
	const char *output;
};

static const struct option_spec specs[] = {
	OUTPUT_OPTION_ROW(struct refresh_options, output, OUTPUT_CHOICES),
};

static const struct option_set set = {
	.program = "cachectl refresh",
	.exits = { EXIT_MOUNTPOINT, EXIT_ORIGIN, EXIT_KERNEL, EXIT_BUSY },
	.arguments = "NAME|URL|DIR",
	.about = "Lists the source of a mount again, and shows what has changed. Open files keep "
		 "their "
		 "content.\nNAME or URL: the only mount of that dataset or source on this host.",
	.specs = specs,
	.n = ARRAY_SIZE(specs),
	.min_args = 1,
	.max_args = 1,
};

/* "generation 3"; of several sources "generation 3 of /images, 1 of /labels". */
static void print_generations(const json_t *status)
{
	const json_t *sources = json_object_get(status, "sources");
	const json_t *source;
	size_t i;

	(void)printf("generation ");
	if (json_array_size(sources) < 2)
		(void)printf("%lld",
			(long long)json_integer_value(json_object_get(status, "generation")));
	else
		json_array_foreach (sources, i, source) {
			const char *path = json_string_value(json_object_get(source, "path"));

			(void)printf("%s%lld of %s", i ? ", " : "",
				(long long)json_integer_value(
					json_object_get(source, "generation")),
				path ? path : "?");
		}
}

static json_t *answer_json(const char *point, const json_t *status, bool changed)
{
	json_t *sources = json_array();
	const json_t *source;
	size_t i;

	json_array_foreach (json_object_get(status, "sources"), i, source)
		if (json_array_append_new(sources,
			    json_pack("{s:O*, s:O*}", "path", json_object_get(source, "path"),
				    "generation", json_object_get(source, "generation"))) < 0) {
			json_decref(sources);
			return NULL; /* which is said */
		}
	return json_pack("{s:o, s:b, s:O*, s:o}", "mountpoint", admin_json_string(point), "changed",
		(int)changed, "generation", json_object_get(status, "generation"), "sources",
		sources);
}

/* What the daemon at that socket shows. `unchanged`: the line that says so, or NULL. */
static int answer(const char *format, const char *point, const char *socket, const char *unchanged)
{
	json_t *status = NULL;
	int said = EXIT_OK;

	if ((!unchanged || !output_is_table(format)) && *socket &&
		admin_call(socket, NULL, "/v1/status", NULL, fleet_timeout(), &status, NULL) < 0)
		status = NULL; /* it is mounted all the same */
	if (!output_is_table(format)) {
		said = yaml_out_made(format, answer_json(point, status, !unchanged));
	} else if (unchanged) {
		(void)printf("%s\n", unchanged);
	} else {
		(void)printf("%s shows ", point);
		if (status)
			print_generations(status);
		else
			(void)printf("a newer generation");
		(void)printf("\n");
	}
	json_decref(status);
	return said;
}

/* A keeper that is being started again, or was killed, has a successor: it is asked again. */
static int ask(const char *run, const char *keeper, const char *method, const char *path,
	const json_t *body, json_t **ret_answer, struct err *e)
{
	uint64_t deadline = clock_mono_ns() + ASK_NS;
	int r;

	for (;;) {
		r = admin_call(keeper, method, path, body, ASK_NS, ret_answer, e);
		if (!(fleet_unreachable(r) || r == -EAGAIN) || clock_mono_ns() > deadline)
			return r;
		if (keeper_revive(run) < 0)
			clock_sleep_ns(POLL_NS);
	}
}

/* Its exit status once it is known, or -1; `socket` is its daemon's then. */
static int look(const char *run, const char *keeper, const char *path, char socket[SOCKET_PATH_MAX],
	struct err *e)
{
	json_t *json = NULL;
	int r = ask(run, keeper, NULL, path, NULL, &json, e);
	const char *state = json_string_value(json_object_get(json, "state"));
	int status = -1;

	if (r < 0) {
		status = EXIT_RUNTIME;
	} else if (state && strcmp(state, "serving") == 0) {
		const char *its = json_string_value(json_object_get(json, "socket"));

		(void)snprintf(socket, SOCKET_PATH_MAX, "%s", its ? its : ""); /* fits */
		status = EXIT_OK;
	} else if (state && strcmp(state, "failed") == 0) {
		const char *text = json_string_value(json_object_get(json, "text"));

		status = (int)json_integer_value(json_object_get(json, "exit"));
		(void)err_set(e, -EIO, "%s", text ? text : "the newer generation was not mounted");
	}
	json_decref(json);
	return status;
}

/* `mount`: its socket becomes that of the daemon that shows the newer generation. */
static int refresh(const char *point, struct fleet_mount *mount, struct err *e)
{
	char keeper[PATH_MAX + 16];
	char path[64];
	uint64_t token;
	json_t *body;
	json_t *answer = NULL;
	int status = -1;
	int r;

	hash_random(&token, sizeof(token));
	body = json_pack("{s:s, s:I}", "mountpoint", point, "token",
		(json_int_t)(token >> 1)); /* JSON has signed numbers */
	(void)snprintf(keeper, sizeof(keeper), "%s/keeper.sock", mount->run); /* fits */
	keeper_end_hung(mount->run);
	r = ask(mount->run, keeper, "POST", "/v1/refresh", body, &answer, e);
	(void)snprintf(path, sizeof(path), "/v1/mount?id=%lld",
		(long long)json_integer_value(json_object_get(answer, "id"))); /* fits */
	json_decref(body);
	json_decref(answer);
	if (r < 0)
		return r == -ENOENT       ? EXIT_MOUNTPOINT
		       : r == -EOPNOTSUPP ? EXIT_KERNEL
		       : r == -EEXIST     ? EXIT_BUSY
					  : EXIT_RUNTIME;
	while ((status = look(mount->run, keeper, path, mount->socket, e)) < 0)
		clock_sleep_ns(POLL_NS);
	/* Told: it may forget. */
	if (status > EXIT_OK && admin_call(keeper, "POST", path, NULL, ASK_NS, NULL, NULL) < 0)
		return status;
	return status;
}

int command_refresh(int argc, char **argv)
{
	struct refresh_options options = { .output = "table" };
	const struct master_where nowhere = { 0 };
	struct fleet_mount mount;
	struct err e = ERR_INIT;
	int status;

	(void)option_parse_or_exit(&set, argc, argv, &options); /* exactly one argument */
	status = target_mount(&nowhere, argv[1], &mount, &e);
	if (status == EXIT_OK)
		status = refresh(mount.mountpoint, &mount, &e);
	if (status != EXIT_OK && status != EXIT_UNCHANGED)
		return command_fail(status, &e);
	return answer(
		options.output, mount.mountpoint, mount.socket, status == EXIT_OK ? NULL : e.text);
}
