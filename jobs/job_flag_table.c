/* The flags of Arena, and ours: which types take them, and the field of the spec that they set. See job_flag_internal.h. */
#include "jobs/job_flag_internal.h"

#define PT  (1u << JOB_PYTORCH)
#define TF  (1u << JOB_TF)
#define XG  (1u << JOB_XGBOOST)
#define MP  (1u << JOB_MPI)
#define ET  (1u << JOB_ET)
#define DS  (1u << JOB_DEEPSPEED)
#define VC  (1u << JOB_VOLCANO)
#define K8  (1u << JOB_K8S)
#define NB  (1u << JOB_NOTEBOOK)
#define BU  (1u << JOB_BUILD)
#define ALL ((1u << JOB_TYPES) - 1)

#define KUBEFLOW (PT | TF | XG)
#define LAUNCHED (MP | ET | DS)
#define TRAINING (KUBEFLOW | LAUNCHED | VC | K8)

#define TEXT(flag, types, path, meta, words)                                         \
	{                                                                            \
		flag, 0, OPTION_STRING, types, path, job_flag_take_text, meta, words \
	}
#define LETTER(flag, char, types, path, meta, words)                                    \
	{                                                                               \
		flag, char, OPTION_STRING, types, path, job_flag_take_text, meta, words \
	}
#define SWITCH(flag, types, path, words)                                           \
	{                                                                          \
		flag, 0, OPTION_BOOL, types, path, job_flag_take_text, NULL, words \
	}
#define PAIRS(flag, char, types, path, words)                                                \
	{                                                                                    \
		flag, char, OPTION_LIST, types, path, job_flag_take_pair, "KEY=VALUE", words \
	}
#define LATER(flag, types, path, meta, words)                                         \
	{                                                                             \
		flag, 0, OPTION_STRING, types, path, job_flag_take_later, meta, words \
	}
#define REFUSED(flag, kind, types, instead)                     \
	{                                                       \
		flag, 0, kind, types, NULL, NULL, NULL, instead \
	}

#define ROLE_SIZES(role, who, words)                                               \
	TEXT(role "-cpu", TF, role ".resources[cpu]", "QUANTITY",                  \
		"CPUs of " words " (default: none)"),                              \
		TEXT(role "-cpu-limit", TF, role ".limits[cpu]", "QUANTITY",       \
			"Limit of CPUs of " words " (default: the request)"),      \
		TEXT(role "-memory", TF, role ".resources[memory]", "QUANTITY",    \
			"Memory of " words " (default: none)"),                    \
		TEXT(role "-memory-limit", TF, role ".limits[memory]", "QUANTITY", \
			"Limit of memory of " words " (default: the request)"),    \
		PAIRS(role "-selector", 0, who, role ".node_selector",             \
			"Label of the nodes of " words " (default: none)")

const struct job_flag job_flags[] = {
	TEXT("name", ALL, "name", "NAME", "Name of the job"),
	LETTER("namespace", 'n', ALL, "namespace", "NAMESPACE",
		"Namespace (default: that of the context)"),
	TEXT("image", ALL, "image", "IMAGE", "Image of the containers (default: none)"),

	{ "workers", 0, OPTION_STRING, TRAINING & ~VC, "worker.replicas", job_flag_take_workers,
		"N",
		"Number of pods that train, the master of PyTorch and XGBoost included (default: "
		"1)" },
	TEXT("gpus", TF, "worker.resources[nvidia.com/gpu]", "N",
		"GPUs of a worker (default: none)"),
	TEXT("gpus", ALL & ~(TF | BU | VC), "resources[nvidia.com/gpu]", "N",
		"GPUs of each pod that trains (default: none)"),
	TEXT("cpu", ALL & ~(TF | VC), "resources[cpu]", "QUANTITY",
		"CPUs of each pod that trains (default: none)"),
	REFUSED("cpu", OPTION_STRING, VC, "use --task-cpu"),
	REFUSED("cpu", OPTION_STRING, TF,
		"use --worker-cpu, --ps-cpu, --chief-cpu or --evaluator-cpu"),
	TEXT("memory", ALL & ~(TF | VC), "resources[memory]", "QUANTITY",
		"Memory of each pod that trains (default: none)"),
	REFUSED("memory", OPTION_STRING, VC, "use --task-memory"),
	REFUSED("memory", OPTION_STRING, TF,
		"use --worker-memory, --ps-memory, --chief-memory or --evaluator-memory"),
	PAIRS("device", 0, ALL & ~(TF | BU | VC), "resources",
		"Extended resource of each pod that trains (default: none)"),
	PAIRS("device", 0, TF, "worker.resources", "Extended resource of a worker (default: none)"),
	{ "rdma", 0, OPTION_BOOL, TRAINING & ~(TF | VC), "resources[rdma/hca]", job_flag_take_one,
		NULL,
		"Give each pod that trains an RDMA device, and let it lock memory (default: no)" },
	{ "rdma", 0, OPTION_BOOL, TF, "worker.resources[rdma/hca]", job_flag_take_one, NULL,
		"Give each worker an RDMA device, and let it lock memory (default: no)" },
	{ "share-memory", 0, OPTION_STRING, ALL & ~BU, "storages", job_flag_take_shm, "QUANTITY",
		"Size of /dev/shm (default: 2Gi for PyTorch, TensorFlow, etjob and deepspeedjob)" },

	{ "dataset", 0, OPTION_LIST, ALL, "storages", job_flag_take_dataset, "NAME[:PATH]",
		"Dataset of Granary, and where it is mounted (default: /data/NAME)" },
	{ "data", 'd', OPTION_LIST, ALL, "storages", job_flag_take_data, "PVC:PATH",
		"PersistentVolumeClaim, and where it is mounted; PVC:PATH:ro for reading (default: "
		"none)" },
	{ "data-dir", 0, OPTION_LIST, ALL & ~BU, "storages", job_flag_take_data_dir, "DIR[:PATH]",
		"Directory of the node, and where it is mounted (default: the same path)" },
	{ "config-file", 0, OPTION_LIST, ALL & ~BU, "files", job_flag_take_file, "FILE[:PATH]",
		"File of this host, and its path in the containers (default: the same path)" },

	PAIRS("env", 'e', ALL, "envs", "Environment variable (default: none)"),
	PAIRS("label", 'l', ALL, "labels", "Label of the job and its pods (default: none)"),
	PAIRS("annotation", 'a', ALL, "annotations",
		"Annotation of the job and its pods (default: none)"),
	PAIRS("selector", 0, ALL & ~(ET | DS), "scheduling.node_selector",
		"Label of the nodes (default: none)"),
	PAIRS("selector", 0, ET | DS, "worker.node_selector",
		"Label of the nodes of workers (default: none)"),
	{ "toleration", 0, OPTION_LIST, ALL, "scheduling.tolerations", job_flag_take_toleration,
		"KEY[=VALUE][:EFFECT]|all", "Taint that the pods tolerate (default: none)" },

	TEXT("working-dir", ALL & ~BU, "working_dir", "DIR",
		"Working directory (default: that of the image)"),
	TEXT("shell", ALL & ~BU, "shell", "SHELL", "Shell that runs the command (default: sh)"),
	TEXT("image-pull-policy", ALL, "image_pull_policy", "Always|IfNotPresent|Never",
		"When images are pulled (default: none)"),
	{ "image-pull-secret", 0, OPTION_LIST, ALL, "image_pull_secrets", job_flag_take_item,
		"SECRET", "Secret of the registry (default: none)" },
	TEXT("service-account", ALL, "service_account", "NAME",
		"Service account of the pods (default: none)"),
	SWITCH("hostNetwork", ALL, "host_network", "Use the network of the node (default: no)"),
	SWITCH("hostIPC", ALL, "host_ipc", "Use the IPC namespace of the node (default: no)"),
	SWITCH("hostPID", ALL, "host_pid", "Use the PID namespace of the node (default: no)"),
	LATER("sync-mode", ALL & ~BU, "sync", "git|rsync|hdfs",
		"How code is copied before the start (default: none)"),
	LATER("sync-source", ALL & ~BU, "sync", "URL", "Where the code is (default: none)"),
	LATER("sync-image", ALL & ~BU, "sync", "IMAGE", "Image that copies (default: none)"),

	SWITCH("gang", TRAINING & ~VC, "scheduling.gang.enabled",
		"Start all pods together, or none (default: no)"),
	REFUSED("gang", OPTION_BOOL, VC,
		"a volcanojob always is a gang; set its size with --min-available"),
	LETTER("priority", 'p', ALL, "scheduling.priority_class_name", "CLASS",
		"Priority class of the pods (default: none)"),
	{ "queue", 0, OPTION_STRING, (TRAINING & ~VC) | BU, "scheduling.queue", job_flag_take_queue,
		"QUEUE",
		"Queue of Volcano when it schedules the job, otherwise LocalQueue of Kueue; with "
		"Arena a switch (default: none)" },
	TEXT("queue", VC, "scheduling.queue", "QUEUE", "Queue of Volcano (default: none)"),
	TEXT("scheduler", ALL, "scheduling.scheduler_name", "NAME",
		"Scheduler of the pods (default: none)"),
	TEXT("scheduler-name", VC, "scheduling.scheduler_name", "NAME",
		"Scheduler of the pods (default: none)"),

	TEXT("retry", TRAINING | BU, "lifecycle.backoff_limit", "N",
		"Number of restarts (default: none)"),
	TEXT("clean-task-policy", KUBEFLOW | LAUNCHED, "lifecycle.clean_pod_policy",
		"None|Running|All", "Pods that are deleted at the end (default: Running)"),
	TEXT("running-timeout", KUBEFLOW | MP | K8 | BU, "lifecycle.active_deadline", "TIME",
		"How long the job may run (default: none)"),
	TEXT("ttl-after-finished", KUBEFLOW | MP | VC | K8 | BU, "lifecycle.ttl_after_finished",
		"TIME", "When the job is deleted after its end (default: none)"),
	TEXT("success-policy", TF, "lifecycle.success_policy", "ChiefWorker|AllWorkers",
		"Which workers must succeed (default: none)"),

	SWITCH("tensorboard", TRAINING, "logging.tensorboard.enabled",
		"Run TensorBoard for the job (default: no)"),
	TEXT("logdir", TRAINING, "logging.tensorboard.logdir", "DIR",
		"Directory of TensorBoard (default: /training_logs)"),
	TEXT("tensorboard-image", TRAINING, "logging.tensorboard.image", "IMAGE",
		"Image of TensorBoard (default: that of the job)"),

	TEXT("engine", ALL, "engine", "ENGINE", "Operator that runs the job (default: auto)"),
	TEXT("launch", PT | XG | LAUNCHED | K8, "framework.options.launch",
		"torchrun|accelerate|deepspeed|mpirun|horovodrun",
		"Launcher to put before the command, with the size of the job (default: none)"),
	TEXT("nproc-per-node", PT, "framework.options.nproc_per_node", "auto|cpu|gpu|N",
		"Processes of a pod (default: none)"),
	TEXT("runtime", PT, "framework.options.runtime", "NAME",
		"Runtime of a TrainJob (default: none)"),

	TEXT("mpi-version", MP, "framework.options.api_version", "v2beta1|v1alpha1",
		"Version of MPIJob that the cluster has; Arena's is v1alpha1 (default: v2beta1)"),

	TEXT("min-workers", PT | ET | DS, "elastic.min", "N",
		"Workers that are enough (default: none)"),
	TEXT("max-workers", PT | ET | DS, "elastic.max", "N", "Workers at most (default: none)"),
	{ "spot-instance", 0, OPTION_BOOL, PT | ET | DS, "spot", job_flag_take_empty, NULL,
		"Run workers on nodes that may be reclaimed (default: no)" },
	TEXT("max-wait-time", ET | DS, "elastic.wait", "TIME",
		"How long to wait for resources (default: none)"),
	TEXT("job-restart-policy", ET | DS, "restart", "Never|OnFailure",
		"When the job is started again (default: none)"),
	TEXT("job-backoff-limit", ET | DS, "lifecycle.backoff_limit", "N",
		"Number of restarts (default: none)"),
	TEXT("worker-restart-policy", ET | DS, "worker.restart", "Never|OnFailure|Always|ExitCode",
		"When a worker is started again (default: none)"),
	PAIRS("launcher-selector", 0, LAUNCHED, "launcher.node_selector",
		"Label of the nodes of the launcher (default: none)"),
	PAIRS("launcher-annotation", 0, LAUNCHED, "launcher.annotations",
		"Annotation of the launcher (default: none)"),
	PAIRS("worker-annotation", 0, LAUNCHED, "worker.annotations",
		"Annotation of the workers (default: none)"),
	REFUSED("ssh-secret", OPTION_STRING, ET | DS,
		"the operator makes a key for each job; leave it out"),
	SWITCH("mounts-on-launcher", LAUNCHED, "framework.options.mounts_on_launcher",
		"Mount the storages in the launcher, too (default: no)"),
	REFUSED("gputopology", OPTION_BOOL, MP,
		"for that scheduler write --hostNetwork -l gpu-topology=NAME -l "
		"gpu-topology-replica=N"),
	REFUSED("ssh-port", OPTION_STRING, LAUNCHED, "the operators use port 22"),

	TEXT("ps", TF, "ps.replicas", "N", "Number of parameter servers (default: none)"),
	{ "chief", 0, OPTION_BOOL, TF, "chief.replicas", job_flag_take_one, NULL,
		"Have a chief (default: no)" },
	{ "evaluator", 0, OPTION_BOOL, TF, "evaluator.replicas", job_flag_take_one, NULL,
		"Have an evaluator (default: no)" },
	TEXT("worker-image", TF, "worker.image", "IMAGE", "Image of workers (default: none)"),
	TEXT("ps-image", TF, "ps.image", "IMAGE", "Image of parameter servers (default: none)"),
	TEXT("worker-port", TF, "worker.port", "PORT", "Port of workers (default: none)"),
	TEXT("ps-port", TF, "ps.port", "PORT", "Port of parameter servers (default: none)"),
	TEXT("chief-port", TF, "chief.port", "PORT", "Port of the chief (default: none)"),
	TEXT("ps-gpus", TF, "ps.resources[nvidia.com/gpu]", "N",
		"GPUs of a parameter server (default: none)"),
	ROLE_SIZES("worker", TF | LAUNCHED, "workers"),
	ROLE_SIZES("ps", TF, "parameter servers"),
	ROLE_SIZES("chief", TF, "the chief"),
	ROLE_SIZES("evaluator", TF, "the evaluator"),
	TEXT("worker-affinity-policy", TF, "worker.affinity.policy", "none|spread|binpack",
		"Spread workers over nodes, or pack them (default: none)"),
	TEXT("worker-affinity-constraint", TF, "worker.affinity.constraint", "preferred|required",
		"Whether a node that breaks it is refused (default: none)"),
	TEXT("ps-affinity-policy", TF, "ps.affinity.policy", "none|spread|binpack",
		"Spread parameter servers over nodes, or pack them (default: none)"),
	TEXT("ps-affinity-constraint", TF, "ps.affinity.constraint", "preferred|required",
		"Whether a node that breaks it is refused (default: none)"),
	REFUSED("role-sequence", OPTION_STRING, TF, "all roles start together; use --gang"),
	REFUSED("starting-timeout", OPTION_STRING, TF,
		"use --running-timeout, which counts from the start"),

	TEXT("min-available", VC, "scheduling.gang.min", "N",
		"Pods that start together (default: all)"),
	LATER("task-images", VC, "tasks", "IMAGE,...", "Image of each task (default: none)"),
	LATER("task-name", VC, "tasks", "NAME", "Begin of the names of the tasks (default: task)"),
	LATER("task-replicas", VC, "tasks", "N", "Number of pods of a task (default: 1)"),
	LATER("task-cpu", VC, "tasks", "QUANTITY", "CPUs of a pod (default: 250m)"),
	LATER("task-memory", VC, "tasks", "QUANTITY", "Memory of a pod (default: 128Mi)"),
	LATER("task-port", VC, "tasks", "PORT", "Port of a pod (default: 2222)"),
	PAIRS("plugin", 0, VC, "framework.options.plugins",
		"Plugin of Volcano and its arguments (default: none)"),

	TEXT("context", BU, "build.context", "DIR",
		"Directory of the sources, in a dataset or volume (default: none)"),
	TEXT("dockerfile", BU, "build.dockerfile", "FILE",
		"Dockerfile (default: Dockerfile of the context)"),
	TEXT("destination", BU, "build.destination", "IMAGE",
		"Name and tag to push (default: none)"),
	PAIRS("build-arg", 0, BU, "build.args", "Argument of the build (default: none)"),
	TEXT("push-secret", BU, "build.push_secret", "SECRET",
		"Secret of the registry, of type dockerconfigjson (default: none)"),

	REFUSED("model-name", OPTION_STRING, ALL,
		"models are not registered; label the job: -l model=NAME"),
	REFUSED("model-source", OPTION_STRING, ALL,
		"models are not registered; write -a model-source=URL"),
	REFUSED("arena-namespace", OPTION_STRING, ALL,
		"nothing is stored in a namespace of Arena; leave it out"),
	REFUSED("helm-binary", OPTION_STRING, ALL, "no Helm is used; leave it out"),
	REFUSED("pprof", OPTION_BOOL, ALL, "leave it out"),
	REFUSED("trace", OPTION_BOOL, ALL, "leave it out"),
	{ 0 },
};
