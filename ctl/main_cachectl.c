/* cachectl: the command line of Granary. One file per command. */
#include "base/check.h"
#include "base/error_line.h"
#include "ctl/command.h"
#include "ctl/completion.h"
#include "ctl/subcommand.h"

#include <stdio.h>
#include <string.h>

static int command_help(int argc, char **argv);
static int command_complete(int argc, char **argv);
static int command_list(int argc, char **argv);
static int command_exits(int argc, char **argv);

static const struct subcommand commands[] = {
	{ "mount", command_mount, "Mount a dataset, a bucket or a directory" },
	{ "umount", command_umount, "Unmount" },
	{ "refresh", command_refresh, "Show the current content of the source of a mount" },
	{ "status", command_status, "Show mounts, caches and daemons" },
	{ "top", command_top, "Show reads and waits, live" },
	{ "explain", command_explain, "Show the object behind a file, and where it is cached" },
	{ "doctor", command_doctor, "Check this host, and optionally a bucket, for problems" },
	{ "scrub", command_scrub, "Compare cached data with its checksums" },
	{ "dataset", command_dataset, "Manage datasets and their cache policy" },
	{ "preload", command_preload, "Load a dataset into the cache" },
	{ "evict", command_evict, "Drop cached data of a dataset" },
	{ "pin", command_pin, "Protect a dataset, or a generation, from eviction" },
	{ "unpin", command_unpin, "Undo pin" },
	{ "worker", command_worker, "Show, drain and remove workers of the cluster" },
	{ "slots", command_slots, "Show the slot table" },
	{ "job", command_job, "Compile and check training jobs" },
	{ "plan", command_plan, "Compute the hit ratio of a cache of some size" },
	{ "bench", command_bench, "Measure a mount, and the limits of this host" },
	{ "backup", command_backup, "Write the state of the master to a file" },
	{ "restore", command_restore, "Create the state of a master from a backup" },
	{ "key", command_key, "Create and show cluster keys" },
	{ "token", command_token, "Create and show access tokens" },
	{ "upgrade", command_upgrade, "Replace the programs that serve mounts, without downtime" },
	{ "config", command_config, "Check and show the configuration of the daemons" },
	{ "completion", command_completion, "Print a completion script for a shell" },
	{ "version", command_version, "Print the version" },
	{ "help", command_help, "Print this help, or that of a command" },
	{ "__complete", command_complete, NULL },
	{ "__list", command_list, NULL },
	{ "__exits", command_exits, NULL },
};

static const struct {
	int number;
	const char *text;
} exits[] = {
#define ROW(name, number, text) { name, text },
	EXIT_STATUSES(ROW)
#undef ROW
};

/* For manuals, and for the page that lists them. */
static int command_exits(int argc, char **argv)
{
	(void)argc;
	(void)argv;
	for (size_t i = 0; i < ARRAY_SIZE(exits); i++)
		(void)printf("%d\t%s\n", exits[i].number, exits[i].text);
	return EXIT_OK;
}

static int command_complete(int argc, char **argv)
{
	return completion_answer(commands, ARRAY_SIZE(commands), argc, argv);
}

static int command_list(int argc, char **argv)
{
	(void)argc;
	(void)argv;
	return completion_list(commands, ARRAY_SIZE(commands));
}

/* The commands by task; each that is listed is in one of them. */
static const struct {
	const char *title;
	const char *names[8];
} groups[] = {
	{ "Mount and read", { "mount", "umount", "refresh", "status", "top", "explain" } },
	{ "Datasets and cached data", { "dataset", "preload", "evict", "pin", "unpin", "scrub" } },
	{ "Check, measure, plan", { "doctor", "bench", "plan" } },
	{ "Jobs", { "job" } },
	{ "Cluster", { "worker", "slots", "key", "token", "backup", "restore" } },
	{ "Service and configuration", { "upgrade", "config" } },
	{ "Other", { "completion", "version", "help" } },
};

static void print_help(FILE *out)
{
	(void)fprintf(out, "Usage: cachectl COMMAND [OPTION...]\n");
	for (size_t g = 0; g < ARRAY_SIZE(groups); g++) {
		(void)fprintf(out, "\n%s:\n", groups[g].title);
		for (size_t i = 0; i < ARRAY_SIZE(groups[g].names) && groups[g].names[i]; i++)
			(void)fprintf(out, "  %-12s %s\n", groups[g].names[i],
				subcommand_find(commands, ARRAY_SIZE(commands), groups[g].names[i])
					->help);
	}
	(void)fprintf(out, "\n`cachectl COMMAND --help` lists the options of a command.\n");
	(void)fprintf(out, "\nExit status:\n");
	for (size_t i = 0; i < ARRAY_SIZE(exits); i++)
		(void)fprintf(out, "  %3d  %s\n", exits[i].number, exits[i].text);
}

/* `help`, `help dataset`, `help dataset create`: what --help of these says. */
static int command_help(int argc, char **argv)
{
	const struct subcommand *command;
	char help[] = "--help";
	char *words[] = { NULL, NULL, NULL, NULL };
	int n = 0;

	if (argc < 2 || argv[1][0] == '-' || strcmp(argv[1], "help") == 0) {
		print_help(stdout);
		return EXIT_OK;
	}
	command = subcommand_find(commands, ARRAY_SIZE(commands), argv[1]);
	if (!command)
		return subcommand_unknown("cachectl", commands, ARRAY_SIZE(commands), argv[1]);
	for (int i = 1; i < argc && n < 2; i++)
		words[n++] = argv[i];
	words[n++] = help;
	return command->run(n, words);
}

int main(int argc, char **argv)
{
	char name[] = "version";
	char *version[] = { name, NULL };

	error_line_take_form(argc, argv);
	if (argc < 2) {
		print_help(stderr);
		return EXIT_USAGE;
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
		return command_help(1, argv);
	if (strcmp(argv[1], "--version") == 0)
		return command_version(1, version);
	return subcommand_run("cachectl", NULL, commands, ARRAY_SIZE(commands), argc, argv);
}
