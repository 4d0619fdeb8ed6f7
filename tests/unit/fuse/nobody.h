/* Becoming user 65534 for good, where /dev/fuse may be opened by all, as udev makes it. */
#pragma once

#include <grp.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* NULL, or why it cannot be. */
const char *become_nobody(void);
