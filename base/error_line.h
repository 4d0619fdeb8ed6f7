/*
 * The last line of a command that failed, on standard error: "PROGRAM: TEXT". When the command line asks for JSON or YAML, the line
 * is an object instead, which both understand: {"error": {"code": "EINVAL", "text": "..."}, "exit": 2}. HTTP answers have the same
 * `error`.
 *
 * Threads: one.
 */
#pragma once

#include "base/err.h"

/* Takes the form of the line from `-o` and `--output` in argv[1..argc). Without this call it is text. */
void error_line_take_form(int argc, char **argv);
/* Returns `status`, the exit status. */
int error_line_print(const char *program, int status, const struct err *e);
