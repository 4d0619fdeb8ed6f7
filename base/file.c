/* Files and directories. See file.h. */
#include "base/file.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/mount_table.h"

#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

int file_mkdirs(const char *path, mode_t mode)
{
	char part[PATH_MAX];
	size_t len = strlen(path);

	if (len == 0 || len >= sizeof(part))
		return -ENAMETOOLONG;
	memcpy(part, path, len + 1);
	for (char *p = part + 1;; p++) {
		char c = *p;
		struct stat st;

		if (c != '/' && c != '\0')
			continue;
		*p = '\0';
		if (mkdir(part, mode) != 0 && (errno != EEXIST || stat(part, &st) != 0))
			return err_errno();
		if (c == '\0')
			break;
		*p = '/';
	}
	return 0;
}

int file_mount_id(int fd)
{
	struct statx stx;

	if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, 0, &stx) != 0 ||
		!(stx.stx_mask & STATX_MNT_ID))
		return 0;
	return (int)stx.stx_mnt_id;
}

/* May the file system of a directory be asked for names? `id`: its mount's. */
static int check_served(int id)
{
	struct mount_entry entry;
	int r = id ? mount_table_find_id(id, &entry) : 0;

	if (r < 0 || id == 0)
		return r;
	return entry.user == 0 || entry.user == geteuid() ? 0 : -EOPNOTSUPP;
}

/* The next directory of a path, which *ret_path is moved behind. */
static int open_below(int dir, const char **path, int *ret_fd)
{
	const struct open_how how = { .flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
		.resolve = RESOLVE_NO_SYMLINKS };
	size_t len = strcspn(*path, "/");
	char name[NAME_MAX + 1];

	if (len >= sizeof(name))
		return -ENAMETOOLONG;
	memcpy(name, *path, len);
	name[len] = '\0';
	*ret_fd = (int)syscall(SYS_openat2, dir, name, &how, sizeof(how));
	*path += len;
	*path += strspn(*path, "/");
	return *ret_fd < 0 ? err_errno() : 0;
}

int file_open_exact(const char *path, int *ret_fd)
{
	_cleanup_close_ int fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	int id = fd < 0 ? 0 : file_mount_id(fd);

	if (fd < 0)
		return err_errno();
	if (path[0] != '/')
		return -EINVAL;
	path += strspn(path, "/");
	while (*path) {
		int next = -1;
		int now = file_mount_id(fd);
		int r = now == id ? 0 : check_served(now);

		if (r == 0)
			r = open_below(fd, &path, &next);
		if (r < 0)
			return r;
		id = now;
		(void)close(fd); /* names a place only */
		fd = next;
	}
	*ret_fd = TAKE_FD(fd);
	return 0;
}

int file_make_directory_of(const char *path, mode_t mode)
{
	char dir[PATH_MAX];
	const char *slash = strrchr(path, '/');
	size_t len = slash ? (size_t)(slash - path) : 0;
	struct stat st;
	int r;

	if (len == 0)
		return 0; /* the root, or the directory of the process */
	if (len >= sizeof(dir))
		return -ENAMETOOLONG;
	memcpy(dir, path, len);
	dir[len] = '\0';
	if (stat(dir, &st) == 0)
		return 0;
	r = file_make_directory_of(dir, 0755);
	return r == 0 && mkdir(dir, mode) != 0 && errno != EEXIST ? err_errno() : r;
}

int file_read_all(const char *path, struct buf *b)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return err_errno();
	for (;;) {
		size_t step = min(b->max - b->len, (size_t)65536);
		char probe;
		ssize_t n;
		int r = buf_reserve(b, step);

		if (r < 0)
			return r;
		n = step ? read(fd, b->data + b->len, step) : read(fd, &probe, 1);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_errno();
		if (n == 0)
			return 0;
		if (step == 0)
			return -ENOBUFS;
		b->len += (size_t)n;
		b->data[b->len] = '\0';
	}
}

int file_sync_parent(const char *path)
{
	char dir[PATH_MAX];
	const char *slash = strrchr(path, '/');
	size_t len = slash ? (size_t)(slash - path) : 0;
	_cleanup_close_ int fd = -1;

	if (len >= sizeof(dir))
		return -ENAMETOOLONG;
	memcpy(dir, path, len);
	dir[len] = '\0';
	fd = open(slash ? (len ? dir : "/") : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || fsync(fd) != 0)
		return err_errno();
	return 0;
}

/*
 * The file that is written first, empty and locked: writers of one path go one after the other, and
 * who waited for one that was published meanwhile begins with another.
 */
static int open_temp(const char *temp, mode_t mode, int *ret_fd)
{
	for (;;) {
		_cleanup_close_ int fd = open(temp, O_WRONLY | O_CREAT | O_CLOEXEC, mode);
		struct stat ours;
		struct stat there;

		if (fd < 0 || fstat(fd, &ours) != 0)
			return err_errno();
		if (flock(fd, LOCK_EX) != 0) {
			if (errno == EINTR)
				continue;
			return err_errno();
		}
		if (stat(temp, &there) != 0 || there.st_ino != ours.st_ino ||
			there.st_dev != ours.st_dev)
			continue;
		if (ftruncate(fd, 0) != 0)
			return err_errno();
		*ret_fd = TAKE_FD(fd);
		return 0;
	}
}

int file_write_atomic(const char *path, const void *data, size_t len, mode_t mode)
{
	char temp[PATH_MAX];
	_cleanup_close_ int fd = -1;
	int r;

	if (snprintf(temp, sizeof(temp), "%s.new", path) >= (int)sizeof(temp))
		return -ENAMETOOLONG;
	r = open_temp(temp, mode, &fd);
	if (r < 0)
		return r;
	r = file_pwrite_exact(fd, data, len, 0);
	if (r == 0 && (fsync(fd) != 0 || rename(temp, path) != 0))
		r = err_errno();
	if (r < 0) {
		(void)unlink(temp); /* the error that matters is r */
		return r;
	}
	return file_sync_parent(path);
}

int file_sync_dir(const char *path)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return err_errno();
	return fsync(fd) == 0 ? 0 : err_errno();
}

int file_pread_exact(int fd, void *data, size_t len, uint64_t offset)
{
	char *p = data;

	while (len) {
		ssize_t n = pread(fd, p, len, (off_t)offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_errno();
		if (n == 0)
			return -ENODATA;
		p += n;
		offset += (uint64_t)n;
		len -= (size_t)n;
	}
	return 0;
}

int file_pwrite_exact(int fd, const void *data, size_t len, uint64_t offset)
{
	const char *p = data;

	while (len) {
		ssize_t n = pwrite(fd, p, len, (off_t)offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_errno();
		p += n;
		offset += (uint64_t)n;
		len -= (size_t)n;
	}
	return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)ftw;
	if (type == FTW_DP || type == FTW_D)
		(void)rmdir(path); /* what cannot be removed stays */
	else
		(void)unlink(path);
	return 0;
}

void file_remove_tree(const char *path)
{
	(void)nftw(path, remove_one, 8, FTW_DEPTH | FTW_PHYS | FTW_MOUNT); /* likewise */
}
