/* cachectl dataset generations, diff, rollback: what a dataset was and is. */
#include "base/option.h"
#include "base/units.h"
#include "ctl/columns.h"
#include "ctl/command.h"
#include "ctl/dataset_command.h"
#include "ctl/yaml_out.h"

#include <stdlib.h>
#include <string.h>

struct generation_options {
	struct master_where where;
	const char *output;
	bool newest;
	uint64_t from;
	uint64_t to;
	uint64_t limit;
};

static int parse_generation(const char *text, uint64_t *ret_number, struct err *e)
{
	char *end;
	uint64_t number = strtoull(text, &end, 10);

	if (number == 0 || number > INT64_MAX || *end || strspn(text, "0123456789") == 0)
		return err_set(e, -EINVAL,
			"'%s' is no number of a generation: cachectl dataset generations lists "
			"them",
			text);
	*ret_number = number;
	return 0;
}

int dataset_generations(int argc, char **argv)
{
	static const struct option_spec specs[] = {
		MASTER_OPTION_ROWS(struct generation_options, where),
		OUTPUT_OPTION_ROW(struct generation_options, output, OUTPUT_CHOICES),
	};
	static const struct option_set set = {
		.program = "cachectl dataset generations",
		.arguments = "NAME",
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

/* One page after the other; of JSON and YAML one document each. */
static int print_diff(const struct generation_options *o, const char *name)
{
	struct err e = ERR_INIT;
	uint64_t shown = 0;
	char next[64] = "";
	int status;

	do {
		json_t *page = NULL;
		const char *more;
		char rest[256];

		(void)snprintf(rest, sizeof(rest), "/diff?from=%llu&to=%llu&limit=%llu%s%s",
			(unsigned long long)o->from, (unsigned long long)o->to,
			(unsigned long long)min(o->limit - shown, (uint64_t)1000),
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
		(void)fprintf(stderr, "cachectl: there is more: give --limit\n");
	return status;
}

int dataset_diff(int argc, char **argv)
{
	static const struct option_spec specs[] = {
		OPTION_ROW(struct generation_options, limit, "limit", OPTION_UINT, .min = 1,
			.max = UINT32_MAX, .help = "so many rows at most; 10000"),
		MASTER_OPTION_ROWS(struct generation_options, where),
		OUTPUT_OPTION_ROW(struct generation_options, output, OUTPUT_CHOICES),
	};
	static const struct option_set set = {
		.program = "cachectl dataset diff",
		.arguments = "NAME FROM [TO]",
		.about = "Shows what was added (+), changed (*) and removed (-) between two "
			 "generations; TO is the newest.",
		.specs = specs,
		.n = ARRAY_SIZE(specs),
		.min_args = 2,
		.max_args = 3,
	};
	struct generation_options o = { .output = "table" };
	struct err e = ERR_INIT;
	int n;

	o.limit = 10000;
	n = option_parse_or_exit(&set, argc, argv, &o);
	for (int i = 2; i <= n; i++)
		if (parse_generation(argv[i], i == 2 ? &o.from : &o.to, &e) < 0)
			return command_fail(EXIT_USAGE, &e);
	return print_diff(&o, argv[1]);
}

int dataset_rollback(int argc, char **argv)
{
	static const struct option_spec specs[] = {
		OPTION_BOOL_ROW(struct generation_options, newest, "newest",
			"show the newest generation again, and what comes after it"),
		MASTER_OPTION_ROWS(struct generation_options, where),
	};
	static const struct option_set set = {
		.program = "cachectl dataset rollback",
		.arguments = "NAME [GENERATION]",
		.about = "Shows an older generation: mounts made from now on, and those that are "
			 "refreshed, see it until\n--newest is given. It is kept meanwhile.",
		.specs = specs,
		.n = ARRAY_SIZE(specs),
		.min_args = 1,
		.max_args = 2,
	};
	struct generation_options o = { .output = "table" };
	struct err e = ERR_INIT;
	uint64_t generation = 0; /* the newest */
	json_t *body;
	int status;
	int n = option_parse_or_exit(&set, argc, argv, &o);

	if (o.newest == (n == 2)) {
		(void)err_set(&e, -EINVAL,
			"give the number of a generation, or --newest: cachectl dataset "
			"generations %s lists them",
			argv[1]);
		return command_fail(EXIT_USAGE, &e);
	}
	if (n == 2 && parse_generation(argv[2], &generation, &e) < 0)
		return command_fail(EXIT_USAGE, &e);
	body = json_pack("{s:I}", "generation", (json_int_t)generation);
	status = dataset_call(&o.where, "POST", argv[1], "/rollback", body, NULL, &e);
	json_decref(body);
	if (status != EXIT_OK)
		return command_fail(status, &e);
	if (o.newest)
		(void)printf("dataset %s shows its newest generation\n", argv[1]);
	else
		(void)printf("dataset %s shows generation %llu from now on; mounts there are see "
			     "it after cachectl refresh DIR\n",
			argv[1], (unsigned long long)generation);
	return EXIT_OK;
}
