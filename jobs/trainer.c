/* The TrainJob of Kubeflow Trainer: the runtime has the pods, a patch of ours adds volumes and nodes to them. */
#include "base/cleanup.h"
#include "jobs/compile_internal.h"

#include <stdlib.h>
#include <string.h>

#define MANAGER "granary.io/cachectl"
#define PATCH   "spec.runtimePatches[0]"
#define JOBS    PATCH ".trainingRuntimeSpec.template.spec.replicatedJobs[0]"
#define POD     JOBS ".template.spec.template"

/* What of a pod goes where: of its container to the trainer, the rest to the patch. */
static const struct copy_row of_container[] = {
	{ "image", "spec.trainer.image" },
	{ "command", "spec.trainer.command" },
	{ "env", "spec.trainer.env" },
	{ "resources", "spec.trainer.resourcesPerNode" },
	{ 0 },
};
static const struct copy_row of_patch[] = {
	{ "spec.containers[0].volumeMounts", POD ".spec.containers[0].volumeMounts" },
	{ "spec.containers[0].securityContext", POD ".spec.containers[0].securityContext" },
	{ "spec.volumes", POD ".spec.volumes" },
	{ "spec.initContainers", POD ".spec.initContainers" },
	{ "spec.nodeSelector", POD ".spec.nodeSelector" },
	{ "spec.tolerations", POD ".spec.tolerations" },
	{ "spec.affinity", POD ".spec.affinity" },
	{ "spec.imagePullSecrets", POD ".spec.imagePullSecrets" },
	{ "spec.serviceAccountName", POD ".spec.serviceAccountName" },
	{ "spec.terminationGracePeriodSeconds", POD ".spec.terminationGracePeriodSeconds" },
	{ "metadata.labels", POD ".metadata.labels" },
	{ "metadata.annotations", POD ".metadata.annotations" },
	{ 0 },
};

/* Moves, so that what was noted about the values stays true. */
static void move_rows(struct compile *c, json_t *job, json_t *from, const struct copy_row *rows)
{
	for (; rows->from; rows++) {
		json_t *value = field_path_get(from, rows->from);

		if (value)
			put(c, job, rows->to, json_incref(value), NULL);
	}
}

/* A runtime decides these. */
static void refuse_of_pod(struct compile *c)
{
	static const char *const paths[] = { "scheduling.priority_class_name",
		"scheduling.priority", "scheduling.scheduler_name", "scheduling.gang",
		"host_network", "host_ipc", "host_pid", "image_pull_policy", "working_dir",
		"worker.port", "lifecycle.clean_pod_policy", "lifecycle.ttl_after_finished",
		"lifecycle.backoff_limit", "elastic", "restart" };

	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		const char *origin = job_spec_origin(c->spec, paths[i]);

		if (!field_path_get(c->spec->root, paths[i]))
			continue;
		(void)spec_get(c, paths[i]);
		if (origin && strcmp(origin, JOB_DEFAULT_ORIGIN) == 0)
			continue;
		spec_refuse(c, paths[i],
			"the runtime of a TrainJob decides this: set it there, or use --engine "
			"kubeflow");
	}
}

/* A number; the runtime finds out what auto, cpu and gpu are. */
static void put_processes(struct compile *c, json_t *job, long long gpus)
{
	const char *text = spec_text(c, "framework.options.nproc_per_node", NULL);
	long long given = text ? strtoll(text, NULL, 10) : 0;

	if (given > 0)
		put_number(c, job, "spec.trainer.numProcPerNode", given,
			"framework.options.nproc_per_node");
	else if (!text && gpus > 0)
		put_number(c, job, "spec.trainer.numProcPerNode", gpus, NULL);
}

void compile_trainer(struct compile *c)
{
	static const struct role role =
		ROLE("worker", "", "node", .trains = true, .runs = true, .mounts = true);
	json_t *job = add_object(c, "trainer.kubeflow.org/v1alpha1", "TrainJob", "");
	_cleanup_(json_decrefp) json_t *template = json_object();
	json_t *container;
	bool given = spec_get(c, "worker.replicas");
	const char *from =
		spec_get(c, "master.replicas") && !given ? "master.replicas" : "worker.replicas";

	refuse_of_pod(c);
	put_text(c, job, "spec.runtimeRef.name",
		spec_text(c, "framework.options.runtime", "torch-distributed"),
		spec_get(c, "framework.options.runtime") ? "framework.options.runtime" : NULL);
	put_number(c, job, "spec.trainer.numNodes", max(nodes_of(c), 1), from);
	put_processes(c, job, role_gpus(c, &role));
	(void)copy(c, job, "spec.activeDeadlineSeconds", "lifecycle.active_deadline");
	put_queue(c, job, "spec.suspend");
	if (!template)
		return;
	pod_build(c, template, &role);
	container = field_path_get(template, "spec.containers[0]");
	if (c->error != 0 || !container)
		return;
	put_text(c, job, PATCH ".manager", MANAGER, NULL);
	put_text(c, job, JOBS ".name", "node", NULL);
	put_text(c, job, POD ".spec.containers[0].name", "node", NULL);
	move_rows(c, job, container, of_container);
	move_rows(c, job, template, of_patch);
}
