/* The machine's memory and the control group's. See memory.h. */
#include "base/memory.h"
#include "base/buf.h"
#include "base/check.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/units.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

static uint64_t limit_of(const char *group)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(4096);
	char path[PATH_MAX];
	char *end;
	uint64_t bytes;

	if (snprintf(path, sizeof(path), "/sys/fs/cgroup%s/memory.max", group) >=
			(int)sizeof(path) ||
		file_read_all(path, &text) < 0)
		return UINT64_MAX;
	bytes = strtoull(buf_str(&text), &end, 10); /* "max" is no number */
	return end == buf_str(&text) ? UINT64_MAX : bytes;
}

uint64_t memory_group_limit(void)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(65536);
	uint64_t least = UINT64_MAX;
	char *group;
	char *slash;

	if (file_read_all("/proc/self/cgroup", &text) < 0)
		return least;
	group = strstr(text.data ? text.data : (char[]){ "" }, "0::/");
	if (!group)
		return least;
	group += 3;
	group[strcspn(group, "\n")] = '\0';
	for (;;) { /* each group above counts too */
		least = min(least, limit_of(group));
		slash = strrchr(group, '/');
		if (!slash || slash == group)
			break;
		*slash = '\0';
	}
	return min(least, limit_of(""));
}

/* A line of /proc/meminfo; 0 without it. */
static uint64_t meminfo(const char *name)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(65536);
	const char *line = NULL;

	if (file_read_all("/proc/meminfo", &text) == 0)
		line = strstr(buf_str(&text), name);
	return line ? strtoull(line + strlen(name), NULL, 10) * KiB : 0;
}

uint64_t memory_there(void)
{
	return min(meminfo("MemTotal:"), memory_group_limit());
}

uint64_t memory_available(void)
{
	return meminfo("MemAvailable:");
}
