/* A PodTemplateSpec from a spec: container, environment, resources, where it runs. See compile_internal.h. */
#include "base/cleanup.h"
#include "base/option.h"
#include "jobs/compile_internal.h"
#include "jobs/quantity.h"

#include <stdlib.h>
#include <string.h>

/* ---- resources ------------------------------------------------------------------------------- */

/* Of a role, else of the role that it has its resources from. */
static const json_t *own_or_inherited(
	struct compile *c, const struct role *role, const char *field, char *path)
{
	const json_t *own = role_own(c, role, field, path);

	if (own || !role->inherits)
		return own;
	return spec_get(c, field_path_key(role->inherits, field, path));
}

static const json_t *role_resources(struct compile *c, const struct role *role, char *path)
{
	const json_t *own = own_or_inherited(c, role, "resources", path);

	if (own || !role->trains)
		return own;
	return spec_get(c, field_path_key("", "resources", path));
}

/* Of a device, 0: it is not asked for. */
static long long amount_of(const json_t *value)
{
	struct quantity q;

	if (!value || quantity_parse(json_string_value(value), &q) < 0)
		return 0;
	return (long long)min(q.nano / QUANTITY_ONE, (__int128)INT32_MAX);
}

long long role_gpus(struct compile *c, const struct role *role)
{
	char path[FIELD_PATH_BYTES];

	return amount_of(json_object_get(role_resources(c, role, path), GPU_RESOURCE));
}

static void put_resources(struct compile *c, json_t *container, const struct role *role)
{
	char from[FIELD_PATH_BYTES];
	char path[FIELD_PATH_BYTES];
	char to[FIELD_PATH_BYTES];
	const json_t *all = role_resources(c, role, from);
	const json_t *limits;
	const char *key;
	json_t *value;

	json_object_foreach ((json_t *)(uintptr_t)all, key, value) { /* only read */
		if (strchr(key, '/') && amount_of(value) == 0)
			continue;
		(void)field_path_key(from, key, path);
		put(c, container, field_path_key("resources.requests", key, to),
			json_deep_copy(value), path);
		put(c, container, field_path_key("resources.limits", key, to),
			json_deep_copy(value), path);
		if (strncmp(key, "rdma/", 5) == 0)
			put(c, container, "securityContext.capabilities.add",
				json_pack("[s]", "IPC_LOCK"), path);
	}
	/* Limits belong to the resources that they are of. */
	limits = role_own(c, role, "resources", path) ? role_own(c, role, "limits", from)
						      : own_or_inherited(c, role, "limits", from);
	json_object_foreach ((json_t *)(uintptr_t)limits, key, value) /* only read */
		put(c, container, field_path_key("resources.limits", key, to),
			json_deep_copy(value), field_path_key(from, key, path));
}

/* ---- environment ----------------------------------------------------------------------------- */

/* A value, or a reference to a Secret or ConfigMap. */
static void put_env(struct compile *c, json_t *container, const char *name, const json_t *value,
	const char *from)
{
	const char *secret = json_string_value(json_object_get(value, "secret"));
	const char *map = json_string_value(json_object_get(value, "configmap"));
	const char *key = json_string_value(json_object_get(value, "key"));
	json_t *env = put_object(c, put_array(c, container, "env"), "[]");

	put_text(c, env, "name", name, from);
	if (json_is_string(value)) {
		put_text(c, env, "value", json_string_value(value), from);
		return;
	}
	if (!key || !secret == !map) {
		spec_refuse(c, from,
			"a value from elsewhere needs a key and either secret or configmap: write "
			"{secret: NAME, key: KEY}");
		return;
	}
	put_text(c, env, secret ? "valueFrom.secretKeyRef.name" : "valueFrom.configMapKeyRef.name",
		secret ? secret : map, from);
	put_text(c, env, secret ? "valueFrom.secretKeyRef.key" : "valueFrom.configMapKeyRef.key",
		key, from);
}

static void put_envs(struct compile *c, json_t *container, const struct role *role)
{
	char base[FIELD_PATH_BYTES];
	char from[FIELD_PATH_BYTES];
	const json_t *all = spec_get(c, "envs");
	const json_t *own = role_own(c, role, "envs", base);
	const char *key;
	json_t *value;

	json_object_foreach ((json_t *)(uintptr_t)all, key, value) /* only read */
		if (!json_object_get(own, key))
			put_env(c, container, key, value, field_path_key("envs", key, from));
	json_object_foreach ((json_t *)(uintptr_t)own, key, value) /* only read */
		put_env(c, container, key, value, field_path_key(base, key, from));
}

/* Images of NVIDIA give a container without GPUs all of them, unless it says none. */
static void hide_gpus(struct compile *c, json_t *container, const struct role *role)
{
	static const char name[] = "NVIDIA_VISIBLE_DEVICES";
	char path[FIELD_PATH_BYTES];
	const json_t *all = role_resources(c, role, path);
	const char *key;
	json_t *value;
	size_t i;

	json_array_foreach (json_object_get(container, "env"), i, value)
		if (strcmp(json_string_value(json_object_get(value, "name")) ?: "", name) == 0)
			return;
	json_object_foreach ((json_t *)(uintptr_t)all, key, value) /* only read */
		if (strchr(key, '/') && strncmp(key, "rdma/", 5) != 0 && amount_of(value) > 0)
			return;
	put(c, put_array(c, container, "env"), "[]",
		json_pack("{s:s, s:s}", "name", name, "value", "void"), NULL);
}

/* ---- affinity -------------------------------------------------------------------------------- */

struct affinity {
	const char *from; /* in the spec */
	bool node;
	bool spread;
	bool required;
};

/* A member of the object at `path`; the member alone counts as used. NULL: none, or no path. */
static json_t *member(struct compile *c, const char *path, const char *key)
{
	char below[FIELD_PATH_BYTES];

	return path ? (json_t *)(uintptr_t)spec_get(c, field_path_key(path, key, below)) : NULL;
}

static bool member_is(struct compile *c, const char *path, const char *key, const char *text,
	const char *otherwise)
{
	const char *given = json_string_value(member(c, path, key));

	return strcmp(given ? given : otherwise, text) == 0;
}

/* match_labels and match_expressions of the rule at `rule` as expressions of a node's labels. */
static json_t *node_terms(struct compile *c, const char *rule)
{
	json_t *list = json_deep_copy(member(c, rule, "match_expressions"));
	const char *key;
	json_t *value;

	if (!list)
		list = json_array();
	json_object_foreach (member(c, rule, "match_labels"), key, value)
		if (json_array_append_new(list, json_pack("{s:s, s:s, s:[O]}", "key", key,
							"operator", "In", "values", value)) < 0) {
			json_decref(list);
			return NULL;
		}
	return json_pack("{s:o}", "matchExpressions", list);
}

/* `rule` NULL: the pods of the job. */
static json_t *pod_term(struct compile *c, const char *rule)
{
	const char *topology = json_string_value(member(c, rule, "topology_key"));
	json_t *labels = member(c, rule, "match_labels");
	json_t *expressions = member(c, rule, "match_expressions");
	json_t *selector = labels || expressions
				   ? json_pack("{s:O*, s:O*}", "matchLabels", labels,
					     "matchExpressions", expressions)
				   : json_pack("{s:{s:s}}", "matchLabels", INSTANCE_LABEL, c->name);

	return json_pack("{s:o, s:s}", "labelSelector", selector, "topologyKey",
		topology ? topology : "kubernetes.io/hostname");
}

static void put_rule(
	struct compile *c, json_t *pod, const struct affinity *affinity, const char *rule)
{
	const json_t *weight = affinity->required ? NULL : member(c, rule, "weight");
	json_t *term = affinity->node ? node_terms(c, rule) : pod_term(c, rule);
	char path[FIELD_PATH_BYTES];

	(void)snprintf(path, sizeof(path), "%s.%sDuringSchedulingIgnoredDuringExecution%s",
		affinity->node     ? "nodeAffinity"
		: affinity->spread ? "podAntiAffinity"
				   : "podAffinity",
		affinity->required ? "required" : "preferred",
		affinity->required && affinity->node ? ".nodeSelectorTerms[]" : "[]"); /* fits */
	if (!affinity->required)
		term = json_pack("{s:I, s:o}", "weight",
			weight ? json_integer_value(weight) : (json_int_t)100,
			affinity->node ? "preference" : "podAffinityTerm", term);
	put(c, put_object(c, pod, "affinity"), path, term, affinity->from);
}

static void put_affinity(struct compile *c, json_t *pod, const struct role *role)
{
	char from[FIELD_PATH_BYTES];
	char rule[FIELD_PATH_BYTES];
	struct affinity affinity = { .from = field_path_key(role->base, "affinity", from) };
	size_t n;

	if (!*role->base || !field_path_get(c->spec->root, from))
		(void)field_path_key("scheduling", "affinity", from); /* returns it */
	if (!spec_has(c, from) || member_is(c, from, "policy", "none", ""))
		return;
	n = json_array_size(field_path_get(c->spec->root, field_path_key(from, "rules", rule)));
	affinity.node = member_is(c, from, "target", "node", "pod");
	affinity.spread = member_is(c, from, "policy", "spread", "spread");
	affinity.required = member_is(c, from, "constraint", "required", "preferred");
	if (affinity.node && (n == 0 || member(c, from, "policy"))) {
		spec_refuse(c, from, "nodes are matched by rules, without a policy: give rules");
	} else if (n == 0) {
		put_rule(c, pod, &affinity, NULL);
	}
	for (size_t i = 0; i < n; i++) {
		char rules[FIELD_PATH_BYTES];

		(void)field_path_key(from, "rules", rules); /* returns it */
		put_rule(c, pod, &affinity, field_path_index(rules, i, rule));
	}
}

/* ---- where and how the pod runs -------------------------------------------------------------- */

static void put_tolerations(struct compile *c, json_t *pod)
{
	const json_t *all = spec_get(c, "scheduling.tolerations");
	char from[FIELD_PATH_BYTES];
	const json_t *one;
	size_t i;

	json_array_foreach (all, i, one) {
		const char *operator= json_string_value(json_object_get(one, "operator"));
		bool exists = operator&& strcmp(operator, "Exists") == 0;

		(void)field_path_index("scheduling.tolerations", i, from); /* returns it */
		if (exists ? json_object_get(one, "value") != NULL : !json_object_get(one, "key"))
			spec_refuse(c, from,
				"operator Exists takes no value, and Equal needs a key: write "
				"{key: KEY, operator: Exists}");
		put(c, put_array(c, pod, "tolerations"), "[]",
			json_pack("{s:O*, s:O*, s:O*, s:O*, s:O*}", "key",
				json_object_get(one, "key"), "operator",
				json_object_get(one, "operator"), "value",
				json_object_get(one, "value"), "effect",
				json_object_get(one, "effect"), "tolerationSeconds",
				json_object_get(one, "seconds")),
			from);
	}
}

/* Kueue reads these of the job; in a pod they would queue the pod. */
static bool queues_job(const char *key)
{
	return strncmp(key, KUEUE_PREFIX, strlen(KUEUE_PREFIX)) == 0 &&
	       option_is_choice("queue-name|priority-class|max-exec-time-seconds|"
				"prebuilt-workload-name",
		       key + strlen(KUEUE_PREFIX));
}

/* A map of the job, without what queues it, and that of the role over it. */
static void put_maps(struct compile *c, json_t *at, const char *to, const char *job,
	const struct role *role, const char *field)
{
	char from[FIELD_PATH_BYTES];
	char base[FIELD_PATH_BYTES];
	char path[FIELD_PATH_BYTES];
	const json_t *own = role_own(c, role, field, base);
	const char *key;
	json_t *value;

	json_object_foreach ((json_t *)(uintptr_t)spec_get(c, job), key, value) /* only read */
		if (!queues_job(key))
			put(c, at, field_path_key(to, key, path), json_deep_copy(value),
				field_path_key(job, key, from));
	json_object_foreach ((json_t *)(uintptr_t)own, key, value) { /* only read */
		put(c, at, field_path_key(to, key, path), json_deep_copy(value),
			field_path_key(base, key, from));
		if (strcmp(key, INSTANCE_LABEL) == 0)
			spec_refuse(
				c, from, INSTANCE_LABEL " is the name of the job: leave it out");
	}
}

void pod_access(struct compile *c, json_t *pod)
{
	const json_t *secrets = spec_get(c, "image_pull_secrets");
	char from[FIELD_PATH_BYTES];
	const json_t *name;
	size_t i;

	(void)copy(c, pod, "serviceAccountName", "service_account"); /* optional */
	json_array_foreach (secrets, i, name)
		put(c, put_array(c, pod, "imagePullSecrets"), "[]",
			json_pack("{s:O}", "name", name),
			field_path_index("image_pull_secrets", i, from));
	put_tolerations(c, pod);
}

static void put_pod(struct compile *c, json_t *pod, const struct role *role)
{
	static const struct copy_row rows[] = {
		{ "scheduling.priority_class_name", "priorityClassName" },
		{ "host_network", "hostNetwork" },
		{ "host_ipc", "hostIPC" },
		{ "host_pid", "hostPID" },
		{ "spot.grace", "terminationGracePeriodSeconds" },
		{ 0 },
	};

	copy_rows(c, pod, rows);
	if (spec_true(c, "host_network"))
		put_text(c, pod, "dnsPolicy", "ClusterFirstWithHostNet", "host_network");
	pod_access(c, pod);
	put_maps(c, pod, "nodeSelector", "scheduling.node_selector", role, "node_selector");
	if (role->trains)
		put_maps(c, pod, "nodeSelector", "spot.selector", &(struct role){ .base = "" }, "");
	put_affinity(c, pod, role);
	if (!copy(c, pod, "schedulerName", "scheduling.scheduler_name") &&
		c->engine != ENGINE_VOLCANO && by_volcano(c))
		put_text(c, pod, "schedulerName", "volcano", "scheduling.gang");
}

/* ---- the container --------------------------------------------------------------------------- */

static void put_command(struct compile *c, json_t *container, const struct role *role)
{
	char path[FIELD_PATH_BYTES];
	const char *from = path;
	const char *own = json_string_value(role_own(c, role, "run", path));
	_cleanup_free_ char *line = own ? NULL : launch_line(c, role, &from);
	const char *text = own ? own : line;

	if (!text) {
		text = role->line;
		from = NULL;
	}
	if (!text)
		return;
	put_text(c, container, "command[0]", spec_text(c, "shell", "sh"), "shell");
	put_text(c, container, "command[1]", "-c", NULL);
	put_text(c, container, "command[2]", text, from);
}

static void put_container(struct compile *c, json_t *container, const struct role *role)
{
	char from[FIELD_PATH_BYTES];
	const json_t *image = role_get(c, role, "image", from);
	const json_t *port;

	put_text(c, container, "name", role->container, NULL);
	if (!image && role->image) {
		put_text(c, container, "image", role->image, NULL);
	} else if (!image) {
		spec_refuse(c, "image", "is missing: give --image IMAGE, or image: IMAGE");
		return;
	}
	if (image)
		put(c, container, "image", json_deep_copy(image), from);
	(void)copy(c, container, "imagePullPolicy", "image_pull_policy"); /* optional */
	put_command(c, container, role);
	(void)copy(c, container, "workingDir", "working_dir"); /* optional */
	port = role_own(c, role, "port", from);
	if (port)
		put(c, put_array(c, container, "ports"), "[]",
			json_pack("{s:s, s:O}", "name", role->port ? role->port : "port",
				"containerPort", port),
			from);
	put_envs(c, container, role);
	hide_gpus(c, container, role);
	put_resources(c, container, role);
}

void pod_build(struct compile *c, json_t *template, const struct role *role)
{
	char from[FIELD_PATH_BYTES];
	const json_t *restart = role->restart ? role_get(c, role, "restart", from) : NULL;
	json_t *pod;
	json_t *container;

	put_text(c, template, "metadata.labels[" MANAGED_LABEL "]", "cachectl", NULL);
	put_text(c, template, "metadata.labels[" INSTANCE_LABEL "]", c->name, "name");
	put_maps(c, template, "metadata.labels", "labels", role, "labels");
	put_maps(c, template, "metadata.annotations", "annotations", role, "annotations");
	pod = put_object(c, template, "spec");
	if (restart && strcmp(json_string_value(restart), "ExitCode") == 0)
		spec_refuse(c, from,
			"a pod itself cannot have it, only one of the operators of Kubeflow: write "
			"OnFailure, Never or Always");
	if (role->restart)
		put_text(c, pod, "restartPolicy",
			restart ? json_string_value(restart) : role->restart,
			restart ? from : NULL);
	container = put_object(c, put_array(c, pod, "containers"), "[]");
	put_container(c, container, role);
	put_pod(c, pod, role);
	if (role->mounts)
		pod_volumes(c, pod, container);
}
