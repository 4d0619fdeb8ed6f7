/* Job specs: paths, quantities, reading, checking, what becomes of values, and where they come from. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/dataset_volume.h"
#include "jobs/compile.h"
#include "jobs/field_path.h"
#include "jobs/manifest.h"
#include "jobs/quantity.h"

static void paths(void **state)
{
	json_t *root = json_object();
	char path[FIELD_PATH_BYTES];

	(void)state;
	assert_int_equal(field_path_set(root, "spec.tasks[0].name", json_string("a"), NULL), 0);
	assert_int_equal(field_path_set(root, "spec.tasks[]", json_object(), NULL), 0);
	assert_int_equal(field_path_set(root, "metadata.labels[a.b/c]", json_string("v"), NULL), 0);
	assert_string_equal(json_string_value(field_path_get(root, "spec.tasks[0].name")), "a");
	assert_string_equal(json_string_value(field_path_get(root, "metadata.labels[a.b/c]")), "v");
	assert_int_equal(json_array_size(field_path_get(root, "spec.tasks")), 2);
	assert_null(field_path_get(root, "spec.tasks[2]"));
	assert_null(field_path_get(root, "spec.nothing.there"));
	assert_int_equal(
		field_path_set(root, "spec.tasks[5].name", json_string("a"), NULL), -ERANGE);
	assert_int_equal(
		field_path_set(root, "spec.tasks[0].name.more", json_string("a"), NULL), -EINVAL);
	assert_int_equal(field_path_set(root, "a..b", json_string("a"), NULL), -EINVAL);
	assert_int_equal(field_path_set(root, "a[b", json_string("a"), NULL), -EINVAL);
	assert_int_equal(field_path_set(root, "", json_string("a"), NULL), -EINVAL);
	assert_int_equal(field_path_set(root, "x", NULL, NULL), -ENOMEM);
	assert_string_equal(field_path_key("a", "b", path), "a.b");
	assert_string_equal(field_path_key("a", "b.c/d", path), "a[b.c/d]");
	json_decref(root);
}

static void quantities(void **state)
{
	static const struct {
		const char *a;
		const char *b;
		unsigned int times;
		const char *sum; /* NULL: a is none */
	} cases[] = {
		{ "0", "500m", 3, "1500m" },
		{ "0", "500m", 4, "2" },
		{ "1Gi", "512Mi", 2, "2Gi" },
		{ "1.5Gi", "0", 1, "1536Mi" },
		{ "1k", "1", 1, "1001" },
		{ "2e3", "1E", 0, "2000" },
		{ "100n", "0", 1, "1m" },
		{ "9223372036854775807", "0", 1, "9223372036854775807" },
		{ "9223372036854775807", "7Ei", 2000000000, "9223372036854775807" },
		{ "4611686018427387904.5", "1m", 1, "4611686018427387905" },
		{ "1.000000000000Gi", "0", 1, "1Gi" },
		{ "9223372036854775808", "0", 1, NULL },
		{ "", "0", 0, NULL },
		{ "4 cores", "0", 0, NULL },
		{ "-1", "0", 0, NULL },
		{ "1.2.3", "0", 0, NULL },
		{ "1ei", "0", 0, NULL },
		{ ".", "0", 0, NULL },
		{ "100000000000000000000E", "0", 0, NULL },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct quantity a;
		struct quantity b;
		char text[QUANTITY_BYTES];
		int r = quantity_parse(cases[i].a, &a);

		if (!cases[i].sum) {
			assert_int_equal(r, -EINVAL);
			continue;
		}
		assert_int_equal(r, 0);
		assert_int_equal(quantity_parse(cases[i].b, &b), 0);
		assert_string_equal(
			quantity_text(quantity_add(a, b, cases[i].times), text), cases[i].sum);
	}
}

/* ---- specs ----------------------------------------------------------------------------------- */

#define HEAD "name: a\nframework: {name: pytorch}\nimage: i:1\n"

static int make(const char *yaml, const char *set, struct job_spec *spec, struct err *e)
{
	int r;

	assert_int_equal(job_spec_init(spec), 0);
	r = job_spec_read(spec, "job.yaml", yaml, strlen(yaml), e);
	if (r == 0 && set)
		r = job_spec_set(spec, set, e);
	return r == 0 ? job_spec_finish(spec, e) : r;
}

/* A text stays what was written, whatever YAML would make of it. */
static void texts_stay(void **state)
{
	static const char *const values[] = { "yes", "0123", "1e3", "~x", "null", "0x10",
		"12:30:45", "1_000", "'quoted \"text\"'", "\"line\\nbreak\"" };
	static const char *const texts[] = { "yes", "0123", "1e3", "~x", NULL, "0x10", "12:30:45",
		"1_000", "quoted \"text\"", "line\nbreak" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
		struct job_spec spec;
		struct err e = ERR_INIT;
		char yaml[256];
		const char *text;

		(void)snprintf(yaml, sizeof(yaml), HEAD "envs:\n  A: %s\n", values[i]);
		assert_int_equal(make(yaml, NULL, &spec, &e), 0);
		text = json_string_value(field_path_get(spec.root, "envs.A"));
		if (texts[i])
			assert_string_equal(text, texts[i]);
		else
			assert_null(text); /* nothing was given */
		job_spec_release(&spec);
	}
}

static void bad_specs(void **state)
{
	static const struct {
		const char *yaml;
		const char *set;
		const char *says;
	} cases[] = {
		{ HEAD "wroker: {replicas: 1}\n", NULL,
			"job.yaml:4: wroker: unknown field: did you mean 'worker': `cachectl job "
			"schema` lists all fields" },
		{ HEAD "worker: {replicas: x}\n", NULL,
			"job.yaml:4: worker.replicas: 'x' is not a whole number" },
		{ HEAD "worker:\n  replicas: -1\n", NULL,
			"job.yaml:5: worker.replicas: -1 is out of range" },
		{ HEAD, "worker.replicas=many",
			"--set worker.replicas: 'many' is not a whole number" },
		{ HEAD, "worker", "--set: 'worker' is not PATH=VALUE" },
		{ HEAD, "name.x=1", "is not the path of a field" },
		{ HEAD "resources: {cpu: 4 cores}\n", NULL, "'4 cores' is not a quantity" },
		{ HEAD "lifecycle: {active_deadline: soon}\n", NULL, "'soon' is not a duration" },
		{ HEAD "host_network: yes\n", NULL, "'yes' is neither true nor false" },
		{ HEAD "scheduling: {gang: {by: magic}}\n", NULL,
			"'magic' is unknown; allowed: one of volcano" },
		{ HEAD "scheduling: {warm: {fraction: 2}}\n", NULL, "'2' is not a fraction" },
		{ HEAD "worker: 3\n", NULL, "'3' is a single value" },
		{ HEAD "storages: {a: b}\n", NULL, "a map is not what belongs here: write a list" },
		{ HEAD "name: [a]\n", NULL, "given twice" },
		{ HEAD "run: [a]\n", NULL,
			"a list is not what belongs here: write a single value" },
		{ "- a\n", NULL, "is not a job" },
		{ HEAD "labels: {\"a]b\": c}\n", NULL, "job.yaml:4: invalid key 'a]b'" },
		{ HEAD "labels: {\"\": c}\n", NULL, "job.yaml:4: invalid key ''" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct job_spec spec;
		struct err e = ERR_INIT;

		assert_int_equal(make(cases[i].yaml, cases[i].set, &spec, &e), -EINVAL);
		if (!strstr(e.text, cases[i].says))
			fail_msg("'%s' instead of '%s'", e.text, cases[i].says);
		job_spec_release(&spec);
	}
}

static const struct {
	const char *yaml;
	const char *says;
} refused[] = {
	{ "framework: pytorch\nimage: i\n", "the job has no name" },
	{ "name: a\nimage: i\n", "the job has no framework" },
	{ "name: a\nframework: pytorch\n", "image: is missing" },
	{ HEAD "ps: {replicas: 2}\n", "job.yaml:4: ps.replicas: has no effect on "
				      "pytorchjob with engine kubeflow" },
	{ HEAD "elastic: {min: 1, max: 2, wait: 60}\n",
		"job.yaml:4: elastic.wait: has no effect on pytorchjob" },
	{ "name: a\nimage: i\nframework: {name: job, options: {slots_per_worker: 2}}\n",
		"job.yaml:3: framework.options.slots_per_worker: has no effect on k8sjob" },
	{ "name: a\nimage: i\nrun: echo ${minWorkers}\nframework: job\nelastic: {min: 2}\n",
		"job.yaml:5: elastic.min: has no effect on k8sjob" },
	{ "name: a\nframework: volcano\ntasks: [{name: t, image: i}]\nscheduling: {gang: "
	  "{by: "
	  "coscheduling}}\n",
		"scheduling.gang.by: has no effect on volcanojob" },
	{ HEAD "sync: [{rsync: g, local_path: /c, branch: b}]\n", "a branch is of git alone" },
	{ HEAD "spot: {}\n", "job.yaml:4: spot: has no effect on pytorchjob" },
	{ HEAD "scheduling: {locality: require}\n",
		"scheduling.locality: is not available in this version" },
	{ HEAD "storages: [{dataset: d, pvc: p}]\n", "give exactly one of them" },
	{ HEAD "storages: [{pvc: p}]\n", "storages[0]: has no mount_path" },
	{ HEAD "storages: [{pvc: p, mount: /p, generation: 3}]\n",
		"generation: has no effect on a storage of kind pvc" },
	{ HEAD "storages: [{dataset: p, read_only: false}]\n", "a dataset is read-only" },
	{ HEAD "envs: {A: {secret: s}}\n", "envs.A: a value from elsewhere needs a key" },
	{ HEAD "sync: [{git: g}]\n", "sync[0]: a sync needs" },
	{ HEAD "storages: [{pvc: p, path: sub, mount: /p}]\n",
		"storages[0].path: has no effect on a storage of kind pvc" },
	{ HEAD "storages: [{hostpath: /p, path: /q, mount: /p}]\n",
		"storages[0].path: has no effect on a storage of kind hostpath" },
	{ HEAD "sync: [{git: g, rsync: r, local_path: /c}]\n",
		"a sync needs one of git, rsync and hdfs" },
	{ "name: a\nframework: volcano\ntasks: [{name: t, image: i}]\nscheduling: {gang: "
	  "false}\n",
		"scheduling.gang.enabled: a Volcano Job always is a gang" },
	{ HEAD "scheduling: {affinity: {constraint: required, rules: [{weight: 3}]}}\n",
		"scheduling.affinity.rules[0].weight: has no effect" },
	{ HEAD "scheduling: {affinity: {target: node}}\n",
		"scheduling.affinity: nodes are matched by rules" },
	{ HEAD "scheduling: {affinity: {policy: none, constraint: required}}\n",
		"scheduling.affinity.constraint: has no effect" },
	{ HEAD "scheduling: {priority: 7}\n",
		"scheduling.priority: the cluster takes the number from the class" },
	{ HEAD "scheduling: {tolerations: [{operator: Equal, value: v}]}\n",
		"scheduling.tolerations[0]: operator Exists takes no value" },
	{ "name: a\nimage: i\nframework: notebook\nworker: {replicas: 3}\n",
		"worker.replicas: has no effect on notebook" },
	{ "name: a\nimage: i\nframework: tensorflow\nworker: {replicas: 3}\nelastic: {min: "
	  "1, max: 5}\n",
		"elastic.min: has no effect on tfjob" },
	{ "name: a\nimage: i\nframework: xgboost\nelastic: {min: 1, max: 5}\n",
		"elastic.min: has no effect on xgboostjob" },
	{ "name: a\nimage: i\nframework: mpi\nelastic: {min: 1, max: 5}\n",
		"elastic.min: has no effect on mpijob" },
	{ "name: a\nimage: i\nframework: {name: tensorflow, options: {slots_per_worker: "
	  "4}}\nworker: {replicas: 1}\n",
		"slots_per_worker: has no effect on tfjob" },
	{ "name: a\nimage: i\nrun: x.py\nframework: {name: mpi, options: {launch: "
	  "deepspeed, nproc_per_node: 4}}\n",
		"nproc_per_node: has no effect on mpijob" },
	{ "name: a\nimage: i\nframework: mpi\nlauncher: {replicas: 2}\n",
		"launcher.replicas: has no effect on mpijob" },
	{ "name: a\nimage: i\nframework: elastic\nlauncher: {restart: Never}\n",
		"launcher.restart: has no effect on etjob" },
	{ "name: a\nimage: i\nframework: notebook\nscheduling: {gang: true}\n",
		"scheduling.gang.enabled: has no effect on notebook" },
	{ "name: a\nimage: i\nframework: job\nscheduling: {gang: {enabled: true, min: 2}}\n"
	  "elastic: {min: 1}\nworker: {replicas: 3}\n",
		"elastic.min: has no effect on k8sjob" },
	{ HEAD "storages: [{dataset: im, path: ../../etc}]\n",
		"storages[0].path: leaves the volume with '..'" },
	{ HEAD "storages: [{dataset: im, path: a/..}]\n", "leaves the volume with '..'" },
	{ HEAD "storages: [{pvc: im, mount: /x, sub_path: ../b}]\n",
		"storages[0].sub_path: leaves the volume" },
	{ HEAD "engine: volcano\nworker: {restart: ExitCode}\n",
		"worker.restart: a pod itself cannot have it" },
	{ HEAD "sync: [{git: 'https://me:secret@h/r.git', local_path: /w}]\n",
		"sync[0].git: has credentials" },
	{ HEAD "sync: [{git: 'https://ghp_token@h/r.git', local_path: /w}]\n",
		"sync[0].git: has credentials" },
	{ HEAD "sync: [{git: 'ssh://git:secret@h/r.git', local_path: /w}]\n",
		"sync[0].git: has credentials" },
	{ "name: a\nframework: job\nimage: i\nrun: x\nworker: {replicas: 0}\n",
		"worker.replicas: the job would succeed without a pod" },
	{ HEAD "service_account: A B\n", "service_account: invalid name 'A B'" },
	{ HEAD "scheduling: {priority_class_name: X Y}\n",
		"scheduling.priority_class_name: invalid name 'X Y'" },
	{ HEAD "scheduling: {scheduler_name: a b}\n",
		"scheduling.scheduler_name: invalid name 'a b'" },
	{ HEAD "image_pull_secrets: [ok, a/b]\n", "image_pull_secrets[1]: invalid name 'a/b'" },
	{ HEAD "namespace: A_B\n", "namespace: invalid namespace 'A_B'" },
	{ HEAD "engine: trainer\nworker: {port: 5}\n",
		"worker.port: the runtime of a TrainJob decides this" },
};

/* Each task has all storages: their numbers bound what a short spec costs. */
static void too_many_items(void **state)
{
	static const struct {
		const char *field;
		const char *item;
		unsigned int most;
	} lists[] = {
		{ "storages", "{dataset: d}", 64 },
		{ "sync", "{git: g}", 64 },
		{ "tasks", "{name: t}", 100 },
		{ "image_pull_secrets", "s", SPEC_ITEMS_MAX },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
		for (unsigned int more = 0; more < 2; more++) {
			struct job_spec spec;
			struct err e = ERR_INIT;
			char yaml[8192];
			char says[64];
			size_t len =
				(size_t)snprintf(yaml, sizeof(yaml), HEAD "%s:\n", lists[i].field);

			for (unsigned int n = 0; n < lists[i].most + more; n++)
				len += (size_t)snprintf(
					yaml + len, sizeof(yaml) - len, "- %s\n", lists[i].item);
			assert_in_range(len, 1, sizeof(yaml) - 1);
			assert_int_equal(make(yaml, NULL, &spec, &e), more ? -EINVAL : 0);
			(void)snprintf(says, sizeof(says), "%s: has %u items; allowed: %u",
				lists[i].field, lists[i].most + 1, lists[i].most);
			if (more && !strstr(e.text, says))
				fail_msg("'%s' instead of '%s'", e.text, says);
			job_spec_release(&spec);
		}
}

static void refused_by_the_compiler(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
		struct job_objects objects;
		struct job_spec spec;
		struct err e = ERR_INIT;

		assert_int_equal(make(refused[i].yaml, NULL, &spec, &e), 0);
		assert_int_equal(job_compile(&spec, &objects, &e), -EINVAL);
		if (!strstr(e.text, refused[i].says))
			fail_msg("'%s' instead of '%s'", e.text, refused[i].says);
		job_spec_release(&spec);
	}
}

static const char *value_at(const struct job_objects *objects, size_t i, const char *path)
{
	return json_string_value(field_path_get(json_array_get(objects->list, i), path));
}

#define MASTER "spec.pytorchReplicaSpecs.Master"
#define WORKER "spec.pytorchReplicaSpecs.Worker"

/* The master has the workers' resources and limits, unless it has resources of its own. */
static void limits_belong_to_resources(void **state)
{
	static const struct {
		const char *master;
		const char *requests;
		const char *limits;
	} cases[] = {
		{ "{replicas: 1}", "1", "2" },
		{ "{limits: {cpu: 3}}", "1", "3" },
		{ "{resources: {cpu: 4}}", "4", "4" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct job_objects objects;
		struct job_spec spec;
		struct err e = ERR_INIT;
		char yaml[256];

		(void)snprintf(yaml, sizeof(yaml),
			HEAD "worker: {resources: {cpu: 1}, limits: {cpu: 2}, replicas: 1}\n"
			     "master: %s\n",
			cases[i].master);
		if (make(yaml, NULL, &spec, &e) < 0 || job_compile(&spec, &objects, &e) < 0)
			fail_msg("%s", e.text);
		assert_string_equal(
			value_at(&objects, 0,
				MASTER ".template.spec.containers[0].resources.requests.cpu"),
			cases[i].requests);
		assert_string_equal(
			value_at(&objects, 0,
				MASTER ".template.spec.containers[0].resources.limits.cpu"),
			cases[i].limits);
		job_objects_release(&objects);
		job_spec_release(&spec);
	}
}

/* A value of the object that a spec makes first. */
/* A field below a value in its brief form. */
static void set_below_a_brief_form(void **state)
{
	struct job_objects objects;
	struct job_spec spec;
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(make("name: a\nimage: i\nrun: x.py\nframework: pytorch\n",
				 "framework.options.launch=torchrun", &spec, &e),
		0);
	assert_int_equal(job_compile(&spec, &objects, &e), 0);
	assert_non_null(
		strstr(value_at(&objects, 0, MASTER ".template.spec.containers[0].command[2]"),
			"torchrun"));
	job_objects_release(&objects);
	job_spec_release(&spec);
}

static void made(void **state)
{
	static const struct {
		const char *yaml;
		const char *path;
		const char *value;
	} cases[] = {
#define MPI "name: a\nimage: i\nrun: ./x\nworker: {replicas: 4}\nframework: {name: mpi, options: {"
		{ HEAD "storages: [{pvc: c, mount: /x, name: a_}]\n",
			MASTER ".template.spec.volumes[0].name", "a" },
		{ HEAD "storages: [{pvc: c, mount: /x, name: _}]\n",
			MASTER ".template.spec.volumes[0].name", "volume" },
		{ MPI "launch: mpirun, slots_per_worker: 2}}\n",
			"spec.mpiReplicaSpecs.Launcher.template.spec.containers[0].command[2]",
			"mpirun -np 8 ./x" },
		{ MPI "launch: mpirun, slots_per_worker: 2, run_launcher_as_worker: true}}\n",
			"spec.mpiReplicaSpecs.Launcher.template.spec.containers[0].command[2]",
			"mpirun -np 10 ./x" },
		{ "name: a\nimage: i\nrun: ./x\nframework: mpi\nengine: volcano\nworker: "
		  "{replicas: 1}\n",
			"spec.tasks[1].template.spec.containers[0].command[2]",
			"mkdir -p /var/run/sshd && exec /usr/sbin/sshd -D" },
		{ "name: a\nimage: i\nrun: ./x\nworker: {run: ./y}\nframework: mpi\nengine: "
		  "volcano\n",
			"spec.tasks[1].template.spec.containers[0].command[2]", "./y" },
		{ "name: a\nimage: i\nrun: x.py\nworker: {replicas: 3}\nengine: volcano\n"
		  "framework: {name: pytorch, options: {launch: torchrun}}\n",
			"spec.tasks[0].template.spec.containers[0].command[2]",
			"torchrun --nnodes=4 --node-rank=$RANK --master-addr=$MASTER_ADDR "
			"--master-port=$MASTER_PORT --nproc-per-node=1 x.py" },
#define TWO \
	"storages: [{dataset: im, path: train, mount: /t}, {dataset: im, path: val, mount: /v}]\n"
		{ HEAD TWO, MASTER ".template.spec.volumes[0].csi.volumeAttributes.path", "train" },
		{ HEAD TWO, MASTER ".template.spec.volumes[1].csi.volumeAttributes.path", "val" },
		{ HEAD TWO, MASTER ".template.spec.containers[0].volumeMounts[1].name",
			"dataset-im-2" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct job_objects objects;
		struct job_spec spec;
		struct err e = ERR_INIT;
		const char *value;

		if (make(cases[i].yaml, NULL, &spec, &e) < 0 ||
			job_compile(&spec, &objects, &e) < 0)
			fail_msg("%zu: %s", i, e.text);
		value = value_at(&objects, 0, cases[i].path);
		assert_non_null(value);
		assert_string_equal(value, cases[i].value);
		job_objects_release(&objects);
		job_spec_release(&spec);
	}
}

/* A key of a map that an object can have, and one more character. */
static void keys_have_a_bound(void **state)
{
	static const char *const maps[] = { "labels", "annotations", "envs", "files",
		"scheduling: {node_selector", "spot: {selector" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(maps); i++)
		for (unsigned int n = FIELD_KEY_MAX; n <= FIELD_KEY_MAX + 1; n++) {
			struct job_objects objects = { 0 };
			char yaml[2 * FIELD_PATH_BYTES];
			struct job_spec spec;
			struct err e = ERR_INIT;
			int r;

			(void)snprintf(yaml, sizeof(yaml), HEAD "%s: {a.%0*d: v}%s\n", maps[i],
				(int)n - 2, 7, strchr(maps[i], '{') ? "}" : "");
			r = make(yaml, NULL, &spec, &e);
			assert_int_equal(r, n > FIELD_KEY_MAX ? -EINVAL : 0);
			if (r == 0)
				assert_int_equal(job_compile(&spec, &objects, &e), 0);
			else
				assert_non_null(strstr(e.text, "invalid key 'a.0"));
			job_objects_release(&objects);
			job_spec_release(&spec);
		}
}

static const char full[] =
	"version: 0.1.0\nname: llm\nnamespace: ml\ndescription: a run\nframework: {name: pytorch, "
	"options: "
	"{nproc_per_node: 8}}\nimage: i:1\nrun: python t.py\nshell: bash\nworking_dir: /w\n"
	"envs: {A: \"1\", B: {secret: s, key: k}, C: {configmap: m, key: k}}\n"
	"worker: {replicas: 3, envs: {A: \"2\"}, resources: {nvidia.com/gpu: 8, cpu: 32}, "
	"node_selector: {d: e}}\n"
	"storages:\n  - {dataset: imagenet, mount: /data, path: train, generation: 7, order: true, "
	"follow: true}\n"
	"  - {name: ckpt, pvc: c, mount_path: /ckpt, sub_path: x}\n  - {shm: 64Gi}\n  - {tmp: 1Gi, "
	"mount_path: /tmp}\n"
	"  - {configmap: foo, key: c.yaml, mount_path: /app/c.yaml}\n  - {secret: bar, mount_path: "
	"/s, read_only: true}\n"
	"files: {/etc/a.conf: text}\nsync: [{git: 'https://x/y.git', local_path: /code, branch: "
	"dev}]\n"
	"scheduling:\n  priority_class_name: high\n  gang: true\n  queue: q\n  node_selector: {a: "
	"b}\n"
	"  tolerations: [{key: k, operator: Exists, effect: NoExecute, seconds: 5m}]\n"
	"  affinity: {policy: spread, constraint: required}\n"
	"lifecycle: {clean_pod_policy: Running, active_deadline: 2h, ttl_after_finished: 7d, "
	"backoff_limit: 6}\n"
	"image_pull_secrets: [r]\nservice_account: sa\nhost_network: true\nlogging: {tensorboard: "
	"{enabled: true, "
	"logdir: /ckpt/logs}}\n";

static void a_full_spec(void **state)
{
	struct job_objects objects;
	struct job_spec spec;
	struct err e = ERR_INIT;
	const json_t *job;

	(void)state;
	if (make(full, "worker.resources[cpu]=16", &spec, &e) < 0 ||
		job_compile(&spec, &objects, &e) < 0)
		fail_msg("%s", e.text);
	job = json_array_get(objects.list, 0);
	assert_int_equal(
		json_array_size(objects.list), 4); /* job, files, TensorBoard and its Service */
	assert_string_equal(
		value_at(&objects, 0, WORKER ".template.spec.containers[0].resources.limits.cpu"),
		"16");
	assert_string_equal(
		value_at(&objects, 0, MASTER ".template.spec.containers[0].resources.limits.cpu"),
		"16");
	assert_string_equal(value_at(&objects, 0, WORKER ".template.spec.volumes[0].csi.driver"),
		"csi.granary.io");
	assert_string_equal(
		value_at(&objects, 0,
			WORKER ".template.spec.volumes[0].csi.volumeAttributes.generation"),
		"7");
	assert_string_equal(value_at(&objects, 0, WORKER ".template.spec.nodeSelector.d"), "e");
	assert_null(value_at(&objects, 0, MASTER ".template.spec.nodeSelector.d"));
	assert_int_equal(
		json_integer_value(field_path_get(job, "spec.runPolicy.activeDeadlineSeconds")),
		7200);
	assert_int_equal(json_integer_value(field_path_get(
				 job, "spec.runPolicy.schedulingPolicy.minAvailable")),
		4);
	assert_string_equal(value_at(&objects, 0, "spec.runPolicy.schedulingPolicy.queue"), "q");
	job_objects_release(&objects);
	job_spec_release(&spec);
}

/* The sockets on which it announces the order are mounted once, whatever datasets it reads. */
static void an_announced_order(void **state)
{
	struct job_objects objects;
	struct job_spec spec;
	struct err e = ERR_INIT;
	const json_t *pod;

	(void)state;
	if (make("name: a\nimage: i:1\nframework: job\n"
		 "storages: [{dataset: a, order: true}, {dataset: b, order: true}]\n",
		    NULL, &spec, &e) < 0 ||
		job_compile(&spec, &objects, &e) < 0)
		fail_msg("%s", e.text);
	pod = field_path_get(json_array_get(objects.list, 0), "spec.template.spec");
	assert_int_equal(json_array_size(json_object_get(pod, "volumes")), 3);
	assert_string_equal(
		value_at(&objects, 0, "spec.template.spec.volumes[0].csi.volumeAttributes.order"),
		"true");
	assert_string_equal(value_at(&objects, 0, "spec.template.spec.volumes[1].hostPath.path"),
		CSI_ORDER_DIR);
	assert_string_equal(
		value_at(&objects, 0, "spec.template.spec.containers[0].volumeMounts[1].mountPath"),
		CSI_ORDER_DIR);
	assert_int_equal(json_array_size(field_path_get(json_array_get(objects.list, 0),
				 "spec.template.spec.containers[0].volumeMounts")),
		3);
	job_objects_release(&objects);
	job_spec_release(&spec);
}

/* The row of a field in the explanation. */
static const json_t *row_of(const json_t *rows, const char *field)
{
	const json_t *row;
	size_t i;

	json_array_foreach (rows, i, row)
		if (strcmp(json_string_value(json_object_get(row, "field")), field) == 0)
			return row;
	fail_msg("no field %s", field);
	return NULL;
}

static void explanation(void **state)
{
	static const struct {
		const char *field;
		const char *from; /* NULL: the type */
	} cases[] = {
		{ "metadata.name", "job.yaml:2" },
		{ WORKER ".replicas", "job.yaml:11" },
		{ WORKER ".template.spec.containers[0].resources.limits.cpu",
			"--set worker.resources[cpu]" },
		{ WORKER ".template.spec.containers[0].env[2].value", "job.yaml:11" },
		{ WORKER ".template.spec.volumes[0].csi.volumeAttributes.dataset", "job.yaml:13" },
		{ WORKER ".template.spec.containers[0].name", NULL },
		{ WORKER ".template.spec.schedulerName", "job.yaml:23" },
	};
	struct job_objects objects;
	struct job_spec spec;
	struct err e = ERR_INIT;
	json_t *rows;

	(void)state;
	if (make(full, "worker.resources[cpu]=16", &spec, &e) < 0 ||
		job_compile(&spec, &objects, &e) < 0)
		fail_msg("%s", e.text);
	rows = job_explain(&spec, &objects);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		const char *from =
			json_string_value(json_object_get(row_of(rows, cases[i].field), "from"));

		if (cases[i].from ? !from || strcmp(from, cases[i].from) != 0 : from != NULL)
			fail_msg("%s is from %s", cases[i].field, from ? from : "the type");
	}
	json_decref(rows);
	job_objects_release(&objects);
	job_spec_release(&spec);
}

static void schema(void **state)
{
	json_t *all = job_spec_schema();

	(void)state;
	assert_non_null(field_path_get(all, "properties.storages.items.properties.dataset"));
	assert_non_null(field_path_get(all, "properties.scheduling.properties.gang.anyOf"));
	assert_int_equal(json_integer_value(field_path_get(
				 all, "properties.worker.properties.replicas.minimum")),
		0);
	json_decref(all);
}

/* As kubectl reads them. */
static void manifests(void **state)
{
	static const char text[] =
		"a: yes\nb: 0123\nc: 0x1f\nd: 1.5\ne: ~\nf: 'yes'\ng: 1_000\nh: 2001-01-01\ni: "
		"\"\"\nj: 1e3\n"
		"k: &x {l: 1}\nm: *x\n---\nkind: List\nitems: [{a: 1}, {a: 2}]\n---\n";
	json_t *objects = json_array();
	json_t *first;
	struct err e = ERR_INIT;

	(void)state;
	if (manifest_read("m", text, strlen(text), objects, &e) < 0)
		fail_msg("%s", e.text);
	assert_int_equal(json_array_size(objects), 3);
	first = json_pack("{s:b, s:i, s:i, s:f, s:n, s:s, s:i, s:s, s:s, s:f, s:{s:i}, s:{s:i}}",
		"a", 1, "b", 83, "c", 31, "d", 1.5, "e", "f", "yes", "g", 1000, "h", "2001-01-01",
		"i", "", "j", 1000.0, "k", "l", 1, "m", "l", 1);
	assert_true(json_equal(json_array_get(objects, 0), first));
	json_decref(first);
	json_decref(objects);
	objects = json_array();
	assert_int_equal(manifest_read("m", "a: &x [*x]\n", 11, objects, &e), -EINVAL);
	assert_int_equal(manifest_read("m", "a: *nothing\n", 12, objects, &e), -EINVAL);
	assert_int_equal(manifest_read("m", "- a\n", 4, objects, &e), -EINVAL);
	json_decref(objects);
}

/* `<<` adds what a map does not have itself, as kubectl has it. */
static void merge_keys(void **state)
{
	static const char text[] =
		"x: &x {a: 1, b: 2}\ny: &y {b: 3, c: 4}\n"
		"one: {<<: *x, b: 5}\ntwo: {b: 6, <<: [*y, *x]}\nthree: {\"<<\": text}\n";
	json_t *objects = json_array();
	json_t *right = json_pack("{s:i, s:i}", "a", 1, "b", 5);
	struct err e = ERR_INIT;
	const json_t *made;

	(void)state;
	assert_int_equal(manifest_read("m", text, strlen(text), objects, &e), 0);
	made = json_array_get(objects, 0);
	assert_true(json_equal(json_object_get(made, "one"), right));
	json_decref(right);
	right = json_pack("{s:i, s:i, s:i}", "a", 1, "b", 6, "c", 4);
	assert_true(json_equal(json_object_get(made, "two"), right));
	assert_string_equal(json_string_value(field_path_get(made, "three.<<")), "text");
	json_decref(right);
	json_decref(objects);
}

static void objects_have_a_bound(void **state)
{
	char text[1001 * 9 + 1] = "";
	json_t *objects = json_array();
	struct err e = ERR_INIT;

	(void)state;
	for (size_t i = 0; i < 1001; i++)
		(void)strcpy(text + i * 9, "---\na: 1\n");
	assert_int_equal(manifest_read("m", text, strlen(text), objects, &e), -E2BIG);
	assert_string_equal(e.text, "m:2002: too many objects; allowed: 1000");
	json_decref(objects);
}

/* An alias of an alias doubles; the bound on values ends it. */
static void a_bomb(void **state)
{
	char text[2048] = "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1]\n";
	json_t *objects = json_array();
	struct err e = ERR_INIT;

	(void)state;
	for (int i = 1; i < 9; i++) {
		size_t len = strlen(text);

		(void)snprintf(text + len, sizeof(text) - len,
			"a%d: &a%d [*a%d, *a%d, *a%d, *a%d, *a%d, *a%d, *a%d, *a%d]\n", i, i, i - 1,
			i - 1, i - 1, i - 1, i - 1, i - 1, i - 1, i - 1);
	}
	assert_int_equal(manifest_read("m", text, strlen(text), objects, &e), -E2BIG);
	json_decref(objects);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(paths),
		cmocka_unit_test(quantities),
		cmocka_unit_test(texts_stay),
		cmocka_unit_test(bad_specs),
		cmocka_unit_test(too_many_items),
		cmocka_unit_test(limits_belong_to_resources),
		cmocka_unit_test(refused_by_the_compiler),
		cmocka_unit_test(made),
		cmocka_unit_test(set_below_a_brief_form),
		cmocka_unit_test(keys_have_a_bound),
		cmocka_unit_test(a_full_spec),
		cmocka_unit_test(an_announced_order),
		cmocka_unit_test(explanation),
		cmocka_unit_test(schema),
		cmocka_unit_test(manifests),
		cmocka_unit_test(merge_keys),
		cmocka_unit_test(objects_have_a_bound),
		cmocka_unit_test(a_bomb),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
