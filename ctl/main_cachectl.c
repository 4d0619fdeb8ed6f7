/* cachectl: the command line of Granary. One file per command. */
#include "base/check.h"
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
	{ "mount", command_mount, "mount URL at DIR through the cache" },
	{ "umount", command_umount, "unmount DIR" },
	{ "refresh", command_refresh, "show at DIR what its source has now" },
	{ "status", command_status, "what is mounted, cached and running" },
	{ "top", command_top, "what is read, from where, and what waits, live" },
	{ "explain", command_explain, "which object a file is and where its bytes lie" },
	{ "doctor", command_doctor, "whether a mount would work here, and what it would lack" },
	{ "scrub", command_scrub, "read what is cached and compare it with its checksums" },
	{ "dataset", command_dataset, "name sources, and say what is wanted of their bytes" },
	{ "preload", command_preload, "load a source into the cache, all or parts of it" },
	{ "evict", command_evict, "drop what is cached of a dataset" },
	{ "pin", command_pin, "keep a dataset, or a generation of it, when others need room" },
	{ "unpin", command_unpin, "keep it no more than others" },
	{ "worker", command_worker, "the workers of the cluster; drain and remove them" },
	{ "slots", command_slots, "who owns which part of what is cached" },
	{ "plan", command_plan, "what a cache of some size would give a dataset" },
	{ "bench", command_bench, "measure what a mount gives, and what this machine can" },
	{ "backup", command_backup, "write what the master remembers to a file" },
	{ "restore", command_restore, "make a master's state from such a file" },
	{ "key", command_key, "make the key of a cluster, or say which is in a file" },
	{ "token", command_token, "let a node or a person use one dataset, or all" },
	{ "upgrade", command_upgrade, "replace the programs that serve mounts while they serve" },
	{ "keeper", command_keeper, "keep the mounts of a cache directory, as a service" },
	{ "config", command_config, "check a configuration file, or show what the daemons have" },
	{ "completion", command_completion, "print a script that completes cachectl in a shell" },
	{ "version", command_version, "print the version" },
	{ "help", command_help, "print this, or the help of a command" },
	{ "supervise", command_supervise, NULL },
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
	{ "Cluster", { "worker", "slots", "key", "token", "backup", "restore" } },
	{ "Service and configuration", { "upgrade", "keeper", "config" } },
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
