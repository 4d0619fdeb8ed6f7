/* cachectl job lint: manifests and specs against the rules of jobs/lint.h. See job_lint.h. */
#include "ctl/job_lint.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/utf8.h"
#include "ctl/columns.h"
#include "ctl/command.h"
#include "ctl/yaml_out.h"
#include "jobs/compile.h"
#include "jobs/lint.h"
#include "jobs/manifest.h"

#include <stdio.h>
#include <string.h>

#define FILE_BYTES (4u << 20)

static const char *text_of(const json_t *object, const char *key)
{
	return json_string_value(json_object_get(object, key));
}

/* A line: where, level, why, what to do, which rule. Texts of a manifest may have bytes that a terminal acts on. */
static void print_finding(const json_t *finding, FILE *out)
{
	_cleanup_free_ char *line = NULL;

	if (asprintf(&line, "%s %s: %s: %s; %s [%s]", text_of(finding, "object"),
		    text_of(finding, "field"), text_of(finding, "level"),
		    text_of(finding, "reason"), text_of(finding, "fix"),
		    text_of(finding, "rule")) < 0) {
		line = NULL; /* out of memory: the number of errors is still printed */
		return;
	}
	utf8_make_line(line);
	(void)fprintf(out, "%s\n", line);
}

static void print_findings(const json_t *findings, FILE *out)
{
	const json_t *one;
	size_t i;

	json_array_foreach (findings, i, one)
		print_finding(one, out);
}

/* EXIT_LINT with its line when there is an error. */
static int lint_status(const json_t *findings)
{
	size_t errors = job_lint_errors(findings);
	struct err e = ERR_INIT;

	if (errors == 0)
		return EXIT_OK;
	(void)err_set(&e, -EINVAL,
		"the linter found %zu error%s: correct what the lines above name", errors,
		errors == 1 ? "" : "s");
	return command_fail(EXIT_LINT, &e);
}

int job_lint_objects(const json_t *objects)
{
	json_t *findings = json_array();
	struct err e = ERR_INIT;
	int status;
	int r = findings ? job_lint(objects, findings, &e) : err_set(&e, -ENOMEM, "out of memory");

	if (r < 0) {
		status = command_fail(EXIT_RUNTIME, &e);
	} else {
		print_findings(findings, stderr);
		status = lint_status(findings);
	}
	json_decref(findings);
	return status;
}

/* ---- the command ----------------------------------------------------------------------------- */

struct lint_options {
	const char *output;
	bool rules;
};

static const struct option_spec lint_specs[] = {
	OPTION_BOOL_ROW(struct lint_options, rules, "rules", "List the rules (default: no)"),
	OUTPUT_OPTION_ROW(struct lint_options, output, OUTPUT_CHOICES),
};

static const struct option_set lint_set = {
	.program = "cachectl job lint",
	.exits = { EXIT_LINT },
	.arguments = "[FILE]",
	.about = "Checks manifests, or the spec of a job, for what operators refuse and for what "
		 "they "
		 "accept though\nit never runs. FILE - is standard input. Nothing is asked of a "
		 "cluster.",
	.specs = lint_specs,
	.n = ARRAY_SIZE(lint_specs),
	.max_args = 1,
};

/* The objects of a spec, appended to an array. */
static int compile_text(const char *name, const struct buf *text, json_t *objects, struct err *e)
{
	struct job_objects compiled = { 0 };
	struct job_spec spec = { 0 };
	int r = job_spec_init(&spec);

	if (r < 0)
		return err_set(e, r, "out of memory");
	r = job_spec_read(&spec, name, buf_str(text), text->len, e);
	if (r == 0)
		r = job_spec_finish(&spec, e);
	if (r == 0)
		r = job_compile(&spec, &compiled, e);
	if (r == 0 && json_array_extend(objects, compiled.list) < 0)
		r = err_set(e, -ENOMEM, "out of memory");
	job_objects_release(&compiled);
	job_spec_release(&spec);
	return r;
}

/* Manifests have a kind, specs a framework. */
static int read_objects(const char *file, json_t *objects, struct err *e)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(FILE_BYTES);
	int r = file_read_all(strcmp(file, "-") == 0 ? "/dev/stdin" : file, &text);

	if (r < 0)
		return err_set(e, -EINVAL, "cannot read '%s': %s; give a manifest of at most 4MiB",
			file, err_str(r));
	r = manifest_read(file, buf_str(&text), text.len, objects, e);
	if (r == 0 && json_array_size(objects) == 0)
		return err_set(e, -EINVAL, "no object in '%s': give a manifest or a spec", file);
	if (r < 0 || json_array_size(objects) != 1 ||
		!json_object_get(json_array_get(objects, 0), "framework") ||
		json_object_get(json_array_get(objects, 0), "kind"))
		return r;
	if (json_array_clear(objects) < 0)
		return err_set(e, -ENOMEM, "out of memory");
	return compile_text(file, &text, objects, e);
}

/* An exit status. */
static int answer(const struct lint_options *o, const json_t *findings)
{
	int status = EXIT_OK;

	if (output_is_table(o->output))
		print_findings(findings, stdout);
	else
		status = yaml_out_made(o->output, json_pack("{s:O}", "findings", findings));
	return status == EXIT_OK ? lint_status(findings) : status;
}

static int lint_file(const struct lint_options *o, const char *file)
{
	json_t *objects = json_array();
	json_t *findings = json_array();
	struct err e = ERR_INIT;
	int status;
	int r = objects && findings ? read_objects(file, objects, &e)
				    : err_set(&e, -ENOMEM, "out of memory");

	if (r == 0)
		r = job_lint(objects, findings, &e);
	status = r < 0 ? command_fail(command_exit(r), &e) : answer(o, findings);
	json_decref(objects);
	json_decref(findings);
	return status;
}

static int print_rules(const struct lint_options *o)
{
	static const char *const titles[] = { "RULE", "LEVEL", "FIELD", "REASON", "FIX" };
	_cleanup_(columns_release) struct columns table = { 0 };
	json_t *rules = job_lint_rules();
	const json_t *rule;
	size_t i;
	int r;

	if (!rules || !output_is_table(o->output))
		return yaml_out_made(o->output, rules);
	r = columns_init(&table, titles, ARRAY_SIZE(titles), 0);
	json_array_foreach (rules, i, rule)
		if (r == 0)
			r = columns_add(
				&table, (const char *[]){ text_of(rule, "rule"),
						text_of(rule, "level"), text_of(rule, "field"),
						text_of(rule, "reason"), text_of(rule, "fix") });
	json_decref(rules);
	if (r < 0)
		return yaml_out_answer("json", NULL);
	columns_print(&table, stdout);
	return EXIT_OK;
}

int job_lint_command(int argc, char **argv)
{
	struct lint_options o = { .output = "table" };
	struct err e = ERR_INIT;

	if (option_parse_or_exit(&lint_set, argc, argv, &o) == 1)
		return lint_file(&o, argv[1]);
	if (o.rules)
		return print_rules(&o);
	(void)err_set(&e, -EINVAL, "an argument is missing: give FILE, or --rules");
	return command_fail(EXIT_USAGE, &e);
}
