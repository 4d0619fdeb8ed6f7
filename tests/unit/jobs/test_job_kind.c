/* States by what operators write, and the kinds that a type may become. */
#include "jobs/job_kind.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>

static void states_follow_conditions_that_hold(void **state)
{
	static const struct {
		const char *object;
		enum job_state state;
		const char *reason;
	} rows[] = {
		{ "{}", JOB_PENDING, "" },
		{ "{'status': {'conditions': [{'type': 'Created', 'status': 'True'}]}}",
			JOB_PENDING, "" },
		/* kubectl would say Suspended, the last condition, which no longer holds. */
		{ "{'status': {'conditions': [{'type': 'Running', 'status': 'True', 'message': "
		  "'runs'},"
		  "{'type': 'Suspended', 'status': 'False', 'message': 'no'}]}}",
			JOB_RUNNING, "runs" },
		{ "{'status': {'conditions': [{'type': 'Running', 'status': 'True'},"
		  "{'type': 'Failed', 'status': 'True', 'message': 'exit 1'}]}}",
			JOB_FAILED, "exit 1" },
		{ "{'status': {'conditions': [{'type': 'Complete', 'status': 'True'}]}}",
			JOB_SUCCEEDED, "" },
		{ "{'status': {'state': {'phase': 'Aborted', 'message': 'by command'}}}",
			JOB_SUSPENDED, "by command" },
		{ "{'status': {'state': {'phase': 'Completed'}}}", JOB_SUCCEEDED, "" },
		{ "{'status': {'phase': 'Running'}}", JOB_RUNNING, "" },
		{ "{'apiVersion': 'batch/v1', 'kind': 'Job', 'spec': {'suspend': true}}",
			JOB_SUSPENDED, "" },
		{ "{'apiVersion': 'batch/v1', 'kind': 'Job', 'status': {'active': 1, 'ready': 1}}",
			JOB_RUNNING, "" },
		{ "{'status': {'readyReplicas': 1}}", JOB_RUNNING, "" },
		{ "{'status': {'conditions': 'nonsense', 'phase': 7}}", JOB_PENDING, "" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		char text[512];
		const char *reason = NULL;
		json_t *object;

		(void)snprintf(text, sizeof(text), "%s", rows[i].object);
		for (char *s = text; *s; s++)
			*s = *s == '\'' ? '"' : *s;
		object = json_loads(text, 0, NULL);
		assert_non_null(object);
		if (job_state_of(object, &reason) != rows[i].state)
			fail_msg("%s: %s", rows[i].object,
				job_state_name(job_state_of(object, NULL)));
		assert_string_equal(reason, rows[i].reason);
		json_decref(object);
	}
}

static void types_have_their_usual_kind_first(void **state)
{
	static const struct {
		const char *type;
		const char *kinds;
	} rows[] = {
		{ "pytorchjob", "PyTorchJob Job TrainJob " },
		{ "tfjob", "TFJob Job " },
		{ "xgboostjob", "XGBoostJob " },
		{ "mpijob", "MPIJob MPIJob Job " },
		{ "etjob", "TrainingJob " },
		{ "deepspeedjob", "TrainingJob MPIJob MPIJob " },
		{ "volcanojob", "Job " },
		{ "k8sjob", "Job Job " },
		{ "notebook", "Notebook " },
		{ "buildjob", "Job " },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct job_type *type = NULL;
		const struct job_kind *kind;
		char all[128] = "";

		assert_int_equal(job_type_find(rows[i].type, &type, NULL), 0);
		assert_int_equal(job_kind_of_type(type, 0)->engine, type->engine);
		for (unsigned int k = 0; (kind = job_kind_of_type(type, k)); k++) {
			strcat(all, kind->kind);
			strcat(all, " ");
		}
		assert_string_equal(all, rows[i].kinds);
	}
	for (unsigned int i = 0; job_kind_at(i); i++)
		assert_ptr_equal(job_kind_of(job_kind_at(i)->api_version, job_kind_at(i)->kind),
			job_kind_at(i));
	assert_null(job_kind_of("v1", "Pod"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(states_follow_conditions_that_hold),
		cmocka_unit_test(types_have_their_usual_kind_first),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
