/*
 * Fuzzer of job specs and manifests: any text is refused with one line or compiled; objects pass the schemas of their kinds;
 * the linter ends with each manifest.
 */
#include <stdlib.h>
#include <string.h>
#include "jobs/compile.h"
#include "jobs/lint.h"
#include "jobs/manifest.h"
#include "jobs/schema.h"
#include "tests/fuzz/seeds.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum parser {
	SPEC,
	MANIFEST,
};

void fuzz_seeds(void)
{
	static const char *const specs[] = {
		"name: a\nframework: pytorch\nimage: i\nrun: x\nworker: {replicas: 3, resources: "
		"{nvidia.com/gpu: 8, cpu: 500m}}\n"
		"storages: [{dataset: d, generation: 1, follow: true}, {pvc: p, mount: /p}, {shm: "
		"2Gi}, {tmp: 1Gi, mount: /t}]\n"
		"scheduling: {gang: true, queue: q, affinity: {policy: spread}, tolerations: "
		"[{operator: Exists, seconds: 5m}]}\n"
		"lifecycle: {ttl_after_finished: 1h30m, suspend: true}\nlogging: {tensorboard: "
		"{enabled: true, logdir: /p}}\n",
		"name: a\nframework: {name: elastic, options: {launch: horovodrun}}\nimage: "
		"i\nrun: x\nelastic: {min: 1, max: 4, wait: 60}\n"
		"spot: {selector: {a: b}, grace: 30}\nfiles: {/a: b}\nsync: [{git: g, local_path: "
		"/c}]\n",
		"name: a\nframework: volcano\ntasks: [{name: t, image: i, replicas: 2, port: "
		"80}]\nscheduling: {gang: {min: 1}}\n",
		"name: a\nframework: build\nbuild: {context: /c, destination: d, args: {A: b}, "
		"push_secret: s}\n",
		"name: a\nframework: tensorflow\nimage: i\nps: {replicas: 1, limits: {cpu: "
		"2}}\nchief: {replicas: 1}\nengine: volcano\n",
	};
	static const char manifest[] =
		"apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: a}\nspec:\n  "
		"pytorchReplicaSpecs:\n    Master: &m\n"
		"      replicas: 1\n      template: {spec: {containers: [{name: pytorch, image: i, "
		"resources: {limits: {cpu: 1}}}]}}\n"
		"    Worker: *m\n---\napiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nspec: "
		"{minAvailable: 9, plugins: {pytorch: [--x]},\n"
		"  tasks: [{name: a, dependsOn: {name: [a]}, policies: [{event: x, exitCode: "
		"0}]}, {name: ''}]}\n";

	for (size_t i = 0; i < ARRAY_SIZE(specs); i++) {
		char name[] = "spec-0";

		name[5] = (char)('0' + i);
		fuzz_seed_for(SPEC, name, specs[i], strlen(specs[i]));
	}
	fuzz_seed_for(MANIFEST, "manifest", manifest, strlen(manifest));
}

static void not_strict(void *arg, const char *path, const char *reason)
{
	(void)arg;
	(void)fprintf(stderr, "%s %s\n", path, reason);
	abort();
}

static void check_spec(const char *text, size_t size)
{
	static struct job_schemas schemas;
	struct job_objects objects = { 0 };
	struct job_spec spec = { 0 };
	struct err e = ERR_INIT;
	const json_t *object;
	size_t i;
	int r;

	if (!schemas.root)
		ensure(job_schemas_open(&schemas, &e) == 0);
	ensure(job_spec_init(&spec) == 0);
	r = job_spec_read(&spec, "f", text, size, &e);
	if (r == 0)
		r = job_spec_finish(&spec, &e);
	if (r == 0)
		r = job_compile(&spec, &objects, &e);
	if (r < 0)
		fuzz_check_line(&e);
	json_array_foreach (objects.list, i, object) {
		const json_t *schema = job_schema_of(&schemas,
			json_string_value(json_object_get(object, "apiVersion")),
			json_string_value(json_object_get(object, "kind")));

		ensure(schema);
		job_schema_check(&schemas, schema, object, not_strict, NULL);
	}
	job_objects_release(&objects);
	job_spec_release(&spec);
}

static void check_manifest(const char *text, size_t size)
{
	json_t *objects = json_array();
	json_t *findings = json_array();
	struct err e = ERR_INIT;

	if (manifest_read("f", text, size, objects, &e) < 0)
		fuzz_check_line(&e);
	else
		ensure(job_lint(objects, findings, &e) == 0);
	json_decref(objects);
	json_decref(findings);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 1 || size > 32u << 10)
		return 0;
	if (data[0] % 2 == SPEC)
		check_spec((const char *)data + 1, size - 1);
	else
		check_manifest((const char *)data + 1, size - 1);
	return 0;
}
