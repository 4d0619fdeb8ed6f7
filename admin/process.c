/* What every process says of itself in /metrics, by the names that all exporters use. */
#include "admin/admin_internal.h"
#include "base/bounds.h"
#include "base/cleanup.h"
#include "base/version.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* /proc/self/stat, by proc(5)'s numbers of its fields. */
enum {
	FIELD_USER = 14,
	FIELD_SYSTEM = 15,
	FIELD_START = 22,
	FIELD_VIRTUAL = 23,
	FIELD_RESIDENT = 24
};

struct process_stat {
	uint64_t user, system;      /* ticks */
	uint64_t start;             /* ticks since boot */
	uint64_t virtual, resident; /* bytes, pages */
};

/* `rest` begins with the blank before field 3. */
static uint64_t field(const char *rest, int number)
{
	for (int at = 3; at < number && rest; at++)
		rest = strchr(rest + 1, ' ');
	return rest ? strtoull(rest + 1, NULL, 10) : 0;
}

static bool read_stat(struct process_stat *ret)
{
	_cleanup_fclose_ FILE *f = fopen("/proc/self/stat", "re");
	char line[1024];
	const char *rest;

	if (!f || !fgets(line, sizeof(line), f))
		return false;
	rest = strrchr(line, ')'); /* the name may have blanks */
	if (!rest)
		return false;
	rest++;
	*ret = (struct process_stat){ .user = field(rest, FIELD_USER),
		.system = field(rest, FIELD_SYSTEM),
		.start = field(rest, FIELD_START),
		.virtual = field(rest, FIELD_VIRTUAL),
		.resident = field(rest, FIELD_RESIDENT) };
	return true;
}

/* When ticks began to be counted, in seconds of the wall clock. */
static double boot_time(void)
{
	struct timespec wall;
	struct timespec boot;

	(void)clock_gettime(CLOCK_REALTIME, &wall); /* cannot fail */
	(void)clock_gettime(CLOCK_BOOTTIME, &boot);
	return (double)(wall.tv_sec - boot.tv_sec) + (double)(wall.tv_nsec - boot.tv_nsec) / 1e9;
}

void admin_process_metrics(struct metrics *m)
{
	static const struct metric_family build = { "granary_build_info", GAUGE, "constant",
		"Version and program, as labels" };
	static const struct metric_family cpu = { "process_cpu_seconds_total", COUNTER, "seconds",
		"Processor time, of user and system" };
	static const struct metric_family started = { "process_start_time_seconds", GAUGE,
		"seconds", "When the process began, since 1970" };
	static const struct metric_family virtual = { "process_virtual_memory_bytes", GAUGE,
		"bytes", "Virtual memory" };
	static const struct metric_family resident = { "process_resident_memory_bytes", GAUGE,
		"bytes", "Resident memory" };
	static const struct metric_family fds = { "process_open_fds", GAUGE, "descriptors",
		"Open descriptors" };
	static const struct metric_family max_fds = { "process_max_fds", GAUGE, "descriptors",
		"Descriptors allowed" };
	double tick = (double)sysconf(_SC_CLK_TCK);
	struct process_stat stat = { 0 };
	struct bound_use use;

	metrics_family(m, &build);
	metrics_value(m, &build,
		METRIC_LABELS({ "version", GRANARY_VERSION },
			{ "program", program_invocation_short_name }),
		1);
	if (!read_stat(&stat))
		return; /* no /proc: what it would say is left out */
	metrics_family(m, &cpu);
	metrics_real(m, &cpu, NULL, (double)(stat.user + stat.system) / tick);
	metrics_family(m, &started);
	metrics_real(m, &started, NULL, boot_time() + (double)stat.start / tick);
	metrics_one(m, &virtual, stat.virtual);
	metrics_one(m, &resident, stat.resident * (uint64_t)sysconf(_SC_PAGESIZE));
	bounds_descriptors(&use);
	metrics_one(m, &fds, use.used);
	metrics_one(m, &max_fds, use.max);
}
