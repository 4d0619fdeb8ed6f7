/* cachectl job lint, and the linter before objects are printed. */
#pragma once

#include <jansson.h>

/* Prints what the linter finds in an array of objects on standard error. EXIT_OK, or EXIT_LINT with its line. */
int job_lint_objects(const json_t *objects);

/* The command. */
int job_lint_command(int argc, char **argv);
