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
 * May we mount, and is there an EROFS that takes files? Mounts a small image of its own from `dir`
 * to know, reads a file of it, kills who serves it, and wants an error from another one. -EPERM,
 * -ENODEV, -ENOTBLK (only block devices), -EOPNOTSUPP (not on this directory's file system, not with
 * this kernel's pages, or not as it must be), or an error of the directory.
 */
int kernel_probe(const char *dir, struct err *e) __must_check;
/* The same of an image over a loop device. */
int kernel_probe_loop(struct err *e) __must_check;
/* Can images be mounted by a kernel whose pages have so many bytes? -EOPNOTSUPP with a line. */
int kernel_check_pages(long bytes, struct err *e) __must_check;

/* True with CAP_SYS_ADMIN. */
bool kernel_may_mount(void);
/* That the kernel knows this file system, after asking for its module. -ENODEV with a line. */
int kernel_need_filesystem(const char *name, struct err *e) __must_check;

/*
 * The SELinux label (context=) of all files of what this thread mounts for others to see from now
 * on; NULL: none. Borrowed.
 */
void kernel_label(const char *context);
/* Does this kernel run SELinux? */
bool kernel_has_selinux(void);

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
/* Of the directory that a mount point's path leads to: errors as of file_open_exact(). */
int kernel_dev_exact(const char *mountpoint, dev_t *ret_dev) __must_check;

/* An image and its devices. */
struct kernel_image {
	const char *path;
	const char *source; /* what df(1) shows where that is possible; NULL: the path */
	int fuse_mount_fd;  /* where the devices lie that are not local; -1: all are local */
	/*
	 * Per device the descriptor of a regular file as large as the device, which the kernel
	 * opens anew for reading; -1: the file of the device's number on the FUSE mount. NULL: all
	 * are there.
	 */
	const int *local;
	uint32_t extents; /* devices */
	bool directio;    /* read devices past the page cache; see kernel_directio_is_safe() */
};

/* What names a superblock: st_dev, which is given again once it is gone, and a number that never
 * is. */
struct kernel_superblock {
	dev_t dev;
	uint32_t number; /* 0: this kernel does not tell */
};

/* A detached mount of an image. Read-ahead set. The descriptors are the caller's as before. */
int kernel_mount_image(const struct kernel_image *image, int *ret_fd,
	struct kernel_superblock *ret_super, struct err *e) __must_check;
/*
 * The same of an image of one device, the file `name` of the FUSE mount, `source` as in struct kernel_image: over a loop device with
 * direct I/O, which goes with the last mount of it. -EOPNOTSUPP: this kernel cannot, with a line.
 */
int kernel_mount_loop(int fuse_mount_fd, const char *name, const char *source, int *ret_fd,
	struct kernel_superblock *ret_super, struct err *e) __must_check;
/* How many READs at once such a mount can have under way; 0: not known. */
uint32_t kernel_loop_requests(dev_t dev);
/*
 * Is it still mounted somewhere, or a file of it open? In any mount namespace. True as well when
 * the kernel hides it.
 */
bool kernel_superblock_lives(uint32_t number);
/* Does this kernel read image devices with O_DIRECT, and have the fix of CVE-2026-23224? */
bool kernel_directio_is_safe(void);

/* Attaches a detached mount over the directory `point_fd` (O_PATH). */
int kernel_attach(int mount_fd, int point_fd, struct err *e) __must_check;
/*
 * Attaches a detached mount between the mount whose root is `top_fd` (O_PATH) and what lies below
 * it: once the top is detached, that shows. -EOPNOTSUPP before Linux 6.5.
 */
int kernel_attach_beneath(int mount_fd, int top_fd, struct err *e) __must_check;
/* Does the kernel know attaching beneath? */
bool kernel_may_attach_beneath(void);
/* The name of processes that detach: they use no mount (users.h). */
#define KERNEL_DETACH_NAME "granary-detach"
/*
 * Takes the topmost mount at `top_fd` (O_PATH, the root of a mount) off its mount point, whoever
 * uses it. A process of its own does it, some time from now: it may have to wait until the READs
 * under way are answered, after it was taken off. Never another mount than that one. -EAGAIN: too
 * many of them still wait.
 */
int kernel_detach(int top_fd) __must_check;
/* A child of this process that detaches something is waited for when another one begins. */
void kernel_detach_left(pid_t pid);

/*
 * One more mount, detached, of what the mount point shows, which must have st_dev `dev`: -ESTALE.
 * It asks no daemon.
 */
int kernel_clone(const char *mountpoint, dev_t dev, int *ret_fd) __must_check;

/*
 * A detached mount takes the place of what `mountpoint` shows, which has st_dev `from`: beneath it,
 * and then that is detached, so that there is no moment without either. `to`: st_dev of the new
 * one. 0 when the mount point shows it. -ENOENT: it does not show `from`; nothing has changed.
 * -ETIMEDOUT: will be shown soon. Open files, and what was bound elsewhere, keep the old one.
 */
int kernel_switch(
	int mount_fd, const char *mountpoint, dev_t from, dev_t to, struct err *e) __must_check;
/* Ends one that was cut off anywhere. -ENOENT: there is nothing of `to` at the mount point. */
int kernel_switch_end(const char *mountpoint, dev_t from, dev_t to, struct err *e) __must_check;

/*
 * The connection of the mount with st_dev `fuse_dev`; who may not mount needs the control file
 * system at its usual place, and to own the connection. -ENOENT: there is none, or no way to it.
 */
/* Cuts it: every request fails, also those in the kernel's hands. */
int kernel_abort(dev_t fuse_dev) __must_check;
/* How many READs it lets be under way, or how many at most it would; 0: not known. */
uint32_t kernel_background(dev_t fuse_dev);
/* Lets so many be under way; needs CAP_SYS_ADMIN for more than an ordinary user's. */
int kernel_set_background(dev_t fuse_dev, uint32_t n) __must_check;

/* Sets the read-ahead of such a mount, once it has answered INIT; root only. */
int kernel_fuse_read_ahead(dev_t fuse_dev) __must_check;

/*
 * Seconds after which this kernel cuts a connection that left a request unanswered, by an
 * administrator's setting (/proc/sys/fs/fuse, Linux 6.15); 0: never, as it comes.
 */
uint32_t kernel_request_timeout(void);
