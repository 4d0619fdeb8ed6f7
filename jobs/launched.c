/* Jobs with a launcher that reaches workers by ssh: MPIJob of mpi-operator, TrainingJob of et-operator. */
#include "base/option.h"
#include "jobs/compile_internal.h"

#include <string.h>

static const struct role launcher = ROLE("launcher", "Launcher", "launcher", .runs = true);
static const struct role worker =
	ROLE("worker", "Worker", "worker", .trains = true, .mounts = true);

/* Processes of a worker: as given, else its GPUs, else 1. */
static void put_slots(struct compile *c, json_t *job)
{
	if (!copy(c, job, "spec.slotsPerWorker", "framework.options.slots_per_worker"))
		put_number(c, job, "spec.slotsPerWorker", max(role_gpus(c, &worker), 1), NULL);
}

/* `n`: of workers as given, of the launcher 1. `restart` NULL: the operator decides. */
static void put_replicas(
	struct compile *c, json_t *spec, const struct role *role, long long n, const char *restart)
{
	bool given = strcmp(role->base, "worker") == 0 && spec_get(c, "worker.replicas");
	char from[FIELD_PATH_BYTES];
	const json_t *own = restart ? role_own(c, role, "restart", from) : NULL;

	put_number(c, spec, "replicas", n, given ? "worker.replicas" : NULL);
	if (restart)
		put_text(c, spec, "restartPolicy", own ? json_string_value(own) : restart,
			own ? from : NULL);
	pod_build(c, put_object(c, spec, "template"), role);
}

/* The operator of this version runs the command of the one template in a launcher of its own, which reaches workers by kubectl. */
static void compile_mpi_v1alpha1(struct compile *c)
{
	static const struct role both =
		ROLE("worker", "", "mpi", .trains = true, .runs = true, .mounts = true);
	static const struct copy_row rows[] = {
		{ "lifecycle.backoff_limit", "spec.backoffLimit" },
		{ "lifecycle.clean_pod_policy", "spec.cleanPodPolicy" },
		{ "framework.options.mounts_on_launcher", "spec.mountsOnLauncher" },
		{ 0 },
	};
	json_t *job = add_object(c, "kubeflow.org/v1alpha1", "MPIJob", "");

	if (!option_is_choice("none|mpirun", spec_text(c, "framework.options.launch", "none")))
		spec_refuse(c, "framework.options.launch",
			"workers of an MPIJob v1alpha1 have no sshd: use mpirun, or api_version "
			"v2beta1");
	put_number(c, job, "spec.replicas", spec_number(c, "worker.replicas", 1),
		spec_get(c, "worker.replicas") ? "worker.replicas" : NULL);
	copy_rows(c, job, rows);
	put_queue(c, job, NULL);
	pod_build(c, put_object(c, job, "spec.template"), &both);
}

/* With WaitForWorkersReady the launcher comes after the workers run, so that it cannot be one of their gang. */
static void compile_mpi_v2beta1(struct compile *c)
{
	json_t *job = add_object(c, "kubeflow.org/v2beta1", "MPIJob", "");
	bool trains = spec_true(c, "framework.options.run_launcher_as_worker");
	long long workers = spec_number(c, "worker.replicas", 1);
	struct role first = launcher;

	first.trains = trains;
	first.mounts = spec_true(c, "framework.options.mounts_on_launcher") || trains;
	first.inherits = trains ? "worker" : NULL;
	put_slots(c, job);
	(void)copy(c, job, "spec.mpiImplementation", "framework.options.implementation");
	put_text(c, job, "spec.launcherCreationPolicy", "WaitForWorkersReady", NULL);
	(void)copy(c, job, "spec.runLauncherAsWorker", "framework.options.run_launcher_as_worker");
	put_replicas(c, put_object(c, job, "spec.mpiReplicaSpecs.Launcher"), &first, 1,
		spec_text(c, "restart", "OnFailure"));
	put_replicas(
		c, put_object(c, job, "spec.mpiReplicaSpecs.Worker"), &worker, workers, "Never");
	put_run_policy(c, job, workers);
}

void compile_mpi(struct compile *c)
{
	const char *version = spec_text(c, "framework.options.api_version", "v2beta1");

	if (strcmp(version, "v1alpha1") == 0)
		compile_mpi_v1alpha1(c);
	else
		compile_mpi_v2beta1(c);
}

static const struct copy_row et_rows[] = {
	{ "lifecycle.backoff_limit", "spec.backoffLimit" },
	{ "lifecycle.clean_pod_policy", "spec.cleanPodPolicy" },
	{ "restart", "spec.restartPolicy" },
	{ "elastic.min", "spec.etReplicaSpecs.worker.minReplicas" },
	{ "elastic.max", "spec.etReplicaSpecs.worker.maxReplicas" },
	{ 0 },
};

#define SUPERVISOR "job-supervisor.kube-ai.io/"

static void put_spot(struct compile *c, json_t *job)
{
	const json_t *wait = spec_get(c, "elastic.wait");

	if (spec_has(c, "spot"))
		put_text(c, job, "metadata.annotations[" SUPERVISOR "spot-instance]", "true",
			"spot");
	if (wait)
		put(c, job, "metadata.annotations[" SUPERVISOR "max-wait-time]",
			json_sprintf("%lld", (long long)json_integer_value(wait)), "elastic.wait");
}

void compile_et(struct compile *c)
{
	json_t *job = add_object(c, "kai.alibabacloud.com/v1alpha1", "TrainingJob", "");
	long long workers = spec_number(c, "worker.replicas", 1);
	struct role first = launcher;
	struct role other = worker;
	const json_t *mounts = spec_get(c, "framework.options.mounts_on_launcher");

	first.container = other.container = "et";
	first.mounts = !json_is_false(mounts); /* its charts mount them, too */
	put_slots(c, job);
	put_text(c, job, "spec.launcherAttachMode", "ssh", NULL);
	put_replicas(c, put_object(c, job, "spec.etReplicaSpecs.launcher"), &first, 1, NULL);
	put_replicas(
		c, put_object(c, job, "spec.etReplicaSpecs.worker"), &other, workers, "OnFailure");
	copy_rows(c, job, et_rows);
	put_spot(c, job);
	put_queue(c, job, NULL);
	/* Of the workers alone: the operator makes the launcher when all of them run. */
	if (gang_size(c, workers) > 0)
		add_pod_group(
			c, put_object(c, job, "spec.etReplicaSpecs.worker.template"), workers);
}
