/* The command of a job with its launcher before it: how many processes on how many nodes, and where they meet. */
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/option.h"
#include "jobs/compile_internal.h"

#include <stdlib.h>
#include <string.h>

#define LINE_BYTES  (512u << 10)
#define ON(engine)  (1u << ENGINE_##engine)
#define OPERATORS   (ON(KUBEFLOW) | ON(TRAINER))
#define SHELL_WORDS "cd|source|.|export|set|exec|eval|ulimit|umask|trap|if|for|while|until|case|[["

/*
 * By launcher, engine and number of nodes. {local}: processes of a node; {nodes}; {all}: processes of the job; {min}, {max}: of an
 * elastic one. The operators of Kubeflow set PET_*, which torchrun reads; RANK and WORLD_SIZE count pods and are not for launch
 * lines. Volcano's plugin sets MASTER_ADDR, MASTER_PORT and RANK, the number of the pod.
 */
static const struct {
	const char *launcher;
	unsigned int engines;
	bool several;
	const char *words;
} lines[] = {
	{ "torchrun", ~0u, false, "torchrun --standalone --nproc-per-node={local}" },
	{ "torchrun", OPERATORS, true, "torchrun --nproc-per-node={local}" },
	{ "torchrun", ON(VOLCANO), true,
		"torchrun --nnodes={nodes} --node-rank=$RANK --master-addr=$MASTER_ADDR "
		"--master-port=$MASTER_PORT --nproc-per-node={local}" },
	{ "accelerate", ~0u, false, "accelerate launch --num_processes={local}" },
	{ "accelerate", OPERATORS, true,
		"accelerate launch --num_processes={all} --num_machines={nodes} "
		"--machine_rank=$PET_NODE_RANK --main_process_ip=$PET_MASTER_ADDR "
		"--main_process_port=$PET_MASTER_PORT" },
	{ "accelerate", ON(VOLCANO), true,
		"accelerate launch --num_processes={all} --num_machines={nodes} "
		"--machine_rank=$RANK --main_process_ip=$MASTER_ADDR "
		"--main_process_port=$MASTER_PORT" },
	{ "deepspeed", OPERATORS | ON(KUBERNETES) | ON(VOLCANO), false,
		"deepspeed --num_gpus={local}" },
	{ "deepspeed", ON(MPI), false, "deepspeed --hostfile=/etc/mpi/hostfile" },
	{ "deepspeed", ON(MPI), true, "deepspeed --hostfile=/etc/mpi/hostfile" },
	{ "deepspeed", ON(ET), false, "deepspeed --hostfile=/job/hostfile" },
	{ "deepspeed", ON(ET), true, "deepspeed --hostfile=/job/hostfile" },
	{ "mpirun", ON(MPI), false, "mpirun -np {all}" },
	{ "mpirun", ON(MPI), true, "mpirun -np {all}" },
	{ "mpirun", ON(VOLCANO), true, "mpirun -np {all} --host $MPI_HOST" },
	{ "mpirun", ON(VOLCANO), false, "mpirun -np {all} --host $MPI_HOST" },
	{ "horovodrun", ON(MPI), false, "horovodrun -np {all} --hostfile /etc/mpi/hostfile" },
	{ "horovodrun", ON(MPI), true, "horovodrun -np {all} --hostfile /etc/mpi/hostfile" },
	{ "horovodrun", ON(ET), false,
		"horovodrun -np {all} --min-np {min} --max-np {max} --host-discovery-script "
		"/etc/edl/discover_hosts.sh" },
	{ "horovodrun", ON(ET), true,
		"horovodrun -np {all} --min-np {min} --max-np {max} --host-discovery-script "
		"/etc/edl/discover_hosts.sh" },
};

struct size {
	const char *name;
	char text[24];
};

static int fill(struct buf *out, const char *words, const struct size *sizes, size_t n)
{
	int r = 0;

	while (*words && r == 0) {
		size_t len = strcspn(words, "{");

		r = buf_append(out, words, len);
		words += len;
		for (size_t i = 0; *words && i < n; i++)
			if (strncmp(words, sizes[i].name, strlen(sizes[i].name)) == 0) {
				words += strlen(sizes[i].name);
				r = r < 0 ? r : buf_puts(out, sizes[i].text);
				break;
			}
	}
	return r;
}

long long nodes_of(struct compile *c)
{
	bool master = c->type->id == JOB_PYTORCH || c->type->id == JOB_XGBOOST;
	bool launcher =
		c->engine == ENGINE_MPI && json_is_true(field_path_get(c->spec->root,
						   "framework.options.run_launcher_as_worker"));
	long long workers = spec_peek(c, "worker.replicas", master ? 0 : 1);

	if (is_elastic(c))
		return spec_peek(c, "elastic.max", spec_peek(c, "master.replicas", 0) + workers);
	return workers + launcher + (master ? spec_peek(c, "master.replicas", 1) : 0);
}

/* Elastic workers meet at PET_RDZV_ENDPOINT, which torchrun alone knows. */
static const char *find_words(struct compile *c, const char *launcher)
{
	bool elastic = is_elastic(c);
	bool several = elastic || nodes_of(c) > 1;

	for (size_t i = 0; i < ARRAY_SIZE(lines); i++)
		if (strcmp(lines[i].launcher, launcher) == 0 && lines[i].several == several &&
			lines[i].engines >> c->engine & 1 &&
			(!elastic || strcmp(launcher, "torchrun") == 0))
			return lines[i].words;
	spec_refuse(c, "framework.options.launch",
		"%s cannot launch %s with engine %s on %s: use %s", launcher, c->type->name,
		job_engine_name(c->engine),
		elastic   ? "a number of nodes that changes"
		: several ? "several nodes"
			  : "one node",
		elastic                   ? "torchrun"
		: c->engine == ENGINE_MPI ? "mpirun, horovodrun or deepspeed"
					  : "torchrun or accelerate");
	return NULL;
}

/* Processes of a pod as a number, 0: a word that torchrun alone knows. *ret_word: it. */
static long long local_of(struct compile *c, const char **ret_word)
{
	static const char path[] = "framework.options.nproc_per_node";
	const struct role trains = { .base = "worker", .trains = true };
	const char *given = spec_text(c, path, NULL);
	size_t len = given ? strlen(given) : 0;
	long long slots;

	*ret_word = given;
	if (given && option_is_choice("auto|cpu|gpu", given))
		return 0;
	if (given && len > 0 && len < 7 && strspn(given, "0123456789") == len && *given != '0')
		return strtoll(given, NULL, 10);
	if (given)
		spec_refuse(c, path, "'%s' is not a number: write auto, cpu, gpu or 1 to 999999",
			given);
	slots = spec_number(c, "framework.options.slots_per_worker", 0);
	return slots ? slots : max(role_gpus(c, &trains), 1);
}

/* Fills in the sizes of the job; those that the words name are read. */
static int add_sizes(struct compile *c, struct buf *out, const char *words)
{
	struct size sizes[] = { { "{local}", "" }, { "{all}", "" }, { "{nodes}", "" },
		{ "{min}", "" }, { "{max}", "" } };
	long long nodes = max(nodes_of(c), 1);
	const char *word = NULL;
	long long local = 1;

	if (strstr(words, "{local}") || strstr(words, "{all}"))
		local = local_of(c, &word);
	if (local == 0 && !strstr(words, "nproc-per-node={local}"))
		spec_refuse(c, "framework.options.nproc_per_node",
			"'%s' is known to torchrun alone: write a number", word);
	if (local == 0)
		(void)snprintf(sizes[0].text, sizeof(sizes[0].text), "%s", word); /* fits */
	else
		(void)snprintf(sizes[0].text, sizeof(sizes[0].text), "%lld", local); /* likewise */
	(void)snprintf(sizes[1].text, sizeof(sizes[1].text), "%lld", local * nodes);
	(void)snprintf(sizes[2].text, sizeof(sizes[2].text), "%lld", nodes);
	(void)snprintf(sizes[3].text, sizeof(sizes[3].text), "%lld",
		local * spec_peek(c, "elastic.min", nodes));
	(void)snprintf(sizes[4].text, sizeof(sizes[4].text), "%lld",
		local * spec_peek(c, "elastic.max", nodes));
	return fill(out, words, sizes, ARRAY_SIZE(sizes));
}

/* A program and not syntax of the shell, as far as a first word shows. */
static bool is_program(const char *word, size_t len)
{
	return len > 0 && !strchr("({#!", *word) && (*word == '-' || !memchr(word, '=', len));
}

/* Options of the launcher, a file of Python, or a name that ends in a variable. */
static bool is_script(const char *word, size_t len)
{
	const char *last;

	while (len > 0 && strchr("'\"", word[len - 1]))
		len--;
	if (*word == '-')
		return true;
	last = memrchr(word, '/', len);
	return !memchr(word, '=', len) &&
	       ((len > 3 && memcmp(word + len - 3, ".py", 3) == 0) ||
		       memchr(last ? last : word, '$', last ? (size_t)(word + len - last) : len));
}

/* Its first word is what the launcher starts: a script of Python, or for MPI a program. */
static bool check_line(struct compile *c, const char *launcher, const char *run)
{
	bool program = option_is_choice("mpirun|horovodrun", launcher);
	char first[64];
	size_t len = strcspn(run, " \t\n;&|");

	(void)snprintf(first, sizeof(first), "%.*s", (int)len, run); /* cut: for people */
	if (program ? is_program(run, len) && !option_is_choice(SHELL_WORDS, first)
		    : is_script(run, len))
		return true;
	spec_refuse(c, "run",
		"%s would start '%s': write %s and its arguments alone; set directory and "
		"variables with working_dir and envs",
		launcher, first, program ? "the program" : "the script, such as train.py,");
	return false;
}

char *launch_line(struct compile *c, const struct role *role, const char **ret_path)
{
	_cleanup_(buf_release) struct buf out = BUF_INIT(LINE_BYTES);
	const char *run = role->runs ? spec_text(c, "run", NULL) : NULL;
	const char *launcher =
		role->runs ? spec_text(c, "framework.options.launch", "none") : "none";
	const char *words;

	*ret_path = "run";
	if (!run || strcmp(launcher, "none") == 0)
		return run ? strdup(run) : NULL;
	words = check_line(c, launcher, run) ? find_words(c, launcher) : NULL;
	if (!words || add_sizes(c, &out, words) < 0 || buf_printf(&out, " %s", run) < 0)
		return NULL;
	return TAKE(out.data);
}
