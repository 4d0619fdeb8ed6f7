/* The kernel's disk, and what is made of its calls. See disk.h. */
#include "tiers/disk.h"
#include "base/err.h"
#include "base/layout.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <linux/fs.h>
#include <limits.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define CACHESTAT 451 /* of all architectures; the headers of Debian 12 do not have it */

/* ---- the kernel's ------------------------------------------------------------------------------ */

static int done(int r)
{
	return r < 0 ? err_errno() : 0;
}

/* Without access times: else the first read after a write changes the inode, and waits for a journal that is being
 * committed, RWF_NOWAIT or not, for as long as the disk hangs. -EPERM: the file is another user's. */
static int kernel_open(int dir, const char *path, int flags, mode_t mode)
{
	int fd = openat(dir, path, flags | O_CLOEXEC | O_NOATIME, mode);

	if (fd < 0 && errno == EPERM)
		fd = openat(dir, path, flags | O_CLOEXEC, mode);
	return fd < 0 ? err_errno() : fd;
}

static int kernel_close(int fd)
{
	return done(close(fd));
}

static ssize_t kernel_pread(int fd, void *data, size_t len, uint64_t offset)
{
	ssize_t n = pread(fd, data, len, (off_t)offset);

	return n < 0 ? err_errno() : n;
}

/*
 * splice(2) and RWF_NOWAIT begin to read pages that are missing, and wait for the metadata that says where these are stored,
 * for as long as the disk hangs. So both are used only after a check.
 *
 * This one: all pages are in memory and have been read, since splice(2) also waits for a read-ahead. The mapping is never touched.
 */
static bool is_resident(int fd, size_t len, uint64_t offset)
{
	unsigned char pages[UNIT_BYTES / BLOCK_BYTES + 1];
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t from = align_down(offset, page);
	size_t span = (size_t)(align_up(offset + len, page) - from);
	void *map;
	bool all;

	if (span / page > sizeof(pages))
		return false;
	map = mmap(NULL, span, PROT_NONE, MAP_PRIVATE, fd, (off_t)from);
	if (map == MAP_FAILED)
		return false;
	all = mincore(map, span, pages) == 0;
	(void)munmap(map, span); /* it is one: cannot fail */
	for (size_t i = 0; i < span / page; i++)
		all = all && pages[i] & 1;
	return all;
}

/* This one: all pages are in memory, though some may not have been read yet: RWF_NOWAIT does not wait for that. One system call, without the lock of
 * the process' mappings. */
static bool is_in_cache(int fd, size_t len, uint64_t offset)
{
	static _Atomic bool missing; /* before Linux 6.5, or not allowed */
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	struct {
		uint64_t offset, len;
	} range = { offset, len };
	struct {
		uint64_t cached, dirty, writeback, evicted, recently_evicted;
	} found;

	if (!missing) {
		if (syscall(CACHESTAT, fd, &range, &found, 0) == 0)
			return found.cached ==
			       (align_up(offset + len, page) - align_down(offset, page)) / page;
		missing = true;
	}
	return is_resident(fd, len, offset);
}

static ssize_t kernel_pread_now(int fd, void *data, size_t len, uint64_t offset)
{
	const struct iovec part = { .iov_base = data, .iov_len = len };
	ssize_t n;

	if (!is_in_cache(fd, len, offset))
		return -EAGAIN;
	n = preadv2(fd, &part, 1, (off_t)offset, RWF_NOWAIT);
	return n < 0 ? err_errno() : n;
}

static ssize_t kernel_splice_now(int fd, int pipe, size_t len, uint64_t offset)
{
	loff_t at = (loff_t)offset;
	ssize_t n;

	if (sysconf(_SC_PAGESIZE) != BLOCK_BYTES || !is_resident(fd, len, offset))
		return -EAGAIN;
	n = splice(fd, &at, pipe, NULL, len, SPLICE_F_NONBLOCK);
	return n < 0 ? err_errno() : n;
}

static ssize_t kernel_pwrite(int fd, const void *data, size_t len, uint64_t offset)
{
	ssize_t n = pwrite(fd, data, len, (off_t)offset);

	return n < 0 ? err_errno() : n;
}

static ssize_t kernel_pwritev(int fd, const struct iovec *iov, int n, uint64_t offset)
{
	ssize_t done = pwritev(fd, iov, n, (off_t)offset);

	return done < 0 ? err_errno() : done;
}

static int kernel_truncate(int fd, uint64_t size)
{
	return done(ftruncate(fd, (off_t)size));
}

static int kernel_sync(int fd)
{
	return done(fsync(fd));
}

static int kernel_lock(int fd, int how)
{
	return done(flock(fd, how));
}

static int kernel_fstat(int fd, struct stat *ret_st)
{
	return done(fstat(fd, ret_st));
}

static int kernel_stat(int dir, const char *path, struct stat *ret_st)
{
	return done(fstatat(dir, path, ret_st, AT_SYMLINK_NOFOLLOW));
}

static int kernel_statvfs(int fd, struct statvfs *ret_fs)
{
	return done(fstatvfs(fd, ret_fs));
}

static int kernel_fchmod(int fd, mode_t mode)
{
	return done(fchmod(fd, mode));
}

static int kernel_chmod(int dir, const char *path, mode_t mode)
{
	return done(fchmodat(dir, path, mode, 0));
}

static int kernel_mkdir(int dir, const char *path, mode_t mode)
{
	return done(mkdirat(dir, path, mode));
}

static int kernel_unlink(int dir, const char *path, int flags)
{
	return done(unlinkat(dir, path, flags));
}

static int kernel_rename(int from_dir, const char *from, int to_dir, const char *to)
{
	return done(renameat(from_dir, from, to_dir, to));
}

static int kernel_list(int dir, int (*fn)(void *arg, int dir, const char *name), void *arg)
{
	int own = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *stream = own < 0 ? NULL : fdopendir(own);
	struct dirent *entry;
	int r = 0;

	if (!stream) {
		r = err_errno();
		if (own >= 0)
			(void)close(own); /* nothing was read */
		return r;
	}
	/* The stream is this call's own. NOLINTNEXTLINE(concurrency-mt-unsafe) */
	while (r == 0 && (entry = readdir(stream))) {
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			r = fn(arg, dir, entry->d_name);
	}
	closedir(stream);
	return r;
}

static int kernel_share(int from, uint64_t from_offset, int to, uint64_t to_offset, uint64_t len)
{
	struct file_clone_range range = { .src_fd = from,
		.src_offset = from_offset,
		.src_length = len,
		.dest_offset = to_offset };

	return done(ioctl(to, FICLONERANGE, &range));
}

const struct disk_ops disk_kernel = {
	.open = kernel_open,
	.close = kernel_close,
	.pread = kernel_pread,
	.pread_now = kernel_pread_now,
	.splice_now = kernel_splice_now,
	.pwrite = kernel_pwrite,
	.pwritev = kernel_pwritev,
	.truncate = kernel_truncate,
	.sync = kernel_sync,
	.lock = kernel_lock,
	.fstat = kernel_fstat,
	.stat = kernel_stat,
	.statvfs = kernel_statvfs,
	.fchmod = kernel_fchmod,
	.chmod = kernel_chmod,
	.mkdir = kernel_mkdir,
	.unlink = kernel_unlink,
	.rename = kernel_rename,
	.list = kernel_list,
	.share = kernel_share,
};

/* ---- the table in use -------------------------------------------------------------------------- */

static const struct disk_ops *_Atomic in_use = &disk_kernel;

const struct disk_ops *disk_use(const struct disk_ops *ops)
{
	return atomic_exchange(&in_use, ops);
}

static const struct disk_ops *disk(void)
{
	return atomic_load_explicit(&in_use, memory_order_acquire);
}

int disk_open(int dir, const char *path, int flags, mode_t mode)
{
	return disk()->open(dir, path, flags, mode);
}

void disk_close(int fd)
{
	if (fd >= 0)
		(void)disk()->close(fd);
}

int disk_truncate(int fd, uint64_t size)
{
	return disk()->truncate(fd, size);
}

int disk_sync(int fd)
{
	return disk()->sync(fd);
}

int disk_lock(int fd, int how)
{
	return disk()->lock(fd, how);
}

int disk_fstat(int fd, struct stat *ret_st)
{
	return disk()->fstat(fd, ret_st);
}

int disk_stat(int dir, const char *path, struct stat *ret_st)
{
	return disk()->stat(dir, path, ret_st);
}

int disk_statvfs(int fd, struct statvfs *ret_fs)
{
	return disk()->statvfs(fd, ret_fs);
}

int disk_fchmod(int fd, mode_t mode)
{
	return disk()->fchmod(fd, mode);
}

int disk_chmod(int dir, const char *path, mode_t mode)
{
	return disk()->chmod(dir, path, mode);
}

int disk_mkdir(int dir, const char *path, mode_t mode)
{
	int r = disk()->mkdir(dir, path, mode);

	return r == -EEXIST ? 0 : r;
}

int disk_unlink(int dir, const char *path, int flags)
{
	return disk()->unlink(dir, path, flags);
}

int disk_rename(int from_dir, const char *from, int to_dir, const char *to)
{
	return disk()->rename(from_dir, from, to_dir, to);
}

int disk_list(int dir, int (*fn)(void *arg, int dir, const char *name), void *arg)
{
	return disk()->list(dir, fn, arg);
}

int disk_share(int from, uint64_t from_offset, int to, uint64_t to_offset, uint64_t len)
{
	if (!disk()->share)
		return -EOPNOTSUPP;
	return disk()->share(from, from_offset, to, to_offset, len);
}

/* ---- made of them ------------------------------------------------------------------------------ */

int disk_pread(int fd, void *data, size_t len, uint64_t offset)
{
	char *p = data;

	while (len) {
		ssize_t n = disk()->pread(fd, p, len, offset);

		if (n == -EINTR)
			continue;
		if (n < 0)
			return (int)n;
		if (n == 0)
			return -ENODATA;
		p += n;
		offset += (uint64_t)n;
		len -= (size_t)n;
	}
	return 0;
}

int disk_pread_now(int fd, void *data, size_t len, uint64_t offset)
{
	char *p = data;

	if (!disk()->pread_now)
		return -EAGAIN;
	while (len) {
		ssize_t n = disk()->pread_now(fd, p, len, offset);

		if (n <= 0) /* of an error, or the end of the file, the other way tells */
			return -EAGAIN;
		p += n;
		offset += (uint64_t)n;
		len -= (size_t)n;
	}
	return 0;
}

int disk_splice_now(int fd, int pipe, size_t len, uint64_t offset)
{
	if (!disk()->splice_now)
		return -EAGAIN;
	while (len) {
		ssize_t n = disk()->splice_now(fd, pipe, len, offset);

		if (n <= 0 ||
			n % BLOCK_BYTES) /* of an error, or the end of the file, the other way tells */
			return -EAGAIN;
		offset += (uint64_t)n;
		len -= (size_t)n;
	}
	return 0;
}

int disk_pwrite(int fd, const void *data, size_t len, uint64_t offset)
{
	const char *p = data;

	while (len) {
		ssize_t n = disk()->pwrite(fd, p, len, offset);

		if (n == -EINTR)
			continue;
		if (n < 0)
			return (int)n;
		if (n == 0)
			return -EIO; /* a disk that takes nothing and says nothing */
		p += n;
		offset += (uint64_t)n;
		len -= (size_t)n;
	}
	return 0;
}

/* One call: bytes, which may be fewer. */
static ssize_t write_some(int fd, const struct iovec *iov, int n, uint64_t offset)
{
	const struct disk_ops *ops = disk();

	if (n == 1 || !ops->pwritev)
		return ops->pwrite(fd, iov->iov_base, iov->iov_len, offset);
	return ops->pwritev(fd, iov, n, offset);
}

int disk_pwritev(int fd, struct iovec *iov, int n, uint64_t offset)
{
	while (n > 0) {
		ssize_t r = write_some(fd, iov, n, offset);
		size_t done = (size_t)r;

		if (r == -EINTR)
			continue;
		if (r <= 0)
			return r < 0 ? (int)r : -EIO; /* as disk_pwrite() */
		offset += done;
		for (; n > 0 && done >= iov->iov_len; iov++, n--)
			done -= iov->iov_len;
		if (n > 0) {
			iov->iov_base = (char *)iov->iov_base + done;
			iov->iov_len -= done;
		}
	}
	return 0;
}

int disk_read_all(int dir, const char *path, struct buf *b)
{
	_cleanup_disk_close_ int fd = disk_open(dir, path, O_RDONLY, 0);
	uint64_t at = 0;

	if (fd < 0)
		return fd;
	for (;;) {
		size_t step = min(b->max - b->len, (size_t)65536);
		char probe;
		ssize_t n;
		int r = buf_reserve(b, step);

		if (r < 0)
			return r;
		n = disk()->pread(
			fd, step ? b->data + b->len : &probe, step ? step : sizeof(probe), at);
		if (n == -EINTR)
			continue;
		if (n <= 0)
			return (int)n;
		if (step == 0)
			return -ENOBUFS;
		at += (uint64_t)n;
		b->len += (size_t)n;
		b->data[b->len] = '\0';
	}
}

/* Writers of one path go one after the other; who waited for one that was published meanwhile
 * begins with another. */
static int open_temp(const char *temp, mode_t mode, int *ret_fd)
{
	for (;;) {
		_cleanup_disk_close_ int fd = disk_open(AT_FDCWD, temp, O_WRONLY | O_CREAT, mode);
		struct stat ours;
		struct stat there;
		int r = fd < 0 ? fd : disk_fstat(fd, &ours);

		if (r == 0)
			r = disk_lock(fd, LOCK_EX);
		if (r == -EINTR)
			continue;
		if (r < 0)
			return r;
		r = disk_stat(AT_FDCWD, temp, &there);
		if (r == -ENOENT ||
			(r == 0 && (there.st_ino != ours.st_ino || there.st_dev != ours.st_dev)))
			continue;
		if (r == 0)
			r = disk_truncate(fd, 0);
		if (r < 0)
			return r;
		*ret_fd = TAKE_FD(fd);
		return 0;
	}
}

static int sync_parent(const char *path)
{
	char dir[PATH_MAX];
	const char *slash = strrchr(path, '/');
	size_t len = slash ? (size_t)(slash - path) : 0;
	_cleanup_disk_close_ int fd = -1;

	if (len >= sizeof(dir))
		return -ENAMETOOLONG;
	memcpy(dir, path, len);
	dir[len] = '\0';
	fd = disk_open(AT_FDCWD, slash ? (len ? dir : "/") : ".", O_RDONLY | O_DIRECTORY, 0);
	return fd < 0 ? fd : disk_sync(fd);
}

int disk_write_atomic(const char *path, const void *data, size_t len, mode_t mode)
{
	char temp[PATH_MAX];
	_cleanup_disk_close_ int fd = -1;
	int r;

	if (snprintf(temp, sizeof(temp), "%s.new", path) >= (int)sizeof(temp))
		return -ENAMETOOLONG;
	r = open_temp(temp, mode, &fd);
	if (r < 0)
		return r;
	r = disk_pwrite(fd, data, len, 0);
	if (r == 0)
		r = disk_sync(fd);
	if (r == 0)
		r = disk_rename(AT_FDCWD, temp, AT_FDCWD, path);
	if (r < 0) {
		(void)disk_unlink(AT_FDCWD, temp, 0); /* the error that matters is r */
		return r;
	}
	return sync_parent(path);
}
