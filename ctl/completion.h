/*
 * Completion: `cachectl completion SHELL` prints a script, which at each TAB asks `cachectl __complete WORD...`. What an option
 * takes comes from its table, names of mounts and datasets from what runs; who does not answer
 * within half a second adds none. Nothing is ever printed on standard error.
 *
 * Answers are a candidate a line; ":dirs" or ":files" alone: the shell's own.
 */
#pragma once

#include <stddef.h>
#include "ctl/subcommand.h"

/* argv: "__complete", the words after cachectl, the last of them the one under the cursor. Prints
 * and exits, or returns the exit status. */
int completion_answer(const struct subcommand *commands, size_t n, int argc, char **argv);

/* Prints every command and subcommand, one a line: "dataset list". For manuals. */
int completion_list(const struct subcommand *commands, size_t n);
