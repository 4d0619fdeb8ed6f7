/* cachectl dataset generations, diff, rollback: what a dataset was and is. */
#include "base/option.h"
#include "base/units.h"
#include "ctl/columns.h"
#include "ctl/command.h"
#include "ctl/dataset_command.h"
#include "ctl/fleet.h"
#include "ctl/target.h"
#include "ctl/yaml_out.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct generation_options {
	struct master_where where;
	const char *output;
	bool newest;
	const char *path; /* of the mount that is compared; "": there is one only */
	uint64_t from;
	uint64_t to;
	uint64_t limit;
};

int dataset_parse_which(const char *text, struct dataset_which *ret, struct err *e)
{
	const char *equal = strrchr(text, '=');
	const char *number = equal ? equal + 1 : text;
	char *end;

	ret->generation = strtoull(number, &end, 10);
	if (ret->generation == 0 || ret->generation > INT64_MAX || *end ||
		strspn(number, "0123456789") == 0 || (equal && text[0] != '/') ||
		(size_t)(number - text) > sizeof(ret->path))
		return err_set(e, -EINVAL,
			"invalid generation '%.200s': give NUMBER or PATH=NUMBER, see "
			"`cachectl dataset generations`",
			text);
	ret->path[0] = '\0';
	if (equal) {
		memcpy(ret->path, text, (size_t)(equal - text));
		ret->path[equal - text] = '\0';
	}
	return 0;
}

int dataset_which_json(
	json_t *body, const struct dataset_which *which, unsigned int n, struct err *e)
{
	json_t *all = json_object();
	int r = 0;

	for (unsigned int i = 0; i < n && r == 0; i++) {
		json_t *number = json_integer((json_int_t)which[i].generation);

		if (!which[i].path[0] && n > 1) {
			json_decref(number);
			r = err_set(e, -EINVAL, "several generations: give each as PATH=NUMBER");
		} else if (!which[i].path[0]) {
			(void)json_object_set_new(body, "generation", number); /* counted */
		} else {
			(void)json_object_set_new(all, which[i].path, number); /* counted */
		}
	}
	if (json_object_size(all) > 0)
		(void)json_object_set(body, "generations", all); /* counted */
	json_decref(all);
	return r;
}

int dataset_generations(int argc, char **argv)
{
	static const struct option_spec specs[] = {
		MASTER_OPTION_ROWS(struct generation_options, where),
		OUTPUT_OPTION_ROW(struct generation_options, output, OUTPUT_CHOICES),
	};
	static const struct option_set set = {
		.program = "cachectl dataset generations",
		.exits = { EXIT_MOUNTPOINT, EXIT_CACHE },
		.arguments = "NAME|URL|DIR",
		.about = "Lists the generations of a dataset, the newest first, with what changed.",
		.specs = specs,
		.n = ARRAY_SIZE(specs),
		.min_args = 1,
		.max_args = 1,
	};
	struct generation_options o = { .output = "table" };
	json_t *json = NULL;
	struct err e = ERR_INIT;
	int status;

	(void)option_parse_or_exit(&set, argc, argv, &o);
	status = target_dataset(&o.where, &argv[1], &e);
	if (status == EXIT_OK)
		status = dataset_call(&o.where, NULL, argv[1], "/generations", NULL, &json, &e);
	if (status != EXIT_OK)
		return command_fail(status, &e);
	status = output_is_table(o.output) ? dataset_print_generations(json)
					   : yaml_out_answer(o.output, json);
	json_decref(json);
	return status;
}

static void print_rows(const json_t *page, const char *part, char mark)
{
	const char *mount = json_string_value(json_object_get(page, "mount"));
	const json_t *row;
	size_t i;

	json_array_foreach (json_object_get(page, part), i, row) {
		const char *key = json_string_value(json_object_get(row, "key"));
		const char *hex = json_string_value(json_object_get(row, "key_hex"));
		char size[16];

		(void)printf("%c %9s  %s", mark,
			units_size((uint64_t)json_integer_value(json_object_get(row, "size")), size,
				sizeof(size)),
			key ? "" : "(not UTF-8) ");
		if (mount && mount[1]) { /* as it is found in the dataset */
			columns_put(mount + 1, stdout);
			(void)printf("/");
		}
		columns_put(key ? key : hex, stdout);
		(void)printf("\n");
	}
}

static int print_page(const char *format, const json_t *page)
{
	if (!output_is_table(format))
		return yaml_out_answer(format, page);
	print_rows(page, "added", '+');
	print_rows(page, "changed", '*');
	print_rows(page, "removed", '-');
	return EXIT_OK;
}

/* "&mount=", and the path as a query has it. */
static void put_mount(const char *path, char out[3 * DATASET_PATH_BYTES])
{
	size_t len = (size_t)sprintf(out, "&mount=");

	for (; *path && len + 4 < (size_t)3 * DATASET_PATH_BYTES; path++)
		len += (size_t)sprintf(out + len, "%%%02X", (unsigned char)*path); /* fits */
}

/* One page after the other; of JSON and YAML one document each. */
static int print_diff(const struct generation_options *o, const char *name)
{
	struct err e = ERR_INIT;
	uint64_t shown = 0;
	char mount[3 * DATASET_PATH_BYTES] = "";
	char next[64] = "";
	int status;

	if (o->path[0])
		put_mount(o->path, mount);
	do {
		json_t *page = NULL;
		const char *more;
		char rest[sizeof(mount) + 256];

		(void)snprintf(rest, sizeof(rest), "/diff?from=%llu&to=%llu&limit=%llu%s%s%s",
			(unsigned long long)o->from, (unsigned long long)o->to,
			(unsigned long long)min(o->limit - shown, (uint64_t)1000), mount,
			next[0] ? "&after=" : "", next); /* fits */
		status = dataset_call(&o->where, NULL, name, rest, NULL, &page, &e);
		if (status != EXIT_OK)
			return command_fail(status, &e);
		status = print_page(o->output, page);
		shown += json_array_size(json_object_get(page, "added")) +
			 json_array_size(json_object_get(page, "changed")) +
			 json_array_size(json_object_get(page, "removed"));
		more = json_string_value(json_object_get(page, "next"));
		(void)snprintf(next, sizeof(next), "%s", more ? more : ""); /* two numbers */
		json_decref(page);
	} while (status == EXIT_OK && next[0] && shown < o->limit);
	if (next[0] && output_is_table(o->output))
		(void)fprintf(stderr, "cachectl: more results exist: give --limit\n");
	return status;
}

int dataset_diff(int argc, char **argv)
{
	static const struct option_spec specs[] = {
		OPTION_ROW(struct generation_options, limit, "limit", OPTION_UINT, .min = 1,
			.max = UINT32_MAX, .help = "Maximum number of rows (default: 10000)"),
		MASTER_OPTION_ROWS(struct generation_options, where),
		OUTPUT_OPTION_ROW(struct generation_options, output, OUTPUT_CHOICES),
	};
	static const struct option_set set = {
		.program = "cachectl dataset diff",
		.exits = { EXIT_MOUNTPOINT, EXIT_CACHE },
		.arguments = "NAME|URL|DIR FROM [TO]",
		.about = "Shows what was added (+), changed (*) and removed (-) between two "
			 "generations; TO is the newest by\n"
			 "default. Of a dataset with several sources, PATH=FROM selects the "
			 "source: /labels=3 5.",
		.specs = specs,
		.n = ARRAY_SIZE(specs),
		.min_args = 2,
		.max_args = 3,
	};
	struct generation_options o = { .output = "table" };
	struct dataset_which which[2] = { 0 };
	struct err e = ERR_INIT;
	int status;
	int n;

	o.limit = 10000;
	n = option_parse_or_exit(&set, argc, argv, &o);
	for (int i = 2; i <= n; i++)
		if (dataset_parse_which(argv[i], &which[i - 2], &e) < 0)
			return command_fail(EXIT_USAGE, &e);
	if (which[1].path[0] && strcmp(which[0].path, which[1].path) != 0) {
		(void)err_set(&e, -EINVAL,
			"%s and %s are of different sources: compare generations of one "
			"source",
			argv[3], argv[2]);
		return command_fail(EXIT_USAGE, &e);
	}
	o.path = which[0].path;
	o.from = which[0].generation;
	o.to = which[1].generation;
	status = target_dataset(&o.where, &argv[1], &e);
	if (status != EXIT_OK)
		return command_fail(status, &e);
	return print_diff(&o, argv[1]);
}

struct advice {
	const char *uuid;
	unsigned int n; /* mounts of this host */
};

/* True for a mount of that dataset by its name: the daemon has its UUID. One by URL shows what its source has. */
static bool is_mount_of(const json_t *mount, const char *uuid)
{
	const json_t *args = json_object_get(mount, "args");
	const json_t *arg;
	size_t i;

	json_array_foreach (args, i, arg) {
		const char *value = json_string_value(json_array_get(args, i + 1));

		if (value && strcmp(json_string_value(arg), "--dataset") == 0)
			return strncmp(value, uuid, strlen(uuid)) == 0;
	}
	return false;
}

static int advise_run(void *arg, const char *run)
{
	struct advice *a = arg;
	json_t *state = fleet_state(run);
	const json_t *mount;
	size_t i;

	json_array_foreach (json_object_get(state, "mounts"), i, mount) {
		const char *point = json_string_value(json_object_get(mount, "mountpoint"));

		if (!point || fleet_detached(mount) || !is_mount_of(mount, a->uuid))
			continue;
		a->n++;
		if (geteuid() == 0)
			(void)printf("%s: run `cachectl refresh %s` to show it\n", point, point);
		else
			(void)printf("%s: unmount it and mount it again to show it\n", point);
	}
	json_decref(state);
	return 0;
}

/* What mounts of this host need to show another generation. */
static void advise(const json_t *dataset)
{
	struct advice a = { .uuid = json_string_value(json_object_get(dataset, "uuid")) };

	if (!a.uuid || fleet_each_run(advise_run, &a) < 0)
		return; /* a line less */
	if (json_integer_value(json_object_get(dataset, "mounted")) > a.n)
		(void)printf("mounts of other hosts or users: refresh them there\n");
}

int dataset_rollback(int argc, char **argv)
{
	static const struct option_spec specs[] = {
		OPTION_BOOL_ROW(struct generation_options, newest, "newest",
			"Show the newest generation again, and those after it (default: no)"),
		MASTER_OPTION_ROWS(struct generation_options, where),
		OUTPUT_OPTION_ROW(struct generation_options, output, OUTPUT_CHOICES),
	};
	static const struct option_set set = {
		.program = "cachectl dataset rollback",
		.exits = { EXIT_MOUNTPOINT, EXIT_CACHE },
		.arguments = "NAME|URL|DIR [GENERATION]...",
		.about = "Shows an older generation: mounts that start or are refreshed from now "
			 "on show it until --newest\nis given. It is not removed meanwhile. Of a "
			 "dataset with several sources, PATH=GENERATION selects the\nsource; the "
			 "rest is unchanged.",
		.specs = specs,
		.n = ARRAY_SIZE(specs),
		.min_args = 1,
		.max_args = 1 + DATASET_SOURCES_MAX,
	};
	struct generation_options o = { .output = "table" };
	struct dataset_which *which = calloc(DATASET_SOURCES_MAX, sizeof(*which));
	json_t *body = json_object();
	json_t *shown = NULL;
	struct err e = ERR_INIT;
	char done[1536]; /* a path of 1023 bytes fits */
	int status = EXIT_OK;
	int n = option_parse_or_exit(&set, argc, argv, &o);

	if (!which) {
		json_decref(body);
		(void)err_set(&e, -ENOMEM, "out of memory");
		return command_fail(EXIT_RUNTIME, &e);
	}
	if (o.newest == (n >= 2))
		(void)err_set(&e, -EINVAL,
			"no generation: give GENERATION or --newest, see `cachectl dataset "
			"generations %s`",
			argv[1]);
	for (int i = 2; i <= n && !e.code; i++)
		(void)!dataset_parse_which(argv[i], &which[i - 2], &e); /* e tells */
	if (!e.code && o.newest)
		(void)json_object_set_new(body, "generation", json_null());
	else if (!e.code)
		(void)!dataset_which_json(body, which, (unsigned int)(n - 1), &e); /* likewise */
	status = e.code ? EXIT_USAGE : target_dataset(&o.where, &argv[1], &e);
	if (status == EXIT_OK)
		status = dataset_call(&o.where, "POST", argv[1], "/rollback", body, &shown, &e);
	json_decref(body);
	free(which);
	if (status != EXIT_OK)
		return command_fail(status, &e);
	if (o.newest)
		(void)snprintf(
			done, sizeof(done), "dataset %s shows its newest generation", argv[1]);
	else
		(void)snprintf(done, sizeof(done), "dataset %s shows generation %s%s from now on",
			argv[1], argv[2], n > 2 ? " and the others" : "");
	if (!output_is_table(o.output))
		return dataset_answer(o.output, shown, done);
	(void)printf("%s\n", done);
	advise(shown);
	json_decref(shown);
	return EXIT_OK;
}
