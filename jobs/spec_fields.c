/* The table of the fields of a job spec. See spec_fields.h. */
#include "jobs/spec_fields.h"

#include <string.h>

#define FIELD(text, type, words, ...)                                        \
	{                                                                    \
		.name = (text), .kind = (type), .help = (words), __VA_ARGS__ \
	}

static const struct spec_field texts[] = { FIELD("text", SPEC_TEXT, "Text") };
static const struct spec_field quantities[] = { FIELD("quantity", SPEC_QUANTITY, "Quantity") };

static const struct spec_field env_sources[] = {
	FIELD("secret", SPEC_TEXT, "Secret that has the value"),
	FIELD("configmap", SPEC_TEXT, "ConfigMap that has the value"),
	FIELD("key", SPEC_TEXT, "Key in it"),
	{ 0 },
};
static const struct spec_field envs[] = {
	FIELD("value", SPEC_TEXT, "Value, or where it is stored", .of = env_sources),
};

static const struct spec_field expressions[] = {
	FIELD("expression", SPEC_OBJECT, "Expression",
		.of =
			(const struct spec_field[]){
				FIELD("key", SPEC_TEXT, "Label"),
				FIELD("operator", SPEC_CHOICE, "Comparison",
					.choices = "In|NotIn|Exists|DoesNotExist|Gt|Lt"),
				FIELD("values", SPEC_LIST, "Values", .of = texts),
				{ 0 },
			}),
};

static const struct spec_field affinity_rules[] = {
	FIELD("rule", SPEC_OBJECT, "Rule",
		.of =
			(const struct spec_field[]){
				FIELD("weight", SPEC_COUNT, "Weight of a preferred rule", .min = 1),
				FIELD("topology_key", SPEC_TEXT,
					"Label of nodes that are one place, of target pod"),
				FIELD("match_labels", SPEC_MAP, "Labels to match", .of = texts),
				FIELD("match_expressions", SPEC_LIST, "Expressions to match",
					.of = expressions),
				{ 0 },
			}),
};

static const struct spec_field affinity[] = {
	FIELD("policy", SPEC_CHOICE, "Spread the pods over nodes, or pack them",
		.choices = "none|spread|binpack"),
	FIELD("constraint", SPEC_CHOICE, "Whether a node that breaks it is refused",
		.choices = "preferred|required"),
	FIELD("target", SPEC_CHOICE, "What the rules match", .choices = "pod|node"),
	FIELD("rules", SPEC_LIST, "Rules (default: the job's own pods)", .of = affinity_rules),
	{ 0 },
};

static const struct spec_field tolerations[] = {
	FIELD("toleration", SPEC_OBJECT, "Toleration",
		.of =
			(const struct spec_field[]){
				FIELD("key", SPEC_TEXT, "Taint (default: every taint)"),
				FIELD("operator", SPEC_CHOICE, "Comparison",
					.choices = "Exists|Equal"),
				FIELD("value", SPEC_TEXT, "Value of the taint"),
				FIELD("effect", SPEC_CHOICE, "Effect of the taint (default: each)",
					.choices = "NoSchedule|PreferNoSchedule|NoExecute"),
				FIELD("seconds", SPEC_SECONDS, "How long NoExecute is tolerated"),
				{ 0 },
			}),
};

/* Of a role and of a task. */
#define ROLE_FIELDS                                                                              \
	FIELD("replicas", SPEC_COUNT, "Number of pods"),                                         \
		FIELD("image", SPEC_TEXT, "Image (default: that of the job)"),                   \
		FIELD("run", SPEC_TEXT, "Command, run by the shell (default: that of the job)"), \
		FIELD("envs", SPEC_MAP, "Environment, over that of the job", .of = envs),        \
		FIELD("resources", SPEC_MAP, "Requests and limits of a pod", .of = quantities),  \
		FIELD("limits", SPEC_MAP, "Limits that differ from the requests",                \
			.of = quantities),                                                       \
		FIELD("node_selector", SPEC_MAP, "Labels of its nodes, over those of the job",   \
			.of = texts),                                                            \
		FIELD("labels", SPEC_MAP, "Labels of its pods", .of = texts),                    \
		FIELD("annotations", SPEC_MAP, "Annotations of its pods", .of = texts),          \
		FIELD("affinity", SPEC_OBJECT, "Affinity of its pods", .of = affinity),          \
		FIELD("restart", SPEC_CHOICE, "When a container is started again",               \
			.choices = "Always|OnFailure|Never|ExitCode"),                           \
		FIELD("port", SPEC_COUNT, "Port that its pods listen on", .min = 1)

static const struct spec_field role[] = { ROLE_FIELDS, { 0 } };

static const struct spec_field tasks[] = {
	FIELD("task", SPEC_OBJECT, "Task",
		.of =
			(const struct spec_field[]){
				FIELD("name", SPEC_TEXT, "Name"),
				ROLE_FIELDS,
				FIELD("min_available", SPEC_COUNT, "Pods that run together"),
				{ 0 },
			}),
};

static const struct spec_field syncs[] = {
	FIELD("sync", SPEC_OBJECT, "Source of code",
		.of =
			(const struct spec_field[]){
				FIELD("git", SPEC_TEXT, "URL of a git repository"),
				FIELD("rsync", SPEC_TEXT, "Source of rsync"),
				FIELD("hdfs", SPEC_TEXT, "URL in HDFS"),
				FIELD("branch", SPEC_TEXT,
					"Branch of the repository (default: its own)"),
				FIELD("local_path", SPEC_TEXT, "Directory in the containers"),
				FIELD("image", SPEC_TEXT, "Image that copies"),
				{ 0 },
			}),
};

static const struct spec_field storages[] = {
	FIELD("storage", SPEC_OBJECT,
		"Volume of every pod that trains; one of dataset, pvc, shm, tmp, hostpath, "
		"configmap and secret",
		.of =
			(const struct spec_field[]){
				FIELD("name", SPEC_TEXT, "Name of the volume"),
				FIELD("mount_path", SPEC_TEXT, "Where it is mounted",
					.also = "mount"),
				FIELD("dataset", SPEC_TEXT, "Dataset of Granary, read-only"),
				FIELD("path", SPEC_TEXT, "Directory of the dataset"),
				FIELD("generation", SPEC_COUNT,
					"Generation of the dataset (default: the newest)",
					.min = 1),
				FIELD("follow", SPEC_BOOL, "Show new generations as they come"),
				FIELD("order", SPEC_BOOL,
					"Let the job announce the order of its reads"),
				FIELD("pvc", SPEC_TEXT, "PersistentVolumeClaim"),
				FIELD("shm", SPEC_QUANTITY, "Size of shared memory, at /dev/shm"),
				FIELD("tmp", SPEC_QUANTITY, "Size of a scratch directory"),
				FIELD("hostpath", SPEC_TEXT, "Directory of the node"),
				FIELD("configmap", SPEC_TEXT, "ConfigMap"),
				FIELD("secret", SPEC_TEXT, "Secret"),
				FIELD("key", SPEC_TEXT, "Key of it to mount as one file"),
				FIELD("sub_path", SPEC_TEXT, "Directory of the volume to mount"),
				FIELD("read_only", SPEC_BOOL, "Mount it read-only"),
				{ 0 },
			}),
};

static const struct spec_field framework[] = {
	FIELD("name", SPEC_CHOICE, "Framework, which decides the kind of the job",
		.choices = "pytorch|tensorflow|xgboost|mpi|horovod|elastic|deepspeed|volcano|job|"
			   "notebook|build"),
	FIELD("options", SPEC_OBJECT, "Options of the framework",
		.of =
			(const struct spec_field[]){
				FIELD("nproc_per_node", SPEC_TEXT,
					"Processes of a pod: auto, cpu, gpu or a number"),
				FIELD("launch", SPEC_CHOICE,
					"Launcher to put before `run`, with the size of the job",
					.choices = "none|torchrun|accelerate|deepspeed|mpirun|"
						   "horovodrun"),
				FIELD("slots_per_worker", SPEC_COUNT,
					"MPI processes of a worker (default: its GPUs)", .min = 1),
				FIELD("mounts_on_launcher", SPEC_BOOL,
					"Mount the storages in the launcher, too"),
				FIELD("run_launcher_as_worker", SPEC_BOOL,
					"Train in the launcher, too"),
				FIELD("api_version", SPEC_CHOICE,
					"Version of MPIJob that the cluster has (default: v2beta1)",
					.choices = "v2beta1|v1alpha1"),
				FIELD("implementation", SPEC_CHOICE, "Implementation of MPI",
					.choices = "OpenMPI|Intel|MPICH"),
				FIELD("runtime", SPEC_TEXT,
					"Runtime of a TrainJob (default: torch-distributed)"),
				FIELD("plugins", SPEC_MAP,
					"Plugins of a Volcano Job and their arguments",
					.of = texts),
				{ 0 },
			}),
	{ 0 },
};

static const struct spec_field scheduling[] = {
	FIELD("priority", SPEC_COUNT, "Priority of the pods"),
	FIELD("priority_class_name", SPEC_TEXT, "Priority class of the pods"),
	FIELD("gang", SPEC_OBJECT, "Start all pods together, or none", .brief = "enabled",
		.of =
			(const struct spec_field[]){
				FIELD("enabled", SPEC_BOOL, "Whether to"),
				FIELD("by", SPEC_CHOICE, "What does it (default: volcano)",
					.choices = "volcano|coscheduling"),
				FIELD("min", SPEC_COUNT, "Pods that start together (default: all)",
					.min = 1),
				{ 0 },
			}),
	FIELD("scheduler_name", SPEC_TEXT, "Scheduler of the pods"),
	FIELD("queue", SPEC_TEXT,
		"Queue: Volcano's when Volcano schedules the job, otherwise Kueue's LocalQueue"),
	FIELD("node_selector", SPEC_MAP, "Labels of the nodes", .of = texts),
	FIELD("tolerations", SPEC_LIST, "Taints that the pods tolerate", .of = tolerations),
	FIELD("affinity", SPEC_OBJECT, "Affinity of the pods", .of = affinity),
	FIELD("locality", SPEC_CHOICE, "Nodes that have the datasets",
		.choices = "prefer|require|off"),
	FIELD("warm", SPEC_OBJECT, "What must be cached before the job starts",
		.of =
			(const struct spec_field[]){
				FIELD("fraction", SPEC_FRACTION, "Part of each dataset"),
				FIELD("wait", SPEC_SECONDS, "How long to wait for it at most"),
				{ 0 },
			}),
	{ 0 },
};

static const struct spec_field fields[] = {
	FIELD("version", SPEC_TEXT, "Version of the spec (Arena's 0.1.0)"),
	FIELD("name", SPEC_TEXT, "Name of the job"),
	FIELD("namespace", SPEC_TEXT, "Namespace (default: that of the context)"),
	FIELD("description", SPEC_TEXT, "Description, as an annotation"),
	FIELD("labels", SPEC_MAP, "Labels of the job and its pods; those of Kueue only of the job",
		.of = texts),
	FIELD("annotations", SPEC_MAP, "Annotations of the job and its pods", .of = texts),
	FIELD("framework", SPEC_OBJECT, "Framework and its options", .of = framework,
		.brief = "name"),
	FIELD("engine", SPEC_CHOICE, "Operator that runs the job (default: auto)",
		.choices = "auto|kubeflow|volcano|mpi|et|trainer|kubernetes"),
	FIELD("image", SPEC_TEXT, "Image of the containers"),
	FIELD("run", SPEC_TEXT, "Command, run by the shell"),
	FIELD("shell", SPEC_TEXT, "Shell (default: sh)"),
	FIELD("working_dir", SPEC_TEXT, "Working directory (default: that of the image)"),
	FIELD("envs", SPEC_MAP, "Environment of all containers", .of = envs),
	FIELD("resources", SPEC_MAP, "Requests and limits of each pod that trains",
		.of = quantities),
	FIELD("worker", SPEC_OBJECT, "Workers", .of = role),
	FIELD("master", SPEC_OBJECT, "Master", .of = role),
	FIELD("launcher", SPEC_OBJECT, "Launcher", .of = role),
	FIELD("chief", SPEC_OBJECT, "Chief", .of = role),
	FIELD("ps", SPEC_OBJECT, "Parameter servers", .of = role),
	FIELD("evaluator", SPEC_OBJECT, "Evaluator", .of = role),
	FIELD("tasks", SPEC_LIST, "Tasks of a Volcano Job", .of = tasks, .most = 100),
	FIELD("sync", SPEC_LIST, "Code that is copied before the containers start", .of = syncs,
		.most = 64),
	FIELD("storages", SPEC_LIST, "Volumes", .of = storages, .most = 64),
	FIELD("files", SPEC_MAP, "Files in the containers: path and content", .of = texts,
		.most = 64),
	FIELD("scheduling", SPEC_OBJECT, "Where and when the pods run", .of = scheduling),
	FIELD("elastic", SPEC_OBJECT, "Number of workers that may change",
		.of =
			(const struct spec_field[]){
				FIELD("min", SPEC_COUNT, "Workers that are enough", .min = 1),
				FIELD("max", SPEC_COUNT, "Workers at most", .min = 1),
				FIELD("wait", SPEC_SECONDS, "How long to wait for resources"),
				{ 0 },
			}),
	FIELD("spot", SPEC_OBJECT, "Workers on nodes that may be reclaimed",
		.of =
			(const struct spec_field[]){
				FIELD("selector", SPEC_MAP, "Labels of these nodes", .of = texts),
				FIELD("grace", SPEC_SECONDS, "Time that a pod has to end"),
				{ 0 },
			}),
	FIELD("lifecycle", SPEC_OBJECT, "End of the job",
		.of =
			(const struct spec_field[]){
				FIELD("clean_pod_policy", SPEC_CHOICE,
					"Pods that are deleted at the end",
					.choices = "None|Running|All"),
				FIELD("active_deadline", SPEC_SECONDS, "How long the job may run"),
				FIELD("ttl_after_finished", SPEC_SECONDS,
					"When the job is deleted after its end"),
				FIELD("backoff_limit", SPEC_COUNT, "Number of restarts"),
				FIELD("success_policy", SPEC_CHOICE,
					"Which workers must succeed (TensorFlow)",
					.choices = "ChiefWorker|AllWorkers"),
				FIELD("suspend", SPEC_BOOL, "Create the job suspended"),
				{ 0 },
			}),
	FIELD("image_pull_policy", SPEC_CHOICE, "When images are pulled",
		.choices = "Always|IfNotPresent|Never"),
	FIELD("image_pull_secrets", SPEC_LIST, "Secrets of the registry", .of = texts),
	FIELD("service_account", SPEC_TEXT, "Service account of the pods"),
	FIELD("restart", SPEC_CHOICE, "When a container is started again",
		.choices = "Always|OnFailure|Never|ExitCode"),
	FIELD("host_network", SPEC_BOOL, "Use the network of the node"),
	FIELD("host_ipc", SPEC_BOOL, "Use the IPC namespace of the node"),
	FIELD("host_pid", SPEC_BOOL, "Use the PID namespace of the node"),
	FIELD("logging", SPEC_OBJECT, "Logs of the training",
		.of =
			(const struct spec_field[]){
				FIELD("tensorboard", SPEC_OBJECT, "TensorBoard of the job",
					.brief = "enabled",
					.of =
						(const struct spec_field[]){
							FIELD("enabled", SPEC_BOOL,
								"Whether to run it"),
							FIELD("logdir", SPEC_TEXT,
								"Its directory (default: "
								"/training_logs)"),
							FIELD("image", SPEC_TEXT,
								"Its image (default: that of the "
								"job)"),
							{ 0 },
						}),
				{ 0 },
			}),
	FIELD("build", SPEC_OBJECT, "Image to build",
		.of =
			(const struct spec_field[]){
				FIELD("context", SPEC_TEXT,
					"Directory of the sources, in a storage"),
				FIELD("dockerfile", SPEC_TEXT,
					"Dockerfile (default: Dockerfile of the context)"),
				FIELD("destination", SPEC_TEXT, "Name and tag to push"),
				FIELD("args", SPEC_MAP, "Arguments of the build", .of = texts),
				FIELD("push_secret", SPEC_TEXT,
					"Secret of the registry, of type dockerconfigjson"),
				{ 0 },
			}),
	{ 0 },
};

const struct spec_field spec_root = {
	.name = "", .kind = SPEC_OBJECT, .of = fields, .help = "A job"
};

const struct spec_field *spec_field_find(const struct spec_field *of, const char *name)
{
	for (const struct spec_field *f = of; f->name; f++)
		if (strcmp(f->name, name) == 0 || (f->also && strcmp(f->also, name) == 0))
			return f;
	return NULL;
}

const char *spec_kind_name(enum spec_kind kind)
{
	static const char *const names[] = {
		[SPEC_TEXT] = "text",
		[SPEC_CHOICE] = "choice",
		[SPEC_COUNT] = "number",
		[SPEC_BOOL] = "true or false",
		[SPEC_QUANTITY] = "quantity",
		[SPEC_SECONDS] = "duration",
		[SPEC_FRACTION] = "fraction",
		[SPEC_OBJECT] = "object",
		[SPEC_LIST] = "list",
		[SPEC_MAP] = "map",
	};

	return names[kind];
}
