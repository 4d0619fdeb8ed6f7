/* cachectl dataset: datasets of the master, made, shown, changed. */
#include "ctl/dataset_command.h"
#include "admin/admin.h"
#include "base/option.h"
#include "base/policy.h"
#include "base/units.h"
#include "ctl/command.h"
#include "ctl/origin_options.h"
#include "ctl/subcommand.h"
#include "ctl/yaml_out.h"
#include "ufs/ufs.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define UNSET UINT64_MAX

struct dataset_options {
	struct master_where where;
	const char *output;
	/* what it is made of */
	struct origin_options origin;
	const char *scope;
	struct option_list mounts;
	bool check;
	/* what is wanted of it; UNSET, NULL: not said */
	uint64_t quota;
	uint64_t priority;
	const char *pin;
	const char *evict;
	uint64_t idle;
	uint64_t ttl;
	const char *consistency;
	uint64_t interval;
	struct option_list reset;
	bool force;
};

#define TEXT_ROW(member, name, meta, text) \
	OPTION_STRING_ROW(struct dataset_options, member, name, meta, text)
#define POLICY_ROWS                                                                                \
	OPTION_SIZE_ROW(struct dataset_options, quota, "quota", 0, INT64_MAX,                      \
		"bytes of it that a worker keeps at most, 0 for no bound"),                        \
		OPTION_ROW(struct dataset_options, priority, "priority", OPTION_UINT,              \
			.max = PRIORITY_MAX,                                                       \
			.help = "of two datasets the one of lower priority makes room first; 0"),  \
		OPTION_ROW(struct dataset_options, pin, "pin", OPTION_CHOICE, .choices = "yes|no", \
			.help = "do not evict it for another; no"),                                \
		OPTION_ROW(struct dataset_options, evict, "evict", OPTION_CHOICE,                  \
			.choices = TIER_EVICT_CHOICES,                                             \
			.help = "when full: read the rest past the cache (never), or drop what "   \
				"was read longest ago (lru); never"),                              \
		OPTION_ROW(struct dataset_options, idle, "idle", OPTION_DURATION,                  \
			.help = "not mounted for so long it makes room before all others, 0s "     \
				"for never; never"),                                               \
		OPTION_ROW(struct dataset_options, ttl, "ttl", OPTION_DURATION,                    \
			.help = "not mounted for so long what is cached of it is dropped, 0s "     \
				"for never; never"),                                               \
		OPTION_ROW(struct dataset_options, consistency, "consistency", OPTION_CHOICE,      \
			.choices = "pinned|follow",                                                \
			.help = "what a mount sees: one generation until it is refreshed "         \
				"(pinned), or its sources as they change (follow); pinned"),       \
		OPTION_ROW(struct dataset_options, interval, "interval", OPTION_DURATION,          \
			.min = CLOCK_SECOND, .max = 86400 * CLOCK_SECOND,                          \
			.help = "with follow: list the sources again that often; 60s")

/* ---- what they share ------------------------------------------------------------------------- */

int dataset_path(const char *name, const char *rest, char out[DATASET_PATH_BYTES], struct err *e)
{
	size_t len = strlen(name);

	/* The master knows more; this is what a path can hold. */
	if (len == 0 || len > 63 || strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != len)
		return err_set(e, -EINVAL,
			"'%.80s' is no name of a dataset: 1 to 63 of a-z, 0-9 and '-'", name);
	if (snprintf(out, DATASET_PATH_BYTES, "/v1/datasets/%s%s", name, rest) >=
		(int)DATASET_PATH_BYTES)
		return err_set(e, -EINVAL, "the request is too long");
	return 0;
}

int dataset_exit(int r)
{
	switch (-r) {
	case 0:
		return EXIT_OK;
	case EINVAL:
	case ERANGE:
	case EOPNOTSUPP:
	case EEXIST:
		return EXIT_USAGE;
	case EBUSY:
		return EXIT_BUSY;
	case EACCES:
	case ENOKEY:
	case EKEYREJECTED:
	case ENXIO:
	case EREMCHG:
		return EXIT_ORIGIN;
	default:
		return EXIT_RUNTIME;
	}
}

int dataset_call(const struct master_where *where, const char *method, const char *name,
	const char *rest, const json_t *body, json_t **ret_json, struct err *e)
{
	char path[DATASET_PATH_BYTES];
	int r = dataset_path(name, rest, path, e);

	if (r == 0)
		r = master_call(where, method, path, body, MASTER_CALL_NS, ret_json, e);
	return r == 0 ? EXIT_OK : dataset_exit(r);
}

/* Adds a member unless there is no value; failures are counted, and looked at by the caller. */
static void add(json_t *json, const char *name, json_t *value)
{
	if (value)
		(void)json_object_set_new(json, name, value);
}

static void add_text(json_t *json, const char *name, const char *text)
{
	if (text)
		add(json, name, json_string(text));
}

static int add_policy(json_t *body, const struct dataset_options *o, struct err *e)
{
	static const char *const members[][2] = { { "quota", "quota" }, { "priority", "priority" },
		{ "pin", "pin" }, { "evict", "evict" }, { "idle", "idle_s" }, { "ttl", "ttl_s" } };

	for (unsigned int i = 0; i < o->reset.n; i++) {
		bool found = false;

		for (size_t k = 0; k < ARRAY_SIZE(members); k++)
			if (strcmp(o->reset.values[i], members[k][0]) == 0) {
				add(body, members[k][1], json_null());
				found = true;
			}
		if (!found)
			return err_set(e, -EINVAL,
				"--default %s: there are quota, priority, pin, evict, idle and ttl",
				o->reset.values[i]);
	}
	if (o->quota != UNSET)
		add(body, "quota", json_integer((json_int_t)o->quota));
	if (o->priority != UNSET)
		add(body, "priority", json_integer((json_int_t)o->priority));
	if (o->pin)
		add(body, "pin", json_boolean(strcmp(o->pin, "yes") == 0));
	add_text(body, "evict", o->evict);
	if (o->idle != UNSET)
		add(body, "idle_s", json_integer((json_int_t)(o->idle / CLOCK_SECOND)));
	if (o->ttl != UNSET)
		add(body, "ttl_s", json_integer((json_int_t)(o->ttl / CLOCK_SECOND)));
	add_text(body, "consistency", o->consistency);
	if (o->interval != UNSET)
		add(body, "interval_s", json_integer((json_int_t)(o->interval / CLOCK_SECOND)));
	return 0;
}

/* ---- create ---------------------------------------------------------------------------------- */

static json_t *mount_json(const struct origin_options *origin, const char *path, const char *url)
{
	json_t *mount = json_object();

	add_text(mount, "path", path);
	add_text(mount, "url", url);
	origin_options_json(mount, origin, url); /* counted */
	return mount;
}

/* "PATH=URL" */
static int add_mount(
	json_t *mounts, const struct origin_options *origin, const char *text, struct err *e)
{
	const char *equal = strchr(text, '=');
	char path[PATH_MAX];

	if (!equal || equal == text || text[0] != '/' || (size_t)(equal - text) >= sizeof(path))
		return err_set(e, -EINVAL,
			"--mount %s: write PATH=URL, as in --mount /labels=s3://bucket/labels",
			text);
	memcpy(path, text, (size_t)(equal - text));
	path[equal - text] = '\0';
	(void)json_array_append_new(mounts, mount_json(origin, path, equal + 1)); /* counted */
	return 0;
}

static int make_body(const struct dataset_options *o, const char *name, const char *url,
	json_t *body, struct err *e)
{
	struct origin_options origin = o->origin;
	char ca_file[PATH_MAX];
	json_t *mounts = json_array();
	int r = origin_options_resolve(&origin, ca_file, e);

	(void)json_array_append_new(mounts, mount_json(&origin, NULL, url)); /* counted */
	for (unsigned int i = 0; i < o->mounts.n && r == 0; i++)
		r = add_mount(mounts, &origin, o->mounts.values[i], e);
	add_text(body, "name", name);
	add(body, "mounts", mounts);
	add_text(body, "cache_scope", o->scope);
	return r < 0 ? r : add_policy(body, o, e);
}

static const struct option_spec create_specs[] = {
	ORIGIN_OPTION_ROWS(struct dataset_options, origin),
	OPTION_ROW(struct dataset_options, mounts, "mount", OPTION_LIST, .metavar = "PATH=URL",
		.hidden = true, .help = "another source, shown at PATH"),
	TEXT_ROW(scope, "cache-scope", "NAME",
		"datasets of one scope share what is cached of a source; those with the same "
		"credentials"),
	POLICY_ROWS,
	OPTION_BOOL_ROW(struct dataset_options, check, "check",
		"ask the origin first; --no-check: whatever it says"),
	MASTER_OPTION_ROWS(struct dataset_options, where),
	OUTPUT_OPTION_ROW(struct dataset_options, output, "table|json|yaml"),
};

static struct dataset_options defaults(void)
{
	return (struct dataset_options){ .output = "table",
		.quota = UNSET,
		.priority = UNSET,
		.idle = UNSET,
		.ttl = UNSET,
		.interval = UNSET,
		.check = true };
}

static int create(int argc, char **argv)
{
	static const struct option_set set = {
		.program = "cachectl dataset create",
		.arguments = "NAME URL",
		.about = "Makes a dataset of s3://BUCKET/PREFIX, obs://BUCKET/PREFIX or "
			 "file:///DIRECTORY. The master asks\nthe origin first, with its own "
			 "credentials or those that --credentials refers to.",
		.specs = create_specs,
		.n = ARRAY_SIZE(create_specs),
		.min_args = 2,
		.max_args = 2,
	};
	struct dataset_options o = defaults();
	uint64_t failures = admin_json_failures();
	json_t *body = json_object();
	json_t *made = NULL;
	struct err e = ERR_INIT;
	int status = EXIT_OK;
	int r;

	(void)option_parse_or_exit(&set, argc, argv, &o);
	r = make_body(&o, argv[1], argv[2], body, &e);
	if (r == 0 && admin_json_failures() != failures)
		r = err_set(&e, -ENOMEM, "out of memory");
	if (r == 0)
		r = master_call(&o.where, "POST",
			o.check ? "/v1/datasets" : "/v1/datasets?no_check=1", body,
			DATASET_CREATE_NS, &made, &e);
	json_decref(body);
	if (r < 0)
		status = r == -ENOENT || r == -ETIMEDOUT ? EXIT_ORIGIN : dataset_exit(r);
	if (status != EXIT_OK)
		return command_fail(status, &e);
	if (strcmp(o.output, "table") != 0)
		status = yaml_out_answer(o.output, made);
	else
		(void)printf("dataset %s made of %s\n", argv[1], argv[2]);
	json_decref(made);
	return status;
}

/* ---- list, show ------------------------------------------------------------------------------ */

static int list(int argc, char **argv)
{
	static const struct option_spec specs[] = {
		MASTER_OPTION_ROWS(struct dataset_options, where),
		OUTPUT_OPTION_ROW(struct dataset_options, output, "table|wide|json|yaml"),
	};
	static const struct option_set set = {
		.program = "cachectl dataset list",
		.arguments = "",
		.about =
			"Shows all datasets: size, how much of it is cached, and where they stand.",
		.specs = specs,
		.n = ARRAY_SIZE(specs),
	};
	struct dataset_options o = defaults();
	json_t *answer = NULL;
	const json_t *all;
	struct err e = ERR_INIT;
	bool wide;
	int status;
	int r;

	(void)option_parse_or_exit(&set, argc, argv, &o);
	r = master_call(&o.where, NULL, "/v1/datasets", NULL, MASTER_CALL_NS, &answer, &e);
	if (r < 0)
		return command_fail(dataset_exit(r), &e);
	all = json_object_get(answer, "datasets");
	wide = strcmp(o.output, "wide") == 0;
	if (wide || strcmp(o.output, "table") == 0)
		status = dataset_print_table(all, wide);
	else
		status = yaml_out_answer(o.output, all);
	json_decref(answer);
	return status;
}

static int show(int argc, char **argv)
{
	static const struct option_spec specs[] = {
		MASTER_OPTION_ROWS(struct dataset_options, where),
		OUTPUT_OPTION_ROW(struct dataset_options, output, "table|wide|json|yaml"),
	};
	static const struct option_set set = {
		.program = "cachectl dataset show",
		.arguments = "NAME",
		.about = "Shows one dataset at length.",
		.specs = specs,
		.n = ARRAY_SIZE(specs),
		.min_args = 1,
		.max_args = 1,
	};
	struct dataset_options o = defaults();
	json_t *json = NULL;
	struct err e = ERR_INIT;
	int status;

	(void)option_parse_or_exit(&set, argc, argv, &o);
	status = dataset_call(&o.where, NULL, argv[1], "?left_out=1", NULL, &json, &e);
	if (status != EXIT_OK)
		return command_fail(status, &e);
	status = strcmp(o.output, "json") == 0 || strcmp(o.output, "yaml") == 0
			 ? yaml_out_answer(o.output, json)
			 : dataset_print_one(json);
	json_decref(json);
	return status;
}

/* ---- update, rename, delete ------------------------------------------------------------------ */

static int patch(
	const struct dataset_options *o, const char *name, const json_t *body, const char *done)
{
	struct err e = ERR_INIT;
	int status = dataset_call(&o->where, "PATCH", name, "", body, NULL, &e);

	if (status != EXIT_OK)
		return command_fail(status, &e);
	(void)printf("%s\n", done);
	return EXIT_OK;
}

static int update(int argc, char **argv)
{
	static const struct option_spec specs[] = {
		POLICY_ROWS,
		OPTION_ROW(struct dataset_options, reset, "default", OPTION_LIST,
			.metavar = "SETTING",
			.help = "has its default again: quota, priority, pin, evict, idle or ttl"),
		MASTER_OPTION_ROWS(struct dataset_options, where),
	};
	static const struct option_set set = {
		.program = "cachectl dataset update",
		.arguments = "NAME",
		.about = "Changes what is wanted of a dataset; what is not named stays as it is.",
		.specs = specs,
		.n = ARRAY_SIZE(specs),
		.min_args = 1,
		.max_args = 1,
	};
	struct dataset_options o = defaults();
	json_t *body = json_object();
	struct err e = ERR_INIT;
	char done[128];
	int status;

	(void)option_parse_or_exit(&set, argc, argv, &o);
	if (add_policy(body, &o, &e) == 0 && json_object_size(body) == 0)
		(void)err_set(&e, -EINVAL,
			"nothing is to be changed: name a setting, as in --quota 2TiB");
	(void)snprintf(done, sizeof(done), "dataset %.64s changed", argv[1]);
	status = e.code ? command_fail(EXIT_USAGE, &e) : patch(&o, argv[1], body, done);
	json_decref(body);
	return status;
}

static const struct option_spec plain_specs[] = {
	MASTER_OPTION_ROWS(struct dataset_options, where),
};

static int rename_one(int argc, char **argv)
{
	static const struct option_set set = {
		.program = "cachectl dataset rename",
		.arguments = "NAME NEW",
		.about = "Gives a dataset another name; mounts and what is cached go on.",
		.specs = plain_specs,
		.n = ARRAY_SIZE(plain_specs),
		.min_args = 2,
		.max_args = 2,
	};
	struct dataset_options o = defaults();
	json_t *body;
	char done[192];
	int status;

	(void)option_parse_or_exit(&set, argc, argv, &o);
	body = json_pack("{s:s}", "name", argv[2]);
	(void)snprintf(done, sizeof(done), "dataset %.64s is called %.64s now", argv[1], argv[2]);
	status = patch(&o, argv[1], body, done);
	json_decref(body);
	return status;
}

static int delete_one(int argc, char **argv)
{
	static const struct option_spec specs[] = {
		OPTION_BOOL_ROW(struct dataset_options, force, "force",
			"although it is mounted: the mounts go on until they are unmounted"),
		MASTER_OPTION_ROWS(struct dataset_options, where),
	};
	static const struct option_set set = {
		.program = "cachectl dataset delete",
		.arguments = "NAME",
		.about = "Forgets a dataset, and drops what is cached of it unless another one has "
			 "the same source.\nWhat is in the bucket stays.",
		.specs = specs,
		.n = ARRAY_SIZE(specs),
		.min_args = 1,
		.max_args = 1,
	};
	struct dataset_options o = defaults();
	struct err e = ERR_INIT;
	int status;

	(void)option_parse_or_exit(&set, argc, argv, &o);
	status = dataset_call(
		&o.where, "DELETE", argv[1], o.force ? "?force=1" : "", NULL, NULL, &e);
	if (status != EXIT_OK)
		return command_fail(status, &e);
	(void)printf("dataset %s deleted\n", argv[1]);
	return EXIT_OK;
}

int command_dataset(int argc, char **argv)
{
	static const struct subcommand all[] = {
		{ "create", create, "make a dataset of a source" },
		{ "list", list, "all datasets" },
		{ "show", show, "one at length" },
		{ "update", update, "change quota, priority and the like" },
		{ "rename", rename_one, "give it another name" },
		{ "delete", delete_one, "forget it, and drop what is cached of it" },
		{ "generations", dataset_generations, "its generations" },
		{ "diff", dataset_diff, "what differs between two of them" },
		{ "rollback", dataset_rollback, "show an older one" },
	};

	return subcommand_run("cachectl dataset",
		"Datasets: sources with a name, and with what is wanted of their bytes.", all,
		ARRAY_SIZE(all), argc, argv);
}
