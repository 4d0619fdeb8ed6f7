/*
 * What the files that compile a spec share. One struct compile holds everything; the first failure stays in it and the calls
 * after it do nothing, so that they need no check.
 */
#pragma once

#include "jobs/compile.h"
#include "base/dataset_volume.h"
#include "jobs/field_path.h"

#define GPU_RESOURCE      "nvidia.com/gpu"
#define DNS_LABEL         "abcdefghijklmnopqrstuvwxyz0123456789-"
#define KUEUE_PREFIX      "kueue.x-k8s.io/"
#define KUEUE_QUEUE_LABEL KUEUE_PREFIX "queue-name"
#define INSTANCE_LABEL    "app.kubernetes.io/instance"
#define MANAGED_LABEL     "app.kubernetes.io/managed-by"
#define VOLUME_NAME_BYTES 64u /* a label of DNS, and its NUL */

struct compile {
	const struct job_spec *spec;
	const struct job_type *type;
	enum job_engine engine;
	const char *name;
	struct job_objects *objects;
	json_t *used; /* an object: paths of the spec that were read */
	int error;
	struct err *e;
};

/* One set of equal pods, and where the spec has it. */
struct role {
	const char *base;      /* "worker", "tasks[0]"; "": of the job itself */
	const char *key;       /* in the object: "Worker" */
	const char *container; /* its name */
	const char *restart;   /* default; NULL: the template has none */
	bool trains;           /* has the job's `resources` */
	bool runs;             /* runs the job's command */
	bool mounts;           /* has the storages */
	const char *line;      /* what it runs otherwise; NULL: what the image does */
	const char *port;      /* name of its port */
	const char *inherits;  /* role whose fields it has when it has none */
	const char *image;     /* default */
};

#define ROLE(in_spec, in_object, name, ...)                                             \
	{                                                                               \
		.base = (in_spec), .key = (in_object), .container = (name), __VA_ARGS__ \
	}

/* ---- compile.c ------------------------------------------------------------------------------- */

/* The value at a path of the spec, borrowed, which counts as used; NULL: not given. */
const json_t *spec_get(struct compile *c, const char *path);
const char *spec_text(struct compile *c, const char *path, const char *otherwise);
long long spec_number(struct compile *c, const char *path, long long otherwise);
bool spec_true(struct compile *c, const char *path);

/* Was an object given? Its fields count as used only when they are read. */
bool spec_has(struct compile *c, const char *path);
/* A number for a computation, which does not count as used by it. */
long long spec_peek(const struct compile *c, const char *path, long long otherwise);

/* Of a role: its own, else that of the role it inherits from, else the job's. *ret_path of FIELD_PATH_BYTES: which. */
const json_t *role_get(
	struct compile *c, const struct role *role, const char *field, char *ret_path);
/* Of a role alone. */
const json_t *role_own(
	struct compile *c, const struct role *role, const char *field, char *ret_path);

/* Sets a field of an object; takes over `value`. `from`: path in the spec, NULL: what the type does. */
void put(struct compile *c, json_t *at, const char *path, json_t *value, const char *from);
void put_text(struct compile *c, json_t *at, const char *path, const char *text, const char *from);
void put_number(struct compile *c, json_t *at, const char *path, long long n, const char *from);
/* Copies a value of the spec, when it is given. True: it was. */
bool copy(struct compile *c, json_t *at, const char *path, const char *from);

/* Rows of `copy`, "" ends. */
struct copy_row {
	const char *from;
	const char *to;
};
void copy_rows(struct compile *c, json_t *at, const struct copy_row *rows);

/* A new object or array at a path, borrowed; never NULL: after a failure it is a scratch object. */
json_t *put_object(struct compile *c, json_t *at, const char *path);
json_t *put_array(struct compile *c, json_t *at, const char *path);

/* A new object of the list with its metadata: name, namespace, labels and annotations of the job. */
json_t *add_object(struct compile *c, const char *api, const char *kind, const char *suffix);

/* Refuses a name that the cluster would refuse only when it makes the first pod. */
void spec_check_name(struct compile *c, const char *path, const char *name);
/* Fails with a line about the value at a path of the spec. */
void spec_refuse(struct compile *c, const char *path, const char *format, ...) __printf(3, 4);
void note(struct compile *c, const char *text);

/* Scheduled by Volcano: its own Job, or `gang` by it, which does not count as used by that. */
bool by_volcano(const struct compile *c);
/* Size of the gang that the caller makes; 0: none. `all`: pods of the job. */
long long gang_size(struct compile *c, long long all);
/* Queue: labels the object for Kueue, unless Volcano schedules it. Suspends it at `suspend` (may be NULL) when Kueue has it. */
void put_queue(struct compile *c, json_t *object, const char *suspend);

/* ---- pod.c, volume.c ------------------------------------------------------------------------- */

/* Fills an object as the PodTemplateSpec of a role. */
void pod_build(struct compile *c, json_t *template, const struct role *role);
long long role_gpus(struct compile *c, const struct role *role);
/* What each pod of the job needs to be made: its account, secrets of the registry, tolerations. */
void pod_access(struct compile *c, json_t *pod);
/* Adds a volume, or uses the one that has the same source; takes over `source`. `name`: as asked for, becomes its name. */
void pod_volume(struct compile *c, json_t *pod, char name[VOLUME_NAME_BYTES], json_t *source,
	const char *from);
/* Volumes, their mounts, and the containers that copy code first. */
void pod_volumes(struct compile *c, json_t *pod, json_t *container);
/* Only the storage that can be written and has `path`. False: none has. */
bool pod_volume_of(struct compile *c, json_t *pod, json_t *container, const char *path);
/* Pods that train. */
long long nodes_of(struct compile *c);
/* Is the number of workers of a PyTorchJob one that may change? */
bool is_elastic(struct compile *c);
/* The command of the job with its launcher before it; NULL: none. The caller's to free. */
char *launch_line(struct compile *c, const struct role *role, const char **ret_path);

/* ---- kinds ----------------------------------------------------------------------------------- */

void compile_kubeflow(struct compile *c);
/* spec.runPolicy of the kinds of Kubeflow. `pods`: of the whole job. */
void put_run_policy(struct compile *c, json_t *job, long long pods);
void compile_notebook(struct compile *c);
void compile_mpi(struct compile *c);
void compile_et(struct compile *c);
void compile_volcano(struct compile *c);
void compile_trainer(struct compile *c);
void compile_batch(struct compile *c);

/* ---- children.c: what belongs to a job ------------------------------------------------------- */

void add_tensorboard(struct compile *c);
void add_files(struct compile *c);
/* PodGroup of a job whose operator makes none; binds the template to it. */
void add_pod_group(struct compile *c, json_t *template, long long replicas);
