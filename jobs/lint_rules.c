/* The rules of the linter. See lint_internal.h. */
#include "jobs/lint_internal.h"
#include "base/dataset_volume.h"

#define RESTARTS "Always|OnFailure|Never|ExitCode"
#define ACTIONS                                                                                 \
	"AbortJob|RestartJob|RestartTask|RestartPod|RestartPartition|TerminateJob|CompleteJob|" \
	"ResumeJob"
#define EVENTS                                                                                     \
	"*|PodFailed|PodEvicted|PodPending|PodRunning|Unknown|TaskCompleted|TaskFailed|OutOfSync|" \
	"CommandIssued|JobUpdated"

#define ONE_OF(rule, kinds, field, choices, why)                              \
	{                                                                     \
		rule, true, kinds, field, LINT_ONE_OF, choices, 0, NULL, why, \
			"write one of " choices                               \
	}
#define LEAST(rule, kinds, field, n, why, fix)                                \
	{                                                                     \
		rule, true, kinds, field, LINT_LEAST, NULL, n, NULL, why, fix \
	}
#define PRESENT(rule, kinds, field, why, fix)                                   \
	{                                                                       \
		rule, true, kinds, field, LINT_PRESENT, NULL, 0, NULL, why, fix \
	}
#define ABSENT(rule, kinds, field, why, fix)                                   \
	{                                                                      \
		rule, true, kinds, field, LINT_ABSENT, NULL, 0, NULL, why, fix \
	}
#define ERROR(rule, kinds, field, function, why, fix)                                   \
	{                                                                               \
		rule, true, kinds, field, LINT_TEST, NULL, 0, lint_##function, why, fix \
	}
#define WARN(rule, kinds, field, function, why, fix)                                     \
	{                                                                                \
		rule, false, kinds, field, LINT_TEST, NULL, 0, lint_##function, why, fix \
	}

const struct lint_rule lint_rules[] = {
	/* Every object. */
	PRESENT("kind-missing", LINT_ALL, "kind", "the object has no kind", "write its kind"),
	PRESENT("api-missing", LINT_ALL, "apiVersion", "the object has no apiVersion",
		"write apiVersion: GROUP/VERSION"),
	ERROR("api-version", LINT_OTHER, "apiVersion", unknown_version,
		"is a version of this kind that no operator has",
		"write the version that the operator serves, such as kubeflow.org/v1 for a "
		"PyTorchJob"),
	PRESENT("name-missing", LINT_ALL, "metadata.name", "the object has no name",
		"give it a name"),
	ERROR("name", LINT_PODS, "metadata.name", name_is_not_dns,
		"is not a name that pods and Services may begin with",
		"use a-z, 0-9 and '-', starting with a letter, ending with a letter or digit"),
	ERROR("name-length", LINT_PODS, "metadata.name", name_is_too_long,
		"with role and number is longer than the 63 characters that the name of a pod's "
		"host may have",
		"use a shorter name"),
	ERROR("object-twice", LINT_ALL, "metadata.name", duplicate_object,
		"is the name of two objects of this kind", "give one of them another name"),
	ERROR("label", LINT_PODS, "metadata.labels.*", odd_label,
		"is not a value that a label may have",
		"use at most 63 letters, digits, '-', '_' and '.', beginning and ending with a "
		"letter or digit"),

	/* Kinds of Kubeflow. */
	ONE_OF("clean-pod-policy", LINT_KUBEFLOW | LINT_MPI, "spec.runPolicy.cleanPodPolicy",
		"None|Running|All",
		"is not a valid policy; every webhook accepts it, and pods stay for ever"),
	ONE_OF("clean-pod-policy", LINT_ET | LINT_MPI_V1ALPHA1, "spec.cleanPodPolicy",
		"None|Running|All", "is not a valid policy"),
	ONE_OF("restart-policy", LINT_PYTORCH, "spec.pytorchReplicaSpecs.*.restartPolicy", RESTARTS,
		"is not a valid policy; every webhook accepts it, and failed pods stay"),
	ONE_OF("restart-policy", LINT_TF, "spec.tfReplicaSpecs.*.restartPolicy", RESTARTS,
		"is not a valid policy; every webhook accepts it, and failed pods stay"),
	ONE_OF("restart-policy", LINT_XGB, "spec.xgbReplicaSpecs.*.restartPolicy", RESTARTS,
		"is not a valid policy; every webhook accepts it, and failed pods stay"),
	ONE_OF("restart-policy", LINT_MPI, "spec.mpiReplicaSpecs.*.restartPolicy",
		"OnFailure|Never", "is refused by mpi-operator, which only writes an event"),
	ONE_OF("restart-policy", LINT_ET, "spec.etReplicaSpecs.worker.restartPolicy", RESTARTS,
		"is not a valid policy"),
	ONE_OF("restart-policy", LINT_VOLCANO, "POD.restartPolicy", "OnFailure|Never|Always",
		"is refused by the API server for every pod"),
	ONE_OF("job-restart-policy", LINT_ET, "spec.restartPolicy", "Never|OnFailure",
		"is not a valid policy of a job"),
	{ "success-policy", true, LINT_TF, "spec.successPolicy", LINT_ONE_OF, "|AllWorkers", 0,
		NULL, "is not a valid policy; every webhook accepts it, and the default is used",
		"write AllWorkers, or leave it out" },
	ONE_OF("managed-by", LINT_KUBEFLOW, "spec.runPolicy.managedBy",
		"kubeflow.org/training-operator|kueue.x-k8s.io/multikueue", "names no controller"),
	ONE_OF("managed-by", LINT_MPI, "spec.runPolicy.managedBy",
		"kubeflow.org/mpi-operator|kueue.x-k8s.io/multikueue", "names no controller"),
	LEAST("backoff-limit", LINT_KUBEFLOW | LINT_MPI, "spec.runPolicy.backoffLimit", 0,
		"is below 0", "write 0 or more"),
	LEAST("deadline", LINT_KUBEFLOW | LINT_MPI, "spec.runPolicy.activeDeadlineSeconds", 1,
		"seconds end the job at once", "write at least 1"),
	LEAST("ttl", LINT_KUBEFLOW | LINT_MPI, "spec.runPolicy.ttlSecondsAfterFinished", 0,
		"is below 0", "write 0 or more"),
	ERROR("role", LINT_KUBEFLOW | LINT_MPI, "", unknown_role,
		"has a replica type that the kind does not have",
		"use Master and Worker; PS, Worker, Chief, Master and Evaluator (TFJob); Launcher "
		"and Worker (MPIJob)"),
	ERROR("container-name", LINT_KUBEFLOW, "POD", wrong_container,
		"the operator finds its container by the name pytorch, tensorflow or xgboost, and "
		"no container has it",
		"name the container as the framework"),
	ERROR("workers-zero", LINT_KUBEFLOW | LINT_MPI, "", zero_workers,
		"Worker has 0 replicas: training-operator 1.8 creates and deletes pods without "
		"end, mpi-operator refuses it",
		"leave the role out, or give it a replica"),
	ERROR("counts", LINT_PYTORCH | LINT_XGB, "", counts_of_pods,
		"Master must have exactly 1 replica", "write replicas: 1"),
	ERROR("no-master", LINT_PYTORCH | LINT_XGB, "", no_master,
		"without Master no pod gets MASTER_ADDR and RANK",
		"add a Master, or an elasticPolicy"),
	ERROR("elastic-master", LINT_PYTORCH, "", elastic_and_master,
		"elasticPolicy together with Master makes two rendezvous addresses",
		"remove Master"),
	ERROR("elastic-worker", LINT_PYTORCH, "", elastic_without_worker,
		"elasticPolicy needs a Worker", "add Worker"),
	ERROR("elastic-range", LINT_PYTORCH, "spec.elasticPolicy", elastic_range,
		"minReplicas exceeds maxReplicas, or Worker.replicas is outside of both",
		"write minReplicas <= Worker.replicas <= maxReplicas"),
	ERROR("elastic-bound", LINT_PYTORCH, "spec.elasticPolicy", elastic_bound_missing,
		"has one of minReplicas and maxReplicas: training-operator sets the other to the "
		"same number, and the size of the job never changes",
		"write both"),
	ONE_OF("elastic-backend", LINT_PYTORCH, "spec.elasticPolicy.rdzvBackend",
		"c10d|etcd|etcd-v2", "is not a backend of torch.distributed"),
	ERROR("nproc-twice", LINT_PYTORCH, "", two_nprocs,
		"nprocPerNode and elasticPolicy.nProcPerNode exclude each other",
		"keep nprocPerNode"),
	ERROR("nproc", LINT_PYTORCH, "spec.nprocPerNode", odd_nproc,
		"is not a number of processes; it is passed to PET_NPROC_PER_NODE unchanged",
		"write auto, cpu, gpu or a number"),
	ERROR("chiefs", LINT_TF, "", two_chiefs,
		"Chief and Master together, or one of them more than once: both lead",
		"keep one Chief with 1 replica"),
	ERROR("ps-alone", LINT_TF, "", ps_alone, "PS without Worker or Chief never ends",
		"add Worker"),
	WARN("launch-rank", LINT_PYTORCH, "CONTAINER", odd_name_of_env,
		"the command uses RANK or WORLD_SIZE: RANK is the number of the pod, WORLD_SIZE "
		"counts processes",
		"use PET_NODE_RANK and PET_NNODES, or torchrun without them"),

	/* MPI. */
	ERROR("launcher", LINT_MPI, "", no_launcher,
		"mpi-operator needs exactly one Launcher, and only writes an event",
		"give Launcher, replicas: 1"),
	PRESENT("worker", LINT_MPI, "spec.mpiReplicaSpecs.Worker",
		"an MPIJob without Worker runs nothing", "add Worker"),
	ERROR("gang-launcher", LINT_MPI, "", gang_waits_for_launcher,
		"the launcher is created after the workers run, so that a gang of more than the "
		"workers never starts",
		"write minAvailable: the number of workers"),
	WARN("worker-command", LINT_MPI, "", worker_command,
		"a worker with a command of its own runs no sshd", "leave its command out"),
	ONE_OF("creation-policy", LINT_MPI, "spec.launcherCreationPolicy",
		"AtStartup|WaitForWorkersReady",
		"is not a valid policy; the launcher is created at once"),
	LEAST("slots", LINT_MPI | LINT_ET, "spec.slotsPerWorker", 1, "slots run nothing",
		"write the GPUs of a worker"),
	ONE_OF("mpi", LINT_MPI, "spec.mpiImplementation", "OpenMPI|Intel|MPICH",
		"is not an implementation of MPI"),

	/* Volcano. */
	ERROR("no-tasks", LINT_VOLCANO, "", no_tasks, "a Volcano Job without tasks is refused",
		"add a task"),
	ERROR("task-twice", LINT_VOLCANO, "", tasks_of_one_name,
		"two tasks have one name: without its webhook this stops one of Volcano's "
		"controllers for good",
		"give each task a name of its own"),
	ERROR("task-name", LINT_VOLCANO, "spec.tasks.*.name", task_name_is_not_dns,
		"is not a name of a task", "use a-z, 0-9 and '-'"),
	ERROR("min-available", LINT_VOLCANO, "spec.minAvailable", gang_too_large,
		"exceeds the number of pods: the job never starts",
		"write at most the sum of replicas"),
	ERROR("task-min-available", LINT_VOLCANO, "spec.tasks.*", task_gang_too_large,
		"minAvailable exceeds the replicas of the task: it never starts",
		"write at most its replicas"),
	LEAST("task-replicas", LINT_VOLCANO, "spec.tasks.*.replicas", 0, "is not a number of pods",
		"write 0 or more"),
	ONE_OF("action", LINT_VOLCANO, "spec.policies.*.action", ACTIONS, "is not an action"),
	ONE_OF("action", LINT_VOLCANO, "spec.tasks.*.policies.*.action", ACTIONS,
		"is not an action"),
	ONE_OF("event", LINT_VOLCANO, "spec.policies.*.event", EVENTS, "is not an event"),
	ONE_OF("event", LINT_VOLCANO, "spec.policies.*.events.*", EVENTS, "is not an event"),
	ONE_OF("event", LINT_VOLCANO, "spec.tasks.*.policies.*.event", EVENTS, "is not an event"),
	ERROR("policy-both", LINT_VOLCANO, "spec.policies.*", event_and_exit,
		"a policy has events or an exitCode, not both", "make two policies"),
	ERROR("policy-none", LINT_VOLCANO, "spec.policies.*", no_event,
		"a policy without event and exitCode never acts",
		"add event: PodFailed, or remove it"),
	ERROR("policy-exit-zero", LINT_VOLCANO, "spec.policies.*.exitCode", exit_zero,
		"exit status 0 is success", "use event: TaskCompleted"),
	WARN("evicted-alone", LINT_VOLCANO, "", evicted_alone,
		"PodEvicted without PodFailed leaves the other pods waiting for one that failed",
		"write events: [PodEvicted, PodFailed]"),
	ERROR("plugin", LINT_VOLCANO, "spec.plugins", unknown_plugin,
		"names a plugin that Volcano does not have",
		"use svc, env, ssh, pytorch, tensorflow, mpi, hcclrank or ray"),
	ERROR("plugin-task", LINT_VOLCANO, "spec.plugins.pytorch", plugin_task,
		"--master or --worker names no task, so that no pod gets MASTER_ADDR",
		"name the tasks"),
	ERROR("plugin-option", LINT_VOLCANO, "spec.plugins.*", plugin_option,
		"an unknown option makes the plugin ignore all of them",
		"use the options of the plugin"),
	ERROR("plugin-svc", LINT_VOLCANO, "spec.plugins", plugin_without_svc,
		"pytorch, tensorflow and mpi give addresses that only the plugin svc makes",
		"add svc: []"),
	ERROR("plugin-mpi", LINT_VOLCANO, "spec.plugins.mpi", mpi_plugin_task,
		"--master names no task", "name the task of the launcher"),
	ERROR("depends-on", LINT_VOLCANO, "spec.tasks.*.dependsOn.name.*", depends_on_nothing,
		"names no task", "name a task of the job"),
	ERROR("depends-circle", LINT_VOLCANO, "", depends_in_circle,
		"tasks wait for each other in a circle", "remove one dependency"),

	/* TrainingJob of et-operator. */
	PRESENT("et-launcher", LINT_ET, "spec.etReplicaSpecs.launcher",
		"a TrainingJob needs a launcher", "add launcher"),
	PRESENT("et-worker", LINT_ET, "spec.etReplicaSpecs.worker", "a TrainingJob needs workers",
		"add worker"),
	ERROR("et-range", LINT_ET, "spec.etReplicaSpecs.worker", et_range,
		"replicas is outside of minReplicas and maxReplicas",
		"write minReplicas <= replicas <= maxReplicas"),
	ERROR("gang-launcher", LINT_ET, "spec.etReplicaSpecs.launcher.template", launcher_in_gang,
		"the launcher is created after all workers run, so that a gang with it never "
		"starts",
		"take the launcher out of the PodGroup"),
	ERROR("et-min-max", LINT_ET, "spec.etReplicaSpecs.worker", et_max_below_min,
		"minReplicas exceeds maxReplicas", "write minReplicas <= maxReplicas"),

	/* Others. */
	ERROR("notebook-container", LINT_NOTEBOOK, "metadata.name", notebook_container,
		"no container has the name of the notebook, and the controller serves none",
		"name the container as the notebook"),
	ERROR("job-restart", LINT_JOB, "POD", job_restart,
		"a Job needs restartPolicy Never or OnFailure", "write restartPolicy: Never"),
	ERROR("job-indexed", LINT_JOB, "spec", job_indexed,
		"completionMode Indexed needs completions",
		"write completions: the number of pods"),
	PRESENT("runtime", LINT_TRAIN, "spec.runtimeRef", "a TrainJob needs a runtime",
		"write runtimeRef: {name: torch-distributed}"),
	LEAST("nodes", LINT_TRAIN, "spec.trainer.numNodes", 1, "nodes train nothing",
		"write at least 1"),

	/* Queues and gangs. */
	ERROR("gang-size", LINT_KUBEFLOW | LINT_MPI, "spec.runPolicy.schedulingPolicy.minAvailable",
		gang_too_large, "exceeds the number of pods: the job never starts",
		"write at most the sum of replicas"),
	WARN("gang-part", LINT_KUBEFLOW | LINT_VOLCANO, "", gang_too_small,
		"minAvailable is below the number of pods: the job may start without ranks that it "
		"waits for",
		"write the sum of replicas, or make the job elastic"),
	WARN("kueue-unused", LINT_VOLCANO | LINT_ET | LINT_NOTEBOOK | LINT_MPI_V1ALPHA1,
		"metadata.labels", kueue_does_nothing,
		"Kueue does not manage this kind: its label does nothing",
		"use a queue of Volcano, or a kind that Kueue manages"),
	WARN("suspended", LINT_KUBEFLOW | LINT_MPI | LINT_TRAIN | LINT_JOB, "", suspended_for_ever,
		"suspend is true and no Kueue queue resumes it: the job waits until it is resumed "
		"by hand",
		"label it kueue.x-k8s.io/queue-name: QUEUE, or remove suspend"),
	ERROR("two-gangs", LINT_PODS, "", two_gangs,
		"Volcano and scheduler-plugins both are to start the pods together: each waits for "
		"pods of the other",
		"keep one of them"),
	ERROR("scheduler", LINT_PODS, "", other_scheduler,
		"a template has another scheduler than its gang, or than the other templates",
		"use the scheduler of the gang in all templates"),
	ERROR("podgroup-name", LINT_PODGROUP | LINT_SP_PODGROUP, "metadata.name",
		group_named_like_job,
		"is also the name of a job of Kubeflow, whose operator deletes this PodGroup when "
		"the job is suspended",
		"give it another name"),
	WARN("podgroup-resources", LINT_PODGROUP, "spec", group_without_resources,
		"without minResources the queue's capacity is not checked before pods are created",
		"add minResources"),
	ERROR("podgroup-size", LINT_PODGROUP | LINT_SP_PODGROUP, "spec.minMember", group_too_large,
		"exceeds the pods of the jobs that belong to it: none starts",
		"write at most the number of pods"),
	WARN("podgroup-scheduler", LINT_PODS, "", group_annotation,
		"pods name a PodGroup of Volcano, and another scheduler places them",
		"write schedulerName: volcano"),

	/* Pods. */
	PRESENT("image", LINT_PODS & ~LINT_TRAIN, "CONTAINER.image", "the container has no image",
		"give it an image"),
	PRESENT("containers", LINT_PODS & ~LINT_TRAIN, "POD.containers",
		"the pod has no containers", "add a container"),
	ERROR("container-twice", LINT_PODS, "POD", two_containers, "two containers have one name",
		"give each a name of its own"),
	ERROR("volume-missing", LINT_PODS, "POD", no_volume,
		"a container mounts a volume that the pod does not have", "add the volume"),
	ERROR("volume-twice", LINT_PODS, "POD", two_volumes, "two volumes have one name",
		"give each a name of its own"),
	ERROR("mount-twice", LINT_PODS, "CONTAINER", two_mounts,
		"two volumes are mounted at one path", "mount one of them elsewhere"),
	ERROR("mount-path", LINT_PODS, "CONTAINER.volumeMounts.*.mountPath", relative_mount,
		"is not an absolute path without ':'", "begin it with /"),
	WARN("env-twice", LINT_PODS, "CONTAINER", two_envs,
		"a variable is set twice, and the last one counts", "remove one"),
	ERROR("request-limit", LINT_PODS, "CONTAINER.resources", request_above_limit,
		"a request exceeds its limit", "raise the limit"),
	ERROR("device-unequal", LINT_PODS, "CONTAINER.resources", device_unequal,
		"an extended resource needs a limit, and a request that equals it",
		"write the same number in both"),
	ERROR("device-fraction", LINT_PODS, "CONTAINER.resources.limits", device_fraction,
		"an extended resource is counted in whole numbers", "write a whole number"),
	WARN("rdma-lock", LINT_PODS, "CONTAINER", rdma_without_lock,
		"an RDMA device without the capability IPC_LOCK cannot register memory",
		"add IPC_LOCK to securityContext.capabilities"),
	WARN("rdma-aligned", LINT_PODS, "CONTAINER", rdma_unaligned,
		"NIC and GPU are put on one NUMA node only for pods of the class Guaranteed: whole "
		"CPUs and memory, requests equal to limits",
		"give cpu and memory"),
	WARN("shm-unbounded", LINT_PODS, "POD.volumes.*.emptyDir", shm_unbounded,
		"a memory volume without sizeLimit may take the memory of the node",
		"add sizeLimit"),
	WARN("shm-memory", LINT_PODS, "POD", shm_above_memory,
		"shared memory exceeds the memory limit of the container, which is killed before "
		"it is full",
		"raise memory, or lower the size of shm"),
	ERROR("dataset-read-only", LINT_PODS, "POD.volumes.*.csi", dataset_writable,
		"a dataset is read-only, and the volume is not", "write readOnly: true"),
	ERROR("dataset-name", LINT_PODS, "POD.volumes.*.csi", dataset_unnamed,
		"the volume of a dataset has no attribute dataset",
		"write volumeAttributes: {dataset: NAME}"),
	ERROR("dataset-attribute", LINT_PODS, "POD.volumes.*.csi", dataset_attribute,
		"has an attribute that the driver does not know, and the pod waits for its volume "
		"for ever",
		"use " CSI_ATTRIBUTES),
	WARN("host-dns", LINT_PODS, "POD", host_network_dns,
		"with hostNetwork names of the cluster are resolved only by "
		"ClusterFirstWithHostNet",
		"write dnsPolicy: ClusterFirstWithHostNet"),
	{ 0 },
};
