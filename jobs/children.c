/* What belongs to a job: TensorBoard, files, and the PodGroup of a job whose operator makes none. See compile_internal.h. */
#include "base/cleanup.h"
#include "jobs/compile_internal.h"
#include "jobs/quantity.h"

#include <string.h>

#define TENSORBOARD_PORT 6006

/* ---- TensorBoard ----------------------------------------------------------------------------- */

static void put_board(struct compile *c, json_t *deployment, const char *logdir)
{
	json_t *pod = put_object(c, deployment, "spec.template.spec");
	json_t *container = put_object(c, put_array(c, pod, "containers"), "[]");
	bool own = spec_get(c, "logging.tensorboard.image");
	const char *image = own ? "logging.tensorboard.image" : "image";

	pod_access(c, pod);
	put_text(c, container, "name", "tensorboard", NULL);
	if (!spec_text(c, image, NULL))
		spec_refuse(c, "logging.tensorboard.enabled",
			"the job names no image that TensorBoard could use: give one with "
			"--tensorboard-image");
	put_text(c, container, "image", spec_text(c, image, ""), image);
	put(c, container, "command", json_pack("[s]", "tensorboard"), NULL);
	put(c, container, "args",
		json_pack("[s, s+, s]", "--bind_all", "--logdir=", logdir, "--port=6006"),
		"logging.tensorboard.logdir");
	put(c, container, "ports",
		json_pack("[{s:s, s:i}]", "name", "http", "containerPort", TENSORBOARD_PORT), NULL);
	if (!pod_volume_of(c, pod, container, logdir)) {
		spec_refuse(c, "logging.tensorboard.logdir",
			"no storage that can be written has '%s': mount a claim there with --data "
			"PVC:PATH",
			logdir);
	}
}

void add_tensorboard(struct compile *c)
{
	const char *logdir;
	json_t *deployment;
	json_t *service;

	(void)spec_get(c, "logging.tensorboard.enabled");
	if (!spec_true(c, "logging.tensorboard.enabled") || c->error != 0)
		return;
	logdir = spec_text(c, "logging.tensorboard.logdir", "/training_logs");
	deployment = add_object(c, "apps/v1", "Deployment", "-tensorboard");
	put_number(c, deployment, "spec.replicas", 1, NULL);
	put(c, deployment, "spec.selector",
		json_pack("{s:{s:s, s:s}}", "matchLabels", "app.kubernetes.io/component",
			"tensorboard", INSTANCE_LABEL, c->name),
		NULL);
	put(c, deployment, "spec.template.metadata.labels",
		json_pack("{s:s, s:s}", "app.kubernetes.io/component", "tensorboard",
			INSTANCE_LABEL, c->name),
		NULL);
	put_board(c, deployment, logdir);
	service = add_object(c, "v1", "Service", "-tensorboard");
	put(c, service, "spec",
		json_pack("{s:[{s:s, s:i, s:s}], s:{s:s, s:s}}", "ports", "name", "http", "port",
			TENSORBOARD_PORT, "targetPort", "http", "selector",
			"app.kubernetes.io/component", "tensorboard", INSTANCE_LABEL, c->name),
		NULL);
}

/* ---- files ----------------------------------------------------------------------------------- */

void add_files(struct compile *c)
{
	const json_t *files = spec_get(c, "files");
	char key[24];
	char path[FIELD_PATH_BYTES];
	char from[FIELD_PATH_BYTES];
	const char *name;
	json_t *text;
	json_t *map;
	size_t i = 0;

	if (json_object_size(files) == 0 || c->error != 0)
		return;
	map = add_object(c, "v1", "ConfigMap", "-files");
	json_object_foreach ((json_t *)(uintptr_t)files, name, text) { /* only read */
		(void)snprintf(key, sizeof(key), "file-%zu", i++);     /* fits */
		put(c, map, field_path_key("data", key, path), json_deep_copy(text),
			field_path_key("files", name, from));
	}
}

/* ---- PodGroups ------------------------------------------------------------------------------- */

/* Without the resources that the gang needs Volcano starts to enqueue it whatever they are. */
static void add_resources(struct compile *c, json_t *group, json_t *template, long long pods)
{
	const json_t *requests = field_path_get(template, "spec.containers[0].resources.requests");
	const char *key;
	json_t *value;

	json_object_foreach ((json_t *)(uintptr_t)requests, key, value) { /* only read */
		char path[FIELD_PATH_BYTES];
		char text[QUANTITY_BYTES];
		struct quantity none = { 0 };
		struct quantity one;

		if (quantity_parse(json_string_value(value), &one) < 0)
			continue; /* checked when the spec was read */
		put_text(c, group, field_path_key("spec.minResources", key, path),
			quantity_text(quantity_add(none, one, (unsigned int)pods), text), NULL);
	}
}

/* Never named like the job: training-operator deletes such a PodGroup when it suspends the job. */
void add_pod_group(struct compile *c, json_t *template, long long replicas)
{
	bool volcano = by_volcano(c);
	long long size = gang_size(c, replicas);
	json_t *group = add_object(c,
		volcano ? "scheduling.volcano.sh/v1beta1" : "scheduling.x-k8s.io/v1alpha1",
		"PodGroup", "-gang");

	if (volcano) {
		(void)copy(c, group, "spec.queue", "scheduling.queue"); /* both optional */
		(void)copy(c, group, "spec.priorityClassName", "scheduling.priority_class_name");
	}
	put_number(c, group, "spec.minMember", size, "scheduling.gang");
	add_resources(c, group, template, size);
	put(c, template,
		volcano ? "metadata.annotations[scheduling.k8s.io/group-name]"
			: "metadata.labels[scheduling.x-k8s.io/pod-group]",
		json_sprintf("%s-gang", c->name), "scheduling.gang");
}
