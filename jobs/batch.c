/* Jobs without an operator of training: batch/v1 Job, the build of an image, and the Notebook. */
#include "base/cleanup.h"
#include "jobs/compile_internal.h"

#include <string.h>

#define KANIKO_IMAGE "gcr.io/kaniko-project/executor:v1.23.2"

static const struct copy_row job_rows[] = {
	{ "lifecycle.backoff_limit", "spec.backoffLimit" },
	{ "lifecycle.active_deadline", "spec.activeDeadlineSeconds" },
	{ "lifecycle.ttl_after_finished", "spec.ttlSecondsAfterFinished" },
	{ 0 },
};

static json_t *add_job(struct compile *c)
{
	json_t *job = add_object(c, "batch/v1", "Job", "");

	copy_rows(c, job, job_rows);
	put_queue(c, job, "spec.suspend");
	return job;
}

/* The executor reads the context where a storage is mounted; arguments are words, not a line of a shell. */
static void put_build(struct compile *c, json_t *container)
{
	static const struct {
		const char *path;
		const char *prefix;
	} options[] = {
		{ "build.context", "--context=dir://" },
		{ "build.dockerfile", "--dockerfile=" },
		{ "build.destination", "--destination=" },
	};
	const json_t *args = spec_get(c, "build.args");
	char from[FIELD_PATH_BYTES];
	const char *key;
	json_t *value;

	for (size_t i = 0; i < ARRAY_SIZE(options); i++) {
		const char *text = spec_text(c, options[i].path, NULL);

		if (text)
			put(c, put_array(c, container, "args"), "[]",
				json_sprintf("%s%s", options[i].prefix, text), options[i].path);
		else if (i != 1) {
			spec_refuse(c, options[i].path,
				"is missing: give --context DIR and --destination IMAGE");
		}
	}
	json_object_foreach ((json_t *)(uintptr_t)args, key, value) /* only read */
		put(c, put_array(c, container, "args"), "[]",
			json_sprintf("--build-arg=%s=%s", key, json_string_value(value)),
			field_path_key("build.args", key, from));
}

static void put_push_secret(struct compile *c, json_t *pod, json_t *container)
{
	const char *secret = spec_text(c, "build.push_secret", NULL);
	char name[VOLUME_NAME_BYTES] = "push-secret";

	if (!secret)
		return;
	pod_volume(c, pod, name,
		json_pack("{s:{s:s, s:[{s:s, s:s}]}}", "secret", "secretName", secret, "items",
			"key", ".dockerconfigjson", "path", "config.json"),
		"build.push_secret");
	put(c, put_array(c, container, "volumeMounts"), "[]",
		json_pack("{s:s, s:s}", "name", name, "mountPath", "/kaniko/.docker"),
		"build.push_secret");
}

static void compile_build(struct compile *c)
{
	static const struct role role = ROLE("", "", "executor", .restart = "Never", .trains = true,
		.mounts = true, .image = KANIKO_IMAGE);
	json_t *job = add_job(c);
	json_t *template = put_object(c, job, "spec.template");
	json_t *container;
	json_t *pod;

	pod_build(c, template, &role);
	pod = put_object(c, template, "spec");
	container = put_object(c, put_array(c, pod, "containers"), "[0]");
	put_build(c, container);
	put_push_secret(c, pod, container);
	if (!field_path_get(job, "spec.backoffLimit"))
		put_number(c, job, "spec.backoffLimit", 0, NULL);
}

void compile_batch(struct compile *c)
{
	static const struct role role = ROLE("worker", "", "main", .restart = "Never",
		.trains = true, .runs = true, .mounts = true);
	json_t *job;
	long long n;

	if (c->type->id == JOB_BUILD) {
		compile_build(c);
		return;
	}
	job = add_job(c);
	n = spec_number(c, "worker.replicas", 1);
	if (n == 0)
		spec_refuse(c, "worker.replicas",
			"the job would succeed without a pod: give at least 1");
	put_number(c, job, "spec.parallelism", n, "worker.replicas");
	put_number(c, job, "spec.completions", n, "worker.replicas");
	if (n > 1)
		put_text(c, job, "spec.completionMode", "Indexed", NULL);
	pod_build(c, put_object(c, job, "spec.template"), &role);
	if (gang_size(c, n) > 0)
		add_pod_group(c, put_object(c, job, "spec.template"), n);
}

/* One container that has the name of the notebook; no labels of pods but those of the object. */
void compile_notebook(struct compile *c)
{
	const struct role role =
		ROLE("", "", c->name, .trains = true, .runs = true, .mounts = true);
	json_t *job = add_object(c, "kubeflow.org/v1", "Notebook", "");
	_cleanup_(json_decrefp) json_t *template = json_object();
	json_t *pod;

	put_queue(c, job, NULL);
	if (!template)
		return;
	pod_build(c, template, &role);
	pod = json_object_get(template, "spec");
	put(c, job, "spec.template.spec", json_incref(pod), NULL);
}
