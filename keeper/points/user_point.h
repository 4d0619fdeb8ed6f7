/*
 * A mount point that an ordinary user gives to the keeper of a service: a directory that the user's own process has opened
 * (O_PATH), with its own rights and in its own mount namespace. The keeper opens what that process has open (/proc/PID/fd, with
 * O_PATH: it never holds the user's own open file), and mounts on the descriptor; a path is only what it is called.
 *
 * Valid is a directory of the user, on a file system that keeps files (no FUSE mount, whose daemon could make the keeper wait; no
 * /proc), in the mount namespace of the keeper, whose path has no symbolic link.
 *
 * Threads: any that may block.
 */
#pragma once

#include <limits.h>
#include <sys/types.h>
#include "base/err.h"

/*
 * Takes descriptor `number` of process `pid` and checks it. `path` gets its path. -EACCES, -ENOTDIR, -EXDEV (another
 * mount namespace), -EOPNOTSUPP (such a file system), each with its line.
 */
int user_point_take(pid_t pid, int number, uid_t user, int *ret_fd, char path[PATH_MAX],
	struct err *e) __must_check;

/* Is it still valid, and at `path`? -ESTALE with a line when it was moved or replaced; else as above. */
int user_point_check(int fd, uid_t user, const char *path, struct err *e) __must_check;
