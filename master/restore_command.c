/* cachemaster restore. See restore_command.h. */
#include "master/restore_command.h"
#include "base/exit.h"
#include "base/option.h"
#include "master/backup.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct restore_options {
	const char *state;
	bool check;
};

static const struct option_spec specs[] = {
	OPTION_STRING_ROW(struct restore_options, state, "state", "DIR",
		"the master's state directory, empty or missing"),
	OPTION_BOOL_ROW(
		struct restore_options, check, "check", "only read FILE, and say what is in it"),
};

static const struct option_set set_of_master = {
	.program = "cachemaster restore",
	.arguments = "FILE",
	.about = "Makes a master's state from a backup of `cachectl backup`, before the master is "
		 "started. What was\n"
		 "cached stays cached; a source that has changed since the backup begins a new "
		 "lineage.",
	.specs = specs,
	.n = ARRAY_SIZE(specs),
	.min_args = 1,
	.max_args = 1,
};

static int fail(const char *program, int status, const struct err *e)
{
	(void)fprintf(stderr, "%s: %s\n", program, e->text);
	return status;
}

int restore_command(const char *program, int argc, char **argv)
{
	struct option_set set = set_of_master;
	struct restore_options options = { 0 };
	struct backup_stats stats;
	struct err e = ERR_INIT;
	int r;

	/* cachectl runs this program under its own name. */
	if (strcmp(program, "cachectl") == 0)
		set.program = "cachectl restore";
	else
		program = "cachemaster";
	(void)option_parse_or_exit(&set, argc, argv, &options); /* one argument */
	if (!options.state && !options.check) {
		(void)err_set(&e, -EINVAL,
			"an option is missing: give --state DIR to restore, or --check to read "
			"FILE only");
		return fail(program, EXIT_USAGE, &e);
	}
	r = options.check ? backup_check(argv[1], &stats, &e)
			  : backup_restore(argv[1], options.state, &stats, &e);
	if (r < 0)
		return fail(program, r == -EEXIST ? EXIT_BUSY : EXIT_CACHE, &e);
	(void)printf("%s: cluster %s, epoch %" PRIu64 ", of %s: %" PRIu64 " records, %" PRIu64
		     " tables: %s\n",
		argv[1], stats.cluster.uuid, stats.cluster.epoch, stats.time, stats.records,
		stats.tables, options.check ? "whole" : "restored");
	if (!options.check)
		(void)printf("Start the master with --state %s.\n", options.state);
	return EXIT_OK;
}
