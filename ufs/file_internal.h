/* The parts of the directory origin that its files share. */
#pragma once

#include <pthread.h>
#include <sys/stat.h>
#include "base/pool.h"
#include "ufs/ufs_internal.h"

#define FILE_THREADS_MAX 16u

struct ufs_file;

/* A thread's turn at the queue; idle ones are submitted to the pool when work comes. */
struct file_runner {
	struct pool_job job;
	struct ufs_file *origin;
	bool busy;
};

struct ufs_file {
	struct ufs base;
	char *dir; /* absolute, ends with '/' */
	int root;  /* O_PATH of it */
	struct pool *pool;
	pthread_mutex_t lock; /* of the following */
	struct list queues[UFS_CLASSES];
	unsigned int running_low;
	bool closing;
	unsigned int n_runners;
	struct file_runner runners[FILE_THREADS_MAX];
};

/* Opens below the root, never through a symbolic link. Negative errno. */
int ufs_file_openat(const struct ufs_file *origin, const char *path, int flags) __must_check;

/* "f:DEV:INO:SIZE:MTIME_NS:CTIME_NS"; returns its length. size >= LIMIT_TAG_BYTES. */
uint32_t ufs_file_tag(const struct stat *st, char *out, size_t size);

/* file_list.c */
int ufs_file_list(struct ufs *ufs, ufs_list_sink sink, void *arg, struct err *e);
