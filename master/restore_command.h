/*
 * cachemaster restore --state DIR FILE: makes the state of a master that does not run from a backup,
 * and ends.
 */
#pragma once

/* `program` is the process's argv[0]: "cachectl" where that command runs it. argv[0] is "restore". Returns the exit status; a failing
 * command has printed its line. */
int restore_command(const char *program, int argc, char **argv);
