/* May this process mount, and can this kernel? Cheap questions only; the mount itself probes the
 * rest. */
#pragma once

#include "base/err.h"

/* -EPERM: not privileged; -ENODEV: no EROFS, or no /dev/fuse: each with its line. */
int kernel_check(struct err *e) __must_check;
