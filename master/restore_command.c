/* cachemaster restore. See restore_command.h. */
#include "master/restore_command.h"
#include "admin/admin.h"
#include "base/cleanup.h"
#include "base/error_line.h"
#include "base/exit.h"
#include "base/option.h"
#include "master/backup.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct restore_options {
	const char *state;
	bool check;
	const char *output;
};

static const struct option_spec specs[] = {
	OPTION_STRING_ROW(struct restore_options, state, "state", "DIR",
		"State directory of the master, empty or missing (default: none)"),
	OPTION_BOOL_ROW(
		struct restore_options, check, "check", "Read FILE only (default: restore it)"),
	OPTION_ROW(struct restore_options, output, "output", OPTION_CHOICE, .letter = 'o',
		.choices = "table|wide|json|yaml", .help = "Form of the answer (default: table)"),
};

static const struct option_set set_of_master = {
	.program = "cachemaster restore",
	.exits = { EXIT_CACHE },
	.arguments = "FILE",
	.about = "Creates the state of a master from a backup of `cachectl backup`. Start the "
		 "master "
		 "afterwards. Cached\n"
		 "data stays valid; a source that has changed since the backup begins a new "
		 "lineage.",
	.specs = specs,
	.n = ARRAY_SIZE(specs),
	.min_args = 1,
	.max_args = 1,
};

/* One line, which is JSON and YAML. */
static int print_object(const char *program, const struct restore_options *options,
	const char *file, const struct backup_stats *stats)
{
	json_t *json =
		json_pack("{s:o, s:s, s:I, s:o, s:I, s:I, s:b}", "file", admin_json_string(file),
			"cluster", stats->cluster.uuid, "epoch", (json_int_t)stats->cluster.epoch,
			"time", backup_time_json(stats), "records", (json_int_t)stats->records,
			"tables", (json_int_t)stats->tables, "restored", (int)!options->check);
	_cleanup_free_ char *text = json ? admin_json_text(json, JSON_COMPACT) : NULL;
	struct err e = ERR_INIT;

	json_decref(json);
	if (text && printf("%s\n", text) > 0 && fflush(stdout) == 0)
		return EXIT_OK;
	(void)err_set(&e, text ? -EIO : -ENOMEM, "the answer cannot be written: %s",
		err_str(text ? -EIO : -ENOMEM));
	return error_line_print(program, EXIT_RUNTIME, &e);
}

static void print_text(
	const struct restore_options *options, const char *file, const struct backup_stats *stats)
{
	(void)printf("%s: cluster %s, epoch %" PRIu64 ", of %s: %" PRIu64 " records, %" PRIu64
		     " tables: %s\n",
		file, stats->cluster.uuid, stats->cluster.epoch, stats->time, stats->records,
		stats->tables, options->check ? "whole" : "restored");
	if (!options->check)
		(void)printf("Start the master with --state %s.\n", options->state);
}

int restore_command(const char *program, int argc, char **argv)
{
	struct option_set set = set_of_master;
	struct restore_options options = { .output = "table" };
	struct backup_stats stats;
	struct err e = ERR_INIT;
	int r;

	/* cachectl runs this program under its own name. */
	if (strcmp(program, "cachectl") == 0)
		set.program = "cachectl restore";
	else
		program = "cachemaster";
	error_line_take_form(argc, argv);
	(void)option_parse_or_exit(&set, argc, argv, &options); /* one argument */
	if (!options.state && !options.check) {
		(void)err_set(&e, -EINVAL,
			"an option is missing: give --state DIR to restore, or --check to read "
			"FILE only");
		return error_line_print(program, EXIT_USAGE, &e);
	}
	r = options.check ? backup_check(argv[1], &stats, &e)
			  : backup_restore(argv[1], options.state, &stats, &e);
	if (r < 0)
		return error_line_print(program, r == -EEXIST ? EXIT_USAGE : EXIT_CACHE, &e);
	if (strcmp(options.output, "json") == 0 || strcmp(options.output, "yaml") == 0)
		return print_object(program, &options, argv[1], &stats);
	print_text(&options, argv[1], &stats);
	return EXIT_OK;
}
