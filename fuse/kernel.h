/*
 * What the kernel mounts for us: the private FUSE file system of the extents, and the image over
 * it. By the calls of fsopen(2); each failure with a line that says what this kernel lacks.
 *
 * The FUSE mount is never attached anywhere: EROFS opens its files through /proc/self/fd/N and
 * keeps them open, which keeps the file system alive until EROFS is gone. Nobody else can reach it,
 * find(1) and backups never walk into it, and it needs no unmount of its own.
 *
 * Threads: any, but all calls block, some on the disk: never a loop's or a handler's.
 */
#pragma once

#include <stdint.h>
#include <sys/types.h>
#include "base/err.h"

/*
 * May we mount, and is there an EROFS that takes files? Mounts a tiny image of its own in `dir` to
 * know. -EPERM, -ENODEV, -ENOTBLK (only block devices), -EOPNOTSUPP (not on this directory's file
 * system), or an error of the directory.
 */
int kernel_probe(const char *dir, struct err *e) __must_check;

/* /dev/fuse, for one connection. */
int kernel_open_fuse(int *ret_fd, struct err *e) __must_check;

/*
 * A detached FUSE mount served through dev_fd. Somebody must answer requests from now on. Ends when
 * *ret_fd is closed and no file of it is open.
 */
int kernel_mount_fuse(int dev_fd, int *ret_fd, dev_t *ret_dev, struct err *e) __must_check;

/*
 * A detached mount of `image`, its devices the files 0 .. extents - 1 of the FUSE mount. Read-ahead
 * set.
 */
int kernel_mount_image(const char *image, int fuse_mount_fd, uint32_t extents, int *ret_fd,
	dev_t *ret_dev, struct err *e) __must_check;

/* Attaches a detached mount over the directory `point_fd` (O_PATH). */
int kernel_attach(int mount_fd, int point_fd, struct err *e) __must_check;

/*
 * Cuts the FUSE connection whose mount has st_dev `fuse_dev`: every request fails, also those in
 * the kernel's hands. 0, -ENOENT: there is none.
 */
int kernel_abort(dev_t fuse_dev) __must_check;
