/* The types of jobs. See job_type.h. */
#include "jobs/job_type.h"

#include <stdio.h>
#include <string.h>

#define BIT(engine) (1u << (engine))

static const struct job_type types[] = {
	{ JOB_PYTORCH, "pytorchjob", "pytorch", "pytorch", ENGINE_KUBEFLOW,
		BIT(ENGINE_KUBEFLOW) | BIT(ENGINE_VOLCANO) | BIT(ENGINE_TRAINER),
		"PyTorch, on one node or several" },
	{ JOB_TF, "tfjob", "tf", "tensorflow", ENGINE_KUBEFLOW,
		BIT(ENGINE_KUBEFLOW) | BIT(ENGINE_VOLCANO), "TensorFlow" },
	{ JOB_XGBOOST, "xgboostjob", "xgboost", "xgboost", ENGINE_KUBEFLOW, BIT(ENGINE_KUBEFLOW),
		"XGBoost" },
	{ JOB_MPI, "mpijob", "mpi", "mpi", ENGINE_MPI, BIT(ENGINE_MPI) | BIT(ENGINE_VOLCANO),
		"MPI or Horovod" },
	{ JOB_ET, "etjob", "et", "elastic", ENGINE_ET, BIT(ENGINE_ET),
		"Horovod with a number of workers that changes" },
	{ JOB_DEEPSPEED, "deepspeedjob", "deepspeed", "deepspeed", ENGINE_ET,
		BIT(ENGINE_ET) | BIT(ENGINE_MPI), "DeepSpeed" },
	{ JOB_VOLCANO, "volcanojob", "vj", "volcano", ENGINE_VOLCANO, BIT(ENGINE_VOLCANO),
		"Tasks that Volcano starts together" },
	{ JOB_K8S, "k8sjob", "job", "job", ENGINE_KUBERNETES,
		BIT(ENGINE_KUBERNETES) | BIT(ENGINE_VOLCANO), "One or several equal pods" },
	{ JOB_NOTEBOOK, "notebook", "nb", "notebook", ENGINE_KUBEFLOW, BIT(ENGINE_KUBEFLOW),
		"Jupyter" },
	{ JOB_BUILD, "buildjob", "build", "build", ENGINE_KUBERNETES, BIT(ENGINE_KUBERNETES),
		"Build an image of sources in a dataset" },
};

static const char *const engine_names[ENGINES] = {
	[ENGINE_KUBEFLOW] = "kubeflow",
	[ENGINE_MPI] = "mpi",
	[ENGINE_ET] = "et",
	[ENGINE_VOLCANO] = "volcano",
	[ENGINE_TRAINER] = "trainer",
	[ENGINE_KUBERNETES] = "kubernetes",
};

const struct job_type *job_type_at(unsigned int i)
{
	return i < ARRAY_SIZE(types) ? &types[i] : NULL;
}

const struct job_type *job_type_of_framework(const char *framework)
{
	if (strcmp(framework, "horovod") == 0)
		framework = "mpi";
	for (size_t i = 0; i < ARRAY_SIZE(types); i++)
		if (strcmp(types[i].framework, framework) == 0)
			return &types[i];
	return NULL;
}

int job_type_find(const char *name, const struct job_type **ret_type, struct err *e)
{
	static const struct {
		const char *name;
		const char *instead;
	} others[] = {
		{ "horovodjob", "mpijob, with horovodrun as the command" },
		{ "hj", "mpijob, with horovodrun as the command" },
		{ "sparkjob", "the operator of Spark, which reads datasets from their mounts" },
		{ "rayjob", "the operator of Ray, which reads datasets from their mounts" },
		{ "rj", "the operator of Ray, which reads datasets from their mounts" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(types); i++)
		if (strcmp(types[i].name, name) == 0 || strcmp(types[i].brief, name) == 0) {
			*ret_type = &types[i];
			return 0;
		}
	for (size_t i = 0; i < ARRAY_SIZE(others); i++)
		if (strcmp(others[i].name, name) == 0)
			return err_set(
				e, -EINVAL, "%s is not supported: use %s", name, others[i].instead);
	return err_set(e, -EINVAL,
		"unknown type of job '%s'; allowed: one of "
		"pytorchjob|tfjob|xgboostjob|mpijob|etjob|deepspeedjob|volcanojob|k8sjob|notebook|"
		"buildjob",
		name);
}

const char *job_engine_name(enum job_engine engine)
{
	return engine_names[engine];
}

int job_engine_find(
	const struct job_type *type, const char *name, enum job_engine *ret_engine, struct err *e)
{
	char all[96] = "auto";

	if (!name || strcmp(name, "auto") == 0) {
		*ret_engine = type->engine;
		return 0;
	}
	for (unsigned int i = 0; i < ENGINES; i++) {
		size_t len = strlen(all);

		if (!(type->engines >> i & 1))
			continue;
		if (strcmp(name, engine_names[i]) == 0) {
			*ret_engine = (enum job_engine)i;
			return 0;
		}
		(void)snprintf(all + len, sizeof(all) - len, "|%s", engine_names[i]); /* fits */
	}
	return err_set(e, -EINVAL, "%s does not run on engine '%s'; allowed: one of %s", type->name,
		name, all);
}
