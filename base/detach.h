/*
 * Taking a mount off from the outside, when there is no daemon that could do it: umount2(2) for who
 * may, fusermount3 for others. Both may hang on a read that is not answered, so a helper process
 * does it and is waited for only so long.
 *
 * Threads: any that may block.
 */
#pragma once

#include <limits.h>
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

/* fusermount3, for execve(2) after fork(2). */
struct detach_program {
	char path[PATH_MAX];
	char point[PATH_MAX];
	char *argv[5];
};
/* -ENOENT: it is not installed. */
int detach_program(const char *point, bool lazy, struct detach_program *ret) __must_check;
/* What it printed when it failed: -EBUSY, -EINVAL (nothing is mounted there), -EPERM, -EIO. */
int detach_errno(const char *said);
/* The first of its lines without its name. Points into `said`, which is cut there. */
const char *detach_words(char *said);

/* The process that detaches: by detach_here(), or fusermount3 where this user may not. */
struct detach_helper {
	pid_t pid; /* 0: none */
	int said;  /* a pipe: what fusermount3 prints */
};
int detach_start(
	const char *point, bool lazy, int mount_id, struct detach_helper *ret_helper) __must_check;
/* Its result: 0, or a negative errno, with a line in `e` when there is one. -EINPROGRESS: it still runs; after anything else it
 * is none any more. */
int detach_look(struct detach_helper *helper, struct err *e) __must_check;
/* It goes on without us. */
void detach_drop(struct detach_helper *helper);

/* -EBUSY with a line: `top` hides the mount at `point`, which cannot be unmounted before. */
int detach_covered(const char *point, const struct mount_entry *top, struct err *e) __must_check;

/* Ends every request of the FUSE connection that process `pid` holds, and lets no new one start;
 * best effort. */
void detach_cut_connection(pid_t pid);
/* The same by the number of the connection: the minor device number of a FUSE mount. */
void detach_abort(unsigned int connection);
