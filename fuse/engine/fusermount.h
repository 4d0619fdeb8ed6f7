/*
 * fusermount3, the set-user-id program by which an ordinary user mounts a FUSE file system, and
 * takes it off again.
 *
 *	us ──fork, _FUSE_COMMFD──► fusermount3 ──mount(2)──► kernel
 *	   ◄──── the connection, by SCM_RIGHTS ────┘
 *
 * What it says on its standard error becomes part of one line of ours.
 *
 * Threads: any; the calls wait for the program, with a deadline.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>
#include "base/err.h"

/* Is it there, and will it work for this process? -ENOENT, -EPERM, -ENODEV, with a line. */
int fusermount_probe(bool allow_other, struct err *e) __must_check;
/* Will it mount on this directory? -EACCES with a line. */
int fusermount_check_point(const char *mountpoint, struct err *e) __must_check;

struct fusermount_options {
	const char *mountpoint;
	const char *source;
	bool allow_other;
};

/*
 * Mounts; *ret_dev_fd is the connection. Nothing is mounted after a failure. -EACCES: not on this
 * mount point; else as the probe.
 */
int fusermount_mount(
	const struct fusermount_options *options, int *ret_dev_fd, struct err *e) __must_check;
