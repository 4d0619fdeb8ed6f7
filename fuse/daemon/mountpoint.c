/* The directory to mount on. See mountpoint.h. */
#include "fuse/daemon/mountpoint.h"
#include "base/cleanup.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>

/* Is it the root of a mount? `unknown`, where the kernel does not tell. */
static int is_mounted(int fd, const char *path, bool unknown, bool *ret, struct err *e)
{
	struct statx stx;

	if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, 0, &stx) != 0)
		return err_set(e, err_errno(),
			"the mount point %s cannot be used: %m: choose another directory", path);
	*ret = stx.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT
		       ? (stx.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0
		       : unknown;
	return 0;
}

static int check_not_mounted(int fd, const char *path, struct err *e)
{
	bool mounted = false;
	int r = is_mounted(fd, path, false, &mounted, e);

	if (r < 0)
		return r;
	if (mounted)
		return err_set(e, -EEXIST,
			"%s is already a mount point: unmount it, or choose another directory",
			path);
	return 0;
}

static int check_empty(int fd, const char *path, struct err *e)
{
	int real = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = real >= 0 ? fdopendir(real) : NULL;
	const struct dirent *entry;
	bool empty = true;

	if (!dir) {
		int r = err_set(e, err_errno(),
			"the mount point %s cannot be read: %m: choose a directory of yours", path);

		cleanup_close(&real);
		return r;
	}
	while (empty && (entry = readdir(dir)) != NULL)
		empty = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
	(void)closedir(dir); /* read only */
	if (!empty)
		return err_set(e, -ENOTEMPTY,
			"the mount point %s is not empty: empty it, or choose another directory",
			path);
	return 0;
}

int mountpoint_check(int fd, const char *path, struct err *e)
{
	int r = check_not_mounted(fd, path, e);

	return r == 0 ? check_empty(fd, path, e) : r;
}

int mountpoint_open(const char *path, int *ret_fd, struct err *e)
{
	_cleanup_close_ int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	int r;

	if (fd < 0 && errno == ENOENT)
		return err_set(
			e, -ENOENT, "the mount point %s does not exist: create it first", path);
	if (fd < 0 && errno == ENOTDIR)
		return err_set(e, -ENOTDIR,
			"the mount point %s is not a directory: give a directory", path);
	if (fd < 0)
		return err_set(e, err_errno(),
			"the mount point %s cannot be used: %m: choose another directory", path);
	r = mountpoint_check(fd, path, e);
	if (r < 0)
		return r;
	*ret_fd = TAKE_FD(fd);
	return 0;
}

int mountpoint_open_mounted(const char *path, int *ret_fd, struct err *e)
{
	_cleanup_close_ int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	bool mounted = false;
	int r;

	if (fd < 0)
		return err_set(e, err_errno(), "the mount point %s cannot be used: %m", path);
	r = is_mounted(fd, path, true, &mounted, e);
	if (r == 0 && !mounted)
		r = err_set(e, -EINVAL, "nothing is mounted on %s: run cachectl mount", path);
	if (r < 0)
		return r;
	*ret_fd = TAKE_FD(fd);
	return 0;
}
