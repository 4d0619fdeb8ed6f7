/* cachectl dataset: datasets of the master, made, shown, changed. */
#include "ctl/dataset_command.h"
#include "admin/admin.h"
#include "base/option.h"
#include "base/units.h"
#include "ctl/command.h"
#include "ctl/dataset_body.h"
#include "ctl/quota.h"
#include "ctl/subcommand.h"
#include "ctl/target.h"
#include "ctl/yaml_out.h"

#include <stdio.h>
#include <string.h>

/* ---- what they share ------------------------------------------------------------------------- */

int dataset_path(const char *name, const char *rest, char out[DATASET_PATH_BYTES], struct err *e)
{
	size_t len = strlen(name);

	/* The master knows more; this is what a path can hold. */
	if (len == 0 || len > 63 || strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != len)
		return err_set(e, -EINVAL,
			"invalid dataset name '%.80s': use 1 to 63 of a-z, 0-9 and '-'", name);
	if (snprintf(out, DATASET_PATH_BYTES, "/v1/datasets/%s%s", name, rest) >=
		(int)DATASET_PATH_BYTES)
		return err_set(e, -EINVAL, "the request is too long");
	return 0;
}

int dataset_call(const struct master_where *where, const char *method, const char *name,
	const char *rest, const json_t *body, json_t **ret_json, struct err *e)
{
	char path[DATASET_PATH_BYTES];
	int r = dataset_path(name, rest, path, e);

	if (r == 0)
		r = master_call(where, method, path, body, MASTER_CALL_NS, ret_json, e);
	return r == 0 ? EXIT_OK : command_exit(r);
}

int dataset_answer(const char *format, json_t *dataset, const char *line)
{
	if (!output_is_table(format))
		return yaml_out_made(format, dataset);
	json_decref(dataset);
	(void)printf("%s\n", line);
	return EXIT_OK;
}

/* ---- create ---------------------------------------------------------------------------------- */

#define YES_ROW          \
	OPTION_BOOL_ROW( \
		struct dataset_options, yes, "yes", "Evict data without asking (default: ask)")

static const struct option_spec create_specs[] = {
	ORIGIN_OPTION_ROWS(struct dataset_options, origin),
	OPTION_ROW(struct dataset_options, mounts, "mount", OPTION_LIST, .metavar = "PATH=URL",
		.help = "Source to show at PATH. Access settings that differ from the options "
			"follow it: ,endpoint=URL ,credentials=REF ,region=NAME ,path-style "
			"and so on; ',,' is a ',' of the prefix before such a word (default: "
			"none)"),
	OPTION_STRING_ROW(struct dataset_options, scope, "cache-scope", "NAME",
		"Datasets of one scope share cached data of a source (default: the "
		"reference to the credentials)"),
	DATASET_POLICY_ROWS,
	YES_ROW,
	OPTION_BOOL_ROW(struct dataset_options, check, "check",
		"Check the origin first; --no-check skips it (default: check)"),
	MASTER_OPTION_ROWS(struct dataset_options, where),
	OUTPUT_OPTION_ROW(struct dataset_options, output, OUTPUT_CHOICES),
};

static const char *text_of(const json_t *json, const char *name)
{
	const char *value = json_string_value(json_object_get(json, name));

	return value ? value : "";
}

/* A source inside another one that is shared by the same rules, and was there first, so that it has bytes of its own. */
static bool is_inside(const json_t *mount, const json_t *wide)
{
	const char *url = text_of(wide, "url");
	size_t len = strlen(url);

	len -= len > 0 && url[len - 1] == '/';
	return !*text_of(mount, "subtree") && strncmp(text_of(mount, "url"), url, len) == 0 &&
	       text_of(mount, "url")[len] == '/' && text_of(mount, "url")[len + 1] &&
	       strcmp(text_of(mount, "volume"), text_of(wide, "volume")) != 0 &&
	       strcmp(text_of(mount, "scope"), text_of(wide, "scope")) == 0 &&
	       strcmp(text_of(mount, "endpoint"), text_of(wide, "endpoint")) == 0;
}

static void note_inside(const json_t *dataset, const json_t *made)
{
	const json_t *mount;
	const json_t *wide;
	char size[16];
	size_t i;
	size_t k;

	json_array_foreach (json_object_get(dataset, "mounts"), i, mount)
		json_array_foreach (json_object_get(made, "mounts"), k, wide)
			if (is_inside(mount, wide))
				(void)printf(
					"note: dataset %s (%s, %s) is inside %s but was created "
					"before it: both cache its data. To share it, delete %s "
					"and create it again\n",
					text_of(dataset, "name"), text_of(mount, "url"),
					units_size((uint64_t)json_integer_value(
							   json_object_get(mount, "total_bytes")),
						size, sizeof(size)),
					text_of(wide, "url"), text_of(dataset, "name"));
}

/* Datasets that would have been views of it. */
static void note_nested(const struct master_where *where, const json_t *made)
{
	struct err ignored = ERR_INIT;
	json_t *answer = NULL;
	const json_t *dataset;
	size_t i;

	if (master_call(where, NULL, "/v1/datasets", NULL, MASTER_CALL_NS, &answer, &ignored) < 0)
		return; /* a note less */
	json_array_foreach (json_object_get(answer, "datasets"), i, dataset)
		note_inside(dataset, made);
	json_decref(answer);
}

/* "s3://a/x", "s3://a/x and 2 more" */
static void say_made(const char *name, const json_t *made)
{
	size_t more = json_array_size(json_object_get(made, "mounts"));
	const json_t *mount;
	size_t i;

	(void)printf("dataset %s created of %s", name, dataset_url(made));
	if (more > 1)
		(void)printf(" and %zu more", more - 1);
	(void)printf("\n");
	json_array_foreach (json_object_get(made, "mounts"), i, mount)
		if (json_object_get(mount, "subtree"))
			(void)printf("%s is part of a source that is used already, and shares its "
				     "cached data\n",
				json_string_value(json_object_get(mount, "url")));
}

static int create_exit(int r)
{
	return r == -ENOENT || r == -ETIMEDOUT ? EXIT_ORIGIN : command_exit(r);
}

/* May its quota evict what is cached? */
static bool quota_may_evict(const struct dataset_options *o)
{
	return !o->yes && o->quota != DATASET_UNSET && o->quota != 0;
}

/* The quota of a source that other datasets or mounts use is theirs, too. Returns an exit status. */
static int confirm_create(
	const struct dataset_options *o, const json_t *body, const char *name, struct err *e)
{
	json_t *preview = NULL;
	char what[128];
	int status;
	int r;

	if (!quota_may_evict(o))
		return EXIT_OK;
	(void)snprintf(what, sizeof(what), "dataset %.64s", name); /* fits */
	r = master_call(&o->where, "POST",
		o->check ? "/v1/dataset-previews" : "/v1/dataset-previews?no_check=1", body,
		DATASET_CREATE_NS, &preview, e);
	if (r == -ENOENT && strcmp(e->text, "no such path") == 0) { /* a master without the route */
		*e = ERR_INIT;
		return command_exit(err_set(e, -EOPNOTSUPP,
			"dataset %s not created: the master is of an older version, which does not "
			"show what --quota would evict; upgrade the master, or give --yes to "
			"create the dataset without a question",
			name));
	}
	if (r < 0)
		return create_exit(r);
	status = quota_confirm(json_object_get(preview, "mounts"), o->quota, what, "created", e);
	json_decref(preview);
	return status;
}

static int create(int argc, char **argv)
{
	static const struct option_set set = {
		.program = "cachectl dataset create",
		.exits = { EXIT_ORIGIN, EXIT_CACHE, EXIT_BUSY },
		.arguments = "NAME [URL]",
		.about = "Creates a dataset of s3://BUCKET/PREFIX, obs://BUCKET/PREFIX or "
			 "file:///DIRECTORY, or of up to 16\nof them, each at its own path "
			 "(--mount). The master checks the origins first, with its "
			 "own\ncredentials or those that --credentials refers to.",
		.specs = create_specs,
		.n = ARRAY_SIZE(create_specs),
		.min_args = 1,
		.max_args = 2,
	};
	struct dataset_options o = dataset_options_default();
	uint64_t failures = admin_json_failures();
	json_t *body = json_object();
	json_t *made = NULL;
	struct err e = ERR_INIT;
	int status;
	int n;
	int r;

	n = option_parse_or_exit(&set, argc, argv, &o);
	r = dataset_body_create(body, &o, argv[1], n > 1 ? argv[2] : NULL, &e);
	if (r == 0 && admin_json_failures() != failures)
		r = err_set(&e, -ENOMEM, "out of memory");
	status = r < 0 ? create_exit(r) : confirm_create(&o, body, argv[1], &e);
	if (status == EXIT_OK) {
		r = master_call(&o.where, "POST",
			o.check ? "/v1/datasets" : "/v1/datasets?no_check=1", body,
			DATASET_CREATE_NS, &made, &e);
		status = r < 0 ? create_exit(r) : EXIT_OK;
	}
	json_decref(body);
	if (status != EXIT_OK)
		return command_fail(status, &e);
	if (!output_is_table(o.output))
		status = yaml_out_answer(o.output, made);
	else {
		say_made(argv[1], made);
		note_nested(&o.where, made);
	}
	json_decref(made);
	return status;
}

/* ---- list, show ------------------------------------------------------------------------------ */

static int list(int argc, char **argv)
{
	static const struct option_spec specs[] = {
		MASTER_OPTION_ROWS(struct dataset_options, where),
		OUTPUT_OPTION_ROW(struct dataset_options, output, OUTPUT_CHOICES),
	};
	static const struct option_set set = {
		.program = "cachectl dataset list",
		.exits = { EXIT_CACHE },
		.arguments = "",
		.about = "Lists all datasets: size, cached data and status.",
		.specs = specs,
		.n = ARRAY_SIZE(specs),
	};
	struct dataset_options o = dataset_options_default();
	json_t *answer = NULL;
	const json_t *all;
	struct err e = ERR_INIT;
	bool wide;
	int status;
	int r;

	(void)option_parse_or_exit(&set, argc, argv, &o);
	r = master_call(&o.where, NULL, "/v1/datasets", NULL, MASTER_CALL_NS, &answer, &e);
	if (r < 0)
		return command_fail(command_exit(r), &e);
	all = json_object_get(answer, "datasets");
	wide = strcmp(o.output, "wide") == 0;
	if (output_is_table(o.output))
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
		OUTPUT_OPTION_ROW(struct dataset_options, output, OUTPUT_CHOICES),
	};
	static const struct option_set set = {
		.program = "cachectl dataset show",
		.exits = { EXIT_MOUNTPOINT, EXIT_CACHE },
		.arguments = "NAME|URL|DIR",
		.about = "Shows one dataset in detail.",
		.specs = specs,
		.n = ARRAY_SIZE(specs),
		.min_args = 1,
		.max_args = 1,
	};
	struct dataset_options o = dataset_options_default();
	json_t *json = NULL;
	struct err e = ERR_INIT;
	int status;

	(void)option_parse_or_exit(&set, argc, argv, &o);
	status = target_dataset(&o.where, &argv[1], &e);
	if (status == EXIT_OK)
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

/* What is not there: the dataset, or what its source would be? */
static int patch_exit(const struct dataset_options *o, const char *name, const json_t *body, int r)
{
	struct err ignored = ERR_INIT;
	json_t *dataset = NULL;
	int status;

	if (r != -ENOENT || !json_object_get(body, "mounts"))
		return command_exit(r);
	status = dataset_call(&o->where, NULL, name, "", NULL, &dataset, &ignored);
	json_decref(dataset);
	return status == EXIT_OK ? EXIT_ORIGIN : status;
}

static int patch(
	const struct dataset_options *o, const char *name, const json_t *body, const char *done)
{
	struct err e = ERR_INIT;
	char path[DATASET_PATH_BYTES];
	json_t *changed = NULL;
	int r = dataset_path(name, o->check ? "" : "?no_check=1", path, &e);

	if (r == 0)
		r = master_call(&o->where, "PATCH", path, body, DATASET_CREATE_NS, &changed, &e);
	if (r < 0)
		return command_fail(patch_exit(o, name, body, r), &e);
	return dataset_answer(o->output, changed, done);
}

/* A smaller quota evicts: not before somebody has agreed to it. */
static int confirm_quota(const struct dataset_options *o, const char *name, struct err *e)
{
	json_t *dataset = NULL;
	char what[128];
	int status;

	if (!quota_may_evict(o))
		return EXIT_OK;
	(void)snprintf(what, sizeof(what), "dataset %.64s", name); /* fits */
	status = dataset_call(&o->where, NULL, name, "", NULL, &dataset, e);
	if (status == EXIT_OK)
		status = quota_confirm(
			json_object_get(dataset, "mounts"), o->quota, what, "changed", e);
	json_decref(dataset);
	return status;
}

static int update(int argc, char **argv)
{
	static const struct option_spec specs[] = {
		DATASET_POLICY_ROWS,
		OPTION_ROW(struct dataset_options, reset, "default", OPTION_LIST,
			.metavar = "SETTING",
			.help = "Setting to reset: quota, priority, pin, evict, origin-bandwidth, "
				"origin-requests, copies, direct, idle, ttl or allow (default: "
				"none)"),
		ORIGIN_OPTION_ROWS(struct dataset_options, origin),
		OPTION_STRING_ROW(struct dataset_options, path, "path", "PATH",
			"Path of the source whose access settings change (default: the only "
			"source)"),
		OPTION_STRING_ROW(struct dataset_options, scope, "cache-scope", "NAME",
			"Current scope of the dataset, to change credentials without a scope "
			"(default: unchanged)"),
		YES_ROW,
		OPTION_BOOL_ROW(struct dataset_options, check, "check",
			"Check the new access settings first; --no-check skips it (default: "
			"check)"),
		MASTER_OPTION_ROWS(struct dataset_options, where),
		OUTPUT_OPTION_ROW(struct dataset_options, output, OUTPUT_CHOICES),
	};
	static const struct option_set set = {
		.program = "cachectl dataset update",
		.exits = { EXIT_MOUNTPOINT, EXIT_ORIGIN, EXIT_CACHE, EXIT_BUSY },
		.arguments = "NAME|URL|DIR",
		.about = "Changes settings of a dataset, or access settings of its source; the "
			 "rest is unchanged. Bucket, prefix and\nendpoint cannot change.",
		.specs = specs,
		.n = ARRAY_SIZE(specs),
		.min_args = 1,
		.max_args = 1,
	};
	struct dataset_options o = dataset_options_default();
	json_t *body = json_object();
	struct err e = ERR_INIT;
	char done[128];
	int status;

	(void)option_parse_or_exit(&set, argc, argv, &o);
	if (dataset_body_update(body, &o, &e) == 0 && json_object_size(body) == 0)
		(void)err_set(
			&e, -EINVAL, "nothing to change: give a setting, such as --quota 2TiB");
	status = e.code ? EXIT_USAGE : target_dataset(&o.where, &argv[1], &e);
	(void)snprintf(done, sizeof(done), "dataset %.64s changed", argv[1]);
	if (status == EXIT_OK)
		status = confirm_quota(&o, argv[1], &e);
	status = e.code ? command_fail(status, &e) : patch(&o, argv[1], body, done);
	json_decref(body);
	return status;
}

static const struct option_spec plain_specs[] = {
	MASTER_OPTION_ROWS(struct dataset_options, where),
	OUTPUT_OPTION_ROW(struct dataset_options, output, OUTPUT_CHOICES),
};

static int rename_one(int argc, char **argv)
{
	static const struct option_set set = {
		.program = "cachectl dataset rename",
		.exits = { EXIT_MOUNTPOINT, EXIT_CACHE },
		.arguments = "NAME|URL|DIR NEW",
		.about = "Renames a dataset. Mounts and cached data stay.",
		.specs = plain_specs,
		.n = ARRAY_SIZE(plain_specs),
		.min_args = 2,
		.max_args = 2,
	};
	struct dataset_options o = dataset_options_default();
	json_t *body;
	struct err e = ERR_INIT;
	char done[192];
	int status;

	(void)option_parse_or_exit(&set, argc, argv, &o);
	status = target_dataset(&o.where, &argv[1], &e);
	if (status != EXIT_OK)
		return command_fail(status, &e);
	body = json_pack("{s:s}", "name", argv[2]);
	(void)snprintf(done, sizeof(done), "dataset %.64s renamed to %.64s", argv[1], argv[2]);
	status = patch(&o, argv[1], body, done);
	json_decref(body);
	return status;
}

static int delete_one(int argc, char **argv)
{
	static const struct option_spec specs[] = {
		OPTION_BOOL_ROW(struct dataset_options, force, "force",
			"Delete although it is mounted; mounts go on (default: no)"),
		MASTER_OPTION_ROWS(struct dataset_options, where),
		OUTPUT_OPTION_ROW(struct dataset_options, output, OUTPUT_CHOICES),
	};
	static const struct option_set set = {
		.program = "cachectl dataset delete",
		.exits = { EXIT_MOUNTPOINT, EXIT_CACHE, EXIT_BUSY },
		.arguments = "NAME|URL|DIR",
		.about = "Deletes a dataset, and its cached data unless another one has the same "
			 "source. The bucket is not\n"
			 "changed.",
		.specs = specs,
		.n = ARRAY_SIZE(specs),
		.min_args = 1,
		.max_args = 1,
	};
	struct dataset_options o = dataset_options_default();
	struct err e = ERR_INIT;
	int status;

	(void)option_parse_or_exit(&set, argc, argv, &o);
	status = target_dataset(&o.where, &argv[1], &e);
	if (status == EXIT_OK)
		status = dataset_call(
			&o.where, "DELETE", argv[1], o.force ? "?force=1" : "", NULL, NULL, &e);
	if (status != EXIT_OK)
		return command_fail(status, &e);
	if (!output_is_table(o.output))
		return yaml_out_made(
			o.output, json_pack("{s:s, s:b}", "name", argv[1], "deleted", 1));
	(void)printf("dataset %s deleted\n", argv[1]);
	return EXIT_OK;
}

int command_dataset(int argc, char **argv)
{
	static const struct subcommand all[] = {
		{ "create", create, "Create a dataset" },
		{ "list", list, "List all datasets" },
		{ "show", show, "Show one dataset" },
		{ "update", update, "Change settings" },
		{ "rename", rename_one, "Rename a dataset" },
		{ "delete", delete_one, "Delete a dataset and its cached data" },
		{ "generations", dataset_generations, "List the generations of a dataset" },
		{ "diff", dataset_diff, "Compare two generations" },
		{ "rollback", dataset_rollback, "Show an older generation" },
	};

	return subcommand_run("cachectl dataset",
		"Datasets are sources with a name and with settings of their cached "
		"data.",
		all, ARRAY_SIZE(all), argc, argv);
}
