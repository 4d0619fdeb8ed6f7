/* cachectl: the command line of Granary. One file per command. */
#include "base/check.h"
#include "base/config.h"
#include "base/version.h"
#include "ctl/command.h"
#include "ctl/completion.h"

#include <stdio.h>
#include <string.h>

static int command_version(int argc, char **argv);
static int command_help(int argc, char **argv);
static int command_complete(int argc, char **argv);
static int command_list(int argc, char **argv);

static const struct command commands[] = {
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
	{ "plan", command_plan, "what a cache of some size would give a dataset" },
	{ "bench", command_bench, "measure what a mount gives, and what this machine can" },
	{ "backup", command_backup, "write what the master remembers to a file" },
	{ "restore", command_restore, "make a master's state from such a file" },
	{ "upgrade", command_upgrade, "replace the programs that serve mounts while they serve" },
	{ "keeper", command_keeper, "keep the mounts of a cache directory, as a service" },
	{ "config", command_config, "check a configuration file, or show what the daemons have" },
	{ "completion", command_completion, "print a script that completes cachectl in a shell" },
	{ "version", command_version, "print the version" },
	{ "help", command_help, "print this, or the help of a command" },
	{ "supervise", command_supervise, NULL },
	{ "__complete", command_complete, NULL },
	{ "__list", command_list, NULL },
};

static const struct command *find(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		if (strcmp(commands[i].name, name) == 0)
			return &commands[i];
	return NULL;
}

static int command_version(int argc, char **argv)
{
	(void)argc;
	(void)argv;
	(void)printf("cachectl %s\n", GRANARY_VERSION);
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

static void print_help(FILE *out)
{
	(void)fprintf(out, "Usage: cachectl COMMAND [OPTION...]\n\nCommands:\n");
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		if (commands[i].help)
			(void)fprintf(out, "  %-11s %s\n", commands[i].name, commands[i].help);
	(void)fprintf(out, "\n`cachectl COMMAND --help` lists the options of a command.\n"
			   "Exit status: 0 done, 1 error while running, 2 usage, 3 mount point, 4 "
			   "origin, 5 cache directory,\n"
			   "6 kernel, 7 busy.\n");
}

static int unknown_command(const char *name)
{
	const char *names[ARRAY_SIZE(commands)];
	const char *near;
	size_t n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		if (commands[i].help)
			names[n++] = commands[i].name;
	near = config_nearest(name, names, n);
	(void)fprintf(stderr, "cachectl: unknown command '%s': %s%s%sthe commands are ", name,
		near ? "is it " : "", near ? near : "", near ? "? " : "");
	for (size_t i = 0; i < n; i++)
		(void)fprintf(stderr, "%s%s", i == 0 ? "" : i + 1 == n ? " and " : ", ", names[i]);
	(void)fputc('\n', stderr);
	return EXIT_USAGE;
}

static int command_help(int argc, char **argv)
{
	const struct command *command = argc > 1 ? find(argv[1]) : NULL;
	char help[] = "--help";
	char *words[] = { argv[0], help, NULL };

	if (argc > 1 && !command)
		return unknown_command(argv[1]);
	if (command && command->run != command_help && command->run != command_version)
		return command->run(2, words);
	print_help(stdout);
	return EXIT_OK;
}

int main(int argc, char **argv)
{
	const struct command *command;

	if (argc < 2) {
		print_help(stderr);
		return EXIT_USAGE;
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
		return command_help(1, argv);
	if (strcmp(argv[1], "--version") == 0)
		return command_version(1, argv);
	command = find(argv[1]);
	if (!command)
		return unknown_command(argv[1]);
	return command->run(argc - 1, argv + 1);
}
