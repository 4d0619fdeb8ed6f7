/* The table of docs/deadlines.md: how long a read waits at each place at most. Tests compare it with what they measure. */
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/check.h"
#include "base/clock.h"

/* Nanoseconds of the row that begins with `name`, whose second cell is the longest wait. */
static inline uint64_t wait_table_ns(const char *name)
{
	FILE *file = fopen("docs/deadlines.md", "re");
	double seconds = -1;
	char line[512];
	char row[64];

	ensure(file);
	(void)snprintf(row, sizeof(row), "| %s |", name);
	while (seconds < 0 && fgets(line, sizeof(line), file))
		if (strncmp(line, row, strlen(row)) == 0)
			seconds = strtod(line + strlen(row), NULL);
	(void)fclose(file);   /* only read from */
	ensure(seconds >= 0); /* docs/deadlines.md has no such row */
	return (uint64_t)(seconds * 1e9);
}
