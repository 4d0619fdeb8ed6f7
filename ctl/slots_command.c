/* cachectl slots: who owns which part of all volumes. */
#include "base/units.h"
#include "ctl/columns.h"
#include "ctl/command.h"
#include "ctl/worker_command.h"
#include "ctl/yaml_out.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct slots_options {
	struct master_where where;
	const char *output;
};

static uint64_t number(const json_t *json, const char *name)
{
	return (uint64_t)json_integer_value(json_object_get(json, name));
}

static const char *text(const json_t *json, const char *name)
{
	const char *value = json_string_value(json_object_get(json, name));

	return value ? value : "";
}

static int add_row(struct columns *columns, const json_t *worker)
{
	uint64_t share = number(worker, "share");
	uint64_t owned = number(worker, "slots");
	char cells[6][24];

	(void)snprintf(cells[0], sizeof(cells[0]), "%" PRIu64, number(worker, "number"));
	(void)snprintf(cells[1], sizeof(cells[1]), "%" PRIu64, owned);
	(void)snprintf(cells[2], sizeof(cells[2]), "%" PRIu64, share);
	if (share)
		(void)units_percent((double)owned, (double)share, cells[3], sizeof(cells[3]));
	(void)snprintf(cells[4], sizeof(cells[4]), "%" PRIu64, number(worker, "replicas"));
	(void)snprintf(cells[5], sizeof(cells[5]), "%" PRIu64, number(worker, "leaving"));
	return columns_add(columns,
		(const char *const[]){ cells[0], text(worker, "name"), text(worker, "state"),
			cells[1], cells[2], share ? cells[3] : NULL, cells[4], cells[5] });
}

static int print_table(const json_t *answer)
{
	static const char *const titles[] = { "NO", "NAME", "STATUS", "SLOTS", "SHARE", "OF SHARE",
		"DEPUTY OF", "OWNED BEFORE" };
	struct columns columns;
	const json_t *worker;
	int r = columns_init(&columns, titles, ARRAY_SIZE(titles), 0xf9);
	size_t i;

	(void)printf("%" PRIu64 " of %" PRIu64 " slots are owned, version %" PRIu64 ".%" PRIu64
		     ", %zu are hot, %" PRIu64 " are leaving a worker that is drained\n",
		number(answer, "owned"), number(answer, "slots"), number(answer, "epoch"),
		number(answer, "sequence"), json_array_size(json_object_get(answer, "hot")),
		number(answer, "leaving"));
	json_array_foreach (json_object_get(answer, "workers"), i, worker)
		if (r == 0)
			r = add_row(&columns, worker);
	if (r == 0)
		columns_print(&columns, stdout);
	columns_release(&columns);
	return r;
}

static void print_who(const char *what, const json_t *who)
{
	if (json_is_object(who))
		(void)printf("%-10s %s (number %" PRIu64 ", %s)\n", what, text(who, "name"),
			number(who, "number"), text(who, "state"));
	else
		(void)printf("%-10s none\n", what);
}

static void print_slot(const json_t *slot)
{
	const json_t *one;
	size_t i;

	(void)printf("%-10s %" PRIu64 "%s\n", "slot", number(slot, "slot"),
		json_is_true(json_object_get(slot, "hot")) ? ", hot: its deputies serve it, too"
							   : "");
	print_who("owner", json_object_get(slot, "owner"));
	json_array_foreach (json_object_get(slot, "replicas"), i, one)
		print_who(i ? "" : "deputies", one);
	print_who("before", json_object_get(slot, "previous"));
}

static bool is_slot(const char *word)
{
	return strspn(word, "0123456789") == strlen(word) && strlen(word) < 8;
}

int command_slots(int argc, char **argv)
{
	static const struct option_spec specs[] = {
		MASTER_OPTION_ROWS(struct slots_options, where),
		OUTPUT_OPTION_ROW(struct slots_options, output, OUTPUT_CHOICES),
	};
	static const struct option_set set = {
		.program = "cachectl slots",
		.exits = { EXIT_CACHE },
		.arguments = "[SLOT]",
		.about = "Shows how many of the 65,536 slots each worker owns and should own, and "
			 "which slots are hot; or\n"
			 "with SLOT its owner and deputies. Each chunk of each volume belongs to a "
			 "slot.",
		.specs = specs,
		.n = ARRAY_SIZE(specs),
		.max_args = 1,
	};
	struct slots_options o = { .output = "table" };
	json_auto_t *answer = NULL;
	struct err e = ERR_INIT;
	char path[64];
	int n;
	int r = 0;

	n = option_parse_or_exit(&set, argc, argv, &o);
	(void)snprintf(path, sizeof(path), "/v1/slots%s%.8s", n ? "/" : "", n ? argv[1] : "");
	if (n && !is_slot(argv[1]))
		r = err_set(&e, -EINVAL, "invalid slot '%.32s': use 0 to 65535", argv[1]);
	if (r == 0)
		r = master_call(&o.where, NULL, path, NULL, MASTER_CALL_NS, &answer, &e);
	if (r < 0)
		return command_fail(command_exit(r), &e);
	if (!output_is_table(o.output))
		return yaml_out_answer(o.output, answer);
	if (n) {
		print_slot(answer);
		return EXIT_OK;
	}
	r = print_table(answer);
	if (r < 0) {
		(void)err_set(&e, r, "the table cannot be printed: %s: give -o json", err_str(r));
		return command_fail(EXIT_RUNTIME, &e);
	}
	return EXIT_OK;
}
