/* Jobs, with every allocation failing once: a spec is compiled whole, or refused with a line and nothing left behind. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "jobs/compile.h"
#include "jobs/lint.h"
#include "jobs/manifest.h"
#include "tests/alloc/alloc_fail.h"

static const char text[] = "name: llm\nframework: {name: pytorch, options: {launch: "
			   "torchrun}}\nimage: i:1\nrun: t.py\n"
			   "envs: {A: \"1\", B: {secret: s, key: k}}\nworker: {replicas: 3, "
			   "resources: {nvidia.com/gpu: 8}}\n"
			   "storages: [{dataset: imagenet, generation: 7, order: true}, {pvc: c, "
			   "mount: /c}, {shm: 2Gi}]\n"
			   "files: {/etc/a: b}\nsync: [{git: g, local_path: /code}]\n"
			   "scheduling: {gang: true, queue: q, affinity: {policy: spread}, "
			   "tolerations: [{operator: Exists}]}\n"
			   "logging: {tensorboard: {enabled: true, logdir: /c/l}}\n";

static int compile(struct job_objects *ret_objects, struct job_spec *spec, struct err *e)
{
	int r = job_spec_init(spec);

	if (r < 0)
		return err_set(e, r, "out of memory");
	r = job_spec_read(spec, "job.yaml", text, strlen(text), e);
	if (r == 0)
		r = job_spec_set(spec, "worker.replicas=4", e);
	if (r == 0)
		r = job_spec_finish(spec, e);
	return r == 0 ? job_compile(spec, ret_objects, e) : r;
}

static int compile_and_explain(void *arg)
{
	struct job_objects objects = { 0 };
	struct job_spec spec = { 0 };
	struct err e = ERR_INIT;
	json_t *rows;
	int r = compile(&objects, &spec, &e);

	(void)arg;
	if (r != 0 && !(r == -ENOMEM && e.text[0]))
		fail_msg("%d: %s", r, e.text);
	if (r == 0) {
		assert_int_equal(json_array_size(objects.list), 4);
		rows = job_explain(&spec, &objects);
		r = rows ? 0 : -ENOMEM;
		json_decref(rows);
	}
	job_objects_release(&objects);
	job_spec_release(&spec);
	return r;
}

static void compiling(void **state)
{
	(void)state;
	assert_true(alloc_sweep(compile_and_explain, NULL, 1) > 500);
}

static int lint_manifest(void *arg)
{
	static const char manifest[] =
		"{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {name: a}, "
		"spec: {pytorchReplicaSpecs: {Worker: &w {replicas: 0, template: {spec: "
		"{containers: [{name: x, image: i}]}}}, Chief: {<<: *w, replicas: 2}}}}";
	json_t *objects = json_array();
	json_t *findings = json_array();
	struct err e = ERR_INIT;
	int r = objects && findings ? manifest_read("m", manifest, strlen(manifest), objects, &e)
				    : err_set(&e, -ENOMEM, "out of memory");

	(void)arg;
	if (r == 0)
		r = job_lint(objects, findings, &e);
	if (r != 0 && !(r == -ENOMEM && e.text[0]))
		fail_msg("%d: %s", r, e.text);
	assert_true(r < 0 || json_array_size(findings) >= 4);
	json_decref(objects);
	json_decref(findings);
	return r;
}

static void linting(void **state)
{
	(void)state;
	assert_true(alloc_sweep(lint_manifest, NULL, 41) > 20);
}

/* Those of the JSON library fail, too: a spec and its objects are its values. */
static void *allocate(size_t n)
{
	return malloc(n);
}

static void release(void *p)
{
	free(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(compiling),
		cmocka_unit_test(linting),
	};

	json_set_alloc_funcs(allocate, release);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
