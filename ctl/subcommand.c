/* Commands of a command. See subcommand.h. */
#include "ctl/subcommand.h"
#include "base/check.h"
#include "base/config.h"
#include "ctl/command.h"

#include <string.h>

#define SUBCOMMANDS_MAX 48u

void subcommand_help(
	const char *program, const char *about, const struct subcommand *all, size_t n, FILE *out)
{
	(void)fprintf(out, "Usage: %s COMMAND [OPTION...]\n\n", program);
	if (about)
		(void)fprintf(out, "%s\n\n", about);
	(void)fprintf(out, "Commands:\n");
	for (size_t i = 0; i < n; i++)
		if (all[i].help)
			(void)fprintf(out, "  %-12s %s\n", all[i].name, all[i].help);
	(void)fprintf(out, "\n`%s COMMAND --help` lists the options of a command.\n", program);
}

int subcommand_unknown(
	const char *program, const struct subcommand *all, size_t n, const char *name)
{
	const char *names[SUBCOMMANDS_MAX] = { NULL };
	const char *near;
	struct err e = ERR_INIT;
	size_t listed = 0;

	ensure(n <= SUBCOMMANDS_MAX);
	for (size_t i = 0; i < n; i++)
		if (all[i].help)
			names[listed++] = all[i].name;
	near = config_nearest(name, names, listed);
	(void)err_set(&e, -EINVAL, "unknown command '%s': %s%s%s`%s --help` lists all commands",
		name, near ? "did you mean '" : "", near ? near : "", near ? "'? " : "", program);
	return command_fail(EXIT_USAGE, &e);
}

const struct subcommand *subcommand_find(const struct subcommand *all, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(all[i].name, name) == 0)
			return &all[i];
	return NULL;
}

int subcommand_run(const char *program, const char *about, const struct subcommand *all, size_t n,
	int argc, char **argv)
{
	const struct subcommand *command;

	if (argc < 2) {
		subcommand_help(program, about, all, n, stderr);
		return EXIT_USAGE;
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
		subcommand_help(program, about, all, n, stdout);
		return EXIT_OK;
	}
	command = subcommand_find(all, n, argv[1]);
	return command ? command->run(argc - 1, argv + 1)
		       : subcommand_unknown(program, all, n, argv[1]);
}
