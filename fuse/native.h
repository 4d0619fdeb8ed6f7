/*
 * One native mount: a FUSE connection that serves extents, an image over it, and its end.
 *
 *	application ──► EROFS: names, sizes, page cache
 *			  └─► extent N, a file of the private FUSE mount ──► session ──► reader
 *
 * Threads: native_unmount() any, one at a time; everything else the thread that made it.
 */
#pragma once

#include <stdbool.h>
#include "base/err.h"
#include "fuse/session.h"
#include "fuse/slots.h"

struct native;

struct native_config {
	const char *mountpoint; /* absolute; all borrowed */
	int point_fd;           /* of mountpoint_open(); -1 at a takeover */
	const char *image;      /* path; NULL at a takeover */
	int dev_fd;             /* /dev/fuse */
	struct slots *slots;    /* phase MOUNTED: a takeover; NEW: with the facts of the image */
	struct reader *reader;
	unsigned int threads; /* 0: the session's default */
	void (*on_failure)(void *arg, uint64_t offset, uint32_t length, int status);
	void (*on_gone)(void *arg);
	void *arg;
};

/* Mounts, or takes a mount over. -ENODEV at a takeover: it ended before it was whole. */
int native_new(
	const struct native_config *config, struct native **ret_native, struct err *e) __must_check;
/* Stops serving; the mount should be gone. NULL is allowed. */
void native_free(struct native *native);

/*
 * Ends the mount; 0 once the kernel has let go of everything, or was told to. Without `force`:
 * -EBUSY with a line that names who uses it, and nothing has changed. With it: readers get EIO,
 * open files die. -ETIMEDOUT: the kernel does not let go.
 */
int native_unmount(struct native *native, bool force, struct err *e) __must_check;

struct session *native_session(struct native *native);
