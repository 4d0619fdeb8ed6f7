/* The checks of a mount point, before anything is started for it. */
#pragma once

#include <limits.h>
#include "base/err.h"

/*
 * An absolute path for a mount point, links resolved as far as that is possible without asking the
 * last part, whose filesystem may be dead. -ENOENT: a directory above it is missing.
 */
int mount_point_path(const char *dir, char out[PATH_MAX], struct err *e) __must_check;

/* May something be mounted there? -ENOENT, -ENOTDIR, -ENOTEMPTY, -EBUSY (already a mount), each
 * with its line. */
int mount_point_check(const char *point, struct err *e) __must_check;

/*
 * The process that listens on `socket` would mount in another mount namespace, where this one's users see nothing of it: -EXDEV with a
 * line. 0 where there is no such process, or its namespace cannot be read.
 */
int mount_point_check_namespace(const char *socket, const char *point, struct err *e) __must_check;
