/*
 * Dying at named places (base/crash_point.h), for tests that start the whole program.
 *
 *	PROGRAM --crash-points		prints the points that are in it, and ends
 *	GRANARY_CRASH_DIR=DIR		DIR/reached gets a line "PROGRAM POINT" for each point reached,
 *					once per process;
 *					DIR/arm, "PROGRAM POINT N": the process that comes to that
 *					point for the N-th time renames it to DIR/fired and dies by
 *					SIGKILL
 *
 * Threads: set up by the constructor, before main().
 */
#pragma once

/* Prints the points of this program, sorted, a line each. */
void crash_points_print(void);
/* Sets the hook when GRANARY_CRASH_DIR is there. */
void crash_points_install(void);
