/* What compiling and checking a job costs, counted: allocations, and bytes at the peak. Time follows the allocations. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "jobs/compile.h"
#include "jobs/lint.h"

static struct {
	size_t calls;
	size_t bytes;
	size_t peak;
} cost;

/* Nearly all of it are values of JSON: the spec, the objects, the schemas, the findings. */
static void *allocate(size_t n)
{
	void *p = malloc(n);

	cost.calls++;
	cost.bytes += malloc_usable_size(p);
	cost.peak = max(cost.peak, cost.bytes);
	return p;
}

static void release(void *p)
{
	cost.bytes -= malloc_usable_size(p);
	free(p);
}

static void compile_and_check(const char *yaml)
{
	struct job_objects objects;
	struct job_spec spec;
	struct err e = ERR_INIT;
	json_t *findings = json_array();

	assert_int_equal(job_spec_init(&spec), 0);
	if (job_spec_read(&spec, "job.yaml", yaml, strlen(yaml), &e) < 0 ||
		job_spec_finish(&spec, &e) < 0 || job_compile(&spec, &objects, &e) < 0 ||
		job_lint(objects.list, findings, &e) < 0)
		fail_msg("%s", e.text);
	assert_int_equal(json_array_size(findings), 0);
	json_decref(findings);
	job_objects_release(&objects);
	job_spec_release(&spec);
}

/* A job of four pods with a dataset, a claim, files and TensorBoard: four objects. */
static void a_job_is_cheap(void **state)
{
	static const char yaml[] =
		"name: llm\nnamespace: ml\nframework: {name: pytorch, options: {nproc_per_node: "
		"8}}\n"
		"image: i:1\nrun: python t.py\nenvs: {A: \"1\", B: {secret: s, key: k}}\n"
		"worker: {replicas: 3, envs: {A: \"2\"}, resources: {nvidia.com/gpu: 8, cpu: 32, "
		"memory: 256Gi}, node_selector: {d: e}}\n"
		"storages:\n  - {dataset: imagenet, mount: /data, path: train, generation: 7}\n"
		"  - {name: ckpt, pvc: c, mount_path: /ckpt, sub_path: x}\n  - {shm: 64Gi}\n"
		"files: {/etc/a.conf: text}\n"
		"scheduling: {gang: true, queue: q, affinity: {policy: spread, constraint: "
		"required}}\n"
		"lifecycle: {clean_pod_policy: Running, ttl_after_finished: 7d, backoff_limit: 6}\n"
		"logging: {tensorboard: {enabled: true, logdir: /ckpt/logs}}\n";

	(void)state;
	compile_and_check(yaml);
	print_message("%zu allocations, %zu bytes at the peak\n", cost.calls, cost.peak);
	assert_in_range(cost.calls, 1, 20000);
	assert_in_range(cost.peak, 1, 2000000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_job_is_cheap),
	};

	json_set_alloc_funcs(allocate, release);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
