/*
 * What the kernel mounts for us: the file system of the fuse engine; the private FUSE file system
 * of the extents, and the image over it. By the calls of fsopen(2); each failure with a line that
 * says what this kernel lacks.
 *
 * The private mount is never attached anywhere: EROFS opens its files through /proc/self/fd/N and
 * keeps them open, which keeps the file system alive until EROFS is gone. Nobody else can reach it,
 * find(1) and backups never walk into it, and it needs no unmount of its own.
 *
 * Threads: any, but all calls block, some on the disk: never a loop's or a handler's.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "base/err.h"

/*
 * May we mount, and is there an EROFS that takes files? Mounts a tiny image of its own in `dir` to
 * know. -EPERM, -ENODEV, -ENOTBLK (only block devices), -EOPNOTSUPP (not on this directory's file
 * system), or an error of the directory.
 */
int kernel_probe(const char *dir, struct err *e) __must_check;

/* True with CAP_SYS_ADMIN. */
bool kernel_may_mount(void);
/* That the kernel knows this file system, after asking for its module. -ENODEV with a line. */
int kernel_need_filesystem(const char *name, struct err *e) __must_check;

/* /dev/fuse, for one connection. */
int kernel_open_fuse(int *ret_fd, struct err *e) __must_check;
/* Is `fd` an open /dev/fuse? Whoever cannot open it passes something else in its place. */
bool kernel_is_fuse(int fd);

/*
 * A detached FUSE mount served through dev_fd. Somebody must answer requests from now on. Ends when
 * *ret_fd is closed and no file of it is open, unless it was attached. `source` NULL: private; else
 * what df(1) shows: for all users, by the permissions of its files.
 */
int kernel_mount_fuse(
	int dev_fd, const char *source, int *ret_fd, dev_t *ret_dev, struct err *e) __must_check;

/*
 * st_dev of a file, of the directory descriptor itself for "". Asks no daemon, and nobody's leave.
 */
int kernel_dev(int dir, const char *path, dev_t *ret_dev) __must_check;

/*
 * A detached mount of `image`, its devices the files 0 .. extents - 1 of the FUSE mount. Read-ahead
 * set.
 */
int kernel_mount_image(const char *image, int fuse_mount_fd, uint32_t extents, int *ret_fd,
	dev_t *ret_dev, struct err *e) __must_check;

/* Attaches a detached mount over the directory `point_fd` (O_PATH). */
int kernel_attach(int mount_fd, int point_fd, struct err *e) __must_check;

/*
 * The connection of the mount with st_dev `fuse_dev`; who may not mount needs the control file
 * system at its usual place, and to own the connection. -ENOENT: there is none, or no way to it.
 */
/* Cuts it: every request fails, also those in the kernel's hands. */
int kernel_abort(dev_t fuse_dev) __must_check;
/* How many READs it lets be under way, or how many at most it would; 0: not known. */
uint32_t kernel_background(dev_t fuse_dev);

/* Sets the read-ahead of such a mount, once it has answered INIT; root only. */
int kernel_fuse_read_ahead(dev_t fuse_dev) __must_check;

/*
 * Seconds after which this kernel cuts a connection that left a request unanswered, by an
 * administrator's wish (/proc/sys/fs/fuse, Linux 6.15); 0: never, as it comes.
 */
uint32_t kernel_request_timeout(void);
