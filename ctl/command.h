/*
 * The commands of cachectl: each parses its own arguments and returns an exit status (base/exit.h).
 * A failing command has printed its one line.
 */
#pragma once

#include "base/err.h"
#include "base/exit.h"

int command_mount(int argc, char **argv);
int command_umount(int argc, char **argv);
int command_status(int argc, char **argv);
int command_explain(int argc, char **argv);
int command_supervise(int argc, char **argv);

/* Prints "cachectl: LINE" on standard error and returns `status`. */
int command_fail(int status, const struct err *e);

/* What to do when a mount is not found: mounts of root answer root only. */
const char *command_hint(void);
