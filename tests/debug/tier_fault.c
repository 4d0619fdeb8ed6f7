/*
 * A disk that fails, lies and waits. See tier_fault.h and faults.h.
 *
 * What a descriptor is of is kept by its number: path, and where its data ends. A file's data and
 * its tables lie in one file, told apart by the offset.
 */
#include "tests/debug/tier_fault.h"
#include "base/err.h"
#include "locate/extent_format.h"
#include "tests/debug/faults.h"
#include "tiers/disk.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FDS_MAX 65536

struct file {
	uint64_t data_end; /* 0: not known yet, or no chunk's file */
	char path[];
};

static const struct disk_ops *lower;
static struct {
	pthread_mutex_t lock;
	struct file *files[FDS_MAX];
} open_files = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* ---- what a descriptor is of ------------------------------------------------------------------- */

/* The path of a name under an open directory; cut when it is too long. */
static void path_of(int dir, const char *name, char out[PATH_MAX])
{
	const char *parent = "";

	pthread_mutex_lock(&open_files.lock);
	if (name[0] != '/' && dir >= 0 && dir < FDS_MAX && open_files.files[dir])
		parent = open_files.files[dir]->path;
	(void)snprintf(out, PATH_MAX, "%s%s%s", parent, name[0] == '/' ? "" : "/", name);
	pthread_mutex_unlock(&open_files.lock);
}

static void remember(int fd, const char *path)
{
	struct file *file = NULL;

	if (fd < 0 || fd >= FDS_MAX)
		return;
	if (path) {
		file = calloc(1, sizeof(*file) + strlen(path) + 1);
		if (file)
			memcpy(file->path, path, strlen(path) + 1);
	}
	pthread_mutex_lock(&open_files.lock);
	free(open_files.files[fd]);
	open_files.files[fd] = file;
	pthread_mutex_unlock(&open_files.lock);
}

/* Where the data of a chunk's or an extent's file ends, by its length. */
static uint64_t find_data_end(int fd, const char *path)
{
	struct stat st;

	if (!strstr(path, "/chk/") && !strstr(path, "/ext/"))
		return 0;
	if (lower->fstat(fd, &st) < 0)
		return 0;
	if (st.st_size == CHUNK_FILE_BYTES)
		return CHUNK_BYTES;
	return extent_bytes_of_file((uint64_t)st.st_size);
}

/* The bits of a file's place, and its path. */
static unsigned int sort_of(int fd, uint64_t offset, char path[PATH_MAX])
{
	uint64_t end = 0;

	path[0] = '\0';
	if (fd < 0 || fd >= FDS_MAX)
		return FAULT_OTHER;
	pthread_mutex_lock(&open_files.lock);
	if (open_files.files[fd]) {
		(void)snprintf(path, PATH_MAX, "%s", open_files.files[fd]->path);
		end = open_files.files[fd]->data_end;
	}
	pthread_mutex_unlock(&open_files.lock);
	if (path[0] && end == 0) {
		end = find_data_end(fd, path);
		pthread_mutex_lock(&open_files.lock);
		if (open_files.files[fd])
			open_files.files[fd]->data_end = end;
		pthread_mutex_unlock(&open_files.lock);
	}
	if (end == 0)
		return FAULT_OTHER;
	return offset < end ? FAULT_DATA : FAULT_TABLE;
}

/* ---- faults ------------------------------------------------------------------------------------ */

/* Waits when it is to, then says how the call is to fail. */
static struct fault begin(unsigned int where, const char *path)
{
	struct faults *faults = faults_global();
	bool stall;
	uint64_t ms = faults_draw_wait(faults, FAULT_TIER, where, path, &stall);

	if (ms)
		faults_sleep(faults, ms, stall);
	return faults_draw(faults, FAULT_TIER, where, path);
}

/* The errno of a fault that is only that; 0: it is another one, or none. */
static int error_of(const struct fault *fault)
{
	switch (fault->kind) {
	case FAULT_EIO:
		return -EIO;
	case FAULT_ENOSPC:
		return -ENOSPC;
	case FAULT_EROFS:
		return -EROFS;
	case FAULT_NONE:
	case FAULT_FLIP:
	case FAULT_SHORT:
	case FAULT_TORN:
	case FAULT_STALL:
	case FAULT_DELAY:
	case FAULT_STALE:
	case FAULT_CUT:
	case FAULT_REFUSE:
	case FAULT_KINDS:
		break;
	}
	return 0;
}

static int begin_path(unsigned int call, int dir, const char *name)
{
	char path[PATH_MAX];
	struct fault fault;

	path_of(dir, name, path);
	fault = begin(call | FAULT_OTHER, path);
	return error_of(&fault);
}

static int begin_fd(unsigned int call, int fd)
{
	char path[PATH_MAX];
	unsigned int sort = sort_of(fd, 0, path);
	struct fault fault = begin(call | sort, path);

	return error_of(&fault);
}

/* A part of `len` that O_DIRECT takes too: at least a byte or a block less. */
static size_t part_of(size_t len, uint64_t offset, uint64_t random)
{
	size_t part = len ? random % len : 0;

	return (len % BLOCK_BYTES || offset % BLOCK_BYTES) ? part
							   : part / BLOCK_BYTES * BLOCK_BYTES;
}

static void flip(void *data, size_t len, uint64_t random)
{
	((uint8_t *)data)[random / 8 % len] ^= (uint8_t)(1u << random % 8);
}

static int fault_open(int dir, const char *name, int flags, mode_t mode)
{
	char path[PATH_MAX];
	struct fault fault;
	int fd;

	path_of(dir, name, path);
	fault = begin(FAULT_MAKE | FAULT_OTHER, path);
	if (error_of(&fault))
		return error_of(&fault);
	fd = lower->open(dir, name, flags, mode);
	remember(fd, path);
	return fd;
}

static int fault_close(int fd)
{
	remember(fd, NULL);
	return lower->close(fd);
}

static ssize_t fault_pread(int fd, void *data, size_t len, uint64_t offset)
{
	char path[PATH_MAX];
	unsigned int sort = sort_of(fd, offset, path);
	struct fault fault = begin(FAULT_READ | sort, path);
	ssize_t n;

	if (error_of(&fault))
		return error_of(&fault);
	if (fault.kind == FAULT_SHORT)
		len = max(part_of(len, offset, fault.random), min(len, (size_t)BLOCK_BYTES));
	n = lower->pread(fd, data, len, offset);
	if (fault.kind == FAULT_FLIP && n > 0)
		flip(data, (size_t)n, fault.random);
	return n;
}

static ssize_t write_flipped(int fd, const void *data, size_t len, uint64_t offset, uint64_t random)
{
	size_t room = align_up(len, BLOCK_BYTES);
	void *copy = aligned_alloc(BLOCK_BYTES, room);
	ssize_t n;

	if (!copy)
		return lower->pwrite(fd, data, len, offset);
	memcpy(copy, data, len);
	flip(copy, len, random);
	n = lower->pwrite(fd, copy, len, offset);
	free(copy);
	return n;
}

static ssize_t fault_pwrite(int fd, const void *data, size_t len, uint64_t offset)
{
	char path[PATH_MAX];
	unsigned int sort = sort_of(fd, offset, path);
	struct fault fault = begin(FAULT_WRITE | sort, path);
	size_t part = part_of(len, offset, fault.random);

	if (error_of(&fault))
		return error_of(&fault);
	if (fault.kind == FAULT_FLIP && len)
		return write_flipped(fd, data, len, offset, fault.random);
	if (fault.kind == FAULT_SHORT && part)
		len = part;
	if (fault.kind == FAULT_TORN) {
		if (part)
			(void)lower->pwrite(fd, data, part, offset); /* fails all the same */
		return -EIO;
	}
	return lower->pwrite(fd, data, len, offset);
}

static int fault_truncate(int fd, uint64_t size)
{
	int r = begin_fd(FAULT_MAKE, fd);

	return r ? r : lower->truncate(fd, size);
}

static int fault_sync(int fd)
{
	int r = begin_fd(FAULT_SYNC, fd);

	return r ? r : lower->sync(fd);
}

static int fault_lock(int fd, int how)
{
	int r = begin_fd(FAULT_MAKE, fd);

	return r ? r : lower->lock(fd, how);
}

static int fault_fstat(int fd, struct stat *ret_st)
{
	int r = begin_fd(FAULT_LOOK, fd);

	return r ? r : lower->fstat(fd, ret_st);
}

static int fault_stat(int dir, const char *path, struct stat *ret_st)
{
	int r = begin_path(FAULT_LOOK, dir, path);

	return r ? r : lower->stat(dir, path, ret_st);
}

static int fault_statvfs(int fd, struct statvfs *ret_fs)
{
	int r = begin_fd(FAULT_LOOK, fd);

	return r ? r : lower->statvfs(fd, ret_fs);
}

static int fault_fchmod(int fd, mode_t mode)
{
	int r = begin_fd(FAULT_MAKE, fd);

	return r ? r : lower->fchmod(fd, mode);
}

static int fault_chmod(int dir, const char *path, mode_t mode)
{
	int r = begin_path(FAULT_MAKE, dir, path);

	return r ? r : lower->chmod(dir, path, mode);
}

static int fault_mkdir(int dir, const char *path, mode_t mode)
{
	int r = begin_path(FAULT_MAKE, dir, path);

	return r ? r : lower->mkdir(dir, path, mode);
}

static int fault_unlink(int dir, const char *path, int flags)
{
	int r = begin_path(FAULT_REMOVE, dir, path);

	return r ? r : lower->unlink(dir, path, flags);
}

static int fault_rename(int from_dir, const char *from, int to_dir, const char *to)
{
	int r = begin_path(FAULT_MAKE, from_dir, from);

	return r ? r : lower->rename(from_dir, from, to_dir, to);
}

static int fault_list(int dir, int (*fn)(void *arg, int dir, const char *name), void *arg)
{
	int r = begin_fd(FAULT_LOOK, dir);

	return r ? r : lower->list(dir, fn, arg);
}

static const struct disk_ops fault_ops = {
	.open = fault_open,
	.close = fault_close,
	.pread = fault_pread,
	.pwrite = fault_pwrite,
	.truncate = fault_truncate,
	.sync = fault_sync,
	.lock = fault_lock,
	.fstat = fault_fstat,
	.stat = fault_stat,
	.statvfs = fault_statvfs,
	.fchmod = fault_fchmod,
	.chmod = fault_chmod,
	.mkdir = fault_mkdir,
	.unlink = fault_unlink,
	.rename = fault_rename,
	.list = fault_list,
};

void tier_fault_install(void)
{
	ensure(lower == NULL);
	lower = disk_use(&fault_ops);
}
