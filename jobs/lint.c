/* The linter's walk over objects and rules. See lint.h. */
#include "jobs/lint_internal.h"
#include "jobs/schema.h"

#include <string.h>

#define KINDS 13u

static const struct kind {
	enum lint_kind kind;
	const char *api;
	const char *name;
	const char *template; /* path with `*`; NULL: none */
} kinds[] = {
	{ LINT_PYTORCH, "kubeflow.org/v1", "PyTorchJob", "spec.pytorchReplicaSpecs.*.template" },
	{ LINT_TF, "kubeflow.org/v1", "TFJob", "spec.tfReplicaSpecs.*.template" },
	{ LINT_XGB, "kubeflow.org/v1", "XGBoostJob", "spec.xgbReplicaSpecs.*.template" },
	{ LINT_MPI, "kubeflow.org/v2beta1", "MPIJob", "spec.mpiReplicaSpecs.*.template" },
	{ LINT_MPI_V1ALPHA1, "kubeflow.org/v1alpha1", "MPIJob", "spec.template" },
	{ LINT_VOLCANO, "batch.volcano.sh/v1alpha1", "Job", "spec.tasks.*.template" },
	{ LINT_ET, "kai.alibabacloud.com/v1alpha1", "TrainingJob",
		"spec.etReplicaSpecs.*.template" },
	{ LINT_TRAIN, "trainer.kubeflow.org/v1alpha1", "TrainJob",
		"spec.runtimePatches.*.trainingRuntimeSpec.template.spec.replicatedJobs.*.template."
		"spec.template" },
	{ LINT_NOTEBOOK, "kubeflow.org/v1", "Notebook", "spec.template" },
	{ LINT_JOB, "batch/v1", "Job", "spec.template" },
	{ LINT_PODGROUP, "scheduling.volcano.sh/v1beta1", "PodGroup", NULL },
	{ LINT_SP_PODGROUP, "scheduling.x-k8s.io/v1alpha1", "PodGroup", NULL },
	{ LINT_OTHER, "", "any other kind", NULL },
};

static const struct kind *find_kind(enum lint_kind kind)
{
	const struct kind *found = kinds;

	while (found->kind != kind)
		found++;
	return found;
}

const char *lint_template(enum lint_kind kind)
{
	return find_kind(kind)->template;
}

enum lint_kind lint_kind_of(const json_t *object)
{
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
		if (strcmp(lint_text(object, "apiVersion"), kinds[i].api) == 0 &&
			strcmp(lint_text(object, "kind"), kinds[i].name) == 0)
			return kinds[i].kind;
	return LINT_OTHER;
}

/* A kind of the table in a version that is not there. Other groups may have a Job and a PodGroup, too. */
bool lint_unknown_version(const struct lint *l, const json_t *value)
{
	static const char served[] = "kubeflow.org/v1 MPIJob|"
				     "kubeflow.org/v1beta1 Notebook|kubeflow.org/v1alpha1 Notebook";
	const char *api = json_string_value(value) ?: "";
	const char *name = lint_text(l->object, "kind");
	bool unknown = false;
	char both[256];

	(void)snprintf(both, sizeof(both), "%s %s", api, name); /* cut: not served */

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		size_t group = strcspn(kinds[i].api, "/") + 1;

		if (strcmp(kinds[i].name, name) != 0)
			continue;
		unknown = unknown || strncmp(kinds[i].api, api, group) == 0 ||
			  !option_is_choice("Job|PodGroup", name);
	}
	return *api && unknown && !option_is_choice(served, both);
}

/* ---- values ---------------------------------------------------------------------------------- */

const char *lint_text(const json_t *root, const char *path)
{
	const char *text = json_string_value(field_path_get(root, path));

	return text ? text : "";
}

long long lint_number(const json_t *root, const char *path, long long otherwise)
{
	const json_t *value = field_path_get(root, path);

	return json_is_integer(value) ? json_integer_value(value) : otherwise;
}

struct each {
	bool missing; /* see also where its last step is missing */
	bool deep;    /* or any other step, after the last `*` */
	void (*see)(void *arg, const char *path, const json_t *value);
	void *arg;
};

/* The rest of a pattern below `value`, which is at `path`. */
static void each_below(
	const struct each *x, const json_t *value, const char *pattern, const char *path)
{
	char below[FIELD_PATH_BYTES];
	struct field_step step;
	const char *key;
	json_t *item;
	size_t i;

	if (field_path_next(&pattern, &step) != 1) {
		x->see(x->arg, path, value);
		return;
	}
	if (step.len == 1 && *step.key == '*') {
		json_object_foreach ((json_t *)(uintptr_t)value, key, item) /* only read */
			each_below(x, item, pattern, field_path_key(path, key, below));
		json_array_foreach (value, i, item)
			each_below(x, item, pattern, field_path_index(path, i, below));
		return;
	}
	(void)snprintf(below, sizeof(below), "%.*s", (int)step.len, step.key); /* fits: ours */
	item = json_object_get(value, below);
	if (json_is_null(item))
		item = NULL; /* to a cluster it is not given */
	if (item || (json_is_object(value) &&
			    ((x->missing && !*pattern) || (x->deep && !strchr(pattern, '*'))))) {
		char name[FIELD_PATH_BYTES];

		(void)snprintf(name, sizeof(name), "%s", below); /* fits */
		(void)field_path_key(path, name, below);         /* returns it */
		if (item)
			each_below(x, item, pattern, below);
		else
			x->see(x->arg, below, NULL);
	}
}

void lint_each(const json_t *root, const char *pattern,
	void (*see)(void *arg, const char *path, const json_t *value), void *arg)
{
	const struct each x = { .see = see, .arg = arg };

	each_below(&x, root, pattern, "");
}

/* ---- one rule -------------------------------------------------------------------------------- */

struct walk {
	struct lint lint;
	const struct lint_rule *rule;
	json_t *findings;
	int error;
};

static void add_finding(struct walk *w, const char *path, const char *rule, bool error,
	const char *reason, const char *fix)
{
	json_t *finding = json_pack("{s:o, s:s, s:s, s:s, s:s, s:s}", "object",
		json_sprintf("%s/%s", lint_text(w->lint.object, "kind"),
			lint_text(w->lint.object, "metadata.name")),
		"field", path, "rule", rule, "level", error ? "error" : "warning", "reason", reason,
		"fix", fix);

	if (json_array_append_new(w->findings, finding) < 0)
		w->error = -ENOMEM;
}

static bool is_bad(const struct walk *w, const json_t *value)
{
	const struct lint_rule *rule = w->rule;

	switch (rule->op) {
	case LINT_ONE_OF:
		return value && !(json_is_string(value) &&
					option_is_choice(rule->text, json_string_value(value)));
	case LINT_LEAST:
		return json_is_integer(value) && json_integer_value(value) < rule->number;
	case LINT_MOST:
		return json_is_integer(value) && json_integer_value(value) > rule->number;
	case LINT_ABSENT:
		return value != NULL;
	case LINT_PRESENT:
		return !value;
	case LINT_TEST:
		return rule->test(&w->lint, value);
	}
	return false;
}

static void see_value(void *arg, const char *path, const json_t *value)
{
	struct walk *w = arg;
	const struct lint_rule *rule = w->rule;
	char reason[FIELD_PATH_BYTES];
	const char *text = json_string_value(value);

	if (!is_bad(w, value))
		return;
	if (text && strlen(text) < 100)
		(void)snprintf(reason, sizeof(reason), "'%s' %s", text, rule->reason); /* fits */
	else if (json_is_integer(value))
		(void)snprintf(reason, sizeof(reason), "%lld %s",
			(long long)json_integer_value(value), rule->reason); /* likewise */
	else
		(void)snprintf(reason, sizeof(reason), "%s", rule->reason);
	add_finding(w, path, rule->id, rule->error, reason, rule->fix);
}

/* A field of a rule where the kind has it: POD and CONTAINER stand for the templates and their containers. */
static void check_rule(struct walk *w)
{
	static const char *const containers[] = { ".containers.*", ".initContainers.*" };
	const struct each x = { .missing = w->rule->op == LINT_TEST,
		.deep = w->rule->op == LINT_PRESENT,
		.see = see_value,
		.arg = w };
	const char *template = lint_template(w->lint.kind);
	const char *field = w->rule->field;
	bool pod = strncmp(field, "POD", 3) == 0;
	bool container = strncmp(field, "CONTAINER", 9) == 0;
	char pattern[FIELD_PATH_BYTES];

	if (!pod && !container) {
		each_below(&x, w->lint.object, field, "");
		return;
	}
	for (size_t i = 0; template && i < (pod ? 1 : ARRAY_SIZE(containers)); i++) {
		(void)snprintf(pattern, sizeof(pattern), "%s.spec%s%s", template,
			pod ? "" : containers[i], field + (pod ? 3 : 9)); /* fits */
		each_below(&x, w->lint.object, pattern, "");
	}
}

static void see_schema(void *arg, const char *path, const char *reason)
{
	add_finding(arg, path, "schema", true, reason,
		"write it as the CustomResourceDefinition of the kind has it");
}

/* `schemas` NULL: could not be read, which is reported. */
static void check_object(struct walk *w, const struct job_schemas *schemas)
{
	const json_t *schema = job_schema_of(schemas, lint_text(w->lint.object, "apiVersion"),
		lint_text(w->lint.object, "kind"));

	w->lint.kind = lint_kind_of(w->lint.object);
	w->lint.tasks = lint_index(field_path_get(w->lint.object, "spec.tasks"));
	if (schema)
		job_schema_check(schemas, schema, w->lint.object, see_schema, w);
	for (const struct lint_rule *rule = lint_rules; rule->id; rule++) {
		w->rule = rule;
		if (rule->kinds & w->lint.kind)
			check_rule(w);
	}
	if (!w->lint.tasks)
		w->error = -ENOMEM;
	json_decref(w->lint.tasks);
}

int job_lint(const json_t *objects, json_t *findings, struct err *e)
{
	struct walk w = { .lint.objects = objects, .findings = findings };
	struct job_schemas schemas;
	const json_t *object;
	size_t i;
	int r = job_schemas_open(&schemas, e);

	if (r < 0)
		return r;
	json_array_foreach (objects, i, object) {
		w.lint.object = object;
		check_object(&w, &schemas);
	}
	job_schemas_close(&schemas);
	return w.error < 0 ? err_set(e, w.error, "out of memory") : 0;
}

size_t job_lint_errors(const json_t *findings)
{
	const json_t *finding;
	size_t n = 0;
	size_t i;

	json_array_foreach (findings, i, finding)
		if (strcmp(lint_text(finding, "level"), "error") == 0)
			n++;
	return n;
}

static json_t *kinds_of(const struct lint_rule *rule)
{
	json_t *all = json_array();

	for (unsigned int k = 0; k < KINDS; k++)
		if (rule->kinds != LINT_ALL && rule->kinds >> k & 1 &&
			json_array_append_new(
				all, json_string(find_kind((enum lint_kind)(1u << k))->name)) < 0)
			break;
	return all;
}

json_t *job_lint_rules(void)
{
	json_t *all = json_array();

	for (const struct lint_rule *rule = lint_rules; rule->id; rule++)
		if (json_array_append_new(
			    all, json_pack("{s:s, s:s, s:o, s:s, s:s, s:s}", "rule", rule->id,
					 "level", rule->error ? "error" : "warning", "kinds",
					 kinds_of(rule), "field", rule->field, "reason",
					 rule->reason, "fix", rule->fix)) < 0) {
			json_decref(all);
			return NULL;
		}
	return all;
}
