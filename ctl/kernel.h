/*
 * May this process mount, and can this kernel? Cheap questions only; the mount itself probes the
 * rest.
 */
#pragma once

#include <stdbool.h>
#include "base/err.h"

/*
 * `engine`: "auto", "native" or "fuse". -EPERM: not privileged, and without fusermount3; -ENODEV:
 * no EROFS, or no /dev/fuse: each with its line.
 */
int kernel_check(const char *engine, struct err *e) __must_check;

/* CAP_SYS_ADMIN. */
bool kernel_may_mount(void);

/* /proc/filesystems has it, after its module was asked for. */
bool kernel_knows(const char *filesystem);
