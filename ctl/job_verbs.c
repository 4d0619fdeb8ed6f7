/* cachectl job list, get, events, delete, wait. See job_verbs.h. */
#include "ctl/job_verbs.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/units.h"
#include "ctl/columns.h"
#include "ctl/command.h"
#include "ctl/job_cluster.h"
#include "ctl/yaml_out.h"
#include "jobs/field_path.h"
#include "kube/kube_watch.h"

#include <stdio.h>
#include <string.h>

#define AGE_BYTES 32u

/* ---- rows ------------------------------------------------------------------------------------ */

/* Since a time that the server wrote; "-": it wrote none. */
static const char *age_of(const char *time, char out[AGE_BYTES])
{
	int64_t then;

	if (clock_parse(time, &then) < 0)
		return "-";
	return units_age((int64_t)(clock_wall_ns() / CLOCK_SECOND) - then, out, AGE_BYTES);
}

static int compare_texts(const void *a, const void *b, void *path)
{
	return strcmp(job_text(*(json_t *const *)a, path), job_text(*(json_t *const *)b, path));
}

/* By the text at `path`; -ENOMEM leaves the order. */
static int sort(json_t **array, const char *path)
{
	size_t n = json_array_size(*array);
	_cleanup_free_ json_t **all = calloc(n + 1, sizeof(json_t *));
	json_t *sorted = json_array();

	if (!all || !sorted) {
		json_decref(sorted);
		return -ENOMEM;
	}
	for (size_t i = 0; i < n; i++)
		all[i] = json_array_get(*array, i);
	qsort_r(all, n, sizeof(json_t *), compare_texts, (void *)(uintptr_t)path);
	for (size_t i = 0; i < n; i++)
		if (json_array_append(sorted, all[i]) < 0) {
			json_decref(sorted);
			return -ENOMEM;
		}
	json_decref(*array);
	*array = sorted;
	return 0;
}

static int add_to(void *array, json_t *object)
{
	return json_array_append(array, object) < 0 ? -ENOMEM : 0;
}

/* ---- list ------------------------------------------------------------------------------------ */

struct list_options {
	struct job_cluster_options cluster;
	bool all;
	const char *output;
};

static const struct option_spec list_specs[] = {
	JOB_NAMESPACE_OPTION_ROW(struct list_options, cluster),
	OPTION_ROW(struct list_options, all, "all-namespaces", OPTION_BOOL, .letter = 'A',
		.help = "List the jobs of all namespaces (default: no)"),
	JOB_CLUSTER_OPTION_ROWS(struct list_options, cluster),
	OUTPUT_OPTION_ROW(struct list_options, output, OUTPUT_CHOICES),
};

static const struct option_set list_set = {
	.program = "cachectl job list",
	.exits = { JOB_CLUSTER_EXITS },
	.arguments = "",
	.about = "Lists the jobs that `cachectl job` created.",
	.specs = list_specs,
	.n = ARRAY_SIZE(list_specs),
};

/* Those of a kind that the cluster may not have. */
static int list_kind(struct kube *kube, const struct list_options *o, const struct job_kind *kind,
	json_t *jobs, struct err *e)
{
	const struct kube_query query = { .name_space = o->all ? "" : o->cluster.name_space,
		.labels = "app.kubernetes.io/managed-by=" JOB_MANAGER };
	struct kube_resource found;
	struct kube_kind in_kube;
	size_t before = json_array_size(jobs);
	int r = job_cluster_kind(kube, kind->api_version, kind->kind, &found, &in_kube, e);
	json_t *object;
	size_t i;

	if (r == -ENOENT)
		return 0;
	if (r == 0)
		r = kube_list(kube, &in_kube, &query, add_to, NULL, jobs, NULL, e);
	if (r < 0)
		return err_default(e, r, "cannot list jobs");
	json_array_foreach (jobs, i, object) /* the items of a list do not name their kind */
		if (i >= before &&
			(json_object_set_new(object, "apiVersion", json_string(kind->api_version)) <
					0 ||
				json_object_set_new(object, "kind", json_string(kind->kind)) < 0))
			return err_set(e, -ENOMEM, "out of memory");
	return 0;
}

static int add_job(struct columns *table, const json_t *job)
{
	const char *reason;
	enum job_state state = job_state_of(job, &reason);
	char age[AGE_BYTES];

	return columns_add(
		table, (const char *[]){ job_text(job, "metadata.namespace"),
			       job_text(job, "metadata.name"), job_text(job, "kind"),
			       job_state_name(state),
			       age_of(job_text(job, "metadata.creationTimestamp"), age), reason });
}

static int print_jobs(const json_t *jobs)
{
	static const char *const titles[] = { "NAMESPACE", "NAME", "KIND", "STATUS", "AGE",
		"REASON" };
	_cleanup_(columns_release) struct columns table = { 0 };
	const json_t *job;
	size_t i;
	int r = columns_init(&table, titles, ARRAY_SIZE(titles), 0);

	json_array_foreach (jobs, i, job)
		if (r == 0)
			r = add_job(&table, job);
	if (r < 0)
		return yaml_out_answer("json", NULL);
	columns_print(&table, stdout);
	return EXIT_OK;
}

/* What programs need of a job, with its state. */
static json_t *summary_of(const json_t *job)
{
	const char *reason;
	enum job_state state = job_state_of(job, &reason);

	return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s}", "name",
		job_text(job, "metadata.name"), "namespace", job_text(job, "metadata.namespace"),
		"kind", job_text(job, "kind"), "api_version", job_text(job, "apiVersion"), "uid",
		job_text(job, "metadata.uid"), "status", job_state_name(state), "reason", reason,
		"created", job_text(job, "metadata.creationTimestamp"));
}

static json_t *summaries_of(const json_t *jobs)
{
	json_t *all = json_array();
	const json_t *job;
	size_t i;

	json_array_foreach (jobs, i, job)
		if (all && json_array_append_new(all, summary_of(job)) < 0) {
			json_decref(all);
			all = NULL;
		}
	return all ? json_pack("{s:o}", "jobs", all) : NULL;
}

int job_list_command(int argc, char **argv)
{
	struct list_options o = { .output = "table" };
	_cleanup_(kube_free_p) struct kube *kube = NULL;
	const struct job_kind *kind;
	json_t *jobs = json_array();
	struct err e = ERR_INIT;
	int status;
	int r;

	(void)option_parse_or_exit(&list_set, argc, argv, &o); /* no arguments */
	r = jobs ? job_cluster_open(&o.cluster, &kube, &e) : err_set(&e, -ENOMEM, "out of memory");
	if (r < 0) {
		json_decref(jobs);
		return job_cluster_open_fail(r, &e);
	}
	for (unsigned int i = 0; r == 0 && (kind = job_kind_at(i)); i++)
		r = list_kind(kube, &o, kind, jobs, &e);
	if (r < 0)
		status = job_cluster_fail(r, &e);
	else if (output_is_table(o.output))
		status = print_jobs(jobs);
	else
		status = yaml_out_made(o.output, summaries_of(jobs));
	json_decref(jobs);
	return status;
}

/* ---- get ------------------------------------------------------------------------------------- */

struct get_options {
	struct job_one_options one;
};

static const struct option_spec get_specs[] = {
	JOB_ONE_OPTION_ROWS(struct get_options, one),
	OUTPUT_OPTION_ROW(struct get_options, one.output, OUTPUT_CHOICES),
};

static const struct option_set get_set = {
	.program = "cachectl job get",
	.exits = { JOB_CLUSTER_EXITS },
	.arguments = "NAME",
	.about = "Shows a job and its pods; with -o yaml or json the object of the job.",
	.specs = get_specs,
	.n = ARRAY_SIZE(get_specs),
	.min_args = 1,
	.max_args = 1,
};

static int print_pods(const json_t *pods)
{
	static const char *const titles[] = { "POD", "STATUS", "NODE", "AGE" };
	_cleanup_(columns_release) struct columns table = { 0 };
	char age[AGE_BYTES];
	const json_t *pod;
	size_t i;
	int r = columns_init(&table, titles, ARRAY_SIZE(titles), 0);

	json_array_foreach (pods, i, pod)
		if (r == 0)
			r = columns_add(&table,
				(const char *[]){ job_text(pod, "metadata.name"),
					job_text(pod, "status.phase"),
					job_text(pod, "spec.nodeName"),
					age_of(job_text(pod, "metadata.creationTimestamp"), age) });
	if (r < 0)
		return yaml_out_answer("json", NULL);
	columns_print(&table, stdout);
	return EXIT_OK;
}

static int show_job(struct kube *kube, const struct get_options *o, const struct job_found *job)
{
	json_t *pods = NULL;
	json_t *jobs;
	struct err e = ERR_INIT;
	int status;
	int r;

	if (!output_is_table(o->one.output))
		return yaml_out_answer(o->one.output, job->object);
	r = job_cluster_pods(kube, job, &pods, &e);
	if (r < 0)
		return job_cluster_fail(r, &e);
	jobs = json_pack("[O]", job->object);
	status = jobs ? print_jobs(jobs) : yaml_out_answer("json", NULL);
	json_decref(jobs);
	if (status == EXIT_OK && json_array_size(pods) > 0 && sort(&pods, "metadata.name") == 0) {
		(void)printf("\n");
		status = print_pods(pods);
	}
	json_decref(pods);
	return status;
}

int job_get_command(int argc, char **argv)
{
	struct get_options o = { .one.output = "table" };
	struct job_one one;
	int status;

	(void)option_parse_or_exit(&get_set, argc, argv, &o); /* one argument */
	status = job_one_open(&o.one, argv[1], &one);
	if (status != EXIT_OK)
		return status;
	status = show_job(one.kube, &o, &one.job);
	job_one_close(&one);
	return status;
}

/* ---- events ---------------------------------------------------------------------------------- */

static const struct option_set events_set = {
	.program = "cachectl job events",
	.exits = { JOB_CLUSTER_EXITS },
	.arguments = "NAME",
	.about =
		"Shows the events of a job, of its pods and of what else has its name, the last at "
		"the end.",
	.specs = get_specs,
	.n = ARRAY_SIZE(get_specs),
	.min_args = 1,
	.max_args = 1,
};

struct of_job {
	const char *name;
	json_t *events;
};

/* Of the job, or of a name that begins with it: pods, PodGroups, Workloads. */
static int add_event(void *arg, json_t *event)
{
	const struct of_job *of = arg;
	const char *name = job_text(event, "involvedObject.name");
	size_t n = strlen(of->name);

	if (strncmp(name, of->name, n) != 0 || (name[n] != '\0' && name[n] != '-'))
		return 0;
	return add_to(of->events, event);
}

static int add_event_row(struct columns *table, const json_t *event)
{
	const char *time = job_text(event, "lastTimestamp");
	char object[FIELD_PATH_BYTES];
	char age[AGE_BYTES];

	(void)snprintf(object, sizeof(object), "%s/%s", job_text(event, "involvedObject.kind"),
		job_text(event, "involvedObject.name")); /* cut: for people */
	return columns_add(
		table, (const char *[]){ age_of(*time ? time : job_text(event, "eventTime"), age),
			       job_text(event, "type"), job_text(event, "reason"), object,
			       job_text(event, "message") });
}

static int print_events(const json_t *events)
{
	static const char *const titles[] = { "AGE", "TYPE", "REASON", "OBJECT", "MESSAGE" };
	_cleanup_(columns_release) struct columns table = { 0 };
	const json_t *event;
	size_t i;
	int r = columns_init(&table, titles, ARRAY_SIZE(titles), 0);

	json_array_foreach (events, i, event)
		if (r == 0)
			r = add_event_row(&table, event);
	if (r < 0)
		return yaml_out_answer("json", NULL);
	columns_print(&table, stdout);
	return EXIT_OK;
}

static int show_events(
	struct kube *kube, const char *output, const char *name_space, const char *name)
{
	const struct kube_kind kind = { .api_version = "v1", .plural = "events" };
	struct of_job of = { .name = name, .events = json_array() };
	struct err e = ERR_INIT;
	int status;
	int r = of.events ? kube_list(kube, &kind, &(struct kube_query){ .name_space = name_space },
				    add_event, NULL, &of, NULL, &e)
			  : -ENOMEM;

	if (r == 0)
		r = sort(&of.events, "lastTimestamp");
	if (r < 0) {
		(void)err_default(&e, r, "cannot list events"); /* returns r */
		status = job_cluster_fail(r, &e);
	} else if (output_is_table(output)) {
		status = print_events(of.events);
	} else {
		status = yaml_out_made(output, json_pack("{s:O}", "events", of.events));
	}
	json_decref(of.events);
	return status;
}

int job_events_command(int argc, char **argv)
{
	struct get_options o = { .one.output = "table" };
	struct job_one one;
	int status;

	(void)option_parse_or_exit(&events_set, argc, argv, &o); /* one argument */
	status = job_one_open(&o.one, argv[1], &one);
	if (status != EXIT_OK)
		return status;
	status = show_events(one.kube, o.one.output, o.one.cluster.name_space, argv[1]);
	job_one_close(&one);
	return status;
}

/* ---- delete ---------------------------------------------------------------------------------- */

static const struct option_set delete_set = {
	.program = "cachectl job delete",
	.exits = { JOB_CLUSTER_EXITS },
	.arguments = "NAME",
	.about = "Deletes a job, and the cluster then what the job owns.",
	.specs = get_specs,
	.n = ARRAY_SIZE(get_specs),
	.min_args = 1,
	.max_args = 1,
};

int job_delete_command(int argc, char **argv)
{
	struct get_options o = { .one.output = "table" };
	struct kube_kind kind;
	struct job_one one;
	struct err e = ERR_INIT;
	int status;
	int r;

	(void)option_parse_or_exit(&delete_set, argc, argv, &o); /* one argument */
	status = job_one_open(&o.one, argv[1], &one);
	if (status != EXIT_OK)
		return status;
	kind = job_found_kind(&one.job);
	r = kube_delete(one.kube, &kind, o.one.cluster.name_space, argv[1],
		job_text(one.job.object, "metadata.uid"),
		&(struct kube_write){ .manager = JOB_MANAGER }, &e);
	if (r < 0)
		status = job_cluster_fail(r, &e);
	else
		status = job_one_print(&o.one, &one.job, "deleted");
	job_one_close(&one);
	return status;
}

/* ---- wait ------------------------------------------------------------------------------------ */

struct wait_options {
	struct job_one_options one;
	const char *until;
	uint64_t timeout;
};

static const struct option_spec wait_specs[] = {
	OPTION_ROW(struct wait_options, until, "for", OPTION_CHOICE,
		.choices = "finished|succeeded|running|deleted",
		.help = "State to wait for (default: succeeded)"),
	OPTION_ROW(struct wait_options, timeout, "timeout", OPTION_DURATION, .metavar = "TIME",
		.help = "Time to wait at most (default: no bound)"),
	JOB_ONE_OPTION_ROWS(struct wait_options, one),
	OUTPUT_OPTION_ROW(struct wait_options, one.output, OUTPUT_CHOICES),
};

static const struct option_set wait_set = {
	.program = "cachectl job wait",
	.exits = { JOB_CLUSTER_EXITS, EXIT_JOB_FAILED },
	.arguments = "NAME",
	.about = "Waits until a job reaches a state.",
	.specs = wait_specs,
	.n = ARRAY_SIZE(wait_specs),
	.min_args = 1,
	.max_args = 1,
};

struct waiting {
	const char *until;
	bool present;
	enum job_state state;
	char reason[512];
};

enum { REACHED = 1, MISSED, GONE };

static int see_state(struct waiting *w, const json_t *object)
{
	const char *reason;

	w->state = job_state_of(object, &reason);
	(void)snprintf(w->reason, sizeof(w->reason), "%s", reason); /* cut: for people */
	if (strcmp(w->until, "running") == 0)
		return w->state == JOB_RUNNING || w->state == JOB_SUCCEEDED ? REACHED
		       : w->state == JOB_FAILED                             ? MISSED
									    : 0;
	if (strcmp(w->until, "deleted") == 0 || !job_state_is_end(w->state))
		return 0;
	return w->state == JOB_SUCCEEDED || strcmp(w->until, "finished") == 0 ? REACHED : MISSED;
}

static int see_job(void *arg, enum kube_change change, json_t *object)
{
	struct waiting *w = arg;

	switch (change) {
	case KUBE_LISTING:
		w->present = false;
		return 0;
	case KUBE_LISTED:
		return w->present ? 0 : GONE;
	case KUBE_DELETED:
		return GONE;
	case KUBE_PRESENT:
	case KUBE_ADDED:
	case KUBE_MODIFIED:
		break;
	}
	w->present = true;
	return see_state(w, object);
}

static int print_result(const struct wait_options *o, const struct waiting *w,
	const struct job_found *job, int r, struct err *e)
{
	const char *name = job_text(job->object, "metadata.name");
	bool wants_gone = strcmp(w->until, "deleted") == 0;

	if (r == REACHED || (r == GONE && wants_gone))
		return job_one_print(
			&o->one, job, r == GONE ? "deleted" : job_state_name(w->state));
	if (r == GONE) {
		(void)err_set(e, -ENOENT, "job '%s' was deleted; see `cachectl job list`", name);
		return command_fail(EXIT_JOB_NOT_FOUND, e);
	}
	if (r == MISSED)
		(void)err_set(e, -EIO, "job '%s' failed: %s; see `cachectl job events %s`", name,
			*w->reason ? w->reason : "its operator gives no reason", name);
	else if (r == -ETIMEDOUT)
		(void)err_set(e, r, "job '%s' is %s after --timeout; see `cachectl job events %s`",
			name, job_state_name(w->state), name);
	return command_fail(
		r == MISSED || r == -ETIMEDOUT ? EXIT_JOB_FAILED : job_cluster_exit(r), e);
}

int job_wait_command(int argc, char **argv)
{
	struct wait_options o = { .until = "succeeded", .one.output = "table" };
	struct waiting w = { 0 };
	struct kube_watch watch = { .see = see_job, .arg = &w };
	char field[FIELD_PATH_BYTES];
	struct job_one one;
	struct err e = ERR_INIT;
	int status;

	(void)option_parse_or_exit(&wait_set, argc, argv, &o); /* one argument */
	w.until = o.until;
	status = job_one_open(&o.one, argv[1], &one);
	if (status != EXIT_OK)
		return status;
	(void)snprintf(field, sizeof(field), "metadata.name=%s", argv[1]); /* it was found */
	watch.kind = job_found_kind(&one.job);
	watch.query =
		(struct kube_query){ .name_space = o.one.cluster.name_space, .fields = field };
	watch.end_ns = o.timeout ? clock_mono_ns() + o.timeout : 0;
	status = print_result(&o, &w, &one.job, kube_watch(one.kube, &watch, &e), &e);
	job_one_close(&one);
	return status;
}
