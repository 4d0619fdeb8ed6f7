/* The linter: right objects have no findings, and each broken one is found by its rule. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "jobs/field_path.h"
#include "jobs/lint.h"
#include "jobs/manifest.h"

#define POD(name) "template: {spec: {containers: [{name: " name ", image: i:1}]}}"

static const struct {
	const char *name;
	const char *yaml;
} bases[] = {
	{ "pytorch",
		"{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {name: a, "
		"creationTimestamp: null}, spec: {"
		"runPolicy: {cleanPodPolicy: Running, backoffLimit: null}, pytorchReplicaSpecs: {"
		"Master: {replicas: 1, restartPolicy: OnFailure, " POD(
			"pytorch") "}, "
				   "Worker: {replicas: 3, restartPolicy: OnFailure, " POD(
					   "pytorch") "}}}}" },
	{ "elastic", "{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {name: a}, spec: {"
		     "elasticPolicy: {minReplicas: 1, maxReplicas: 4, rdzvBackend: c10d}, "
		     "pytorchReplicaSpecs: {Worker: {replicas: 3, " POD("pytorch") "}}}}" },
	{ "tf", "{apiVersion: kubeflow.org/v1, kind: TFJob, metadata: {name: a}, spec: "
		"{tfReplicaSpecs: {"
		"PS: {replicas: 1, " POD("tensorflow") "}, Worker: {replicas: 2, " POD(
			"tensorflow") "}}}}" },
	{ "xgb", "{apiVersion: kubeflow.org/v1, kind: XGBoostJob, metadata: {name: a}, spec: "
		 "{xgbReplicaSpecs: {"
		 "Master: {replicas: 1, " POD("xgboost") "}}}}" },
	{ "mpi", "{apiVersion: kubeflow.org/v2beta1, kind: MPIJob, metadata: {name: a}, spec: "
		 "{slotsPerWorker: 1, "
		 "launcherCreationPolicy: WaitForWorkersReady, mpiReplicaSpecs: {"
		 "Launcher: {replicas: 1, " POD("l") "}, Worker: {replicas: 2, " POD("w") "}}}}" },
	{ "mpi-old",
		"{apiVersion: kubeflow.org/v1alpha1, kind: MPIJob, metadata: {name: a}, spec: {"
		"replicas: 2, cleanPodPolicy: Running, " POD("mpi") "}}" },
	{ "vc", "{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, metadata: {name: a}, spec: "
		"{minAvailable: 3, "
		"schedulerName: volcano, plugins: {svc: [], pytorch: [--master=m, --worker=w, "
		"--port=1]}, "
		"policies: [{events: [PodEvicted, PodFailed], action: RestartJob}], tasks: ["
		"{name: m, replicas: 1, " POD("c") "}, {name: w, replicas: 2, " POD("c") "}]}}" },
	{ "et", "{apiVersion: kai.alibabacloud.com/v1alpha1, kind: TrainingJob, metadata: {name: "
		"a}, spec: {"
		"etReplicaSpecs: {launcher: {replicas: 1, " POD(
			"et") "}, "
			      "worker: {replicas: 2, minReplicas: 1, maxReplicas: 4, " POD(
				      "et") "}}}}" },
	{ "train", "{apiVersion: trainer.kubeflow.org/v1alpha1, kind: TrainJob, metadata: {name: "
		   "a}, spec: {"
		   "runtimeRef: {name: t}, trainer: {numNodes: 2}}}" },
	{ "notebook",
		"{apiVersion: kubeflow.org/v1, kind: Notebook, metadata: {name: a}, spec: {" POD(
			"a") "}}" },
	{ "job", "{apiVersion: batch/v1, kind: Job, metadata: {name: a}, spec: {template: {spec: "
		 "{restartPolicy: Never, "
		 "containers: [{name: c, image: i:1}]}}}, status: {active: 1}}" },
	{ "group", "{apiVersion: scheduling.volcano.sh/v1beta1, kind: PodGroup, metadata: {name: "
		   "a-gang}, "
		   "spec: {minMember: 2, minResources: {cpu: '2'}}}" },
	{ "plugins", "{apiVersion: scheduling.x-k8s.io/v1alpha1, kind: PodGroup, metadata: {name: "
		     "a-gang}, "
		     "spec: {minMember: 2}}" },
};

#define MASTER    "spec.pytorchReplicaSpecs.Master"
#define WORKER    "spec.pytorchReplicaSpecs.Worker"
#define CONTAINER WORKER ".template.spec.containers[0]"
#define VOLUMES   WORKER ".template.spec.volumes"
#define VC        "spec.tasks[0].template"

/* `edits`: PATH=JSON or !PATH, separated by newlines. */
static const struct {
	const char *rule;
	const char *base;
	const char *edits;
} broken[] = {
	{ "kind-missing", "pytorch", "!kind" },
	{ "api-missing", "pytorch", "!apiVersion" },
	{ "api-version", "xgb", "apiVersion=\"xgboostjob.kubeflow.org/v1alpha1\"" },
	{ "api-version", "pytorch", "apiVersion=\"kubeflow.org/v1beta1\"" },
	{ "api-version", "vc", "apiVersion=\"batch.volcano.sh/v1beta1\"" },
	{ "name-missing", "pytorch", "!metadata.name" },
	{ "name-missing", "job", "!metadata" },
	{ "name-missing", "job", "metadata.name=null" },
	{ "schema", "job", "spec.template=null" },
	{ "name", "pytorch", "metadata.name=\"9lives\"" },
	{ "name", "vc", "metadata.name=\"Upper\"" },
	{ "name-length", "pytorch",
		"metadata.name=\"a2345678901234567890123456789012345678901234567890123456\"" },
	{ "label", "pytorch", "metadata.labels={\"a\":\"no blanks\"}" },
	{ "schema", "pytorch", "spec.nosuchfield=1" },
	{ "schema", "pytorch", WORKER ".replicas=\"three\"" },
	{ "schema", "mpi", "spec.mpiImplementation=\"OMPI\"" },
	{ "schema", "vc", "spec.tasks[0].template.spec.container=[]" },
	{ "schema", "et", "spec.restartPolicy=\"Always\"" },
	{ "schema", "job", "!spec.template" },
	{ "schema", "pytorch", CONTAINER ".resources={\"limits\":{\"cpu\":\"4 cores\"}}" },
	{ "clean-pod-policy", "pytorch", "spec.runPolicy.cleanPodPolicy=\"Sometimes\"" },
	{ "clean-pod-policy", "mpi", "spec.runPolicy={\"cleanPodPolicy\":\"Never\"}" },
	{ "schema", "mpi-old", "spec.slotsPerWorker=1" },
	{ "image", "mpi-old", "!spec.template.spec.containers[0].image" },
	{ "kueue-unused", "mpi-old", "metadata.labels={\"kueue.x-k8s.io/queue-name\":\"q\"}" },
	{ "name-length", "mpi-old",
		"metadata.name=\"a2345678901234567890123456789012345678901234567890123456\"" },
	{ "clean-pod-policy", "mpi-old", "spec.cleanPodPolicy=\"Never\"" },
	{ "clean-pod-policy", "et", "spec.cleanPodPolicy=\"Sometimes\"" },
	{ "restart-policy", "pytorch", WORKER ".restartPolicy=\"Sometimes\"" },
	{ "restart-policy", "tf", "spec.tfReplicaSpecs.PS.restartPolicy=\"No\"" },
	{ "restart-policy", "xgb", "spec.xgbReplicaSpecs.Master.restartPolicy=\"No\"" },
	{ "restart-policy", "mpi", "spec.mpiReplicaSpecs.Worker.restartPolicy=\"Always\"" },
	{ "restart-policy", "et", "spec.etReplicaSpecs.worker.restartPolicy=\"No\"" },
	{ "restart-policy", "vc", VC ".spec.restartPolicy=\"ExitCode\"" },
	{ "job-restart-policy", "et", "spec.restartPolicy=\"Always\"" },
	{ "success-policy", "tf", "spec.successPolicy=\"ChiefWorker\"" },
	{ "managed-by", "pytorch", "spec.runPolicy.managedBy=\"me\"" },
	{ "managed-by", "mpi",
		"spec.runPolicy={\"managedBy\":\"kubeflow.org/training-operator\"}" },
	{ "backoff-limit", "pytorch", "spec.runPolicy.backoffLimit=-1" },
	{ "deadline", "pytorch", "spec.runPolicy.activeDeadlineSeconds=0" },
	{ "ttl", "pytorch", "spec.runPolicy.ttlSecondsAfterFinished=-5" },
	{ "role", "pytorch",
		"spec.pytorchReplicaSpecs.Chief={\"replicas\":1,\"template\":{\"spec\":{"
		"\"containers\":[{\"name\":\"pytorch\",\"image\":\"i\"}]}}}" },
	{ "container-name", "pytorch", CONTAINER ".name=\"main\"" },
	{ "container-name", "tf",
		"spec.tfReplicaSpecs.Worker.template.spec.containers[0].name=\"tf\"" },
	{ "workers-zero", "pytorch", WORKER ".replicas=0" },
	{ "workers-zero", "mpi", "spec.mpiReplicaSpecs.Worker.replicas=0" },
	{ "counts", "pytorch", MASTER ".replicas=2" },
	{ "no-master", "pytorch", "!" MASTER },
	{ "elastic-master", "pytorch", "spec.elasticPolicy={\"minReplicas\":1,\"maxReplicas\":4}" },
	{ "elastic-worker", "pytorch",
		"spec.elasticPolicy={\"minReplicas\":1,\"maxReplicas\":4}\n!" WORKER },
	{ "elastic-range", "elastic", "spec.elasticPolicy.minReplicas=5" },
	{ "elastic-range", "elastic", WORKER ".replicas=9" },
	{ "elastic-bound", "elastic", "!spec.elasticPolicy.maxReplicas" },
	{ "elastic-bound", "elastic", "!spec.elasticPolicy.minReplicas" },
	{ "elastic-backend", "elastic", "spec.elasticPolicy.rdzvBackend=\"zookeeper\"" },
	{ "nproc-twice", "elastic", "spec.nprocPerNode=\"8\"\nspec.elasticPolicy.nProcPerNode=8" },
	{ "nproc", "pytorch", "spec.nprocPerNode=\"eight\"" },
	{ "chiefs", "tf",
		"spec.tfReplicaSpecs.Chief={\"replicas\":2,\"template\":{\"spec\":{\"containers\":["
		"{\"name\":\"tensorflow\",\"image\":\"i\"}]}}}" },
	{ "ps-alone", "tf", "!spec.tfReplicaSpecs.Worker" },
	{ "launch-rank", "pytorch",
		CONTAINER ".command=[\"sh\",\"-c\",\"torchrun --node-rank=$RANK t.py\"]" },
	{ "launcher", "mpi", "!spec.mpiReplicaSpecs.Launcher" },
	{ "launcher", "mpi", "spec.mpiReplicaSpecs.Launcher.replicas=2" },
	{ "worker", "mpi", "!spec.mpiReplicaSpecs.Worker" },
	{ "gang-launcher", "mpi", "spec.runPolicy={\"schedulingPolicy\":{\"minAvailable\":3}}" },
	{ "worker-command", "mpi",
		"spec.mpiReplicaSpecs.Worker.template.spec.containers[0].command=[\"tail\","
		"\"9\"]" },
	{ "name-length", "mpi",
		"metadata.name=\"a23456789012345678901234567890123456789012345678901234567\"" },
	{ "creation-policy", "mpi", "spec.launcherCreationPolicy=\"Later\"" },
	{ "slots", "mpi", "spec.slotsPerWorker=0" },
	{ "mpi", "mpi", "spec.mpiImplementation=\"Open MPI\"" },
	{ "no-tasks", "vc", "spec.tasks=[]" },
	{ "task-twice", "vc", "spec.tasks[1].name=\"m\"" },
	{ "task-name", "vc", "spec.tasks[1].name=\"W_1\"" },
	{ "min-available", "vc", "spec.minAvailable=99" },
	{ "task-min-available", "vc", "spec.tasks[1].minAvailable=3" },
	{ "task-replicas", "vc", "spec.tasks[1].replicas=-1" },
	{ "action", "vc", "spec.policies[0].action=\"Reboot\"" },
	{ "action", "vc",
		"spec.tasks[0].policies=[{\"event\":\"PodFailed\",\"action\":\"Restart\"}]" },
	{ "event", "vc", "spec.policies[0].events[0]=\"PodGone\"" },
	{ "event", "vc", "spec.policies=[{\"event\":\"Evicted\",\"action\":\"RestartJob\"}]" },
	{ "policy-both", "vc", "spec.policies[0].exitCode=3" },
	{ "policy-none", "vc", "spec.policies=[{\"action\":\"RestartJob\"}]" },
	{ "policy-exit-zero", "vc", "spec.policies=[{\"exitCode\":0,\"action\":\"RestartJob\"}]" },
	{ "evicted-alone", "vc",
		"spec.policies=[{\"event\":\"PodEvicted\",\"action\":\"RestartJob\"}]" },
	{ "plugin", "vc", "spec.plugins.nosuch=[]" },
	{ "plugin-task", "vc", "spec.plugins.pytorch=[\"--master=boss\",\"--worker=w\"]" },
	{ "plugin-option", "vc",
		"spec.plugins.pytorch=[\"--master=m\",\"--worker=w\",\"--fast\"]" },
	{ "plugin-svc", "vc", "!spec.plugins.svc" },
	{ "plugin-mpi", "vc", "spec.plugins.mpi=[\"--master=boss\"]" },
	{ "depends-on", "vc", "spec.tasks[1].dependsOn={\"name\":[\"nobody\"]}" },
	{ "depends-circle", "vc",
		"spec.tasks[1].dependsOn={\"name\":[\"m\"]}\nspec.tasks[0].dependsOn={\"name\":["
		"\"w\"]}" },
	{ "gang-launcher", "et",
		"spec.etReplicaSpecs.launcher.template.metadata={\"annotations\":{\"scheduling."
		"k8s.io/group-name\":\"g\"}}" },
	{ "et-launcher", "et", "!spec.etReplicaSpecs.launcher" },
	{ "et-worker", "et", "!spec.etReplicaSpecs.worker" },
	{ "et-range", "et", "spec.etReplicaSpecs.worker.replicas=9" },
	{ "et-min-max", "et", "spec.etReplicaSpecs.worker.minReplicas=5" },
	{ "notebook-container", "notebook", "metadata.name=\"b\"" },
	{ "job-restart", "job", "!spec.template.spec.restartPolicy" },
	{ "job-indexed", "job", "spec.completionMode=\"Indexed\"" },
	{ "runtime", "train", "!spec.runtimeRef" },
	{ "nodes", "train", "spec.trainer.numNodes=0" },
	{ "gang-size", "pytorch", "spec.runPolicy.schedulingPolicy={\"minAvailable\":5}" },
	{ "gang-part", "pytorch", "spec.runPolicy.schedulingPolicy={\"minAvailable\":2}" },
	{ "gang-part", "vc", "spec.minAvailable=1" },
	{ "kueue-unused", "vc", "metadata.labels={\"kueue.x-k8s.io/queue-name\":\"q\"}" },
	{ "kueue-unused", "et", "metadata.labels={\"kueue.x-k8s.io/queue-name\":\"q\"}" },
	{ "suspended", "pytorch", "spec.runPolicy.suspend=true" },
	{ "suspended", "job", "spec.suspend=true" },
	{ "two-gangs", "vc",
		VC ".metadata={\"labels\":{\"scheduling.x-k8s.io/pod-group\":\"g\"}}" },
	{ "scheduler", "vc", VC ".spec.schedulerName=\"default-scheduler\"" },
	{ "scheduler", "pytorch", WORKER ".template.spec.schedulerName=\"volcano\"" },
	{ "podgroup-resources", "group", "!spec.minResources" },
	{ "podgroup-scheduler", "job",
		"spec.template.metadata={\"annotations\":{\"scheduling.k8s.io/"
		"group-name\":\"g\"}}" },
	{ "image", "pytorch", "!" CONTAINER ".image" },
	{ "image", "job", "spec.template.spec.initContainers=[{\"name\":\"i\"}]" },
	{ "containers", "job", "!spec.template.spec" },
	{ "containers", "pytorch", "!" WORKER ".template.spec.containers" },
	{ "container-twice", "pytorch",
		WORKER ".template.spec.containers[1]={\"name\":\"pytorch\",\"image\":\"i\"}" },
	{ "volume-missing", "train",
		"spec.runtimePatches=[{\"manager\":\"m\",\"trainingRuntimeSpec\":{\"template\":{"
		"\"spec\":{\"replicatedJobs\":[{\"name\":\"node\",\"template\":{\"spec\":{"
		"\"template\":{\"spec\":{\"containers\":[{\"name\":\"node\","
		"\"volumeMounts\":[{\"name\":\"v\",\"mountPath\":\"/v\"}]}]}}}}}]}}}}]" },
	{ "volume-missing", "job",
		"spec.template.spec.initContainers=[{\"name\":\"i\",\"image\":\"i\","
		"\"volumeMounts\":[{\"name\":\"v\",\"mountPath\":\"/v\"}]}]" },
	{ "container-twice", "job",
		"spec.template.spec.initContainers=[{\"name\":\"c\",\"image\":\"i\"}]" },
	{ "volume-missing", "pytorch",
		CONTAINER ".volumeMounts=[{\"name\":\"v\",\"mountPath\":\"/v\"}]" },
	{ "volume-twice", "pytorch",
		VOLUMES "=[{\"name\":\"v\",\"emptyDir\":{}},{\"name\":\"v\",\"emptyDir\":{}}]" },
	{ "mount-twice", "pytorch",
		VOLUMES
		"=[{\"name\":\"v\",\"emptyDir\":{}},{\"name\":\"w\",\"emptyDir\":{}}]\n" CONTAINER
		".volumeMounts=[{\"name\":\"v\",\"mountPath\":\"/"
		"v\"},{\"name\":\"w\",\"mountPath\":\"/v\"}]" },
	{ "mount-path", "pytorch",
		VOLUMES "=[{\"name\":\"v\",\"emptyDir\":{}}]\n" CONTAINER
			".volumeMounts=[{\"name\":\"v\",\"mountPath\":\"v\"}]" },
	{ "env-twice", "pytorch",
		CONTAINER
		".env=[{\"name\":\"A\",\"value\":\"1\"},{\"name\":\"A\",\"value\":\"2\"}]" },
	{ "request-limit", "pytorch",
		CONTAINER
		".resources={\"requests\":{\"memory\":\"2Gi\"},\"limits\":{\"memory\":\"1G\"}}" },
	{ "device-unequal", "pytorch",
		CONTAINER ".resources={\"requests\":{\"nvidia.com/"
			  "gpu\":1},\"limits\":{\"nvidia.com/gpu\":2}}" },
	{ "device-unequal", "pytorch",
		CONTAINER ".resources={\"requests\":{\"nvidia.com/gpu\":1}}" },
	{ "device-fraction", "pytorch",
		CONTAINER ".resources={\"limits\":{\"nvidia.com/gpu\":\"500m\"}}" },
	{ "rdma-lock", "pytorch",
		CONTAINER ".resources={\"limits\":{\"rdma/hca\":1,\"cpu\":1,\"memory\":1}}" },
	{ "rdma-aligned", "pytorch", CONTAINER ".resources={\"limits\":{\"rdma/hca\":1}}" },
	{ "shm-unbounded", "pytorch",
		VOLUMES "=[{\"name\":\"v\",\"emptyDir\":{\"medium\":\"Memory\"}}]" },
	{ "shm-memory", "pytorch",
		VOLUMES "=[{\"name\":\"v\",\"emptyDir\":{\"medium\":\"Memory\",\"sizeLimit\":"
			"\"2Gi\"}}]\n" CONTAINER ".resources={\"limits\":{\"memory\":\"1Gi\"}}" },
	{ "dataset-read-only", "pytorch",
		VOLUMES "=[{\"name\":\"v\",\"csi\":{\"driver\":\"csi.granary.io\","
			"\"volumeAttributes\":{\"dataset\":\"d\"}}}]" },
	{ "dataset-attribute", "pytorch",
		VOLUMES
		"=[{\"name\":\"v\",\"csi\":{\"driver\":\"csi.granary.io\",\"readOnly\":true,"
		"\"volumeAttributes\":{\"dataset\":\"d\",\"genration\":\"4\"}}}]" },
	{ "dataset-name", "pytorch",
		VOLUMES
		"=[{\"name\":\"v\",\"csi\":{\"driver\":\"csi.granary.io\",\"readOnly\":true}}]" },
	{ "host-dns", "pytorch", WORKER ".template.spec.hostNetwork=true" },
};

static const char *base_yaml(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(bases); i++)
		if (strcmp(bases[i].name, name) == 0)
			return bases[i].yaml;
	fail_msg("no base %s", name);
	return NULL;
}

static void add_base(json_t *objects, const char *name)
{
	const char *yaml = base_yaml(name);
	struct err e = ERR_INIT;

	if (manifest_read(name, yaml, strlen(yaml), objects, &e) < 0)
		fail_msg("%s", e.text);
}

/* Removes the last step of a path. */
static void remove_field(json_t *object, const char *path)
{
	char around[FIELD_PATH_BYTES];
	char *dot;

	(void)snprintf(around, sizeof(around), "%s", path);
	dot = strrchr(around, '.');
	if (dot) {
		*dot = '\0';
		object = field_path_get(object, around);
	}
	assert_int_equal(json_object_del(object, dot ? dot + 1 : around), 0);
}

static void edit(json_t *object, const char *edits)
{
	char *copy = strdup(edits);
	char *rest = copy;
	char *line;

	while ((line = strsep(&rest, "\n"))) {
		char *equals = strchr(line, '=');

		if (line[0] == '!') {
			remove_field(object, line + 1);
			continue;
		}
		*equals = '\0';
		assert_int_equal(field_path_set(object, line,
					 json_loads(equals + 1, JSON_DECODE_ANY, NULL), NULL),
			0);
	}
	free(copy);
}

static json_t *lint(const json_t *objects)
{
	json_t *findings = json_array();
	struct err e = ERR_INIT;

	assert_int_equal(job_lint(objects, findings, &e), 0);
	return findings;
}

static bool has_rule(const json_t *findings, const char *rule)
{
	const json_t *one;
	size_t i;

	json_array_foreach (findings, i, one)
		if (strcmp(json_string_value(json_object_get(one, "rule")), rule) == 0)
			return true;
	return false;
}

static void items_are_objects(void **state)
{
	static const struct {
		const char *yaml;
		size_t n; /* 0: refused */
	} lists[] = {
		{ "{kind: List, apiVersion: v1, items: [1, foo]}", 0 },
		{ "{kind: List, apiVersion: v1, items: [{kind: A}, {kind: B}]}", 2 },
		{ "{kind: List, items: [{kind: A}, {kind: List, items: [{kind: B}, {kind: C}]}]}",
			3 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
		json_t *objects = json_array();
		struct err e = ERR_INIT;

		assert_int_equal(
			manifest_read("m", lists[i].yaml, strlen(lists[i].yaml), objects, &e),
			lists[i].n ? 0 : -EINVAL);
		if (lists[i].n)
			assert_int_equal(json_array_size(objects), lists[i].n);
		else
			assert_non_null(strstr(e.text, "m:1: is not an object"));
		json_decref(objects);
	}
}

static void right_objects_pass(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bases); i++) {
		json_t *objects = json_array();
		json_t *findings;

		add_base(objects, bases[i].name);
		findings = lint(objects);
		if (json_array_size(findings) > 0)
			fail_msg("%s: %s", bases[i].name, json_dumps(findings, JSON_INDENT(1)));
		json_decref(findings);
		json_decref(objects);
	}
}

static void broken_objects_are_found(void **state)
{
	(void)state;
	assert_true(ARRAY_SIZE(broken) >= 60);
	for (size_t i = 0; i < ARRAY_SIZE(broken); i++) {
		json_t *objects = json_array();
		json_t *findings;

		add_base(objects, broken[i].base);
		edit(json_array_get(objects, 0), broken[i].edits);
		findings = lint(objects);
		if (!has_rule(findings, broken[i].rule))
			fail_msg("%s not found: %s: %s", broken[i].rule, broken[i].edits,
				json_dumps(findings, JSON_INDENT(1)));
		json_decref(findings);
		json_decref(objects);
	}
}

/* What only objects together have wrong. */
static void sets_of_objects(void **state)
{
	static const struct {
		const char *rule;
		const char *base;
		const char *edits; /* of the group */
	} sets[] = {
		{ "podgroup-name", "pytorch", "metadata.name=\"a\"" },
		{ "podgroup-size", "job", "spec.minMember=7" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(sets); i++) {
		json_t *objects = json_array();
		json_t *findings;

		add_base(objects, "group");
		add_base(objects, sets[i].base);
		edit(json_array_get(objects, 0), sets[i].edits);
		if (strcmp(sets[i].base, "job") == 0)
			edit(json_array_get(objects, 1),
				"spec.template.metadata={\"annotations\":{"
				"\"scheduling.k8s.io/group-name\":\"a-gang\"}}");
		findings = lint(objects);
		if (!has_rule(findings, sets[i].rule))
			fail_msg("%s not found: %s", sets[i].rule,
				json_dumps(findings, JSON_INDENT(1)));
		json_decref(findings);
		json_decref(objects);
	}
}

static void every_rule_has_a_broken_object(void **state)
{
	static const char *const of_sets[] = { "podgroup-name", "podgroup-size", "object-twice" };
	json_t *rules = job_lint_rules();
	const json_t *rule;
	size_t i;

	(void)state;
	json_array_foreach (rules, i, rule) {
		const char *id = json_string_value(json_object_get(rule, "rule"));
		bool found = false;

		for (size_t k = 0; k < ARRAY_SIZE(broken) && !found; k++)
			found = strcmp(broken[k].rule, id) == 0;
		for (size_t k = 0; k < ARRAY_SIZE(of_sets) && !found; k++)
			found = strcmp(of_sets[k], id) == 0;
		if (!found)
			fail_msg("no broken object for rule %s", id);
	}
	json_decref(rules);
}

static void two_of_one_name(void **state)
{
	json_t *objects = json_array();
	json_t *findings;

	(void)state;
	add_base(objects, "job");
	add_base(objects, "job");
	findings = lint(objects);
	assert_true(has_rule(findings, "object-twice"));
	assert_int_equal(job_lint_errors(findings), 2);
	json_decref(findings);
	json_decref(objects);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(items_are_objects),
		cmocka_unit_test(right_objects_pass),
		cmocka_unit_test(broken_objects_are_found),
		cmocka_unit_test(sets_of_objects),
		cmocka_unit_test(every_rule_has_a_broken_object),
		cmocka_unit_test(two_of_one_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
