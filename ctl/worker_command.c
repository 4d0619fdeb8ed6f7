/* cachectl worker: the workers of the cluster, and taking them out of it without losing a byte. */
#include "ctl/worker_command.h"
#include "base/cleanup.h"
#include "base/units.h"
#include "ctl/columns.h"
#include "ctl/command.h"
#include "ctl/subcommand.h"
#include "ctl/yaml_out.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define WAIT_STEP (CLOCK_SECOND / 2)

struct worker_options {
	struct master_where where;
	bool wait;
	bool force;
	const char *output;
};

int worker_path(const char *name, const char *rest, char out[WORKER_PATH_BYTES], struct err *e)
{
	bool good = *name && strlen(name) < 64;

	for (const char *c = name; *c; c++)
		good &= isalnum((unsigned char)*c) || strchr("._-", *c);
	if (!good)
		return err_set(e, -EINVAL,
			"invalid worker '%.80s': give its name or number, see `cachectl "
			"worker list`",
			name);
	(void)snprintf(out, WORKER_PATH_BYTES, "/v1/workers/%s%s", name, rest); /* fits */
	return 0;
}

static int call(const struct worker_options *o, const char *method, const char *name,
	const char *rest, json_t **ret_json, struct err *e)
{
	char path[WORKER_PATH_BYTES];
	json_t *none = NULL;
	int r = worker_path(name, rest, path, e);

	if (r == 0)
		r = master_call(&o->where, method, path, NULL, MASTER_CALL_NS,
			ret_json ? ret_json : &none, e);
	json_decref(none);
	return r == 0 ? EXIT_OK : command_exit(r);
}

/* ---- values ---------------------------------------------------------------------------------- */

static uint64_t number(const json_t *json, const char *name)
{
	return (uint64_t)json_integer_value(json_object_get(json, name));
}

static const char *text(const json_t *json, const char *name)
{
	const char *value = json_string_value(json_object_get(json, name));

	return value ? value : "";
}

static bool is_true(const json_t *json, const char *name)
{
	return json_is_true(json_object_get(json, name));
}

static uint64_t used(const json_t *worker)
{
	const json_t *tier;
	uint64_t sum = 0;
	size_t i;

	json_array_foreach (json_object_get(worker, "tiers"), i, tier)
		sum += number(tier, "used");
	return sum;
}

static const char *ago(const json_t *worker, char *out, size_t size)
{
	char age[24];

	if (!json_object_get(worker, "last_seen_s"))
		return "never";
	(void)snprintf(out, size, "%s ago",
		units_age((int64_t)number(worker, "last_seen_s"), age, sizeof(age))); /* fits */
	return out;
}

static bool is_well(const json_t *worker)
{
	const json_t *tier;
	size_t i;

	json_array_foreach (json_object_get(worker, "tiers"), i, tier)
		if (strcmp(text(tier, "state"), "ok") != 0)
			return false;
	return true;
}

const char *worker_state(const json_t *worker)
{
	const char *state = text(worker, "state");

	if (strcmp(state, "up") == 0 && !json_object_get(worker, "last_seen_s"))
		return "unknown";
	return strcmp(state, "up") == 0 && !is_well(worker) ? "suspect" : state;
}

/* ---- list ------------------------------------------------------------------------------------ */

static int add_row(struct columns *columns, const json_t *worker, bool wide)
{
	char cells[10][64];
	char size[16];

	(void)snprintf(cells[0], sizeof(cells[0]), "%" PRIu64, number(worker, "number"));
	(void)snprintf(cells[1], sizeof(cells[1]), "%" PRIu64, number(worker, "slots"));
	(void)units_size(used(worker), cells[2], sizeof(cells[2]));
	(void)units_size(number(worker, "capacity"), cells[3], sizeof(cells[3]));
	(void)snprintf(cells[4], sizeof(cells[4]), "%s/s",
		units_size(number(worker, "served_rate"), size, sizeof(size))); /* fits */
	(void)snprintf(cells[5], sizeof(cells[5]), "%" PRIu64, number(worker, "share"));
	(void)snprintf(cells[6], sizeof(cells[6]), "%" PRIu64, number(worker, "weight"));
	return columns_add(columns,
		(const char *const[]){ cells[0], text(worker, "name"), worker_state(worker),
			cells[1], cells[2], cells[3], cells[4], text(worker, "address"),
			wide ? ago(worker, cells[7], sizeof(cells[7])) : NULL, cells[5], cells[6],
			text(worker, "domain"), text(worker, "version"), text(worker, "id") });
}

static int print_table(const json_t *workers, bool wide)
{
	static const char *const titles[] = { "NO", "NAME", "STATUS", "SLOTS", "USED", "CAPACITY",
		"THROUGHPUT", "ADDRESS", "LAST SEEN", "SHARE", "WEIGHT", "DOMAIN", "VERSION",
		"ID" };
	struct columns columns;
	const json_t *worker;
	int r = columns_init(
		&columns, titles, wide ? 14 : 8, 1u | 8u | 16u | 32u | 64u | 512u | 1024u);
	size_t i;

	json_array_foreach (workers, i, worker)
		if (r == 0)
			r = add_row(&columns, worker, wide);
	if (r == 0)
		columns_print(&columns, stdout);
	columns_release(&columns);
	return r;
}

static int list(int argc, char **argv)
{
	static const struct option_spec specs[] = {
		MASTER_OPTION_ROWS(struct worker_options, where),
		OUTPUT_OPTION_ROW(struct worker_options, output, OUTPUT_CHOICES),
	};
	static const struct option_set set = {
		.program = "cachectl worker list",
		.exits = { EXIT_CACHE },
		.arguments = "",
		.about = "Lists the workers of the cluster, with status, slots and cached data.",
		.specs = specs,
		.n = ARRAY_SIZE(specs),
	};
	struct worker_options o = { .output = "table" };
	json_auto_t *answer = NULL;
	struct err e = ERR_INIT;
	const json_t *workers;
	int r;

	(void)option_parse_or_exit(&set, argc, argv, &o);
	r = master_call(&o.where, NULL, "/v1/workers", NULL, MASTER_CALL_NS, &answer, &e);
	if (r < 0)
		return command_fail(command_exit(r), &e);
	if (!output_is_table(o.output))
		return yaml_out_answer(o.output, answer);
	workers = json_object_get(answer, "workers");
	if (json_array_size(workers) == 0) {
		(void)printf(
			"no worker has joined: start cacheworker with this master's address\n");
		return EXIT_OK;
	}
	r = print_table(workers, strcmp(o.output, "wide") == 0);
	if (r < 0) {
		(void)err_set(&e, r, "the table cannot be printed: %s: give -o json", err_str(r));
		return command_fail(EXIT_RUNTIME, &e);
	}
	return EXIT_OK;
}

/* ---- show ------------------------------------------------------------------------------------ */

static void row(const char *name, const char *value)
{
	(void)printf("%-12s ", name);
	columns_put(value, stdout);
	(void)printf("\n");
}

static void print_drain(const json_t *worker)
{
	char size[16];

	if (!is_true(worker, "draining"))
		return;
	if (is_true(worker, "drained"))
		row("drained", "yes: it may be removed");
	else if (json_object_get(worker, "only_copies"))
		(void)printf("%-12s no: %s left that no other worker has\n", "drained",
			units_size(number(worker, "only_copies"), size, sizeof(size)));
	else
		row("drained", "no");
	if (json_object_get(worker, "waits_for"))
		row("waits for", text(worker, "waits_for"));
}

static void print_tiers(const json_t *worker)
{
	const json_t *tier;
	char a[16];
	char b[16];
	size_t i;

	json_array_foreach (json_object_get(worker, "tiers"), i, tier) {
		(void)printf("%-12s ", "tier");
		columns_put(text(tier, "path"), stdout);
		(void)printf(": %s, %s of %s used, %s%s", text(tier, "kind"),
			units_size(number(tier, "used"), a, sizeof(a)),
			units_size(number(tier, "capacity"), b, sizeof(b)), text(tier, "state"),
			*text(tier, "reason") ? ": " : "");
		columns_put(text(tier, "reason"), stdout);
		(void)printf("\n");
	}
}

static void print_one(const json_t *worker)
{
	const json_t *address;
	char line[64];
	size_t i;

	(void)printf("%-12s %" PRIu64 "\n", "worker", number(worker, "number"));
	row("name", text(worker, "name"));
	row("state", worker_state(worker));
	print_drain(worker);
	json_array_foreach (json_object_get(worker, "addresses"), i, address)
		row(i ? "" : "address", json_string_value(address));
	row("domain", text(worker, "domain"));
	row("version", text(worker, "version"));
	row("last seen", ago(worker, line, sizeof(line)));
	(void)printf("%-12s %" PRIu64 " owned, %" PRIu64 " its share by weight %" PRIu64
		     ", %" PRIu64 " as deputy\n",
		"slots", number(worker, "slots"), number(worker, "share"), number(worker, "weight"),
		number(worker, "replicas"));
	if (number(worker, "leaving"))
		(void)printf("%-12s %" PRIu64 " slots that now have other owners\n", "owned before",
			number(worker, "leaving"));
	row("capacity", units_size(number(worker, "capacity"), line, sizeof(line)));
	(void)units_size(number(worker, "served_rate"), line, 16);
	(void)printf("%-12s %s/s, %" PRIu64 " requests in flight%s\n", "serves", line,
		number(worker, "in_flight"), is_true(worker, "full") ? ", admits no more" : "");
	print_tiers(worker);
	row("id", text(worker, "id"));
}

/* ---- drain ----------------------------------------------------------------------------------- */

static void pause_for(uint64_t ns)
{
	const struct timespec t = { .tv_sec = (time_t)(ns / CLOCK_SECOND),
		.tv_nsec = (long)(ns % CLOCK_SECOND) };

	(void)nanosleep(&t, NULL); /* an early end is as good */
}

static void say_left(const json_t *worker)
{
	char size[16];

	if (json_object_get(worker, "only_copies"))
		(void)fprintf(stderr, "%s left that only worker %s has\n",
			units_size(number(worker, "only_copies"), size, sizeof(size)),
			text(worker, "name"));
	if (json_object_get(worker, "waits_for"))
		(void)fprintf(stderr, "%s\n", text(worker, "waits_for"));
}

/* Until it is drained; *worker is the last answer. */
static int wait_drained(
	const struct worker_options *o, const char *name, json_t **worker, struct err *e)
{
	uint64_t said = 0;
	int status = EXIT_OK;

	while (status == EXIT_OK && !is_true(*worker, "drained")) {
		if (!is_true(*worker, "draining")) {
			(void)err_set(e, -ECANCELED,
				"worker %s was undrained meanwhile: drain it again",
				text(*worker, "name"));
			return EXIT_RUNTIME;
		}
		if (clock_mono_ns() - said >= 5 * CLOCK_SECOND) {
			say_left(*worker);
			said = clock_mono_ns();
		}
		pause_for(WAIT_STEP);
		json_decref(TAKE(*worker));
		status = call(o, NULL, name, "", worker, e);
	}
	return status;
}

/* ---- one worker ------------------------------------------------------------------------------ */

/* What is asked about the worker of the command line, and how the answer, which is the worker, is said to people. */
struct one {
	struct option_set set;
	const char *method; /* NULL: GET */
	const char *rest;   /* of the path */
	void (*print)(const json_t *worker);
};

static int run_one(const struct one *one, int argc, char **argv)
{
	struct worker_options o = { .output = "table" };
	json_auto_t *worker = NULL;
	struct err e = ERR_INIT;
	int status;

	(void)option_parse_or_exit(&one->set, argc, argv, &o); /* exactly one argument */
	status = call(&o, one->method, argv[1], one->rest, &worker, &e);
	if (status == EXIT_OK && o.wait)
		status = wait_drained(&o, argv[1], &worker, &e);
	if (status != EXIT_OK)
		return command_fail(status, &e);
	if (!output_is_table(o.output))
		return yaml_out_answer(o.output, worker);
	one->print(worker);
	return EXIT_OK;
}

static const struct option_spec plain_specs[] = {
	MASTER_OPTION_ROWS(struct worker_options, where),
	OUTPUT_OPTION_ROW(struct worker_options, output, OUTPUT_CHOICES),
};

static int show(int argc, char **argv)
{
	static const struct one one = {
		.set = { .program = "cachectl worker show",
			.exits = { EXIT_CACHE },
			.arguments = "WORKER",
			.about = "Shows one worker in detail. WORKER is its name or number.",
			.specs = plain_specs,
			.n = ARRAY_SIZE(plain_specs),
			.min_args = 1,
			.max_args = 1 },
		.rest = "",
		.print = print_one,
	};

	return run_one(&one, argc, argv);
}

static void print_draining(const json_t *worker)
{
	(void)printf("worker %s is %s\n", text(worker, "name"),
		is_true(worker, "drained")
			? "drained: cachectl worker remove takes it out of the cluster"
			: "being drained: see cachectl worker show");
}

static int drain(int argc, char **argv)
{
	static const struct option_spec specs[] = {
		OPTION_BOOL_ROW(struct worker_options, wait, "wait",
			"Wait until it has no data that no other worker has (default: return "
			"at once)"),
		MASTER_OPTION_ROWS(struct worker_options, where),
		OUTPUT_OPTION_ROW(struct worker_options, output, OUTPUT_CHOICES),
	};
	static const struct one one = {
		.set = { .program = "cachectl worker drain",
			.exits = { EXIT_CACHE, EXIT_BUSY },
			.arguments = "WORKER",
			.about = "Moves the slots of a worker to others, which pull its data from "
				 "it; it continues to serve. Once it is\ndrained, all of its data "
				 "is also on other workers: it may be stopped and removed, and "
				 "nothing is\nfetched from an origin again.",
			.specs = specs,
			.n = ARRAY_SIZE(specs),
			.min_args = 1,
			.max_args = 1 },
		.method = "POST",
		.rest = "/drain",
		.print = print_draining,
	};

	return run_one(&one, argc, argv);
}

static void print_state(const json_t *worker)
{
	(void)printf("worker %s is %s\n", text(worker, "name"), text(worker, "state"));
}

static int undrain(int argc, char **argv)
{
	static const struct one one = {
		.set = { .program = "cachectl worker undrain",
			.exits = { EXIT_CACHE },
			.arguments = "WORKER",
			.about = "Undoes drain: the worker gets its share of the slots again.",
			.specs = plain_specs,
			.n = ARRAY_SIZE(plain_specs),
			.min_args = 1,
			.max_args = 1 },
		.method = "POST",
		.rest = "/undrain",
		.print = print_state,
	};

	return run_one(&one, argc, argv);
}

/* ---- remove ---------------------------------------------------------------------------------- */

static int remove_one(int argc, char **argv)
{
	static const struct option_spec specs[] = {
		OPTION_BOOL_ROW(struct worker_options, force, "force",
			"Remove although it has data that no other worker has: it is fetched "
			"again (default: no)"),
		MASTER_OPTION_ROWS(struct worker_options, where),
		OUTPUT_OPTION_ROW(struct worker_options, output, OUTPUT_CHOICES),
	};
	static const struct option_set set = {
		.program = "cachectl worker remove",
		.exits = { EXIT_CACHE, EXIT_BUSY },
		.arguments = "WORKER",
		.about = "Removes a worker from the cluster that was drained, or that is gone. Its "
			 "tiers keep their data.\n"
			 "When it is started again, it is a member again.",
		.specs = specs,
		.n = ARRAY_SIZE(specs),
		.min_args = 1,
		.max_args = 1,
	};
	struct worker_options o = { .output = "table" };
	struct err e = ERR_INIT;
	int status;

	(void)option_parse_or_exit(&set, argc, argv, &o);
	status = call(&o, "DELETE", argv[1], o.force ? "?force=1" : "", NULL, &e);
	if (status != EXIT_OK)
		return command_fail(status, &e);
	if (!output_is_table(o.output))
		return yaml_out_made(
			o.output, json_pack("{s:s, s:b}", "worker", argv[1], "removed", 1));
	(void)printf("worker %s was removed\n", argv[1]);
	return EXIT_OK;
}

int command_worker(int argc, char **argv)
{
	static const struct subcommand all[] = {
		{ "list", list, "List all workers" },
		{ "show", show, "Show one worker" },
		{ "drain", drain, "Move its slots to other workers" },
		{ "undrain", undrain, "Undo drain" },
		{ "remove", remove_one, "Remove it from the cluster" },
	};

	return subcommand_run(
		"cachectl worker", "The workers of the cluster.", all, ARRAY_SIZE(all), argc, argv);
}
