/* Scans /proc. See users.h. */
#include "keeper/points/users.h"
#include "base/check.h"
#include "base/cleanup.h"
#include "mount/kernel/kernel.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#define FDS_MAX   65536u /* descriptors looked at, over all processes */
#define MAP_LINES 65536u /* of mappings, over all processes */

struct search {
	dev_t dev;
	uint64_t mount_id; /* 0: any */
	unsigned int fds;
	unsigned int lines;
};

static bool on_dev(const struct search *s, int dir, const char *name)
{
	struct statx stx;

	/*
	 * Attributes as they are known: never a request to a daemon that may be the one which asks.
	 */
	if (statx(dir, name, AT_STATX_DONT_SYNC, STATX_TYPE | STATX_MNT_ID, &stx) != 0 ||
		makedev(stx.stx_dev_major, stx.stx_dev_minor) != s->dev)
		return false;
	return !s->mount_id || !(stx.stx_mask & STATX_MNT_ID) || stx.stx_mnt_id == s->mount_id;
}

static bool has_descriptor(struct search *s, int proc)
{
	int fd = openat(proc, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	const struct dirent *entry;
	bool found = false;

	if (!dir) {
		cleanup_close(&fd);
		return false;
	}
	while (!found && s->fds < FDS_MAX && (entry = readdir(dir)) != NULL) {
		s->fds++;
		found = entry->d_name[0] != '.' && on_dev(s, dirfd(dir), entry->d_name);
	}
	(void)closedir(dir); /* read only */
	return found;
}

/* "FROM-TO PERM OFFSET MAJOR:MINOR INODE PATH", all in hexadecimal but the inode. */
static bool mapped_from(const char *line, dev_t dev)
{
	char *end;
	unsigned long maj;
	unsigned long mnr;

	for (int blanks = 0; blanks < 3; blanks++) {
		line = strchr(line, ' ');
		if (!line)
			return false;
		line++;
	}
	maj = strtoul(line, &end, 16);
	if (*end != ':')
		return false;
	mnr = strtoul(end + 1, NULL, 16);
	return makedev((unsigned int)maj, (unsigned int)mnr) == dev;
}

static bool has_mapping(struct search *s, int proc)
{
	int fd = openat(proc, "maps", O_RDONLY | O_CLOEXEC);
	_cleanup_fclose_ FILE *maps = fd >= 0 ? fdopen(fd, "r") : NULL;
	char line[512];

	if (!maps) {
		cleanup_close(&fd);
		return false;
	}
	while (s->lines < MAP_LINES && fgets(line, sizeof(line), maps)) {
		s->lines++;
		if (mapped_from(line, s->dev))
			return true;
	}
	return false;
}

static void name_of(int proc, char out[32])
{
	_cleanup_close_ int fd = openat(proc, "comm", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? read(fd, out, 31) : -1;

	out[n > 0 ? n : 0] = '\0';
	out[strcspn(out, "\n")] = '\0';
}

unsigned int users_of(dev_t dev, uint64_t mount_id, char *out, size_t size)
{
	struct search s = { .dev = dev, .mount_id = mount_id };
	DIR *proc = opendir("/proc");
	const struct dirent *entry;
	unsigned int n = 0;
	size_t len = 0;

	out[0] = '\0';
	while (proc && n <= USERS_NAMED && (entry = readdir(proc)) != NULL) {
		_cleanup_close_ int dir = -1;
		char name[32];

		if (entry->d_name[0] < '0' || entry->d_name[0] > '9')
			continue;
		dir = openat(dirfd(proc), entry->d_name, O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (dir < 0 || !(on_dev(&s, dir, "cwd") || on_dev(&s, dir, "root") ||
				       has_descriptor(&s, dir) || has_mapping(&s, dir)))
			continue;
		name_of(dir, name);
		if (strcmp(name, KERNEL_DETACH_NAME) == 0)
			continue;
		if (++n <= USERS_NAMED && len < size)
			len += (size_t)snprintf(out + len, size - len, "%spid %s (%s)",
				n > 1 ? ", " : "", entry->d_name, name);
		else if (len < size)
			len += (size_t)snprintf(out + len, size - len, " and more");
	}
	if (proc)
		(void)closedir(proc); /* read only */
	return n;
}
