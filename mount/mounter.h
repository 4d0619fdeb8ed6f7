/*
 * What needs CAP_SYS_ADMIN, for a mount's daemon that does not have it: requests to the keeper over
 * the socket --hand-fd, with descriptors beside them. A daemon that was started alone does the same
 * by itself, through kernel.h.
 *
 *	cachefuse ──mounter_*()──► SOCK_SEQPACKET ──► the keeper: mounter_peer.h
 *	                             one at a time
 *
 * Threads: any; the requests of a process go one after the other.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "base/err.h"
#include "mount/kernel/kernel.h"

#define MOUNTER_KEY_BYTES 512u /* of what a mount shows */

/*
 * From now on by the keeper at the other end of `socket` (borrowed), where that may mount; -1: by
 * this process, as before the first call. -EPROTO: whoever is there speaks something else.
 */
int mounter_use(int socket, struct err *e) __must_check;
/* True when a keeper does it: this process needs no rights of its own. */
bool mounter_is_apart(void);
/* May one of the two mount? As kernel_may_mount(). */
bool mounter_may_mount(void);

/* As the functions of the same name in kernel.h; the label is of the process. */
void mounter_label(const char *context);
int mounter_probe(const char *dir, struct err *e) __must_check; /* NULL: kernel_probe_loop() */
int mounter_mount_fuse(
	int dev_fd, const char *source, int *ret_fd, dev_t *ret_dev, struct err *e) __must_check;
int mounter_mount_image(const struct kernel_image *image, int *ret_fd,
	struct kernel_superblock *ret_super, struct err *e) __must_check;
int mounter_mount_loop(int fuse_mount_fd, const char *name, const char *source, int *ret_fd,
	struct kernel_superblock *ret_super, struct err *e) __must_check;
bool mounter_may_attach_beneath(void);
/* `wanted`: the daemon that answered INIT may not have had the right to so many. */
uint32_t mounter_background(dev_t fuse_dev, uint32_t wanted);
int mounter_fuse_read_ahead(dev_t fuse_dev) __must_check;

/*
 * Attaches a new superblock to the mount point. `key` names what it shows (superblock.h): later
 * mounts of it share it. `point_dev`: its st_dev; `fuse_dev`: of its connection. `replace`: beneath
 * what lies there, which is then taken off (Linux 6.5).
 */
struct mounter_attach {
	int mount_fd;
	int point_fd;           /* O_PATH; of what lies there when that is replaced */
	const char *mountpoint; /* absolute, links resolved */
	const char *key;
	dev_t point_dev;
	dev_t fuse_dev;
	bool replace;
};
int mounter_attach(const struct mounter_attach *attach, struct err *e) __must_check;
/*
 * Attaches the superblock of another daemon that shows `key`, if there is one, to the mount point.
 * mount_fd and the numbers are not looked at. -ENOENT: there is none, make one;
 * -EINPROGRESS: the daemon of another mount makes one.
 */
int mounter_share(const struct mounter_attach *attach, struct err *e) __must_check;
/*
 * A new superblock of the same bytes takes the place of this daemon's at every mount point that
 * shows `from`; without a keeper that is `mountpoint`. As kernel_switch(); mount_fd -1: as kernel_switch_end().
 */
int mounter_switch(
	int mount_fd, const char *mountpoint, dev_t from, dev_t to, struct err *e) __must_check;

/* 0: a mount point shows its superblock. -ENOENT: none does, or there is no keeper. */
int mounter_any_point(void) __must_check;

/*
 * There is a newer generation than this daemon shows: the keeper starts one that shows it, which
 * takes its place at every mount point, as soon as there is room for one. May be said again; ret_why
 * tells why nothing came of it the last time, or is "". -EOPNOTSUPP: there is no keeper that may.
 */
int mounter_newer(char ret_why[ERR_TEXT_MAX], struct err *e) __must_check;

/*
 * Gives the keeper a connection that it did not open. `dev`: st_dev of what fusermount3 attached with it; 0: nothing is
 * attached. Nothing without a keeper.
 */
int mounter_hand(int dev_fd, dev_t dev, struct err *e) __must_check;
