/* cachectl preload: has the workers load a source, or parts of it, and shows how far they are. */
#include "ctl/preload_command.h"
#include "admin/admin.h"
#include "base/glob.h"
#include "base/units.h"
#include "ctl/command.h"
#include "ctl/fleet.h"
#include "ctl/mount_point.h"
#include "ctl/origin_options.h"
#include "ctl/service.h"
#include "ctl/yaml_out.h"
#include "ufs/ufs.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct preload_options {
	struct master_where where;
	struct option_list paths;
	uint64_t bandwidth; /* 0: no limit */
	bool wait;
	const char *format;
	struct origin_options origin;
};

static const struct option_spec specs[] = {
	OPTION_ROW(struct preload_options, paths, "path", OPTION_LIST, .metavar = "GLOB",
		.help = "Objects to load, such as 'train/*.jpg' (default: all)"),
	OPTION_ROW(struct preload_options, bandwidth, "bandwidth", OPTION_RATE, .min = 1,
		.help = "Maximum rate of all workers together, such as 500MB/s, 1GiB/s or "
			"4Gbit/s (default: none)"),
	OPTION_BOOL_ROW(struct preload_options, wait, "wait",
		"Wait for the end, with a progress bar; --no-wait returns at once "
		"(default: wait)"),
	MASTER_OPTION_ROWS(struct preload_options, where),
	ORIGIN_OPTION_ROWS(struct preload_options, origin),
	OUTPUT_OPTION_ROW(struct preload_options, format, OUTPUT_CHOICES),
};

static const struct option_set set = {
	.program = "cachectl preload",
	.exits = { EXIT_MOUNTPOINT, EXIT_ORIGIN, EXIT_CACHE, EXIT_KERNEL, EXIT_BUSY,
		EXIT_INTERRUPTED },
	.arguments = "NAME|URL|DIR",
	.about =
		"Loads all objects of a URL, a mount point or a dataset into the cache, and checks "
		"them. It goes on\n"
		"when this command, the master or a worker ends, where it was. Also:\n"
		"  cachectl preload list            all preloads\n"
		"  cachectl preload show ID         one, with what could not be fetched\n"
		"  cachectl preload watch ID        the same bar in another terminal\n"
		"  cachectl preload cancel ID       end it; what is cached stays\n"
		"Exit status: 0 all is cached and was checked, 1 not all, 130 interrupted: it goes "
		"on.",
	.specs = specs,
	.n = ARRAY_SIZE(specs),
	.min_args = 1,
	.max_args = 1,
};

static const struct option_spec verb_specs[] = {
	MASTER_OPTION_ROWS(struct preload_options, where),
	OUTPUT_OPTION_ROW(struct preload_options, format, OUTPUT_CHOICES),
};

/* ---- what is asked for ----------------------------------------------------------------------- */

static void set_text(json_t *body, const char *name, const char *value)
{
	if (value)
		(void)json_object_set_new(
			body, name, json_string(value)); /* preload() looks at failures */
}

/* As a mount of the same URL has it. */
static int set_source(json_t *body, const struct preload_options *o, const char *url, struct err *e)
{
	struct origin_options origin = o->origin;
	char ca_file[PATH_MAX];
	int r = origin_options_resolve(&origin, ca_file, e);

	set_text(body, "url", url);
	origin_options_json(body, &origin, url); /* failures as above */
	return r;
}

/* Nothing of how a URL is reached can be said of what is reached already. */
static int check_plain(const struct preload_options *o, const char *what, struct err *e)
{
	if (origin_options_given(&o->origin))
		return err_set(e, -EINVAL, "'%s' already has access settings: leave %s out", what,
			origin_options_given(&o->origin));
	return 0;
}

/* One source of what is mounted: what the mount shows of it. */
static json_t *shown_json(const json_t *source, const char *label, bool several)
{
	const char *path = preload_text(source, "path");
	json_t *part = json_pack("{s:O, s:O, s:O}", "volume", json_object_get(source, "volume"),
		"lineage", json_object_get(source, "lineage"), "generation",
		json_object_get(source, "generation"));

	if (!part)
		return NULL; /* preload() looks at failures */
	if (*label)
		set_text(part, "label", label);
	if (*preload_text(source, "subtree"))
		set_text(part, "subtree", preload_text(source, "subtree"));
	if (path[0] == '/' && path[1])
		(void)json_object_set_new(part, "at", json_sprintf("%s/", path + 1)); /* as above */
	(void)json_object_set_new(part, "part", json_boolean(several));               /* as above */
	return part;
}

/* What is mounted there: parts, and its master unless the user names another one. */
static int set_mount(
	json_t *parts, struct preload_options *o, const struct fleet_mount *mount, struct err *e)
{
	static char master[SOCKET_PATH_MAX];
	json_t *json = NULL;
	const json_t *sources;
	const json_t *source;
	size_t i;
	int r = admin_call(mount->socket, NULL, "/v1/status", NULL, fleet_timeout(), &json, e);

	if (r < 0)
		return r;
	(void)json_array_clear(parts); /* cannot fail */
	sources = json_object_get(json, "sources");
	json_array_foreach (sources, i, source)
		(void)json_array_append_new(
			parts, shown_json(source, mount->source,
				       json_array_size(sources) > 1)); /* as above */
	if (json_array_size(sources) == 0) /* of a version that knew of one */
		(void)json_array_append_new(parts, shown_json(json, mount->source, false));
	if (json_array_size(parts) == 0)
		r = err_set(e, -ENODATA,
			"the daemon of %s does not report its source: see `cachectl status`",
			mount->mountpoint);
	json_decref(json);
	/* A service without a master on this host has the one that master_find() finds. */
	if (r == 0 && !o->where.master && !o->where.cache &&
		service_path(mount->run, "master.sock", master) == 0 &&
		(!service_is_run(mount->run) || access(master, F_OK) == 0))
		o->where.master = master;
	return r;
}

/* One part or, of a mount of several sources, one for each. */
static int set_parts(json_t *parts, struct preload_options *o, const char *what, struct err *e)
{
	json_t *body = json_object();
	struct fleet_mount mount;
	char point[PATH_MAX];
	int r;

	(void)json_array_append_new(parts, body); /* as above */
	if (strstr(what, "://"))
		return set_source(body, o, what, e);
	r = check_plain(o, what, e);
	if (r < 0)
		return r;
	if (mount_point_path(what, point, e) == 0 && fleet_find(point, false, &mount) == 0)
		return set_mount(parts, o, &mount, e);
	/* A file of a dataset's name in this directory is none of its business. */
	if (strchr(what, '/') || strcmp(what, ".") == 0 || strcmp(what, "..") == 0) {
		(void)command_not_found(point, e); /* its line */
		return -ENOTDIR;
	}
	*e = ERR_INIT;
	set_text(body, "dataset", what);
	return 0;
}

static int set_limits(const json_t *parts, const struct preload_options *o, struct err *e)
{
	json_t *paths = json_array();
	uint64_t rate = o->bandwidth;
	json_t *part;
	size_t i;
	int r = 0;

	for (unsigned int k = 0; k < o->paths.n && r == 0; k++) {
		r = glob_check(o->paths.values[k], e);
		if (r == 0)
			(void)json_array_append_new(
				paths, json_string(o->paths.values[k])); /* as above */
	}
	if (json_array_size(parts) > 1) /* all together */
		rate = rate / json_array_size(parts) + 1;
	json_array_foreach (parts, i, part) {
		if (o->paths.n)
			(void)json_object_set(part, "paths", paths); /* as above */
		if (o->bandwidth)
			(void)json_object_set_new(
				part, "bandwidth", json_integer((json_int_t)rate)); /* as above */
	}
	json_decref(paths);
	return r;
}

/* ---- commands -------------------------------------------------------------------------------- */

/* One, or one for each source of a dataset. */
static void add_jobs(struct preload_set *to, const json_t *job)
{
	const json_t *jobs = json_object_get(job, "jobs");
	const json_t *id;
	size_t i;

	if (!jobs)
		to->ids[to->n++] = preload_number(job, "id");
	json_array_foreach (jobs, i, id)
		if (to->n < PRELOAD_SET_MAX)
			to->ids[to->n++] = (uint64_t)json_integer_value(id);
}

/* What was begun before another part was refused. */
static void take_back(const struct preload_options *o, const struct preload_set *begun)
{
	for (uint32_t i = 0; i < begun->n; i++) {
		json_t *job = NULL;
		char path[64];

		(void)snprintf(
			path, sizeof(path), "/v1/preloads/%" PRIu64, begun->ids[i]); /* fits */
		(void)!master_call(&o->where, "DELETE", path, NULL, MASTER_CALL_NS, &job, NULL);
		json_decref(job); /* what is refused now has ended, or goes on and is listed */
	}
}

static int post_all(struct preload_options *o, const json_t *parts, struct preload_set *ret_begun,
	struct err *e)
{
	struct preload_set begun = { .n = 0 };
	struct preload_set fresh = { .n = 0 };
	const json_t *part;
	size_t i;

	json_array_foreach (parts, i, part) {
		json_t *job = NULL;
		int r = i < PRELOAD_SET_MAX
				? master_call(&o->where, "POST", "/v1/preloads", part,
					  MASTER_CALL_NS, &job, e)
				: err_set(e, -E2BIG, "more sources than %u", PRELOAD_SET_MAX);

		if (r < 0) {
			take_back(o, &fresh);
			return r;
		}
		add_jobs(&begun, job);
		if (!json_is_true(json_object_get(job, "joined")))
			add_jobs(&fresh, job);
		json_decref(job);
	}
	if (fresh.n == 0)
		(void)fprintf(stderr, "preload %" PRIu64 " loads this already%s\n", begun.ids[0],
			o->bandwidth ? ", at this rate from now on" : "");
	*ret_begun = begun;
	return 0;
}

static int begin(struct preload_options *o, const json_t *parts, struct err *e)
{
	struct preload_set begun;
	int r = post_all(o, parts, &begun, e);

	if (r < 0) /* -EPERM: the dataset does not allow this user */
		return command_fail(r == -EPERM ? EXIT_KERNEL : command_exit(r), e);
	return o->wait ? preload_watch(&o->where, &begun, o->format, e)
		       : preload_wait_open(&o->where, &begun, o->format, e);
}

static int preload(struct preload_options *o, const char *what, struct err *e)
{
	uint64_t failures = admin_json_failures();
	json_t *parts = json_array();
	int status;
	int r = set_parts(parts, o, what, e);

	if (r == 0)
		r = set_limits(parts, o, e);
	if (r == 0 && (json_array_size(parts) == 0 || admin_json_failures() != failures))
		r = err_set(e, -ENOMEM, "out of memory");
	status = r < 0 ? command_fail(command_exit(r), e) : begin(o, parts, e);
	json_decref(parts);
	return status;
}

static bool is_table(const struct preload_options *o)
{
	return output_is_table(o->format);
}

static int list(struct preload_options *o, const char *id, struct err *e)
{
	json_t *json = NULL;
	int status;
	int r;

	(void)id;
	r = master_call(&o->where, NULL, "/v1/preloads", NULL, MASTER_CALL_NS, &json, e);
	if (r < 0)
		return command_fail(command_exit(r), e);
	status = is_table(o) ? preload_print_list(json, e) : yaml_out_answer(o->format, json);
	json_decref(json);
	return status;
}

static int call_one(
	struct preload_options *o, const char *method, const char *id, json_t **ret, struct err *e)
{
	char path[64];

	if (strspn(id, "0123456789") != strlen(id) || strlen(id) > 18 || !*id)
		return err_set(e, -EINVAL,
			"invalid preload '%s': give its number, see `cachectl preload list`", id);
	(void)snprintf(path, sizeof(path), "/v1/preloads/%s", id); /* fits: checked */
	return master_call(&o->where, method, path, NULL, MASTER_CALL_NS, ret, e);
}

static int show(struct preload_options *o, const char *id, struct err *e)
{
	json_t *json = NULL;
	int status = EXIT_OK;
	int r = call_one(o, NULL, id, &json, e);

	if (r < 0)
		return command_fail(command_exit(r), e);
	if (is_table(o))
		preload_print(json);
	else
		status = yaml_out_answer(o->format, json);
	json_decref(json);
	return status;
}

static int watch(struct preload_options *o, const char *id, struct err *e)
{
	json_t *json = NULL;
	int r = call_one(o, NULL, id, &json, e);

	if (r < 0)
		return command_fail(command_exit(r), e);
	json_decref(json);
	return preload_watch(&o->where,
		&(struct preload_set){ .ids = { strtoull(id, NULL, 10) }, .n = 1 }, o->format, e);
}

static int cancel(struct preload_options *o, const char *id, struct err *e)
{
	json_t *json = NULL;
	int r = call_one(o, "DELETE", id, &json, e);

	if (r < 0)
		return command_fail(command_exit(r), e);
	if (!is_table(o))
		return yaml_out_made(o->format, json);
	json_decref(json);
	(void)printf("preload %s cancelled: what is cached stays\n", id);
	return EXIT_OK;
}

static const struct verb {
	const char *name;
	const char *program;
	const char *about;
	unsigned int args;
	int (*run)(struct preload_options *o, const char *id, struct err *e);
} verbs[] = {
	{ "list", "cachectl preload list",
		"Lists all preloads that the master remembers, newest first.", 0, list },
	{ "show", "cachectl preload show",
		"Shows one preload, and why objects could not be fetched.", 1, show },
	{ "watch", "cachectl preload watch",
		"Shows the progress of a preload until it ends. Exit status as "
		"`cachectl preload`.",
		1, watch },
	{ "cancel", "cachectl preload cancel", "Ends a preload. What is cached stays.", 1, cancel },
};

static int run_verb(const struct verb *verb, int argc, char **argv)
{
	const struct option_set verb_set = {
		.program = verb->program,
		.exits = { EXIT_CACHE, verb->run == watch ? EXIT_INTERRUPTED : 0 },
		.arguments = verb->args ? "ID" : "",
		.about = verb->about,
		.specs = verb_specs,
		.n = ARRAY_SIZE(verb_specs),
		.min_args = verb->args,
		.max_args = verb->args,
	};
	struct preload_options options = { .format = "table" };
	struct err e = ERR_INIT;

	(void)option_parse_or_exit(&verb_set, argc, argv, &options); /* as many as there must be */
	return verb->run(&options, verb->args ? argv[1] : NULL, &e);
}

int command_preload(int argc, char **argv)
{
	struct preload_options options = { .wait = true, .format = "table" };
	struct err e = ERR_INIT;

	for (size_t i = 0; argc > 1 && i < ARRAY_SIZE(verbs); i++)
		if (strcmp(argv[1], verbs[i].name) == 0)
			return run_verb(&verbs[i], argc - 1, argv + 1);
	(void)option_parse_or_exit(&set, argc, argv, &options); /* exactly one argument */
	return preload(&options, argv[1], &e);
}
