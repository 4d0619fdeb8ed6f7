/* What daemons have and may have. See status_bounds.h. */
#include "ctl/status_bounds.h"
#include "base/cleanup.h"
#include "base/units.h"
#include "ctl/columns.h"
#include "ctl/status_notes.h"

#include <stdio.h>
#include <string.h>

#define NEARLY 90u /* per cent of a maximum */

enum {
	DAEMON,
	PID,
	MEMORY,
	PEAK,
	MAX,
	MOST,
	FILES,
	THREADS,
	CONNECTIONS,
	REQUESTS,
	LEFT_OUT,
	COLUMNS
};

static const char *const titles[COLUMNS] = {
	[DAEMON] = "DAEMON",
	[PID] = "PID",
	[MEMORY] = "MEMORY",
	[PEAK] = "PEAK",
	[MAX] = "MAX",
	[MOST] = "MOST OF IT",
	[FILES] = "DESCRIPTORS",
	[THREADS] = "THREADS",
	[CONNECTIONS] = "CONNECTIONS",
	[REQUESTS] = "REQUESTS",
	[LEFT_OUT] = "LOG LEFT OUT",
};

/* "17/1024", or "17" when there is no maximum. */
static char *of_max(const json_t *bounds, const char *name, char out[32])
{
	const json_t *use = json_object_get(bounds, name);
	uint64_t most = status_number(use, "max");

	if (most)
		(void)snprintf(out, 32, "%llu/%llu", (unsigned long long)status_number(use, "used"),
			(unsigned long long)most); /* cut, if ever: for people */
	else
		(void)snprintf(
			out, 32, "%llu", (unsigned long long)status_number(use, "used")); /* fits */
	return out;
}

/* The user who has most: "units 24.0MiB". */
static char *most_of(const json_t *memory, char out[64])
{
	const char *name;
	const char *most = NULL;
	json_t *user;
	uint64_t bytes = 0;
	char size[16];

	json_object_foreach ((json_t *)(uintptr_t)json_object_get(memory, "users"), name, user)
		if (status_number(user, "used") > bytes) {
			bytes = status_number(user, "used");
			most = name;
		}
	if (!most)
		return NULL;
	(void)snprintf(out, 64, "%.40s %s", most, units_size(bytes, size, sizeof(size))); /* fits */
	return out;
}

/* NULL: not counted (the keeper), or without a bound. */
static const char *size_of(const json_t *memory, const char *name, char out[16])
{
	uint64_t bytes = status_number(memory, name);

	return bytes ? units_size(bytes, out, 16) : NULL;
}

static int add(struct columns *columns, const json_t *daemon)
{
	const json_t *bounds = json_object_get(daemon, "bounds");
	const json_t *memory = json_object_get(bounds, "memory");
	const char *cells[COLUMNS];
	char pid[16];
	char sizes[3][16];
	char most[64];
	char counts[4][32];
	char left[24];

	if (!bounds)
		return 0; /* does not answer */
	(void)snprintf(pid, sizeof(pid), "%llu", (unsigned long long)status_number(daemon, "pid"));
	(void)snprintf(left, sizeof(left), "%llu",
		(unsigned long long)status_number(
			json_object_get(bounds, "log"), "left_out")); /* fits */
	cells[DAEMON] = json_string_value(json_object_get(daemon, "process"));
	cells[PID] = pid;
	cells[MEMORY] = size_of(memory, "used", sizes[0]);
	cells[PEAK] = size_of(memory, "peak", sizes[1]);
	cells[MAX] = size_of(memory, "max", sizes[2]);
	cells[MOST] = most_of(memory, most);
	cells[FILES] = of_max(bounds, "descriptors", counts[0]);
	cells[THREADS] = of_max(bounds, "all_threads", counts[1]);
	cells[CONNECTIONS] = of_max(bounds, "connections", counts[2]);
	cells[REQUESTS] = of_max(bounds, "requests", counts[3]);
	cells[LEFT_OUT] = left;
	return columns_add(columns, cells);
}

int status_bounds_print(const json_t *const lists[])
{
	_cleanup_(columns_release) struct columns columns = { 0 };
	const json_t *daemon;
	size_t i;
	int r = columns_init(&columns, titles, COLUMNS,
		1u << PID | 1u << MEMORY | 1u << PEAK | 1u << MAX | 1u << FILES | 1u << THREADS |
			1u << CONNECTIONS | 1u << REQUESTS | 1u << LEFT_OUT);

	for (; *lists && r == 0; lists++)
		json_array_foreach (*lists, i, daemon)
			if (r == 0)
				r = add(&columns, daemon);
	if (r < 0)
		return r;
	(void)putchar('\n');
	columns_print(&columns, stdout);
	return 0;
}

static void note(const json_t *daemon)
{
	const json_t *bounds = json_object_get(daemon, "bounds");
	const json_t *files = json_object_get(bounds, "descriptors");
	const char *name = json_string_value(json_object_get(daemon, "process"));
	uint64_t left = status_number(json_object_get(bounds, "log"), "left_out");

	if (!name)
		return;
	if (left)
		(void)printf("note: %s left out %llu lines of log, more than its limit: see the "
			     "lines that it wrote\n",
			name, (unsigned long long)left);
	if (status_number(files, "used") * 100 >= status_number(files, "max") * NEARLY &&
		status_number(files, "max"))
		(void)printf("note: %s has %llu of %llu descriptors: raise the limit of open files "
			     "(ulimit -n)\n",
			name, (unsigned long long)status_number(files, "used"),
			(unsigned long long)status_number(files, "max"));
}

void status_bounds_notes(const json_t *const lists[])
{
	const json_t *daemon;
	size_t i;

	for (; *lists; lists++)
		json_array_foreach (*lists, i, daemon)
			note(daemon);
}
