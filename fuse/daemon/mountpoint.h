/* May an image be mounted on this directory? */
#pragma once

#include "base/err.h"

/*
 * Opens `path` (O_PATH) when it is an empty directory and nothing is mounted on it. -ENOENT,
 * -ENOTDIR, -ENOTEMPTY, -EEXIST (a mount already), each with its line.
 */
int mountpoint_open(const char *path, int *ret_fd, struct err *e) __must_check;
/* The same of a directory that is open (O_PATH); `path`: what it is called. */
int mountpoint_check(int fd, const char *path, struct err *e) __must_check;
/* The same of the root of a mount, which is to be replaced. -EINVAL: nothing is mounted there. */
int mountpoint_open_mounted(const char *path, int *ret_fd, struct err *e) __must_check;
