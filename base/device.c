/* Which filesystem a directory lies on. See base/device.h. */
#include "base/device.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/hash.h"

#include <assert.h>
#include <dirent.h>
#include <inttypes.h>
#include <linux/btrfs.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>

#define BY_UUID     "/dev/disk/by-uuid"
#define UUID_PREFIX "uuid:"
#define UUID_BYTES  16

/* Younger than the headers of Debian 12 (linux/fs.h, fs/ext4/ext4.h, fs/xfs/libxfs/xfs_fs.h). */
struct fs_uuid {
	uint8_t len;
	uint8_t uuid[UUID_BYTES];
};
#define IOC_FS_UUID _IOR(0x15, 0, struct fs_uuid)

struct ext4_uuid {
	uint32_t len;
	uint32_t flags;
	uint8_t uuid[UUID_BYTES]; /* not part of the call's number */
};
#define IOC_EXT4_UUID _IOC(_IOC_READ, 'f', 44, 8)

struct xfs_geometry { /* version 1 */
	uint32_t before[8];
	uint64_t blocks[4];
	uint8_t uuid[UUID_BYTES];
	uint64_t after[4];
};
#define IOC_XFS_GEOMETRY _IOR('X', 100, struct xfs_geometry)

static_assert(sizeof(struct xfs_geometry) == 112, "part of the call's number");

static bool ask_any(int fd, uint8_t uuid[UUID_BYTES])
{
	struct fs_uuid answer = { 0 };

	if (ioctl(fd, IOC_FS_UUID, &answer) != 0 || answer.len != UUID_BYTES)
		return false;
	memcpy(uuid, answer.uuid, UUID_BYTES);
	return true;
}

static bool ask_ext4(int fd, uint8_t uuid[UUID_BYTES])
{
	struct ext4_uuid answer = { .len = UUID_BYTES };

	if (ioctl(fd, IOC_EXT4_UUID, &answer) != 0)
		return false;
	memcpy(uuid, answer.uuid, UUID_BYTES);
	return true;
}

static bool ask_xfs(int fd, uint8_t uuid[UUID_BYTES])
{
	struct xfs_geometry answer = { 0 };

	if (ioctl(fd, IOC_XFS_GEOMETRY, &answer) != 0)
		return false;
	memcpy(uuid, answer.uuid, UUID_BYTES);
	return true;
}

static bool ask_btrfs(int fd, uint8_t uuid[UUID_BYTES])
{
	struct btrfs_ioctl_fs_info_args answer = { 0 };

	if (ioctl(fd, BTRFS_IOC_FS_INFO, &answer) != 0)
		return false;
	memcpy(uuid, answer.fsid, UUID_BYTES);
	return true;
}

static bool is_none(const uint8_t uuid[UUID_BYTES])
{
	static const uint8_t none[UUID_BYTES];

	return memcmp(uuid, none, UUID_BYTES) == 0;
}

/* The filesystem's own call, when the general one says nothing: their numbers mean other things
 * elsewhere, so its type is looked at. */
static bool ask_kernel(int fd, const struct statfs *fs, uint8_t uuid[UUID_BYTES])
{
	bool known = ask_any(fd, uuid) && !is_none(uuid);

	if (!known && fs->f_type == EXT4_SUPER_MAGIC)
		known = ask_ext4(fd, uuid);
	else if (!known && fs->f_type == XFS_SUPER_MAGIC)
		known = ask_xfs(fd, uuid);
	else if (!known && fs->f_type == BTRFS_SUPER_MAGIC)
		known = ask_btrfs(fd, uuid);
	return known && !is_none(uuid);
}

/* The name of the link to the block device that the filesystem is on, as udev made it from what it
 * found there. */
static bool find_link(dev_t dev, char out[DEVICE_TEXT])
{
	DIR *dir = opendir(BY_UUID);
	const struct dirent *entry;
	bool found = false;

	/* The stream is this call's own. NOLINTNEXTLINE(concurrency-mt-unsafe) */
	while (dir && !found && (entry = readdir(dir))) {
		struct stat st;
		int n;

		if (fstatat(dirfd(dir), entry->d_name, &st, 0) != 0 || !S_ISBLK(st.st_mode) ||
			st.st_rdev != dev)
			continue;
		n = snprintf(out, DEVICE_TEXT, UUID_PREFIX "%s", entry->d_name);
		found = n < DEVICE_TEXT;
	}
	if (dir)
		closedir(dir);
	return found;
}

int device_of(int dir_fd, char ret_device[DEVICE_TEXT])
{
	char device[DEVICE_TEXT];
	uint8_t uuid[UUID_BYTES];
	struct statvfs vfs;
	struct statfs fs;
	struct stat st;

	if (fstatfs(dir_fd, &fs) != 0 || fstatvfs(dir_fd, &vfs) != 0 || fstat(dir_fd, &st) != 0)
		return err_errno();
	if (ask_kernel(dir_fd, &fs, uuid)) {
		char hex[2 * UUID_BYTES + 1];

		hash_hex(uuid, UUID_BYTES, hex);
		(void)snprintf(device, sizeof(device), UUID_PREFIX "%.8s-%.4s-%.4s-%.4s-%.12s", hex,
			hex + 8, hex + 12, hex + 16, hex + 20);
	} else if (!find_link(st.st_dev, device)) {
		(void)snprintf(device, sizeof(device), "fsid:%" PRIx64 "-%" PRIx64,
			(uint64_t)fs.f_type, (uint64_t)vfs.f_fsid);
	}
	memcpy(ret_device, device, sizeof(device));
	return 0;
}

bool device_differs(const char *was, const char *is)
{
	return strncmp(was, UUID_PREFIX, strlen(UUID_PREFIX)) == 0 && strcmp(was, is) != 0;
}
