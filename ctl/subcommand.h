/*
 * Commands of a command: `cachectl dataset list`.
 *
 * Each parses its own arguments, argv[0] its name, and returns an exit status.
 */
#pragma once

#include <stddef.h>

struct subcommand {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *help; /* one line */
};

/* Runs what argv[1] names; without one, or for --help, says what there is. `program`: "cachectl
 * dataset". */
int subcommand_run(const char *program, const char *about, const struct subcommand *all, size_t n,
	int argc, char **argv);
