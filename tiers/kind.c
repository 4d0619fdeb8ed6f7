/* What a tier's bytes lie on. See kind_internal.h. */
#include "tiers/kind_internal.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/units.h"
#include "tiers/disk.h"
#include "tiers/tier_internal.h"

#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

#define MOUNTS_BYTES       (1u << 20)
#define MEMINFO_BYTES      16384u
#define MEMORY_LEAVE       (64ull << 20) /* for the programs themselves */
#define TMPFS_OF_RAM(type) ((type) == TMPFS_MAGIC || (type) == RAMFS_MAGIC)

static const char *const names[] = {
	[TIER_KIND_ASK] = "auto",
	[TIER_RAM] = "ram",
	[TIER_NVME] = "nvme",
	[TIER_SSD] = "ssd",
	[TIER_HDD] = "hdd",
};

const char *tier_kind_name(enum tier_kind kind)
{
	return names[kind];
}

int tier_kind_parse(const char *name, enum tier_kind *ret_kind)
{
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		if (strcmp(names[i], name) == 0) {
			*ret_kind = (enum tier_kind)i;
			return 0;
		}
	}
	return -EINVAL;
}

static bool on_tmpfs(int dir_fd)
{
	struct statfs fs;

	return fstatfs(dir_fd, &fs) == 0 && TMPFS_OF_RAM(fs.f_type);
}

static bool is_rotational(const char *device)
{
	_cleanup_(buf_release) struct buf b = BUF_INIT(64);
	char path[PATH_MAX];

	(void)snprintf(path, sizeof(path), "%.4000s/queue/rotational", device); /* a short path */
	if (file_read_all(path, &b) < 0) { /* a partition: its disk has the queue */
		buf_release(&b);
		(void)snprintf(path, sizeof(path), "%.4000s/../queue/rotational", device);
		if (file_read_all(path, &b) < 0)
			return false;
	}
	return buf_str(&b)[0] == '1';
}

enum tier_kind kind_of_directory(int dir_fd)
{
	struct stat st;
	char link[64];
	char device[PATH_MAX];

	if (on_tmpfs(dir_fd))
		return TIER_RAM;
	if (disk_fstat(dir_fd, &st) < 0)
		return TIER_SSD;
	(void)snprintf(
		link, sizeof(link), "/sys/dev/block/%u:%u", major(st.st_dev), minor(st.st_dev));
	if (!realpath(link, device))
		return TIER_SSD; /* no disk of this machine */
	if (strstr(device, "/nvme"))
		return TIER_NVME;
	/* A virtual disk says that it turns, whatever is behind it. */
	return is_rotational(device) && !strstr(device, "/virtio") ? TIER_HDD : TIER_SSD;
}

/* True when the machine has swap space. */
static bool swap_there(void)
{
	_cleanup_(buf_release) struct buf b = BUF_INIT(MEMINFO_BYTES);
	const char *line;

	if (file_read_all("/proc/meminfo", &b) < 0)
		return true;
	line = strstr(buf_str(&b), "SwapTotal:");
	return !line || strtoull(line + strlen("SwapTotal:"), NULL, 10) > 0;
}

/* True when the directory's mount has the option `noswap` (Linux 6.4). */
static bool mounted_noswap(int dir_fd)
{
	_cleanup_(buf_release) struct buf b = BUF_INIT(MOUNTS_BYTES);
	char device[32];
	struct stat st;
	char *rest;

	if (disk_fstat(dir_fd, &st) < 0 || file_read_all("/proc/self/mountinfo", &b) < 0)
		return false;
	(void)snprintf(device, sizeof(device), " %u:%u ", major(st.st_dev), minor(st.st_dev));
	for (char *line = strtok_r(b.data, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		const char *options = strstr(line, " - ");

		if (strstr(line, device) && options)
			return strstr(options, "noswap") != NULL;
	}
	return false;
}

/* `used`: bytes of the filesystem that are memory already. */
static int check_room(const struct tier *tier, uint64_t used, struct err *e)
{
	uint64_t more = tier->capacity > used ? tier->capacity - used : 0;
	uint64_t available = memory_available();
	char wants[16];
	char has[16];

	(void)units_size(tier->capacity, wants, sizeof(wants));
	if (available && more + MEMORY_LEAVE > available)
		return err_set(e, -ENOSPC,
			"%s: a tier of %s in memory does not fit, the machine has %s left; give it "
			"a smaller capacity",
			tier->path, wants, units_size(available, has, sizeof(has)));
	if (memory_group_limit() < tier->capacity + MEMORY_LEAVE)
		return err_set(e, -ENOSPC,
			"%s: a tier of %s in memory does not fit, the control group allows %s in "
			"all; give it a smaller capacity or raise the limit",
			tier->path, wants, units_size(memory_group_limit(), has, sizeof(has)));
	return 0;
}

int kind_check_ram(const struct tier *tier, bool *ret_swaps, struct err *e)
{
	struct statvfs fs;
	uint64_t size;
	char wants[16];
	char has[16];
	int r;

	if (!on_tmpfs(tier->dir_fd))
		return err_set(e, -EINVAL,
			"%s: is not in memory; mount it first: mount -t tmpfs -o "
			"size=SIZE,mode=700,noswap tmpfs %s",
			tier->path, tier->path);
	if (tier->capacity == 0)
		return err_set(e, -EINVAL,
			"%s: a tier in memory needs a capacity; give one, such as capacity=4GiB",
			tier->path);
	r = disk_statvfs(tier->dir_fd, &fs);
	if (r < 0)
		return err_set(e, r, "%s: cannot be inspected: %s; check its mount", tier->path,
			err_str(r));
	size = (uint64_t)fs.f_blocks * fs.f_frsize;
	if (size && size < tier->capacity)
		return err_set(e, -ENOSPC,
			"%s: is mounted with a size of %s, less than the capacity of the tier, %s; "
			"mount it with more or give a smaller capacity",
			tier->path, units_size(size, has, sizeof(has)),
			units_size(tier->capacity, wants, sizeof(wants)));
	r = check_room(tier, (uint64_t)(fs.f_blocks - fs.f_bfree) * fs.f_frsize, e);
	if (r == 0)
		*ret_swaps = swap_there() && !mounted_noswap(tier->dir_fd);
	return r;
}
