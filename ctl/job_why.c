/* cachectl job why: what keeps a job from running or made it fail, the most likely first. See job_verbs.h. */
#include "base/cleanup.h"
#include "ctl/columns.h"
#include "ctl/command.h"
#include "ctl/job_cluster.h"
#include "ctl/job_verbs.h"
#include "ctl/yaml_out.h"
#include "jobs/field_path.h"

#include <stdio.h>
#include <string.h>

struct why_options {
	struct job_one_options one;
};

static const struct option_spec specs[] = {
	JOB_ONE_OPTION_ROWS(struct why_options, one),
	OUTPUT_OPTION_ROW(struct why_options, one.output, OUTPUT_CHOICES),
};

static const struct option_set set = {
	.program = "cachectl job why",
	.exits = { JOB_CLUSTER_EXITS },
	.arguments = "NAME",
	.about = "Shows what keeps a job from running, or made it fail: its state, its queue, its "
		 "claims and its\npods, the most likely cause first, each with the next command.",
	.specs = specs,
	.n = ARRAY_SIZE(specs),
	.min_args = 1,
	.max_args = 1,
};

/* What was found so far; the first failure stays. */
struct why {
	struct kube *kube;
	const struct job_found *job;
	const char *name;
	json_t *causes;
	json_t *claims; /* names that were looked up */
	int error;
	struct err *e;
};

static void add(
	struct why *w, const char *object, const char *of, const char *detail, const char *next)
{
	char text[FIELD_PATH_BYTES];

	(void)snprintf(text, sizeof(text), "%s/%s", object, of); /* cut: for people */
	if (w->error == 0 &&
		json_array_append_new(w->causes, json_pack("{s:s, s:s, s:s}", "object", text,
							 "detail", detail, "next", next)) < 0)
		w->error = err_set(w->e, -ENOMEM, "out of memory");
}

static const char *command(const char *verb, const struct why *w, char out[FIELD_PATH_BYTES])
{
	(void)snprintf(out, FIELD_PATH_BYTES, "cachectl job %s %s", verb, w->name); /* fits */
	return out;
}

/* NULL: it does not exist. */
static json_t *get(struct why *w, const char *api_version, const char *kind, const char *name)
{
	struct kube_resource found;
	struct kube_kind in_kube;
	json_t *object = NULL;
	int r = w->error;

	if (r == 0)
		r = job_cluster_kind(w->kube, api_version, kind, &found, &in_kube, w->e);
	if (r == 0)
		r = kube_get(w->kube, &in_kube, job_text(w->job->object, "metadata.namespace"),
			name, &object, w->e);
	if (r < 0 && r != -ENOENT)
		w->error = r;
	return r == 0 ? object : NULL;
}

/* ---- the job and its queue ------------------------------------------------------------------- */

static void look_at_queue(struct why *w, const char *queue)
{
	json_t *object = get(w, "kueue.x-k8s.io/v1beta1", "LocalQueue", queue);

	if (object)
		add(w, "LocalQueue", queue, "the job waits in this queue of Kueue for quota",
			"kubectl describe workloads");
	else
		add(w, "LocalQueue", queue, "queue not found in this namespace",
			"kubectl get localqueues");
	json_decref(object);
}

static void look_at_job(struct why *w)
{
	const char *queue = job_text(w->job->object, "metadata.labels[kueue.x-k8s.io/queue-name]");
	const char *reason;
	char next[FIELD_PATH_BYTES];
	enum job_state state = job_state_of(w->job->object, &reason);

	if (state == JOB_FAILED)
		add(w, w->job->kind->kind, w->name, *reason ? reason : "the job failed",
			command("logs", w, next));
	else if (state == JOB_SUSPENDED && *queue)
		look_at_queue(w, queue);
	else if (state == JOB_SUSPENDED)
		add(w, w->job->kind->kind, w->name, "the job is suspended",
			command("resume", w, next));
}

/* ---- claims ---------------------------------------------------------------------------------- */

static void look_at_claim(struct why *w, const char *name)
{
	json_t *claim;
	const char *phase;

	if (json_object_get(w->claims, name))
		return;
	claim = get(w, "v1", "PersistentVolumeClaim", name);
	phase = job_text(claim, "status.phase");
	if (!claim)
		add(w, "PersistentVolumeClaim", name, "claim not found", "kubectl get pvc");
	else if (strcmp(phase, "Bound") != 0)
		add(w, "PersistentVolumeClaim", name, "the claim is not bound to a volume",
			"kubectl describe pvc");
	json_decref(claim);
	if (w->error == 0 && json_object_set_new(w->claims, name, json_true()) < 0)
		w->error = err_set(w->e, -ENOMEM, "out of memory");
}

/* All claims below a value: templates are at other places in each kind. */
static void look_for_claims(struct why *w, const json_t *value)
{
	const char *claim = job_text(value, "persistentVolumeClaim.claimName");
	const char *key;
	json_t *item;
	size_t i;

	if (*claim && w->error == 0)
		look_at_claim(w, claim);
	json_object_foreach ((json_t *)(uintptr_t)value, key, item) /* only read */
		look_for_claims(w, item);
	json_array_foreach (value, i, item)
		look_for_claims(w, item);
}

/* ---- pods ------------------------------------------------------------------------------------ */

static void look_at_container(struct why *w, const char *pod, const json_t *status)
{
	const char *waiting = job_text(status, "state.waiting.reason");
	const char *message = job_text(status, "state.waiting.message");
	const char *ended = job_text(status, "state.terminated.reason");
	const json_t *code = field_path_get(status, "state.terminated.exitCode");
	char next[FIELD_PATH_BYTES];
	char detail[FIELD_PATH_BYTES];

	if (*waiting && strcmp(waiting, "PodInitializing") != 0 &&
		strcmp(waiting, "ContainerCreating") != 0) {
		(void)snprintf(detail, sizeof(detail), "%s: %s", waiting, message); /* cut */
		add(w, "Pod", pod, detail, command("events", w, next));
	} else if (json_integer_value(code) != 0) {
		(void)snprintf(detail, sizeof(detail), "a container ended with status %d: %s",
			(int)json_integer_value(code), ended);
		(void)snprintf(next, sizeof(next), "cachectl job logs %s --pod %s", w->name, pod);
		add(w, "Pod", pod, detail, next);
	}
}

static void look_at_pod(struct why *w, const json_t *pod)
{
	const char *name = job_text(pod, "metadata.name");
	const json_t *one;
	size_t i;

	json_array_foreach (field_path_get(pod, "status.conditions"), i, one)
		if (strcmp(job_text(one, "type"), "PodScheduled") == 0 &&
			strcmp(job_text(one, "status"), "False") == 0)
			add(w, "Pod", name, job_text(one, "message"), "kubectl describe nodes");
	json_array_foreach (field_path_get(pod, "status.initContainerStatuses"), i, one)
		look_at_container(w, name, one);
	json_array_foreach (field_path_get(pod, "status.containerStatuses"), i, one)
		look_at_container(w, name, one);
}

static void look_at_pods(struct why *w)
{
	enum job_state state = job_state_of(w->job->object, NULL);
	char next[FIELD_PATH_BYTES];
	json_t *pods = NULL;
	const json_t *pod;
	size_t i;

	if (w->error < 0)
		return;
	w->error = job_cluster_pods(w->kube, w->job, &pods, w->e);
	json_array_foreach (pods, i, pod)
		look_at_pod(w, pod);
	if (w->error == 0 && json_array_size(pods) == 0 && state == JOB_PENDING)
		add(w, w->job->kind->kind, w->name, "its operator has created no pods",
			command("events", w, next));
	json_decref(pods);
}

/* ---- the command ----------------------------------------------------------------------------- */

static int print_causes(const json_t *causes)
{
	static const char *const titles[] = { "OBJECT", "CAUSE", "NEXT" };
	_cleanup_(columns_release) struct columns table = { 0 };
	const json_t *cause;
	size_t i;
	int r = columns_init(&table, titles, ARRAY_SIZE(titles), 0);

	json_array_foreach (causes, i, cause)
		if (r == 0)
			r = columns_add(&table,
				(const char *[]){ job_text(cause, "object"),
					job_text(cause, "detail"), job_text(cause, "next") });
	if (r < 0)
		return yaml_out_answer("json", NULL);
	columns_print(&table, stdout);
	return EXIT_OK;
}

int job_why_command(int argc, char **argv)
{
	struct why_options o = { .one.output = "table" };
	struct job_one one;
	struct err e = ERR_INIT;
	struct why w = { .causes = json_array(), .claims = json_object(), .e = &e };
	int status;

	(void)option_parse_or_exit(&set, argc, argv, &o); /* one argument */
	status = job_one_open(&o.one, argv[1], &one);
	if (status == EXIT_OK) {
		w.kube = one.kube;
		w.job = &one.job;
		w.name = argv[1];
		look_at_job(&w);
		look_for_claims(&w, one.job.object);
		look_at_pods(&w);
		if (w.error < 0)
			status = job_cluster_fail(w.error, &e);
		else if (output_is_table(o.one.output))
			status = print_causes(w.causes);
		else
			status =
				yaml_out_made(o.one.output, json_pack("{s:O}", "causes", w.causes));
		job_one_close(&one);
	}
	json_decref(w.causes);
	json_decref(w.claims);
	return status;
}
