/* Command lines written for Arena: what they make, and what is refused. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jobs/compile.h"
#include "jobs/field_path.h"
#include "jobs/job_flag.h"

/* argv[0] is the type; ends with NULL. */
static int submit(
	const char *const *argv, bool files, struct job_objects *ret, json_t *notes, struct err *e)
{
	struct option_spec *specs = calloc(JOB_FLAGS_MAX, sizeof(*specs));
	struct job_flag_values *values = calloc(1, sizeof(*values));
	struct option_set set = {
		.program = "submit", .arguments = "", .specs = specs, .max_args = 90, .command = 1
	};
	const struct job_type *type = NULL;
	struct job_spec spec;
	char *words[64] = { NULL };
	int args = 0;
	int n = 0;
	int r;

	for (; argv[n]; n++)
		words[n] = (char *)(uintptr_t)argv[n];
	assert_int_equal(job_spec_init(&spec), 0);
	r = job_type_find(words[0], &type, e);
	if (r == 0) {
		set.n = job_flag_options(type, specs, 0);
		r = option_parse(&set, n, words, values, &args, e);
	}
	if (r == 0)
		r = job_flag_take(type, values, files, words + 1, args, &spec, notes, e);
	if (r == 0)
		r = job_spec_finish(&spec, e);
	if (r == 0)
		r = job_compile(&spec, ret, e);
	job_spec_release(&spec);
	free(values);
	free(specs);
	return r;
}

static const char *text_at(const struct job_objects *objects, const char *path)
{
	return json_string_value(field_path_get(json_array_get(objects->list, 0), path));
}

static void arena_lines(void **state)
{
	static const struct {
		const char *argv[40];
		size_t objects;
		const char *path;
		const char *value;
	} lines[] = {
		{ { "pytorchjob", "--name=bloom-sft", "--gpus=1", "--image=registry/bloom:1",
			  "--data=training-data:/model", "--tensorboard", "--logdir=/model/logs",
			  "cd /model && bash train.sh" },
			3, "spec.pytorchReplicaSpecs.Master.template.spec.containers[0].command[2]",
			"cd /model && bash train.sh" },
		{ { "pytorch", "--name=llm", "--image=i:1", "--workers=4", "--rdma", "--retry", "3",
			  "--memory", "256Gi", "--cpu", "32", "--gpus", "8", "--share-memory",
			  "64Gi", "-n", "team-a", "--selector", "pool=h100", "-l",
			  "kueue.x-k8s.io/queue-name=TENANT-local-queue", "-e", "TZ=Asia/Shanghai",
			  "-a", "k=v", "--data", "d:/d", "torchrun t.py" },
			1, "metadata.labels[kueue.x-k8s.io/queue-name]", "TENANT-local-queue" },
		{ { "etjob", "--name=e", "--image=h:1", "--spot-instance", "--max-wait-time=600",
			  "--job-restart-policy=OnFailure", "--job-backoff-limit=3",
			  "--worker-restart-policy=Always", "--launcher-selector=pool=a",
			  "--toleration=all", "--workers=4", "--max-workers=128", "--min-workers=1",
			  "horovodrun -np ${workers} python t.py" },
			1, "spec.etReplicaSpecs.launcher.template.spec.containers[0].env[0].value",
			"4" },
		{ { "mpi", "--name=m", "--image=h:1", "--workers=2", "--gpus=4", "mpirun", "-np",
			  "8", "python", "a b" },
			1, "spec.mpiReplicaSpecs.Launcher.template.spec.containers[0].command[2]",
			"mpirun -np 8 python 'a b'" },
		{ { "tf", "--name=t", "--workers=1", "--image=i", "--env=Q=it's \"x\": {y}",
			  "--rdma=false", "--", "a" },
			1, "spec.tfReplicaSpecs.Worker.template.spec.containers[0].env[0].value",
			"it's \"x\": {y}" },
		{ { "vj", "--name=v", "--task-images=a:1,b:2", "--task-replicas=3",
			  "--dataset=imagenet" },
			1, "spec.tasks[1].template.spec.containers[0].volumeMounts[0].mountPath",
			"/data/imagenet" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
		struct job_objects objects;
		json_t *notes = json_array();
		struct err e = ERR_INIT;
		const char *value;

		if (submit(lines[i].argv, false, &objects, notes, &e) < 0)
			fail_msg("%zu: %s", i, e.text);
		assert_int_equal(json_array_size(objects.list), lines[i].objects);
		value = text_at(&objects, lines[i].path);
		assert_non_null(value);
		assert_string_equal(value, lines[i].value);
		job_objects_release(&objects);
		json_decref(notes);
	}
}

static void workers_include_the_master(void **state)
{
	static const char *const argv[] = { "pytorchjob", "--name=a", "--image=i", "--workers=4",
		NULL };
	struct job_objects objects;
	json_t *notes = json_array();
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(submit(argv, false, &objects, notes, &e), 0);
	assert_int_equal(json_integer_value(field_path_get(json_array_get(objects.list, 0),
				 "spec.pytorchReplicaSpecs.Worker.replicas")),
		3);
	assert_string_equal(json_string_value(json_array_get(notes, 0)),
		"--workers 4: 1 master and 3 workers, as with Arena");
	job_objects_release(&objects);
	json_decref(notes);
}

static void refused(void **state)
{
	static const struct {
		const char *argv[12];
		const char *says;
	} cases[] = {
		{ { "sparkjob", "--name=a" }, "sparkjob is not supported: use" },
		{ { "nosuchjob", "--name=a" },
			"unknown type of job 'nosuchjob'; allowed: one of pytorchjob" },
		{ { "pytorchjob", "--name=a", "--image=i", "--model-name=m" },
			"--model-name does not apply to pytorchjob: models" },
		{ { "pytorchjob", "--name=a", "--image=i", "--ps=1" },
			"--ps belongs to tfjob, not to pytorchjob" },
		{ { "tfjob", "--name=a", "--image=i", "--cpu=1" },
			"--cpu does not apply to tfjob: use --worker-cpu" },
		{ { "pytorchjob", "--name=a", "--image=i", "-e", "A" },
			"--env: 'A' is not KEY=VALUE" },
		{ { "pytorchjob", "--name=a", "--image=i", "-l", "=b" },
			"--label: '=b' is not KEY=VALUE" },
		{ { "pytorchjob", "--name=a", "--image=i", "--data", "pvc" },
			"--data: 'pvc' is not PVC:PATH" },
		{ { "pytorchjob", "--name=a", "--image=i", "--data", "pvc:rel" },
			"--data: 'pvc:rel' is not PVC:PATH" },
		{ { "pytorchjob", "--name=a", "--image=i", "--data-dir", "x" },
			"--data-dir: 'x' is not DIR[:PATH]" },
		{ { "pytorchjob", "--name=a", "--image=i", "--dataset", "d:x" },
			"--dataset: 'd:x' is not NAME[:PATH]" },
		{ { "pytorchjob", "--name=a", "--image=i", "--toleration", ":x" },
			"--toleration: ':x' is not a toleration" },
		{ { "pytorchjob", "--name=a", "--image=i", "--toleration", "a:Sometimes" },
			"--toleration: 'Sometimes' is unknown" },
		{ { "pytorchjob", "--name=a", "--image=i", "--workers=0" },
			"--workers: '0' is not a number of pods" },
		{ { "pytorchjob", "--name=a", "--image=i", "--memory=lots" },
			"--memory: 'lots' is not a quantity" },
		{ { "pytorchjob", "--name=a", "--image=i", "--sync-mode=git" },
			"--sync-mode and --sync-source belong together" },
		{ { "pytorchjob", "--name=a", "--image=i", "--config-file=/etc/hostname" },
			"--config-file: files of the server are not read" },
		{ { "pytorchjob", "--name=a", "--image=i", "--env=A=\xff" },
			"--env: the value is not UTF-8" },
		{ { "pytorchjob", "--name=a", "--image=i", "--nosuch" },
			"unknown option '--nosuch'" },
		{ { "pytorchjob", "--name=a", "--image=i", "--logdir=/x" },
			"--logdir: has no effect on pytorchjob" },
		{ { "pytorchjob", "--name=a_b", "--image=i" }, "--name: invalid name 'a_b'" },
		{ { "buildjob", "--name=a", "--dataset=d" }, "build.context: is missing" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct job_objects objects;
		json_t *notes = json_array();
		struct err e = ERR_INIT;

		assert_int_equal(submit(cases[i].argv, false, &objects, notes, &e), -EINVAL);
		if (!strstr(e.text, cases[i].says))
			fail_msg("'%s' instead of '%s'", e.text, cases[i].says);
		json_decref(notes);
	}
}

static void files_of_this_host(void **state)
{
	static const char *const argv[] = { "k8sjob", "--name=a", "--image=i",
		"--config-file=/proc/version:/etc/v", NULL };
	struct job_objects objects;
	json_t *notes = json_array();
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(submit(argv, true, &objects, notes, &e), 0);
	assert_int_equal(json_array_size(objects.list), 2);
	assert_non_null(strstr(
		json_string_value(field_path_get(json_array_get(objects.list, 1), "data.file-0")),
		"Linux"));
	job_objects_release(&objects);
	json_decref(notes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(arena_lines),
		cmocka_unit_test(workers_include_the_master),
		cmocka_unit_test(refused),
		cmocka_unit_test(files_of_this_host),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
