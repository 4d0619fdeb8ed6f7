/* The Volcano Job: of tasks that are given, or of the roles of a framework and the plugin that makes them meet. */
#include "base/option.h"
#include "jobs/compile_internal.h"

#include <stdlib.h>
#include <string.h>

/* Volcano starts none in the workers, unlike mpi-operator. */
#define SSHD "mkdir -p /var/run/sshd && exec /usr/sbin/sshd -D"

/* A pod that fails is not started again in its place: its end makes Volcano start all of them again. */
static const struct volcano_kind {
	enum job_type_id type;
	const char
		*ends; /* "a|b": the end of the first one that there is ends the job; NULL: all */
	struct copy_row plugins[4]; /* name, and its arguments separated by blanks */
	struct role roles[4];
} kinds[] = {
	{ JOB_PYTORCH, "master",
		{ { "svc", "" }, { "env", "" },
			{ "pytorch", "--master=master --worker=worker --port=23456" } },
		{ ROLE("master", "master", "pytorch", .restart = "Never", .trains = true,
			  .runs = true, .mounts = true, .inherits = "worker"),
			ROLE("worker", "worker", "pytorch", .restart = "Never", .trains = true,
				.runs = true, .mounts = true) } },
	{ JOB_TF, "chief|worker",
		{ { "svc", "" }, { "env", "" },
			{ "tensorflow",
				"--ps=ps --worker=worker --chief=chief --evaluator=evaluator" } },
		{ ROLE("chief", "chief", "tensorflow", .restart = "Never", .runs = true,
			  .mounts = true),
			ROLE("worker", "worker", "tensorflow", .restart = "Never", .trains = true,
				.runs = true, .mounts = true),
			ROLE("ps", "ps", "tensorflow", .restart = "Never", .runs = true,
				.mounts = true),
			ROLE("evaluator", "evaluator", "tensorflow", .restart = "Never",
				.runs = true, .mounts = true) } },
	{ JOB_MPI, "launcher",
		{ { "svc", "" }, { "ssh", "" },
			{ "mpi", "--master=launcher --worker=worker --port=22" } },
		{ ROLE("launcher", "launcher", "mpi", .restart = "OnFailure", .runs = true),
			ROLE("worker", "worker", "mpi", .restart = "Never", .trains = true,
				.mounts = true, .line = SSHD) } },
	{ JOB_K8S, NULL, { { "svc", "" }, { "env", "" } },
		{ ROLE("worker", "worker", "main", .restart = "Never", .trains = true, .runs = true,
			.mounts = true) } },
	{ JOB_VOLCANO, NULL, { { "svc", "" }, { "env", "" } }, { { 0 } } },
};

static void put_plugin(
	struct compile *c, json_t *job, const char *name, const char *words, const char *from)
{
	char path[FIELD_PATH_BYTES];
	json_t *list = put_array(c, job, field_path_key("spec.plugins", name, path));

	while (*words) {
		size_t len = strcspn(words, " ,");

		if (len > 0)
			put(c, list, "[]", json_stringn(words, len), from);
		words += len + (words[len] != '\0');
	}
}

static void put_plugins(struct compile *c, json_t *job, const struct volcano_kind *kind)
{
	const json_t *given = spec_get(c, "framework.options.plugins");
	char from[FIELD_PATH_BYTES];
	const char *name;
	json_t *words;

	for (size_t i = 0; i < ARRAY_SIZE(kind->plugins) && kind->plugins[i].from; i++)
		put_plugin(c, job, kind->plugins[i].from, kind->plugins[i].to, NULL);
	json_object_foreach ((json_t *)(uintptr_t)given, name, words) /* only read */
		put_plugin(c, job, name,
			strcmp(json_string_value(words), "true") == 0 ? ""
								      : json_string_value(words),
			field_path_key("framework.options.plugins", name, from));
}

/* `ends`: the end of the task ends the job. */
static long long put_task(
	struct compile *c, json_t *job, const struct role *role, bool ends, long long n)
{
	json_t *task = put_object(c, put_array(c, job, "spec.tasks"), "[]");
	char from[FIELD_PATH_BYTES];
	const json_t *least = role_own(c, role, "min_available", from);

	put_text(c, task, "name", role->key, NULL);
	put_number(c, task, "replicas", n, role_own(c, role, "replicas", from) ? from : NULL);
	if (least)
		put(c, task, "minAvailable", json_deep_copy(least),
			field_path_key(role->base, "min_available", from));
	if (ends)
		put(c, task, "policies",
			json_pack(
				"[{s:s, s:s}]", "event", "TaskCompleted", "action", "CompleteJob"),
			NULL);
	pod_build(c, put_object(c, task, "template"), role);
	if (role_gpus(c, role) > 0) /* its GPUs, CPUs and NIC on one NUMA node, if possible */
		put_text(c, task, "topologyPolicy", "best-effort", NULL);
	return n;
}

static long long put_given_tasks(struct compile *c, json_t *job)
{
	size_t n = json_array_size(field_path_get(c->spec->root, "tasks"));
	long long pods = 0;

	for (size_t i = 0; i < n && c->error == 0; i++) {
		char base[FIELD_PATH_BYTES];
		struct role role = {
			.restart = "Never", .trains = true, .runs = true, .mounts = true
		};
		char from[FIELD_PATH_BYTES];

		role.base = field_path_index("tasks", i, base);
		role.key = spec_text(c, field_path_key(base, "name", from), "");
		role.container = role.key;
		pods += put_task(c, job, &role, false,
			spec_number(c, field_path_key(base, "replicas", from), 1));
	}
	if (n == 0) {
		spec_refuse(c, "tasks",
			"the job has no tasks: give --task-images IMAGE,..., or a list of tasks");
	}
	return pods;
}

static long long put_roles(struct compile *c, json_t *job, const struct volcano_kind *kind)
{
	char from[FIELD_PATH_BYTES];
	long long pods = 0;
	bool ended = false;

	for (size_t i = 0; i < ARRAY_SIZE(kind->roles) && kind->roles[i].base; i++) {
		const struct role *role = &kind->roles[i];
		const json_t *given = role_own(c, role, "replicas", from);
		bool always = kind->type == JOB_MPI || (i == 0 && kind->type != JOB_TF);

		bool ends = !ended && option_is_choice(kind->ends, role->base);

		if (given ? json_integer_value(given) == 0 : !always)
			continue;
		pods += put_task(c, job, role, ends, given ? json_integer_value(given) : 1);
		ended = ended || ends;
	}
	return pods;
}

void compile_volcano(struct compile *c)
{
	static const struct copy_row rows[] = {
		{ "scheduling.queue", "spec.queue" },
		{ "lifecycle.backoff_limit", "spec.maxRetry" },
		{ "lifecycle.ttl_after_finished", "spec.ttlSecondsAfterFinished" },
		{ "scheduling.priority_class_name", "spec.priorityClassName" },
		{ 0 },
	};
	const struct volcano_kind *kind = NULL;
	json_t *job = add_object(c, "batch.volcano.sh/v1alpha1", "Job", "");
	long long pods;

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
		if (kinds[i].type == c->type->id)
			kind = &kinds[i];
	ensure(kind);
	put_text(c, job, "spec.schedulerName", spec_text(c, "scheduling.scheduler_name", "volcano"),
		spec_get(c, "scheduling.scheduler_name") ? "scheduling.scheduler_name" : NULL);
	copy_rows(c, job, rows);
	put_plugins(c, job, kind);
	/* One pod that fails or is evicted leaves the others waiting for it. */
	put(c, job, "spec.policies",
		json_pack("[{s:[s, s], s:s}]", "events", "PodEvicted", "PodFailed", "action",
			"RestartJob"),
		NULL);
	pods = kind->type == JOB_VOLCANO ? put_given_tasks(c, job) : put_roles(c, job, kind);
	put_number(c, job, "spec.minAvailable", gang_size(c, pods),
		spec_get(c, "scheduling.gang.min") ? "scheduling.gang.min" : NULL);
	if (json_is_false(spec_get(c, "scheduling.gang.enabled")))
		spec_refuse(c, "scheduling.gang.enabled",
			"a Volcano Job always is a gang: set its size with scheduling.gang.min");
}
