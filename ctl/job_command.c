/*
 * cachectl job: training jobs from a spec or from flags of Arena, as objects of the cluster's engines (jobs/), created in a cluster
 * (job_create.h) or printed.
 */
#include "base/cleanup.h"
#include "base/file.h"
#include "ctl/columns.h"
#include "ctl/command.h"
#include "ctl/job_cluster.h"
#include "ctl/job_create.h"
#include "ctl/job_lint.h"
#include "ctl/job_verbs.h"
#include "ctl/subcommand.h"
#include "ctl/yaml_out.h"
#include "jobs/job_flag.h"
#include "jobs/compile.h"
#include "jobs/field_path.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SPEC_BYTES (256u << 10)
#define WORDS_MAX  4096u

/* What both ways to make a job take. */
struct job_options {
	const char *dry_run;
	const char *output;
	bool explain;
	struct job_cluster_options cluster;
	const char *log_level;
};

#define JOB_OPTION_ROWS(type, member)                                                             \
	OPTION_ROW(type, member.dry_run, "dry-run", OPTION_CHOICE,                                \
		.choices = "client|server|none",                                                  \
		.help = "Create no objects: show them (client), or let the cluster check them "   \
			"(server) (default: none)"),                                              \
		OUTPUT_OPTION_ROW(type, member.output, OUTPUT_CHOICES),                           \
		OPTION_BOOL_ROW(type, member.explain, "explain",                                  \
			"Show which flag or line each field of the objects comes from (default: " \
			"no)"),                                                                   \
		JOB_CLUSTER_OPTION_ROWS(type, member.cluster),                                    \
		OPTION_ROW(type, member.log_level, "loglevel", OPTION_CHOICE,                     \
			.choices = "debug|info|warn|error",                                       \
			.help = "Least level of notices; they are of level info (default: info)")

/* ---- output ---------------------------------------------------------------------------------- */

static void print_notes(const struct job_options *o, const json_t *notes)
{
	const json_t *text;
	size_t i;

	if (strcmp(o->log_level, "info") != 0 && strcmp(o->log_level, "debug") != 0)
		return;
	json_array_foreach (notes, i, text)
		(void)fprintf(stderr, "%s\n", json_string_value(text));
}

static int print_table(const json_t *objects)
{
	static const char *const titles[] = { "KIND", "NAME", "API VERSION" };
	_cleanup_(columns_release) struct columns table = { 0 };
	const json_t *object;
	size_t i;
	int r = columns_init(&table, titles, ARRAY_SIZE(titles), 0);

	json_array_foreach (objects, i, object)
		if (r == 0)
			r = columns_add(&table,
				(const char *[]){
					json_string_value(json_object_get(object, "kind")),
					json_string_value(field_path_get(object, "metadata.name")),
					json_string_value(json_object_get(object, "apiVersion")) });
	if (r < 0)
		return yaml_out_answer("json", NULL);
	columns_print(&table, stdout);
	return EXIT_OK;
}

/* A table; documents of YAML, or a List of JSON, as kubectl takes them. */
static int print_objects(const struct job_options *o, json_t *objects)
{
	const json_t *object;
	size_t i;
	int r = 0;

	if (output_is_table(o->output))
		return print_table(objects);
	if (strcmp(o->output, "json") == 0)
		return yaml_out_made("json", json_pack("{s:s, s:s, s:O}", "apiVersion", "v1",
						     "kind", "List", "items", objects));
	json_array_foreach (objects, i, object) {
		if (i > 0 && printf("---\n") < 0)
			r = -EIO;
		if (r == 0)
			r = yaml_out(object, stdout);
	}
	return r == 0 ? EXIT_OK : yaml_out_answer("yaml", NULL);
}

static int print_explanation(const struct job_options *o, json_t *rows, const struct job_type *type)
{
	static const char *const titles[] = { "OBJECT", "FIELD", "VALUE", "FROM" };
	_cleanup_(columns_release) struct columns table = { 0 };
	const json_t *row;
	size_t i;
	int r;

	if (!rows || !output_is_table(o->output))
		return yaml_out_answer(o->output, rows);
	r = columns_init(&table, titles, ARRAY_SIZE(titles), 0);
	json_array_foreach (rows, i, row) {
		_cleanup_free_ char *value =
			json_dumps(json_object_get(row, "value"), JSON_ENCODE_ANY | JSON_COMPACT);
		const char *from = json_string_value(json_object_get(row, "from"));

		if (r == 0)
			r = columns_add(&table,
				(const char *[]){ json_string_value(json_object_get(row, "object")),
					json_string_value(json_object_get(row, "field")),
					value ? value : "",
					from   ? from
					: type ? type->name
					       : "" });
	}
	if (r < 0)
		return yaml_out_answer("json", NULL);
	columns_print(&table, stdout);
	return EXIT_OK;
}

/* ---- from a spec ----------------------------------------------------------------------------- */

/* The states of the objects, where they were created or checked. */
static int print_states(const json_t *objects, const json_t *states, bool dry_run)
{
	static const char *const titles[] = { "KIND", "NAME", "NAMESPACE", "STATUS" };
	_cleanup_(columns_release) struct columns table = { 0 };
	const json_t *object;
	size_t i;
	int r = columns_init(&table, titles, ARRAY_SIZE(titles), 0);

	json_array_foreach (objects, i, object)
		if (r == 0)
			r = columns_add(&table,
				(const char *[]){ job_text(object, "kind"),
					job_text(object, "metadata.name"),
					job_text(object, "metadata.namespace"),
					dry_run ? "valid"
						: json_string_value(json_array_get(states, i)) });
	if (r < 0)
		return yaml_out_answer("json", NULL);
	columns_print(&table, stdout);
	return EXIT_OK;
}

static int create_objects(const struct job_options *o, struct kube *kube, json_t *objects)
{
	bool dry_run = o->dry_run && strcmp(o->dry_run, "server") == 0;
	json_t *created = NULL;
	json_t *states = NULL;
	struct err e = ERR_INIT;
	int status;
	int r = job_create(kube, objects, dry_run, &created, &states, &e);

	if (r < 0)
		return job_cluster_fail(r, &e);
	status = output_is_table(o->output) ? print_states(created, states, dry_run)
					    : print_objects(o, created);
	json_decref(created);
	json_decref(states);
	return status;
}

static int explain_objects(
	const struct job_options *o, const struct job_spec *spec, const struct job_objects *objects)
{
	json_t *rows = job_explain(spec, objects);
	int status = print_explanation(o, rows,
		job_type_of_framework(json_string_value(
			json_object_get(json_object_get(spec->root, "framework"), "name"))));

	json_decref(rows);
	return status;
}

/* An exit status. `kube` NULL: nothing is sent to a cluster. */
static int show_or_create(
	const struct job_options *o, struct kube *kube, const struct job_spec *spec, json_t *notes)
{
	struct job_objects objects = { 0 };
	struct err e = ERR_INIT;
	int status;
	int r = job_compile(spec, &objects, &e);

	if (r < 0)
		return command_fail(command_exit(r), &e);
	print_notes(o, notes);
	print_notes(o, objects.notes);
	status = job_lint_objects(objects.list);
	if (o->explain) { /* also of what the linter refuses: it shows where a wrong value comes from */
		int printed = explain_objects(o, spec, &objects);

		status = status == EXIT_OK ? printed : status;
	} else if (status == EXIT_OK) {
		status = kube ? create_objects(o, kube, objects.list)
			      : print_objects(o, objects.list);
	}
	job_objects_release(&objects);
	return status;
}

/* An exit status. */
static int finish(const struct job_options *o, struct job_spec *spec, json_t *notes)
{
	_cleanup_(kube_free_p) struct kube *kube = NULL;
	bool offline = o->explain || (o->dry_run && strcmp(o->dry_run, "client") == 0);
	struct err e = ERR_INIT;
	int r = job_spec_finish(spec, &e);

	if (r < 0)
		return command_fail(command_exit(r), &e);
	if (!offline)
		r = job_cluster_open(&o->cluster, &kube, &e);
	if (r < 0)
		return job_cluster_open_fail(r, &e);
	if (kube)
		r = job_choose_engine(kube, spec, notes, &e);
	return r < 0 ? job_cluster_fail(r, &e) : show_or_create(o, kube, spec, notes);
}

/* ---- submit ---------------------------------------------------------------------------------- */

struct submit_options {
	struct job_options job;
	struct job_flag_values flags;
};

static const struct option_spec submit_own[] = {
	JOB_OPTION_ROWS(struct submit_options, job),
};

/* `type` NULL: the options of all types. */
static void submit_set(
	const struct job_type *type, struct option_spec *specs, struct option_set *ret_set)
{
	unsigned int n = job_flag_options(type, specs, offsetof(struct submit_options, flags));

	memcpy(specs + n, submit_own, sizeof(submit_own));
	*ret_set = (struct option_set){
		.program = "cachectl job submit",
		.exits = { EXIT_LINT, JOB_CLUSTER_EXITS },
		.arguments = "TYPE [--] COMMAND...",
		.about = "Creates a job from flags, those of `arena submit` and more, for the "
			 "operators that clusters run.\nTYPE: pytorchjob, tfjob, xgboostjob, "
			 "mpijob, "
			 "etjob, deepspeedjob, volcanojob, k8sjob, notebook or\nbuildjob; "
			 "`cachectl job "
			 "submit TYPE --help` lists the options of one.",
		.specs = specs,
		.n = n + ARRAY_SIZE(submit_own),
		.min_args = 1,
		.max_args = WORDS_MAX,
		.command = 2,
	};
}

static int submit(const struct job_type *type, const struct submit_options *o, char **words, int n)
{
	struct job_spec spec = { 0 };
	json_t *notes = json_array();
	struct err e = ERR_INIT;
	int status;
	int r = notes ? job_spec_init(&spec) : -ENOMEM;

	if (r < 0)
		(void)err_set(&e, r, "out of memory");
	else
		r = job_flag_take(type, &o->flags, true, words, n, &spec, notes, &e);
	status = r < 0 ? command_fail(command_exit(r), &e) : finish(&o->job, &spec, notes);
	job_spec_release(&spec);
	json_decref(notes);
	return status;
}

static int job_submit(int argc, char **argv)
{
	_cleanup_free_ struct option_spec *specs =
		calloc(JOB_FLAGS_MAX + ARRAY_SIZE(submit_own), sizeof(*specs));
	_cleanup_free_ struct submit_options *o = calloc(1, sizeof(*o));
	const struct job_type *type = NULL;
	struct option_set set;
	struct err e = ERR_INIT;
	int n;

	if (!specs || !o) {
		(void)err_set(&e, -ENOMEM, "out of memory");
		return command_fail(EXIT_RUNTIME, &e);
	}
	if (argc < 2) {
		(void)err_set(&e, -EINVAL, "TYPE is missing: write cachectl job submit pytorchjob");
		return command_fail(EXIT_USAGE, &e);
	}
	o->job = (struct job_options){ .output = "table", .log_level = "info" };
	if (argc > 1 && argv[1][0] != '-' && job_type_find(argv[1], &type, &e) < 0)
		return command_fail(EXIT_USAGE, &e);
	submit_set(type, specs, &set);
	n = option_parse_or_exit(&set, argc, argv, o);
	if (!type && job_type_find(argv[1], &type, &e) < 0)
		return command_fail(EXIT_USAGE, &e);
	return submit(type, o, argv + 2, n - 1);
}

/* ---- run ------------------------------------------------------------------------------------- */

struct run_options {
	const char *file;
	struct option_list set;
	const char *namespace;
	struct job_options job;
};

static const struct option_spec run_specs[] = {
	OPTION_ROW(struct run_options, file, "filename", OPTION_STRING, .letter = 'f',
		.metavar = "FILE", .required = true,
		.help = "Spec of the job; - is standard input"),
	OPTION_ROW(struct run_options, set, "set", OPTION_LIST, .metavar = "PATH=VALUE",
		.most = OPTION_LIST_MAX,
		.help = "Field to set, such as worker.replicas=4 or storages[0].mount=/data "
			"(default: none)"),
	OPTION_ROW(struct run_options, namespace, "namespace", OPTION_STRING, .letter = 'n',
		.metavar = "NAMESPACE", .help = "Namespace (default: that of the spec)"),
	JOB_OPTION_ROWS(struct run_options, job),
};

static const struct option_set run_set = {
	.program = "cachectl job run",
	.exits = { EXIT_LINT, JOB_CLUSTER_EXITS },
	.arguments = "",
	.about = "Creates a job from a spec in YAML. `cachectl job schema` prints its JSON schema.",
	.specs = run_specs,
	.n = ARRAY_SIZE(run_specs),
};

static int read_spec(const char *file, struct job_spec *spec, struct err *e)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(SPEC_BYTES);
	int r = file_read_all(strcmp(file, "-") == 0 ? "/dev/stdin" : file, &text);

	if (r < 0)
		return err_set(e, -EINVAL, "cannot read '%s': %s; give a spec of at most 256KiB",
			file, err_str(r));
	return job_spec_read(spec, file, buf_str(&text), text.len, e);
}

static int job_run(int argc, char **argv)
{
	struct run_options o = { .job = { .output = "table", .log_level = "info" } };
	struct job_spec spec = { 0 };
	json_t *notes = json_array();
	struct err e = ERR_INIT;
	int status;
	int r;

	(void)option_parse_or_exit(&run_set, argc, argv, &o); /* no arguments */
	r = notes ? job_spec_init(&spec) : -ENOMEM;
	if (r < 0)
		(void)err_set(&e, r, "out of memory");
	else
		r = read_spec(o.file, &spec, &e);
	for (unsigned int i = 0; i < o.set.n && r == 0; i++)
		r = job_spec_set(&spec, o.set.values[i], &e);
	if (r == 0 && o.namespace)
		r = job_spec_put(&spec, "namespace", json_string(o.namespace), "--namespace", &e);
	status = r < 0 ? command_fail(command_exit(r), &e) : finish(&o.job, &spec, notes);
	job_spec_release(&spec);
	json_decref(notes);
	return status;
}

/* ---- schema ---------------------------------------------------------------------------------- */

struct schema_options {
	const char *output;
};

static const struct option_spec schema_specs[] = {
	OUTPUT_OPTION_ROW(struct schema_options, output, OUTPUT_CHOICES),
};

static const struct option_set schema_set = {
	.program = "cachectl job schema",
	.arguments = "",
	.about = "Shows the fields of the spec of a job. With -o json it is a JSON schema, for "
		 "editors "
		 "and checks.",
	.specs = schema_specs,
	.n = ARRAY_SIZE(schema_specs),
};

/* The fields of an object, a list of objects or a map, one below the other. */
static int add_fields(struct columns *table, const struct spec_field *field, const char *path)
{
	char below[FIELD_PATH_BYTES];
	int r = 0;

	for (const struct spec_field *f = field->of; f->name && r == 0; f++) {
		bool list = f->kind == SPEC_LIST;

		(void)field_path_key(path, f->name, below); /* returns it */
		r = columns_add(table, (const char *[]){ below, spec_kind_name(f->kind),
					       f->choices ? f->choices : "", f->help });
		if (r == 0 && (f->kind == SPEC_OBJECT || (list && f->of[0].kind == SPEC_OBJECT))) {
			(void)strncat(below, list ? "[]" : "", sizeof(below) - strlen(below) - 1);
			r = add_fields(table, list ? &f->of[0] : f, below);
		}
	}
	return r;
}

static int job_schema(int argc, char **argv)
{
	static const char *const titles[] = { "FIELD", "TYPE", "VALUES", "MEANING" };
	_cleanup_(columns_release) struct columns table = { 0 };
	struct schema_options o = { .output = "table" };
	int r;

	(void)option_parse_or_exit(&schema_set, argc, argv, &o); /* no arguments */
	if (!output_is_table(o.output))
		return yaml_out_made(o.output, job_spec_schema());
	r = columns_init(&table, titles, ARRAY_SIZE(titles), 0);
	if (r == 0)
		r = add_fields(&table, &spec_root, "");
	if (r < 0)
		return yaml_out_answer("json", NULL);
	columns_print(&table, stdout);
	return EXIT_OK;
}

/* ---- for documents --------------------------------------------------------------------------- */

/* Each flag of Arena, and what becomes of it: flag, type, fate, field or what to write instead. */
static int job_flags_list(int argc, char **argv)
{
	static const char *const fates[] = { [JOB_FLAG_HONOURED] = "honoured",
		[JOB_FLAG_CONVERTED] = "converted",
		[JOB_FLAG_REFUSED] = "refused",
		[JOB_FLAG_OTHER] = "other" };
	enum job_flag_fate fate;
	const char *name;
	const char *text;

	(void)argc;
	(void)argv;
	for (unsigned int t = 0; job_type_at(t); t++)
		for (unsigned int i = 0; job_flag_at(i, job_type_at(t), &name, &text, &fate); i++)
			(void)printf(
				"%s\t%s\t%s\t%s\n", name, job_type_at(t)->name, fates[fate], text);
	return EXIT_OK;
}

int command_job(int argc, char **argv)
{
	static const struct subcommand commands[] = {
		{ "submit", job_submit, "Create a job from flags" },
		{ "run", job_run, "Create a job from a spec in YAML" },
		{ "list", job_list_command, "List jobs" },
		{ "get", job_get_command, "Show a job and its pods" },
		{ "events", job_events_command, "Show the events of a job and its pods" },
		{ "logs", job_logs_command, "Print what a pod of a job has written" },
		{ "why", job_why_command, "Show what keeps a job from running, or made it fail" },
		{ "wait", job_wait_command, "Wait until a job reaches a state" },
		{ "suspend", job_suspend_command, "End the pods of a job, which can be resumed" },
		{ "resume", job_resume_command, "Start the pods of a suspended job again" },
		{ "scale", job_scale_command, "Change the number of workers of an elastic job" },
		{ "delete", job_delete_command, "Delete a job and what it owns" },
		{ "lint", job_lint_command, "Check manifests or a spec" },
		{ "schema", job_schema, "Show the fields of the spec, or its JSON schema" },
		{ "__flags", job_flags_list, NULL },
	};

	return subcommand_run("cachectl job",
		"Training jobs for the operators that clusters run, with datasets as their "
		"volumes.",
		commands, ARRAY_SIZE(commands), argc, argv);
}
