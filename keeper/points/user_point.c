/* Mount points of ordinary users. See user_point.h. */
#include "keeper/points/user_point.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/mount_table.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

/* As fusermount3: what is known to keep files. */
static bool is_storage(const char *type)
{
	static const char *const known[] = { "ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "jfs",
		"bcachefs", "zfs", "tmpfs", "overlay", "nfs", "nfs4", "cifs", "smb3", "ceph",
		"lustre", "gpfs", "beegfs", "wekafs", "9p", "virtiofs", "ecryptfs" };

	for (size_t i = 0; i < ARRAY_SIZE(known); i++)
		if (strcmp(type, known[i]) == 0)
			return true;
	return false;
}

static int check_filesystem(int fd, struct err *e)
{
	struct mount_entry entry;

	if (mount_table_find_id(file_mount_id(fd), &entry) < 0)
		return err_set(e, -EXDEV,
			"the mount point is in another mount namespace than the service of this "
			"host; "
			"mount on the host, and bind the directory into the container");
	if (!is_storage(entry.type))
		return err_set(e, -EOPNOTSUPP,
			"the mount point is on a file system of type %s; choose a directory on a "
			"disk",
			entry.type);
	return 0;
}

static int identity(int fd, struct statx *ret)
{
	return statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE | STATX_UID | STATX_INO,
		       ret) == 0
		       ? 0
		       : err_errno();
}

static int check_owner(int fd, uid_t user, struct statx *ret, struct err *e)
{
	int r = identity(fd, ret);

	if (r < 0)
		return err_set(e, r, "cannot check the mount point: %s", err_str(r));
	if (ret->stx_uid != user)
		return err_set(e, -EACCES,
			"permission denied: the mount point belongs to user %u; choose a directory "
			"of "
			"yours",
			ret->stx_uid);
	return 0;
}

static int path_of(int fd, char path[PATH_MAX], struct err *e)
{
	char link[64];
	ssize_t n;

	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd); /* fits */
	n = readlink(link, path, PATH_MAX - 1);
	if (n < 0)
		return err_set(e, err_errno(), "cannot check the mount point: %m");
	path[n] = '\0';
	return 0;
}

static int moved(const char *path, struct err *e)
{
	return err_set(e, -ESTALE, "the mount point %s was moved or replaced: mount again", path);
}

/* The directory that the path leads to, without links, is this one. */
static int check_path(int fd, const struct statx *stx, const char *path, struct err *e)
{
	_cleanup_close_ int exact = -1;
	struct statx at = { 0 };

	if (file_open_exact(path, &exact) < 0 || identity(exact, &at) < 0 ||
		at.stx_ino != stx->stx_ino || at.stx_dev_major != stx->stx_dev_major ||
		at.stx_dev_minor != stx->stx_dev_minor || file_mount_id(exact) != file_mount_id(fd))
		return moved(path, e);
	return 0;
}

int user_point_check(int fd, uid_t user, const char *path, struct err *e)
{
	char now[PATH_MAX];
	struct statx stx = { 0 };
	int r = check_filesystem(fd, e);

	if (r == 0)
		r = check_owner(fd, user, &stx, e);
	if (r == 0)
		r = path_of(fd, now, e);
	if (r < 0)
		return r;
	return strcmp(now, path) == 0 ? check_path(fd, &stx, path, e) : moved(path, e);
}

/* /proc, if it has the processes of this namespace; -1. */
static int open_proc(void)
{
	_cleanup_close_ int proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct statfs fs;
	char self[32] = "";

	if (proc < 0 || fstatfs(proc, &fs) != 0)
		return -1;
	if (fs.f_type != PROC_SUPER_MAGIC ||
		readlinkat(proc, "self", self, sizeof(self) - 1) <= 0 ||
		strtol(self, NULL, 10) != getpid()) {
		errno = ENOENT;
		return -1;
	}
	return TAKE_FD(proc);
}

/* The directory that descriptor `number` of the process is of; -1. The process is still that one afterwards, not another with its number. */
static int open_directory_of(pid_t pid, int number)
{
	_cleanup_close_ int process = pid > 0 ? pidfd_open(pid, 0) : -1;
	_cleanup_close_ int proc = process >= 0 ? open_proc() : -1;
	_cleanup_close_ int fd = -1;
	struct pollfd ended = { .fd = process, .events = POLLIN };
	char link[64];

	if (proc < 0)
		return -1;
	(void)snprintf(link, sizeof(link), "%d/fd/%d", (int)pid, number); /* fits */
	/* Without the user's own open file: to close that may ask its file system, which may never answer. */
	fd = openat(proc, link, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0 && poll(&ended, 1, 0) != 0) {
		errno = ESRCH;
		return -1;
	}
	return TAKE_FD(fd);
}

int user_point_take(
	pid_t pid, int number, uid_t user, int *ret_fd, char path[PATH_MAX], struct err *e)
{
	_cleanup_close_ int fd = open_directory_of(pid, number);
	int r;

	if (fd < 0 && errno == ENOTDIR)
		return err_set(e, -ENOTDIR, "the mount point is not a directory: give a directory");
	if (fd < 0)
		return err_set(e, -EACCES,
			"the mount point cannot be taken from process %d: %m: run the command on "
			"the "
			"host, not in a container",
			(int)pid);
	r = path_of(fd, path, e);
	if (r == 0)
		r = user_point_check(fd, user, path, e);
	if (r == 0)
		*ret_fd = TAKE_FD(fd);
	return r;
}
