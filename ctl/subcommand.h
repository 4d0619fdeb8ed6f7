/*
 * Commands, and commands of a command: `cachectl status`, `cachectl dataset list`.
 *
 * Each parses its own arguments, argv[0] its name, and returns an exit status.
 */
#pragma once

#include <stddef.h>
#include <stdio.h>

struct subcommand {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *help; /* one line; NULL: not listed */
};

/* Runs what argv[1] names; without one, or for --help, says what there is. `program`: "cachectl
 * dataset". */
int subcommand_run(const char *program, const char *about, const struct subcommand *all, size_t n,
	int argc, char **argv);

/* The parts of that. NULL: no such command. */
const struct subcommand *subcommand_find(const struct subcommand *all, size_t n, const char *name);
void subcommand_help(
	const char *program, const char *about, const struct subcommand *all, size_t n, FILE *out);
/* Says which there are, and which may have been meant; EXIT_USAGE. */
int subcommand_unknown(
	const char *program, const struct subcommand *all, size_t n, const char *name);
