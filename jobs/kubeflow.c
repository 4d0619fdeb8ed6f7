/* PyTorchJob, TFJob and XGBoostJob of kubeflow.org/v1: the same but for names and roles. */
#include "jobs/compile_internal.h"

#include <string.h>

static const struct kubeflow_kind {
	enum job_type_id type;
	const char *kind;
	const char *replicas; /* path of the replica specs */
	const char *always;   /* role that there is without being given */
	struct role roles[4];
} kinds[] = {
	{ JOB_PYTORCH, "PyTorchJob", "spec.pytorchReplicaSpecs", "master",
		{ ROLE("master", "Master", "pytorch", .port = "pytorchjob-port", .trains = true,
			  .runs = true, .mounts = true, .inherits = "worker"),
			ROLE("worker", "Worker", "pytorch", .port = "pytorchjob-port",
				.trains = true, .runs = true, .mounts = true) } },
	{ JOB_TF, "TFJob", "spec.tfReplicaSpecs", NULL,
		{ ROLE("chief", "Chief", "tensorflow", .port = "tfjob-port", .runs = true,
			  .mounts = true),
			ROLE("worker", "Worker", "tensorflow", .port = "tfjob-port", .trains = true,
				.runs = true, .mounts = true),
			ROLE("ps", "PS", "tensorflow", .port = "tfjob-port", .runs = true,
				.mounts = true),
			ROLE("evaluator", "Evaluator", "tensorflow", .port = "tfjob-port",
				.runs = true, .mounts = true) } },
	{ JOB_XGBOOST, "XGBoostJob", "spec.xgbReplicaSpecs", "master",
		{ ROLE("master", "Master", "xgboost", .port = "xgboostjob-port", .trains = true,
			  .runs = true, .mounts = true, .inherits = "worker"),
			ROLE("worker", "Worker", "xgboost", .port = "xgboostjob-port",
				.trains = true, .runs = true, .mounts = true) } },
};

static const struct copy_row run_policy[] = {
	{ "lifecycle.clean_pod_policy", "spec.runPolicy.cleanPodPolicy" },
	{ "lifecycle.backoff_limit", "spec.runPolicy.backoffLimit" },
	{ "lifecycle.active_deadline", "spec.runPolicy.activeDeadlineSeconds" },
	{ "lifecycle.ttl_after_finished", "spec.runPolicy.ttlSecondsAfterFinished" },
	{ 0 },
};

void put_run_policy(struct compile *c, json_t *job, long long pods)
{
	long long gang = gang_size(c, pods);

	copy_rows(c, job, run_policy);
	put_queue(c, job, "spec.runPolicy.suspend");
	if (gang == 0)
		return;
	put_number(c, job, "spec.runPolicy.schedulingPolicy.minAvailable", gang, "scheduling.gang");
	if (by_volcano(c))
		(void)copy(c, job, "spec.runPolicy.schedulingPolicy.queue", "scheduling.queue");
	(void)copy(c, job, "spec.runPolicy.schedulingPolicy.priorityClass",
		"scheduling.priority_class_name"); /* both optional */
}

bool is_elastic(struct compile *c)
{
	return c->type->id == JOB_PYTORCH && c->engine == ENGINE_KUBEFLOW && spec_has(c, "elastic");
}

/* The pods of a role; 0: it has none. Elastic workers need no master: it would be a second place to meet. */
static long long replicas_of(
	struct compile *c, const struct kubeflow_kind *kind, const struct role *role, char *from)
{
	bool always = kind->always && strcmp(kind->always, role->base) == 0;
	const json_t *value;
	long long n;

	if (is_elastic(c) && always)
		return 0;
	value = role_own(c, role, "replicas", from);
	if (!is_elastic(c))
		return value ? json_integer_value(value) : always ? 1 : 0;
	n = spec_number(c, "master.replicas", 0) + json_integer_value(value);
	if (n > 0)
		return n;
	(void)snprintf(from, FIELD_PATH_BYTES, "elastic.max"); /* fits */
	return spec_number(c, from, 0);
}

/* On a node that may be reclaimed a pod that was ended (143) starts again, and one that failed does not. */
static void put_restart(struct compile *c, json_t *spec, const json_t *restart, const char *from)
{
	if (restart)
		put(c, spec, "restartPolicy", json_deep_copy(restart), from);
	else if (is_elastic(c) && spec_has(c, "spot"))
		put_text(c, spec, "restartPolicy", "ExitCode", "spot");
	else
		put_text(c, spec, "restartPolicy", "OnFailure", NULL);
}

static long long put_role(
	struct compile *c, json_t *job, const struct kubeflow_kind *kind, const struct role *role)
{
	char path[FIELD_PATH_BYTES];
	char from[FIELD_PATH_BYTES] = "";
	long long n = replicas_of(c, kind, role, from);
	const json_t *restart;
	json_t *spec;

	if (n == 0)
		return 0;
	spec = put_object(c, job, field_path_key(kind->replicas, role->key, path));
	put_number(c, spec, "replicas", n, *from ? from : NULL);
	restart = role_get(c, role, "restart", from);
	put_restart(c, spec, restart, from);
	pod_build(c, put_object(c, spec, "template"), role);
	return n;
}

/*
 * `min` to `max` workers that meet at worker 0, without a master. Both bounds are always written: training-operator sets a missing
 * one to the other, and the job is then of a fixed size.
 */
static void put_elastic(struct compile *c, json_t *job, const struct kubeflow_kind *kind)
{
	char from[FIELD_PATH_BYTES] = "";
	long long n;

	if (!is_elastic(c))
		return;
	n = replicas_of(c, kind, &kind->roles[1], from);
	put_text(c, job, "spec.elasticPolicy.rdzvBackend", "c10d", NULL);
	if (!copy(c, job, "spec.elasticPolicy.minReplicas", "elastic.min"))
		put_number(c, job, "spec.elasticPolicy.minReplicas", 1, NULL);
	if (!copy(c, job, "spec.elasticPolicy.maxReplicas", "elastic.max"))
		put_number(c, job, "spec.elasticPolicy.maxReplicas", n, *from ? from : NULL);
	(void)copy(c, job, "spec.elasticPolicy.maxRestarts", "lifecycle.backoff_limit");
}

static void put_success_policy(struct compile *c, json_t *job)
{
	const char *policy = spec_text(c, "lifecycle.success_policy", NULL);

	if (policy) /* Arena's name of the operator's default */
		put_text(c, job, "spec.successPolicy",
			strcmp(policy, "ChiefWorker") == 0 ? "" : policy,
			"lifecycle.success_policy");
}

void compile_kubeflow(struct compile *c)
{
	const struct kubeflow_kind *kind = NULL;
	long long pods = 0;
	json_t *job;

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
		if (kinds[i].type == c->type->id)
			kind = &kinds[i];
	ensure(kind);
	job = add_object(c, "kubeflow.org/v1", kind->kind, "");
	if (kind->type == JOB_PYTORCH) {
		(void)copy(c, job, "spec.nprocPerNode", "framework.options.nproc_per_node");
		put_elastic(c, job, kind);
	}
	if (kind->type == JOB_TF)
		put_success_policy(c, job);
	for (size_t i = 0; i < ARRAY_SIZE(kind->roles) && kind->roles[i].base; i++)
		pods += put_role(c, job, kind, &kind->roles[i]);
	if (pods == 0) {
		spec_refuse(c, "worker",
			"the job has no pods: give replicas of a role, such as worker");
	}
	put_run_policy(c, job, pods);
}
