/* Who uses a mount: for the line that says why it cannot be unmounted. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define USERS_NAMED 8u /* processes named in a line */

/*
 * Writes "pid 12 (python3), pid 40 (bash)" into `out`: processes with an open file, a mapping, the
 * working directory or the root on the filesystem with st_dev `dev`; through its mount `mount_id`,
 * unless that is 0 (a mapping is not told apart). Bounded in processes and descriptors looked at.
 * Returns how many were found (at most USERS_NAMED + 1); 0 leaves `out` empty.
 */
unsigned int users_of(dev_t dev, uint64_t mount_id, char *out, size_t size);
