/*
 * Taking a mount off from the outside, when there is no daemon that could do it: umount2(2) for who
 * may, fusermount3 for others. Both may hang on a read that is not answered, so a helper process
 * does it and is waited for only so long.
 *
 * Threads: any that may block.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>
#include "base/err.h"
#include "base/mount_table.h"

/*
 * `lazy`: also when it is in use, and when its connection is dead. 0 when nothing is mounted there
 * any more; -EBUSY, -EPERM (no process here may), -ETIMEDOUT, or another -errno, with a line.
 */
int detach_mount(const char *point, bool lazy, struct err *e) __must_check;

/*
 * umount2(2) with UMOUNT_NOFOLLOW, of what is mounted at `point` (canonical) itself: a link that another process
 * put in the place of one of its directories meanwhile is not followed to another mount. 0 or
 * -errno: -ELOOP for such a link; -EPERM never for root whose openat2(2) is refused: fusermount3 would follow it; -ESTALE:
 * the topmost mount is not `mount_id` (0: any). Only system calls; changes the working directory: for a helper process.
 */
int detach_here(const char *point, int flags, int mount_id) __must_check;

/* -EBUSY with a line: `top` hides the mount at `point`, which cannot be unmounted before. */
int detach_covered(const char *point, const struct mount_entry *top, struct err *e) __must_check;

/* Ends every request of the FUSE connection that process `pid` holds, and lets no new one start;
 * best effort. */
void detach_cut_connection(pid_t pid);
/* The same by the number of the connection: the minor device number of a FUSE mount. */
void detach_abort(unsigned int connection);
