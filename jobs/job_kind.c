/* Kinds of objects, and their states. See job_kind.h. */
#include "jobs/job_kind.h"
#include "jobs/field_path.h"

#include <string.h>

#define KUBEFLOW "kubeflow.org/v1"
#define RUN      "spec.runPolicy.suspend"

static const struct job_kind kinds[] = {
	{ KUBEFLOW, "PyTorchJob", ENGINE_KUBEFLOW, RUN,
		"spec.pytorchReplicaSpecs.Worker.replicas" },
	{ KUBEFLOW, "TFJob", ENGINE_KUBEFLOW, RUN, NULL },
	{ KUBEFLOW, "XGBoostJob", ENGINE_KUBEFLOW, RUN, NULL },
	{ KUBEFLOW, "Notebook", ENGINE_KUBEFLOW, NULL, NULL },
	{ "kubeflow.org/v2beta1", "MPIJob", ENGINE_MPI, RUN,
		"spec.mpiReplicaSpecs.Worker.replicas" },
	{ "kubeflow.org/v1alpha1", "MPIJob", ENGINE_MPI, NULL, NULL },
	{ "kai.alibabacloud.com/v1alpha1", "TrainingJob", ENGINE_ET, NULL,
		"spec.etReplicaSpecs.worker.replicas" },
	{ "batch.volcano.sh/v1alpha1", "Job", ENGINE_VOLCANO, NULL, NULL },
	{ "trainer.kubeflow.org/v1alpha1", "TrainJob", ENGINE_TRAINER, "spec.suspend",
		"spec.trainer.numNodes" },
	{ "batch/v1", "Job", ENGINE_KUBERNETES, "spec.suspend", "spec.parallelism" },
};

const struct job_kind *job_kind_at(unsigned int i)
{
	return i < ARRAY_SIZE(kinds) ? &kinds[i] : NULL;
}

const struct job_kind *job_kind_of(const char *api_version, const char *kind)
{
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
		if (strcmp(kinds[i].api_version, api_version) == 0 &&
			strcmp(kinds[i].kind, kind) == 0)
			return &kinds[i];
	return NULL;
}

/* ---- types ----------------------------------------------------------------------------------- */

static const char *kubeflow_kind(enum job_type_id id)
{
	switch (id) {
	case JOB_TF:
		return "TFJob";
	case JOB_XGBOOST:
		return "XGBoostJob";
	case JOB_NOTEBOOK:
		return "Notebook";
	case JOB_PYTORCH:
	case JOB_MPI:
	case JOB_ET:
	case JOB_DEEPSPEED:
	case JOB_VOLCANO:
	case JOB_K8S:
	case JOB_BUILD:
	case JOB_TYPES:
		break;
	}
	return "PyTorchJob";
}

static bool may_be(const struct job_type *type, const struct job_kind *kind)
{
	return (type->engines >> kind->engine & 1) &&
	       (kind->engine != ENGINE_KUBEFLOW ||
		       strcmp(kind->kind, kubeflow_kind(type->id)) == 0);
}

const struct job_kind *job_kind_of_type(const struct job_type *type, unsigned int i)
{
	for (int usual = 1; usual >= 0; usual--)
		for (size_t k = 0; k < ARRAY_SIZE(kinds); k++)
			if (may_be(type, &kinds[k]) &&
				(kinds[k].engine == type->engine) == (usual == 1) && i-- == 0)
				return &kinds[k];
	return NULL;
}

/* ---- states ---------------------------------------------------------------------------------- */

static const char *const state_names[] = {
	[JOB_PENDING] = "Pending",
	[JOB_SUSPENDED] = "Suspended",
	[JOB_RUNNING] = "Running",
	[JOB_SUCCEEDED] = "Succeeded",
	[JOB_FAILED] = "Failed",
};

const char *job_state_name(enum job_state state)
{
	return state_names[state];
}

/* The words of all operators, as types of conditions or as phases. */
static const struct word {
	const char *text;
	enum job_state state;
} words[] = {
	{ "Failed", JOB_FAILED },
	{ "Terminated", JOB_FAILED },
	{ "Terminating", JOB_FAILED },
	{ "Succeeded", JOB_SUCCEEDED },
	{ "Complete", JOB_SUCCEEDED },
	{ "Completed", JOB_SUCCEEDED },
	{ "Suspended", JOB_SUSPENDED },
	{ "Aborted", JOB_SUSPENDED },
	{ "Aborting", JOB_SUSPENDED },
	{ "Running", JOB_RUNNING },
	{ "Restarting", JOB_PENDING },
};

static int find_word(const char *text)
{
	for (size_t i = 0; text && i < ARRAY_SIZE(words); i++)
		if (strcmp(words[i].text, text) == 0)
			return (int)i;
	return -1;
}

static const char *text_of(const json_t *object, const char *path)
{
	const char *text = json_string_value(field_path_get(object, path));

	return text ? text : "";
}

/* The condition that holds and comes first in `words`. */
static enum job_state state_of_conditions(const json_t *object, const char **ret_reason)
{
	const json_t *all = field_path_get(object, "status.conditions");
	const json_t *condition;
	int best = -1;
	size_t i;

	json_array_foreach (all, i, condition) {
		int word = find_word(text_of(condition, "type"));

		if (word < 0 || strcmp(text_of(condition, "status"), "True") != 0 ||
			(best >= 0 && word >= best))
			continue;
		best = word;
		*ret_reason = text_of(condition, "message");
	}
	return best < 0 ? JOB_PENDING : words[best].state;
}

enum job_state job_state_of(const json_t *object, const char **ret_reason)
{
	const struct job_kind *kind =
		job_kind_of(text_of(object, "apiVersion"), text_of(object, "kind"));
	const char *reason = "";
	enum job_state state = state_of_conditions(object, &reason);
	int phase = find_word(text_of(object, "status.state.phase"));

	if (state == JOB_PENDING && phase < 0)
		phase = find_word(text_of(object, "status.phase"));
	else if (state == JOB_PENDING)
		reason = text_of(object, "status.state.message");
	if (state == JOB_PENDING && phase >= 0)
		state = words[phase].state;
	if (state == JOB_PENDING && kind && kind->suspend &&
		json_is_true(field_path_get(object, kind->suspend)))
		state = JOB_SUSPENDED;
	if (state == JOB_PENDING &&
		(json_integer_value(field_path_get(object, "status.ready")) > 0 ||
			json_integer_value(field_path_get(object, "status.readyReplicas")) > 0))
		state = JOB_RUNNING;
	if (ret_reason)
		*ret_reason = reason;
	return state;
}
