/* cachectl job suspend, resume, scale. See job_verbs.h. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "ctl/command.h"
#include "ctl/job_cluster.h"
#include "ctl/job_verbs.h"
#include "ctl/yaml_out.h"
#include "jobs/field_path.h"

#include <stdio.h>
#include <string.h>

#define QUEUE_LABEL "metadata.labels[kueue.x-k8s.io/queue-name]"
#define STOPPED     "metadata.annotations[kubeflow-resource-stopped]"

struct change_options {
	struct job_one_options one;
};

static const struct option_spec specs[] = {
	JOB_ONE_OPTION_ROWS(struct change_options, one),
	OUTPUT_OPTION_ROW(struct change_options, one.output, OUTPUT_CHOICES),
};

static int patch_value(struct kube *kube, const struct job_found *job, const char *path,
	json_t *value, struct err *e)
{
	const struct kube_kind kind = job_found_kind(job);
	json_t *patch = json_object();
	int r = -ENOMEM;

	if (patch && field_path_set(patch, path, json_incref(value), NULL) == 0)
		r = kube_patch(kube, &kind, job_text(job->object, "metadata.namespace"),
			job_text(job->object, "metadata.name"), NULL, patch,
			&(struct kube_write){ .manager = JOB_MANAGER }, NULL, e);
	json_decref(value);
	json_decref(patch);
	return r < 0 ? err_default(e, r, "cannot change the job") : 0;
}

/* ---- suspend, resume ------------------------------------------------------------------------- */

/* Volcano takes a Command, which its controller carries out and removes. */
static int send_command(struct kube *kube, const json_t *job, bool suspend, struct err *e)
{
	const struct kube_kind kind = { .api_version = "bus.volcano.sh/v1alpha1",
		.plural = "commands" };
	char name[FIELD_PATH_BYTES];
	json_t *command;
	int r;

	(void)snprintf(name, sizeof(name), "%s-%s-%llx", job_text(job, "metadata.name"),
		suspend ? "suspend" : "resume", (unsigned long long)clock_wall_ns()); /* fits */
	command = json_pack("{s:s, s:s, s:{s:s}, s:s, s:{s:s, s:s, s:s, s:s, s:b}}", "apiVersion",
		"bus.volcano.sh/v1alpha1", "kind", "Command", "metadata", "name", name, "action",
		suspend ? "AbortJob" : "ResumeJob", "target", "apiVersion",
		job_text(job, "apiVersion"), "kind", job_text(job, "kind"), "name",
		job_text(job, "metadata.name"), "uid", job_text(job, "metadata.uid"), "controller",
		true);
	r = command ? kube_create(kube, &kind, job_text(job, "metadata.namespace"), command,
			      &(struct kube_write){ .manager = JOB_MANAGER }, NULL, e)
		    : -ENOMEM;
	json_decref(command);
	return r < 0 && r != -EEXIST ? err_default(e, r, "cannot change the job") : 0;
}

static int set_suspended(
	struct kube *kube, const struct job_found *job, bool suspend, struct err *e)
{
	const char *name = job_text(job->object, "metadata.name");
	const char *queue = job_text(job->object, QUEUE_LABEL);
	char time[CLOCK_TEXT_MAX];

	if (job_state_is_end(job_state_of(job->object, NULL)))
		return err_set(e, -EBUSY, "job '%s' has finished: submit it again", name);
	if (*queue)
		return err_set(e, -EBUSY,
			"job '%s' waits in Kueue's queue '%s', which suspends and resumes it: set "
			"`active` of its Workload",
			name, queue);
	if (job->kind->suspend)
		return patch_value(kube, job, job->kind->suspend, json_boolean(suspend), e);
	if (job->kind->engine == ENGINE_VOLCANO)
		return send_command(kube, job->object, suspend, e);
	if (strcmp(job->kind->kind, "Notebook") == 0)
		return patch_value(kube, job, STOPPED,
			suspend ? json_string(clock_text(clock_wall_ns() / CLOCK_SECOND, time))
				: json_null(),
			e);
	return err_set(e, -EINVAL, "a %s cannot be suspended: delete the job and submit it again",
		job->kind->kind);
}

static int change(const struct option_set *set, int argc, char **argv, bool suspend)
{
	struct change_options o = { .one.output = "table" };
	struct job_one one;
	struct err e = ERR_INIT;
	int status;
	int r;

	(void)option_parse_or_exit(set, argc, argv, &o); /* one argument */
	status = job_one_open(&o.one, argv[1], &one);
	if (status != EXIT_OK)
		return status;
	r = set_suspended(one.kube, &one.job, suspend, &e);
	if (r < 0)
		status = job_cluster_fail(r, &e);
	else
		status = job_one_print(&o.one, &one.job, suspend ? "suspended" : "resumed");
	job_one_close(&one);
	return status;
}

int job_suspend_command(int argc, char **argv)
{
	static const struct option_set set = {
		.program = "cachectl job suspend",
		.exits = { EXIT_LINT, JOB_CLUSTER_EXITS },
		.arguments = "NAME",
		.about = "Ends the pods of a job, which can be resumed.",
		.specs = specs,
		.n = ARRAY_SIZE(specs),
		.min_args = 1,
		.max_args = 1,
	};

	return change(&set, argc, argv, true);
}

int job_resume_command(int argc, char **argv)
{
	static const struct option_set set = {
		.program = "cachectl job resume",
		.exits = { EXIT_LINT, JOB_CLUSTER_EXITS },
		.arguments = "NAME",
		.about = "Starts the pods of a suspended job again.",
		.specs = specs,
		.n = ARRAY_SIZE(specs),
		.min_args = 1,
		.max_args = 1,
	};

	return change(&set, argc, argv, false);
}

/* ---- scale ----------------------------------------------------------------------------------- */

static const struct option_set scale_set = {
	.program = "cachectl job scale",
	.exits = { EXIT_LINT, JOB_CLUSTER_EXITS },
	.arguments = "NAME WORKERS",
	.about = "Changes the number of workers of an elastic job.",
	.specs = specs,
	.n = ARRAY_SIZE(specs),
	.min_args = 2,
	.max_args = 2,
};

/* The bounds that the job names; 0: none. */
static void find_bounds(const json_t *job, long long *ret_min, long long *ret_max)
{
	static const char *const at[] = { "spec.elasticPolicy", "spec.etReplicaSpecs.worker" };

	*ret_min = 0;
	*ret_max = 0;
	for (size_t i = 0; i < ARRAY_SIZE(at); i++) {
		const json_t *bounds = field_path_get(job, at[i]);

		*ret_min += json_integer_value(json_object_get(bounds, "minReplicas"));
		*ret_max += json_integer_value(json_object_get(bounds, "maxReplicas"));
	}
}

static int check_scale(const struct job_found *job, long long workers, struct err *e)
{
	const char *name = job_text(job->object, "metadata.name");
	long long least;
	long long most;

	find_bounds(job->object, &least, &most);
	if (!job->kind->workers || !field_path_get(job->object, job->kind->workers))
		return err_set(e, -EINVAL,
			"job '%s': a %s cannot be scaled: submit it again with "
			"another number of workers",
			name, job->kind->kind);
	if (job->kind->engine == ENGINE_KUBEFLOW && most == 0)
		return err_set(e, -EINVAL,
			"job '%s' is not elastic: submit it with --min-workers and --max-workers",
			name);
	if (workers < 1 || (least && workers < least) || (most && workers > most))
		return err_set(e, -EINVAL,
			"job '%s' cannot have %lld workers; allowed: %lld to %lld", name, workers,
			least ? least : 1, most ? most : 1000000);
	return 0;
}

int job_scale_command(int argc, char **argv)
{
	struct change_options o = { .one.output = "table" };
	struct job_one one;
	struct err e = ERR_INIT;
	char *end;
	long long workers;
	int status;
	int r;

	(void)option_parse_or_exit(&scale_set, argc, argv, &o); /* two arguments */
	workers = strtoll(argv[2], &end, 10);
	if (*end || end == argv[2] || workers < 1 || workers > 1000000) {
		(void)err_set(
			&e, -EINVAL, "invalid number of workers '%s': use 1 to 1000000", argv[2]);
		return command_fail(EXIT_USAGE, &e);
	}
	status = job_one_open(&o.one, argv[1], &one);
	if (status != EXIT_OK)
		return status;
	r = check_scale(&one.job, workers, &e);
	if (r == 0)
		r = patch_value(
			one.kube, &one.job, one.job.kind->workers, json_integer(workers), &e);
	if (r < 0)
		status = job_cluster_fail(r, &e);
	else
		status = job_one_print(&o.one, &one.job, "scaled");
	job_one_close(&one);
	return status;
}
