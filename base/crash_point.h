/*
 * Named places at which a crash is worth a test: before and after each step that changes what is on
 * disk or what another process believes.
 *
 *	r = chunk_file_create(...);
 *	CRASH_POINT("tier.created");
 *	r = tier_index_put(...);
 *
 * In production the hook is not set and a point is one test of it. Debug programs list theirs and
 * die at the one asked for (tests/debug).
 *
 * Threads: any; the hook is set before the first of them starts.
 */
#pragma once

extern void (*crash_point_hook)(const char *name);

/* Every point of a program is in its section, so that tests know all that there are. */
#define CRASH_POINT(name)                                                               \
	do {                                                                            \
		static const char *const crash_point_name                               \
			__attribute__((section("crash_points"), used)) = (name);        \
		if (__builtin_expect(crash_point_hook != (void (*)(const char *))0, 0)) \
			crash_point_hook(crash_point_name);                             \
	} while (0)
