/*
 * The types of jobs: what `cachectl job submit TYPE` and `framework:` name, and what each becomes.
 *
 * Threads: any.
 */
#pragma once

#include <stdbool.h>
#include "base/err.h"

enum job_type_id {
	JOB_PYTORCH,
	JOB_TF,
	JOB_XGBOOST,
	JOB_MPI,
	JOB_ET,
	JOB_DEEPSPEED,
	JOB_VOLCANO,
	JOB_K8S,
	JOB_NOTEBOOK,
	JOB_BUILD,
	JOB_TYPES,
};

/* What a spec is compiled to. */
enum job_engine {
	ENGINE_KUBEFLOW,   /* training-operator: PyTorchJob, TFJob, XGBoostJob; Notebook */
	ENGINE_MPI,        /* mpi-operator: MPIJob v2beta1 */
	ENGINE_ET,         /* et-operator: TrainingJob */
	ENGINE_VOLCANO,    /* Volcano Job */
	ENGINE_TRAINER,    /* Kubeflow Trainer: TrainJob */
	ENGINE_KUBERNETES, /* batch/v1 Job */
	ENGINES,
};

struct job_type {
	enum job_type_id id;
	const char *name;       /* "pytorchjob" */
	const char *brief;      /* "pytorch" */
	const char *framework;  /* of the spec */
	enum job_engine engine; /* for `engine: auto` */
	unsigned int engines;   /* all that it may have, a bit each */
	const char *help;
};

const struct job_type *job_type_at(unsigned int i); /* NULL: no more */
const struct job_type *job_type_of_framework(const char *framework);
/* By name or brief name. -EINVAL with a line that has all types, or what to use in place of Arena's others. */
int job_type_find(const char *name, const struct job_type **ret_type, struct err *e) __must_check;

const char *job_engine_name(enum job_engine engine);
/* The engine called `name` ("auto", NULL: the type's own). -EINVAL with its line: unknown, or not one of the type's. */
int job_engine_find(const struct job_type *type, const char *name, enum job_engine *ret_engine,
	struct err *e) __must_check;
