/*
 * Unmounting in a helper process: while a READ is not answered umount2(2) waits in the kernel, deaf to signals. By
 * umount2(), or by fusermount3 where this user may not.
 *
 *	unmount_detach()	the mount is off its mount point, or nothing has changed
 *	unmount_finish()	the helper has ended
 *	unmount_ended()		so has the file system, unless it is used elsewhere
 *
 * Threads: any, one at a time per helper.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>
#include "base/detach.h"
#include "base/err.h"
#include "mount/slots.h"

enum unmount_mode {
	UNMOUNT_NORMAL, /* -EBUSY when something uses the mount */
	UNMOUNT_LAZY,   /* open files are served on */
	UNMOUNT_FORCE,  /* they get an error, with the last mount point */
};

/* "normal", "lazy", "force". -EINVAL. */
int unmount_mode_of(const char *name, enum unmount_mode *ret) __must_check;

struct unmount {
	const char *path; /* where it is; canonical */
	int mount_id; /* only that mount: -ESTALE when another one is there; 0: any. fusermount3 does not compare it */
	dev_t dev;      /* st_dev of what it shows */
	dev_t fuse_dev; /* of the connection behind it; 0: not known */
	int connection; /* /dev/fuse, borrowed; anything else: not known */
	int daemon;     /* pidfd of the daemon that serves it, borrowed; -1: none */
	int slots;      /* its requests (slots.h), borrowed; -1: not known */
	bool last;      /* no other mount point is known to show it */
	enum unmount_mode mode;
};

/* 0: it is off, though the helper may still run. -EBUSY with a line that names the processes that use it; -ETIMEDOUT: the
 * helper runs on; others with a line, too. */
int unmount_detach(
	const struct unmount *u, struct detach_helper *helper, struct err *e) __must_check;
/*
 * Waits for the helper. One that ends the file system may wait for READs that nothing needs any more: its daemon is asked to refuse
 * them (SIGUSR2). By force the connection is cut, after the readers had a moment to see EIO.
 */
void unmount_finish(const struct unmount *u, struct detach_helper *helper);
/* The connection has ended: nothing uses the file system, in no mount namespace. Waits a moment for it, longer when the helper ended. */
bool unmount_ended(const struct unmount *u, const struct detach_helper *helper);

/* -EBUSY with the line of a mount that the processes `users` use. */
int unmount_busy(const char *path, const char *users, struct err *e);

/* Superblocks from before a switch that still serve bind mounts, other mount namespaces or open files, by the daemon with the slots
 * `fd`: how many, with st_dev of each. Negative: not known. */
int unmount_old(int fd, dev_t ret_old[SLOTS_OLD_MAX]) __must_check;

/* It goes on without us, should it run. */
void unmount_helper_leave(struct detach_helper *helper);
