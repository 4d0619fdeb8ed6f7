/*
 * The disk under the tiers: every call that tiers/ makes on a tier's files goes through one table
 * (RocksDB makes its own). In production it is the kernel's; tests and debug programs put one in
 * its place that fails, lies or waits.
 *
 * Errors are negative errnos. Names are relative to an open directory `dir`, or AT_FDCWD.
 *
 * Threads: any, but disk_use(), which is called while no tier is open.
 */
#pragma once

#include <stdint.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>
#include <sys/uio.h>
#include "base/buf.h"
#include "base/cleanup.h"

struct disk_ops {
	/* openat(2); the descriptor. O_CLOEXEC is added, and O_NOATIME where it may be. */
	int (*open)(int dir, const char *path, int flags, mode_t mode);
	int (*close)(int fd);
	/* As the system call: bytes, which may be fewer; 0 is the end of the file. */
	ssize_t (*pread)(int fd, void *data, size_t len, uint64_t offset);
	/* The same, but -EAGAIN where the disk would have to be waited for. NULL: it always would. */
	ssize_t (*pread_now)(int fd, void *data, size_t len, uint64_t offset);
	/* splice(2) of a range that lies in the page cache, whole, into a pipe, without a copy; -EAGAIN as
	 * pread_now(). NULL: it cannot. */
	ssize_t (*splice_now)(int fd, int pipe, size_t len, uint64_t offset);
	ssize_t (*pwrite)(int fd, const void *data, size_t len, uint64_t offset);
	/* pwritev(2). NULL: each buffer by pwrite. */
	ssize_t (*pwritev)(int fd, const struct iovec *iov, int n, uint64_t offset);
	int (*truncate)(int fd, uint64_t size);
	int (*sync)(int fd);
	/* flock(2): the whole file, by LOCK_EX and LOCK_NB. */
	int (*lock)(int fd, int how);
	int (*fstat)(int fd, struct stat *ret_st);
	/* Of the name itself, when it is a symbolic link. */
	int (*stat)(int dir, const char *path, struct stat *ret_st);
	int (*statvfs)(int fd, struct statvfs *ret_fs);
	int (*fchmod)(int fd, mode_t mode);
	int (*chmod)(int dir, const char *path, mode_t mode);
	int (*mkdir)(int dir, const char *path, mode_t mode);
	/* `flags`: 0 or AT_REMOVEDIR. */
	int (*unlink)(int dir, const char *path, int flags);
	int (*rename)(int from_dir, const char *from, int to_dir, const char *to);
	/* Calls fn for every name but "." and ".." of the open directory until it returns other
	 * than 0, which is returned. */
	int (*list)(int dir, int (*fn)(void *arg, int dir, const char *name), void *arg);
	/* ioctl(2) FICLONERANGE: the range of `to` shares its blocks with that of `from`; whole
	 * blocks of one filesystem. NULL, or -EOPNOTSUPP and the like: it cannot. */
	int (*share)(int from, uint64_t from_offset, int to, uint64_t to_offset, uint64_t len);
};

extern const struct disk_ops disk_kernel;

/* Puts `ops` (borrowed) in the place of the present table, which is returned for the one above it
 * to call. */
const struct disk_ops *disk_use(const struct disk_ops *ops);

int disk_open(int dir, const char *path, int flags, mode_t mode) __must_check;
void disk_close(int fd); /* -1 is allowed; a failing close tells nothing that the writes did not */
int disk_truncate(int fd, uint64_t size) __must_check;
int disk_sync(int fd) __must_check;
int disk_lock(int fd, int how) __must_check;
int disk_fstat(int fd, struct stat *ret_st) __must_check;
int disk_stat(int dir, const char *path, struct stat *ret_st) __must_check;
int disk_statvfs(int fd, struct statvfs *ret_fs) __must_check;
int disk_fchmod(int fd, mode_t mode) __must_check;
int disk_chmod(int dir, const char *path, mode_t mode) __must_check;
int disk_mkdir(int dir, const char *path, mode_t mode) __must_check; /* 0 when it is there */
int disk_unlink(int dir, const char *path, int flags);
int disk_rename(int from_dir, const char *from, int to_dir, const char *to) __must_check;
int disk_list(int dir, int (*fn)(void *arg, int dir, const char *name), void *arg) __must_check;
int disk_share(
	int from, uint64_t from_offset, int to, uint64_t to_offset, uint64_t len) __must_check;

/* Exactly `len` bytes; -ENODATA at an early end of the file. Retries EINTR. */
int disk_pread(int fd, void *data, size_t len, uint64_t offset) __must_check;
/* What lies in memory: as disk_pread(), or -EAGAIN. Never waits for the disk. */
int disk_pread_now(int fd, void *data, size_t len, uint64_t offset) __must_check;
/* The same into a pipe that has room for them, without a copy; offset and len in whole blocks, len at most
 * UNIT_BYTES. Of a failure the pipe may keep some. */
int disk_splice_now(int fd, int pipe, size_t len, uint64_t offset) __must_check;
int disk_pwrite(int fd, const void *data, size_t len, uint64_t offset) __must_check;
/* The same from n buffers, none of which is empty. `iov` is changed. */
int disk_pwritev(int fd, struct iovec *iov, int n, uint64_t offset) __must_check;

/* As file_read_all() and file_write_atomic() of base/file.h. */
int disk_read_all(int dir, const char *path, struct buf *b) __must_check;
int disk_write_atomic(const char *path, const void *data, size_t len, mode_t mode) __must_check;

static inline void disk_cleanup_close(const int *fd)
{
	disk_close(*fd);
}
#define _cleanup_disk_close_ _cleanup_(disk_cleanup_close)
