/* Tests of the linter's rules that compare several fields. See lint_internal.h. */
#include "jobs/lint_internal.h"
#include "base/cleanup.h"
#include "base/dataset_volume.h"
#include "jobs/quantity.h"

#include <stdlib.h>
#include <string.h>

#define QUEUE_LABEL "kueue.x-k8s.io/queue-name"
#define POD_GROUP   "scheduling.x-k8s.io/pod-group"
#define GROUP_NAME  "scheduling.k8s.io/group-name"
#define LOWER       "abcdefghijklmnopqrstuvwxyz"
#define DIGITS      "0123456789"

/* A test of the object or value, which may use the other. */
#define TEST(name)                                                     \
	bool lint_##name(const struct lint *l __attribute__((unused)), \
		const json_t *value __attribute__((unused)))

#define EACH_OBJECT(object, key, item) \
	json_object_foreach ((json_t *)(uintptr_t)(object), key, item)

static const json_t *replica_specs(const struct lint *l)
{
	static const char *const paths[] = { "spec.pytorchReplicaSpecs", "spec.tfReplicaSpecs",
		"spec.xgbReplicaSpecs", "spec.mpiReplicaSpecs", "spec.etReplicaSpecs" };

	for (size_t i = 0; i < ARRAY_SIZE(paths); i++)
		if (field_path_get(l->object, paths[i]))
			return field_path_get(l->object, paths[i]);
	return NULL;
}

static long long replicas_of(const struct lint *l, const char *role)
{
	const json_t *spec = json_object_get(replica_specs(l), role);

	return spec ? lint_number(spec, "replicas", 1) : 0;
}

/* Does a template name that PodGroup, or any (NULL)? */
static bool is_in_group(const json_t *template, const char *group)
{
	const char *volcano = lint_text(template, "metadata.annotations[" GROUP_NAME "]");
	const char *plugins = lint_text(template, "metadata.labels[" POD_GROUP "]");

	return group ? strcmp(volcano, group) == 0 || strcmp(plugins, group) == 0
		     : *volcano || *plugins;
}

/* Pods of a job, or those of a group alone; -1: not known. */
static long long pods_in(const struct lint *l, const char *group)
{
	const json_t *specs = replica_specs(l);
	const json_t *tasks = field_path_get(l->object, "spec.tasks");
	const char *key;
	json_t *spec;
	long long n = 0;
	size_t i;

	if (l->kind == LINT_JOB)
		return !group || is_in_group(field_path_get(l->object, "spec.template"), group)
			       ? lint_number(l->object, "spec.parallelism", 1)
			       : 0;
	if (!specs && !tasks)
		return -1;
	EACH_OBJECT(specs, key, spec)
	if (!group || is_in_group(json_object_get(spec, "template"), group))
		n += lint_number(spec, "replicas", 1);
	json_array_foreach (tasks, i, spec)
		if (!group || is_in_group(json_object_get(spec, "template"), group))
			n += lint_number(spec, "replicas", 1);
	return n;
}

static long long pods_of(const struct lint *l)
{
	return pods_in(l, NULL);
}

static bool is_name(const char *text, const char *characters, size_t most)
{
	size_t len = strlen(text);

	return len > 0 && len <= most && strspn(text, characters) == len && text[len - 1] != '-' &&
	       text[0] != '-';
}

static const char *member(const json_t *object, const char *key)
{
	return json_string_value(json_object_get(object, key)) ?: "";
}

/* Two members of `list` have the same text in `field`. */
static bool has_twice(const json_t *list, const char *field)
{
	json_t *seen = json_object();
	const json_t *one;
	bool twice = false;
	size_t i;

	json_array_foreach (list, i, one) {
		const char *text = member(one, field);

		twice = twice || (*text && json_object_get(seen, text));
		if (json_object_set_new(seen, text, json_true()) < 0)
			break;
	}
	json_decref(seen);
	return twice;
}

static const json_t *find_named(const json_t *list, const char *name)
{
	const json_t *one;
	size_t i;

	json_array_foreach (list, i, one)
		if (strcmp(member(one, "name"), name) == 0)
			return one;
	return NULL;
}

json_t *lint_index(const json_t *list)
{
	json_t *index = json_object();
	const json_t *one;
	size_t i;

	json_array_foreach (list, i, one)
		if (json_object_set_new(index, member(one, "name"), json_integer((json_int_t)i)) <
			0) {
			json_decref(index);
			return NULL;
		}
	return index;
}

/* ---- names and labels ------------------------------------------------------------------------ */

TEST(name_is_not_dns)
{
	const char *name = json_string_value(value);

	return name && !(is_name(name, LOWER DIGITS "-", 63) && name[0] >= 'a');
}

/* What follows the name of the job in the name of a pod: role and number. */
static size_t suffix_bytes(const char *role, long long pods)
{
	bool launcher = strcasecmp(role, "launcher") == 0; /* there is one, without a number */

	return strlen("-") + strlen(role) +
	       (launcher ? 0 : (size_t)snprintf(NULL, 0, "-%lld", max(pods - 1, 0)));
}

TEST(name_is_too_long)
{
	const char *name = json_string_value(value);
	size_t most = l->kind == LINT_NOTEBOOK ? strlen("-0123456789") /* of a StatefulSet */
		      : l->kind == LINT_TRAIN  ? strlen("-node-0-0")
					       : 0;
	const char *key;
	json_t *spec;
	size_t i;

	if (l->kind == LINT_MPI_V1ALPHA1)
		most = suffix_bytes("worker", lint_number(l->object, "spec.replicas", 1));
	EACH_OBJECT(replica_specs(l), key, spec)
	most = max(most, suffix_bytes(key, lint_number(spec, "replicas", 1)));
	json_array_foreach (field_path_get(l->object, "spec.tasks"), i, spec)
		most = max(
			most, suffix_bytes(member(spec, "name"), lint_number(spec, "replicas", 1)));
	return name && strlen(name) <= 63 && strlen(name) + most > 63;
}

TEST(duplicate_object)
{
	const json_t *other;
	size_t i;

	json_array_foreach (l->objects, i, other)
		if (other != l->object &&
			strcmp(member(other, "kind"), member(l->object, "kind")) == 0 &&
			strcmp(lint_text(other, "apiVersion"),
				lint_text(l->object, "apiVersion")) == 0 &&
			strcmp(lint_text(other, "metadata.namespace"),
				lint_text(l->object, "metadata.namespace")) == 0 &&
			value &&
			strcmp(lint_text(other, "metadata.name"), json_string_value(value) ?: "") ==
				0)
			return true;
	return false;
}

TEST(odd_label)
{
	const char *text = json_string_value(value);
	size_t len = text ? strlen(text) : 0;

	return text && len > 0 &&
	       (len > 63 || strspn(text, LOWER "ABCDEFGHIJKLMNOPQRSTUVWXYZ" DIGITS "-_.") != len ||
		       strchr("-_.", text[0]) || strchr("-_.", text[len - 1]));
}

/* ---- Kubeflow -------------------------------------------------------------------------------- */

TEST(unknown_role)
{
	const char *roles = l->kind == LINT_TF    ? "PS|Worker|Chief|Master|Evaluator"
			    : l->kind == LINT_MPI ? "Launcher|Worker"
						  : "Master|Worker";
	const char *key;
	json_t *spec;

	EACH_OBJECT(replica_specs(l), key, spec)
	if (!option_is_choice(roles, key))
		return true;
	return false;
}

TEST(wrong_container)
{
	const char *name = l->kind == LINT_PYTORCH ? "pytorch"
			   : l->kind == LINT_TF    ? "tensorflow"
						   : "xgboost";

	return value && json_object_get(value, "containers") &&
	       !find_named(json_object_get(value, "containers"), name);
}

TEST(zero_workers)
{
	const json_t *worker = json_object_get(replica_specs(l), "Worker");

	return worker && lint_number(worker, "replicas", 1) < 1;
}

TEST(counts_of_pods)
{
	const json_t *master = json_object_get(replica_specs(l), "Master");

	return master && lint_number(master, "replicas", 1) != 1;
}

static bool is_elastic(const struct lint *l)
{
	return field_path_get(l->object, "spec.elasticPolicy") != NULL;
}

TEST(no_master)
{
	return replica_specs(l) && !json_object_get(replica_specs(l), "Master") && !is_elastic(l);
}

TEST(elastic_and_master)
{
	return is_elastic(l) && json_object_get(replica_specs(l), "Master");
}

TEST(elastic_without_worker)
{
	return is_elastic(l) && !json_object_get(replica_specs(l), "Worker");
}

TEST(elastic_range)
{
	long long least = lint_number(value, "minReplicas", 1);
	long long most = lint_number(value, "maxReplicas", INT32_MAX);
	long long n = replicas_of(l, "Worker");

	return value && (least > most || (n > 0 && (n < least || n > most)));
}

TEST(elastic_bound_missing)
{
	return value &&
	       !json_object_get(value, "minReplicas") != !json_object_get(value, "maxReplicas");
}

TEST(two_nprocs)
{
	return field_path_get(l->object, "spec.elasticPolicy.nProcPerNode") &&
	       field_path_get(l->object, "spec.nprocPerNode");
}

TEST(odd_nproc)
{
	const char *text = json_string_value(value);

	return text && !option_is_choice("auto|cpu|gpu", text) &&
	       (strspn(text, DIGITS) != strlen(text) ||
		       atoll(text) < 1); // NOLINT(cert-err34-c): digits
}

TEST(two_chiefs)
{
	long long chiefs = replicas_of(l, "Chief");
	long long masters = replicas_of(l, "Master");

	return chiefs + masters > 1;
}

TEST(ps_alone)
{
	return replicas_of(l, "PS") > 0 &&
	       replicas_of(l, "Worker") + replicas_of(l, "Chief") + replicas_of(l, "Master") == 0;
}

/* Of a container: its command and arguments as one text. The caller's to free. */
static char *command_of(const json_t *container)
{
	json_t *words = json_pack("[O?, O?]", json_object_get(container, "command"),
		json_object_get(container, "args"));
	char *text = json_dumps(words, JSON_COMPACT);

	json_decref(words);
	return text;
}

TEST(odd_name_of_env)
{
	static const char *const words[] = { "$RANK", "${RANK}", "$WORLD_SIZE", "${WORLD_SIZE}" };
	_cleanup_free_ char *text = command_of(value);

	if (!text || (!strstr(text, "torchrun") && !strstr(text, "accelerate")))
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(words); i++)
		if (strstr(text, words[i]))
			return true;
	return false;
}

/* ---- MPI ------------------------------------------------------------------------------------- */

TEST(no_launcher)
{
	return replicas_of(l, "Launcher") != 1;
}

TEST(gang_waits_for_launcher)
{
	bool waits = strcmp(lint_text(l->object, "spec.launcherCreationPolicy"),
			     "WaitForWorkersReady") == 0;

	return waits && lint_number(l->object, "spec.runPolicy.schedulingPolicy.minAvailable", 0) >
				replicas_of(l, "Worker");
}

/* et-operator makes the launcher when all workers run, and they wait for the gang. */
TEST(launcher_in_gang)
{
	return value && is_in_group(value, NULL);
}

TEST(worker_command)
{
	const json_t *containers = field_path_get(
		json_object_get(replica_specs(l), "Worker"), "template.spec.containers");
	const char *command = lint_text(json_array_get(containers, 0), "command[0]");

	return *command && !strstr(command, "sshd");
}

/* ---- Volcano --------------------------------------------------------------------------------- */

static const json_t *tasks_of(const struct lint *l)
{
	return field_path_get(l->object, "spec.tasks");
}

TEST(no_tasks)
{
	return json_array_size(tasks_of(l)) == 0;
}

TEST(tasks_of_one_name)
{
	return has_twice(tasks_of(l), "name");
}

TEST(task_name_is_not_dns)
{
	return json_is_string(value) && !is_name(json_string_value(value), LOWER DIGITS "-", 63);
}

TEST(task_gang_too_large)
{
	return lint_number(value, "minAvailable", 0) > lint_number(value, "replicas", 1);
}

static const struct plugin {
	const char *name;
	const char *options; /* NULL: any */
} plugins[] = {
	{ "svc", "--publish-not-ready-addresses|--disable-network-policy|--inject-hosts-env" },
	{ "env", "" },
	{ "ssh", "--ssh-key-file-path|--ssh-private-key|--ssh-public-key|--ssh-port|--no-root" },
	{ "mpi", "--master|--worker|--port" },
	{ "pytorch", "--master|--worker|--port|--wait-master-enabled|--wait-master-timeout|--wait-"
		     "master-image" },
	{ "tensorflow", "--ps|--worker|--chief|--evaluator|--port" },
	{ "ray", NULL },
	{ "hcclrank", "--master|--worker" },
};

static const struct plugin *find_plugin(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(plugins); i++)
		if (strcmp(plugins[i].name, name) == 0)
			return &plugins[i];
	return NULL;
}

TEST(unknown_plugin)
{
	const char *key;
	json_t *arguments;

	EACH_OBJECT(value, key, arguments)
	if (!find_plugin(key))
		return true;
	return false;
}

/* The name of the plugin is the key that has `value`. */
TEST(plugin_option)
{
	const json_t *all = field_path_get(l->object, "spec.plugins");
	const struct plugin *plugin = NULL;
	const char *key;
	json_t *arguments;
	size_t i;

	EACH_OBJECT(all, key, arguments)
	if (arguments == value)
		plugin = find_plugin(key);
	json_array_foreach (value, i, arguments) {
		char option[64];
		const char *text = json_string_value(arguments) ?: "";

		(void)snprintf(option, sizeof(option), "%.*s", (int)strcspn(text, "="),
			text); /* cut: unknown */
		if (plugin && plugin->options && !option_is_choice(plugin->options, option))
			return true;
	}
	return false;
}

/* A task that an argument "--master=NAME" names, `otherwise` without such an argument. */
static bool names_task(
	const struct lint *l, const json_t *arguments, const char *option, const char *otherwise)
{
	const json_t *one;
	size_t i;

	json_array_foreach (arguments, i, one) {
		const char *text = json_string_value(one) ?: "";
		size_t len = strlen(option);

		if (strncmp(text, option, len) == 0 && text[len] == '=')
			otherwise = text + len + 1;
	}
	return find_named(tasks_of(l), otherwise);
}

TEST(plugin_task)
{
	return value && (!names_task(l, value, "--master", "master") ||
				(json_array_size(tasks_of(l)) > 1 &&
					!names_task(l, value, "--worker", "worker")));
}

TEST(mpi_plugin_task)
{
	return value && !names_task(l, value, "--master", "master");
}

TEST(plugin_without_svc)
{
	bool needs = json_object_get(value, "pytorch") || json_object_get(value, "tensorflow") ||
		     json_object_get(value, "mpi");

	return needs && !json_object_get(value, "svc");
}

static bool has_event(const json_t *policy)
{
	return json_object_get(policy, "event") ||
	       json_array_size(json_object_get(policy, "events")) > 0;
}

TEST(event_and_exit)
{
	return has_event(value) && json_object_get(value, "exitCode");
}

TEST(no_event)
{
	return !has_event(value) && !json_object_get(value, "exitCode");
}

TEST(exit_zero)
{
	return json_is_integer(value) && json_integer_value(value) == 0;
}

static bool policy_has(const json_t *policies, const char *event)
{
	const json_t *policy;
	const json_t *one;
	size_t i;
	size_t k;

	json_array_foreach (policies, i, policy) {
		if (strcmp(lint_text(policy, "event"), event) == 0)
			return true;
		json_array_foreach (json_object_get(policy, "events"), k, one)
			if (strcmp(json_string_value(one) ?: "", event) == 0)
				return true;
	}
	return false;
}

TEST(evicted_alone)
{
	const json_t *policies = field_path_get(l->object, "spec.policies");

	return policy_has(policies, "PodEvicted") && !policy_has(policies, "PodFailed") &&
	       !policy_has(policies, "*");
}

TEST(depends_on_nothing)
{
	return json_is_string(value) && !json_object_get(l->tasks, json_string_value(value));
}

/* All that it depends on, and that is a task, has started. */
static bool may_start(const struct lint *l, const json_t *task, const bool *started)
{
	const json_t *name;
	size_t i;

	json_array_foreach (field_path_get(task, "dependsOn.name"), i, name) {
		const json_t *other = json_object_get(l->tasks, json_string_value(name) ?: "");

		if (other && !started[json_integer_value(other)])
			return false;
	}
	return true;
}

TEST(depends_in_circle)
{
	size_t n = json_array_size(tasks_of(l));
	_cleanup_free_ bool *started = calloc(n + 1, sizeof(*started));
	size_t left = n;
	size_t before;

	do {
		before = left;
		for (size_t i = 0; started && i < n; i++)
			if (!started[i] && may_start(l, json_array_get(tasks_of(l), i), started)) {
				started[i] = true;
				left--;
			}
	} while (left < before);
	return started && left > 0;
}

/* ---- others ---------------------------------------------------------------------------------- */

TEST(et_range)
{
	long long n = lint_number(value, "replicas", 1);

	return value && (n < lint_number(value, "minReplicas", 0) ||
				n > lint_number(value, "maxReplicas", INT32_MAX));
}

TEST(et_max_below_min)
{
	return lint_number(value, "minReplicas", 0) > lint_number(value, "maxReplicas", INT32_MAX);
}

TEST(notebook_container)
{
	return value && !find_named(field_path_get(l->object, "spec.template.spec.containers"),
				json_string_value(value) ?: "");
}

TEST(job_restart)
{
	return value && !option_is_choice("Never|OnFailure", lint_text(value, "restartPolicy"));
}

TEST(job_indexed)
{
	return strcmp(lint_text(value, "completionMode"), "Indexed") == 0 &&
	       !json_object_get(value, "completions");
}

/* ---- queues and gangs ------------------------------------------------------------------------ */

TEST(gang_too_large)
{
	return json_is_integer(value) && pods_of(l) >= 0 && json_integer_value(value) > pods_of(l);
}

TEST(gang_too_small)
{
	const char *path = l->kind == LINT_VOLCANO ? "spec.minAvailable"
						   : "spec.runPolicy.schedulingPolicy.minAvailable";
	long long n = lint_number(l->object, path, INT32_MAX);

	return !is_elastic(l) && n < pods_of(l);
}

TEST(kueue_does_nothing)
{
	return json_object_get(value, QUEUE_LABEL) != NULL;
}

TEST(suspended_for_ever)
{
	bool suspended = json_is_true(field_path_get(l->object, "spec.runPolicy.suspend")) ||
			 json_is_true(field_path_get(l->object, "spec.suspend"));

	return suspended && !field_path_get(l->object, "metadata.labels[" QUEUE_LABEL "]");
}

/* What the templates of a job say of their schedulers. */
struct schedulers {
	const char *name; /* of the first template */
	unsigned int n;
	bool differ;
	bool volcano; /* bound to a PodGroup of Volcano */
	bool plugins; /* of scheduler-plugins */
};

static void see_template(void *arg, const char *path, const json_t *template)
{
	struct schedulers *s = arg;
	const char *name = lint_text(template, "spec.schedulerName");

	(void)path;
	if (s->n++ == 0)
		s->name = name;
	else if (strcmp(s->name, name) != 0)
		s->differ = true;
	if (field_path_get(template, "metadata.annotations[" GROUP_NAME "]"))
		s->volcano = true;
	if (field_path_get(template, "metadata.labels[" POD_GROUP "]"))
		s->plugins = true;
}

static struct schedulers schedulers_of(const struct lint *l)
{
	struct schedulers s = { .name = "" };

	if (lint_template(l->kind))
		lint_each(l->object, lint_template(l->kind), see_template, &s);
	return s;
}

TEST(two_gangs)
{
	struct schedulers s = schedulers_of(l);

	return s.plugins &&
	       (s.volcano || strcmp(s.name, "volcano") == 0 || l->kind == LINT_VOLCANO);
}

TEST(other_scheduler)
{
	struct schedulers s = schedulers_of(l);
	const char *gang =
		l->kind == LINT_VOLCANO ? lint_text(l->object, "spec.schedulerName") : "";

	return s.differ || (*gang && *s.name && strcmp(gang, s.name) != 0);
}

TEST(group_annotation)
{
	struct schedulers s = schedulers_of(l);

	return s.volcano && strcmp(s.name, "volcano") != 0;
}

TEST(group_named_like_job)
{
	const json_t *other;
	size_t i;

	json_array_foreach (l->objects, i, other)
		if (value && strncmp(lint_text(other, "apiVersion"), "kubeflow.org/", 13) == 0 &&
			strcmp(lint_text(other, "metadata.name"), json_string_value(value) ?: "") ==
				0)
			return true;
	return false;
}

TEST(group_without_resources)
{
	return value && json_object_size(json_object_get(value, "minResources")) == 0;
}

/* Of all jobs that come with the group and bind pods to it. */
TEST(group_too_large)
{
	const char *name = lint_text(l->object, "metadata.name");
	long long pods = 0;
	const json_t *object;
	size_t i;

	json_array_foreach (l->objects, i, object) {
		const struct lint job = { .object = object, .kind = lint_kind_of(object) };

		pods += max(pods_in(&job, name), 0);
	}
	return pods > 0 && json_is_integer(value) && json_integer_value(value) > pods;
}

/* ---- pods ------------------------------------------------------------------------------------ */

TEST(two_containers)
{
	const json_t *one;
	size_t i;

	json_array_foreach (json_object_get(value, "initContainers"), i, one)
		if (*member(one, "name") &&
			find_named(json_object_get(value, "containers"), member(one, "name")))
			return true;
	return has_twice(json_object_get(value, "containers"), "name") ||
	       has_twice(json_object_get(value, "initContainers"), "name");
}

TEST(two_volumes)
{
	return has_twice(json_object_get(value, "volumes"), "name");
}

TEST(two_mounts)
{
	return has_twice(json_object_get(value, "volumeMounts"), "mountPath");
}

TEST(two_envs)
{
	return has_twice(json_object_get(value, "env"), "name");
}

static bool mounts_nothing(const json_t *containers, const json_t *volumes)
{
	const json_t *container;
	const json_t *mount;
	size_t i;
	size_t k;

	json_array_foreach (containers, i, container)
		json_array_foreach (json_object_get(container, "volumeMounts"), k, mount)
			if (!find_named(volumes, member(mount, "name")))
				return true;
	return false;
}

TEST(no_volume)
{
	const json_t *volumes = json_object_get(value, "volumes");

	return mounts_nothing(json_object_get(value, "containers"), volumes) ||
	       mounts_nothing(json_object_get(value, "initContainers"), volumes);
}

TEST(relative_mount)
{
	const char *path = json_string_value(value);

	return path && (*path != '/' || strchr(path, ':'));
}

/* Of a container; false: none, or not a quantity. */
static bool amount(
	const json_t *resources, const char *which, const char *key, struct quantity *ret)
{
	const json_t *value = json_object_get(json_object_get(resources, which), key);
	char text[32];

	if (json_is_integer(value)) {
		(void)snprintf(text, sizeof(text), "%lld",
			(long long)json_integer_value(value)); /* fits */
		return quantity_parse(text, ret) == 0;
	}
	return json_is_string(value) && quantity_parse(json_string_value(value), ret) == 0;
}

TEST(request_above_limit)
{
	const char *key;
	json_t *one;

	EACH_OBJECT(json_object_get(value, "requests"), key, one)
	{
		struct quantity request;
		struct quantity limit;

		if (amount(value, "requests", key, &request) &&
			amount(value, "limits", key, &limit) && request.nano > limit.nano)
			return true;
	}
	return false;
}

static bool is_device(const char *key)
{
	return strchr(key, '/') && strncmp(key, "kubernetes.io/", 14) != 0;
}

TEST(device_unequal)
{
	const char *key;
	json_t *one;

	EACH_OBJECT(json_object_get(value, "requests"), key, one)
	{
		struct quantity request;
		struct quantity limit;

		if (is_device(key) && amount(value, "requests", key, &request) &&
			(!amount(value, "limits", key, &limit) || request.nano != limit.nano))
			return true;
	}
	return false;
}

TEST(device_fraction)
{
	const json_t *resources = json_pack("{s:O?}", "limits", value);
	const char *key;
	json_t *one;
	bool bad = false;

	EACH_OBJECT(value, key, one)
	{
		struct quantity limit;

		if (is_device(key) && amount(resources, "limits", key, &limit) &&
			limit.nano % 1000000000 != 0)
			bad = true;
	}
	json_decref((json_t *)(uintptr_t)resources);
	return bad;
}

static bool has_rdma(const json_t *container)
{
	const char *key;
	json_t *one;

	EACH_OBJECT(field_path_get(container, "resources.limits"), key, one)
	if (strncmp(key, "rdma/", 5) == 0)
		return true;
	return false;
}

TEST(rdma_without_lock)
{
	const json_t *one;
	size_t i;

	if (!has_rdma(value) || json_is_true(field_path_get(value, "securityContext.privileged")))
		return false;
	json_array_foreach (field_path_get(value, "securityContext.capabilities.add"), i, one)
		if (option_is_choice("IPC_LOCK|ALL", json_string_value(one) ?: ""))
			return false;
	return true;
}

TEST(rdma_unaligned)
{
	const json_t *resources = json_object_get(value, "resources");
	static const char *const keys[] = { "cpu", "memory" };

	for (size_t i = 0; has_rdma(value) && i < ARRAY_SIZE(keys); i++) {
		struct quantity limit;
		struct quantity request;

		if (!amount(resources, "limits", keys[i], &limit) ||
			(amount(resources, "requests", keys[i], &request) &&
				request.nano != limit.nano) ||
			limit.nano % 1000000000 != 0)
			return true;
	}
	return false;
}

TEST(shm_unbounded)
{
	return strcmp(lint_text(value, "medium"), "Memory") == 0 &&
	       !json_object_get(value, "sizeLimit");
}

TEST(shm_above_memory)
{
	const json_t *resources = field_path_get(value, "containers[0].resources");
	const json_t *volume;
	struct quantity memory;
	struct quantity size;
	size_t i;

	if (!amount(resources, "limits", "memory", &memory))
		return false;
	json_array_foreach (json_object_get(value, "volumes"), i, volume)
		if (strcmp(lint_text(volume, "emptyDir.medium"), "Memory") == 0 &&
			quantity_parse(lint_text(volume, "emptyDir.sizeLimit"), &size) == 0 &&
			size.nano > memory.nano)
			return true;
	return false;
}

static bool is_dataset(const json_t *csi)
{
	return strcmp(lint_text(csi, "driver"), CSI_DRIVER) == 0;
}

TEST(dataset_writable)
{
	return is_dataset(value) && !json_is_true(json_object_get(value, "readOnly"));
}

TEST(dataset_attribute)
{
	const char *key;
	json_t *text;

	json_object_foreach (json_object_get(value, "volumeAttributes"), key, text)
		if (is_dataset(value) && !option_is_choice(CSI_ATTRIBUTES, key))
			return true;
	return false;
}

TEST(dataset_unnamed)
{
	return is_dataset(value) && !*lint_text(value, "volumeAttributes.dataset");
}

TEST(host_network_dns)
{
	return json_is_true(json_object_get(value, "hostNetwork")) &&
	       !option_is_choice(
		       "ClusterFirstWithHostNet|None|Default", lint_text(value, "dnsPolicy"));
}
