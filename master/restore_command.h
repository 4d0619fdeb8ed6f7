/*
 * cachemaster restore --state DIR FILE: makes the state of a master that does not run from a backup,
 * and ends.
 */
#pragma once

/* argv[0] is "restore". Returns the exit status; a failing command has printed its line. */
int restore_command(int argc, char **argv);
