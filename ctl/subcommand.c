/* Commands of a command. See subcommand.h. */
#include "ctl/subcommand.h"
#include "base/config.h"
#include "base/exit.h"

#include <stdio.h>
#include <string.h>

#define SUBCOMMANDS_MAX 32u

static void print_help(
	const char *program, const char *about, const struct subcommand *all, size_t n, FILE *out)
{
	(void)fprintf(out, "Usage: %s COMMAND [OPTION...]\n\n%s\n\nCommands:\n", program, about);
	for (size_t i = 0; i < n; i++)
		(void)fprintf(out, "  %-12s %s\n", all[i].name, all[i].help);
	(void)fprintf(out, "\n`%s COMMAND --help` lists the options of a command.\n", program);
}

static int unknown(const char *program, const struct subcommand *all, size_t n, const char *name)
{
	const char *names[SUBCOMMANDS_MAX] = { NULL };
	const char *near;

	for (size_t i = 0; i < n; i++)
		names[i] = all[i].name;
	near = config_nearest(name, names, n);
	(void)fprintf(stderr, "%s: unknown command '%s': %s%s%sthe commands are ", program, name,
		near ? "is it " : "", near ? near : "", near ? "? " : "");
	for (size_t i = 0; i < n; i++)
		(void)fprintf(stderr, "%s%s", i == 0 ? "" : i + 1 == n ? " and " : ", ", names[i]);
	(void)fputc('\n', stderr);
	return EXIT_USAGE;
}

int subcommand_run(const char *program, const char *about, const struct subcommand *all, size_t n,
	int argc, char **argv)
{
	ensure(n <= SUBCOMMANDS_MAX);
	if (argc < 2) {
		print_help(program, about, all, n, stderr);
		return EXIT_USAGE;
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
		print_help(program, about, all, n, stdout);
		return EXIT_OK;
	}
	for (size_t i = 0; i < n; i++)
		if (strcmp(all[i].name, argv[1]) == 0)
			return all[i].run(argc - 1, argv + 1);
	return unknown(program, all, n, argv[1]);
}
