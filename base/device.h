/*
 * Which filesystem a directory lies on, in a form that outlives reboots and renamed devices.
 *
 *	uuid:0f3c...	the filesystem's own uuid: FS_IOC_GETFSUUID (Linux 6.9), the older calls of
 *			ext4, XFS and btrfs, or the link in /dev/disk/by-uuid that names its device
 *	fsid:ef53-91..	type and f_fsid of statfs(2): a filesystem without a uuid, such as tmpfs or an
 *			overlay of old kernels. It may change over a reboot, so it proves nothing
 *
 * See docs/decisions/tier-identity.md. Threads: any; all block.
 */
#pragma once

#include <stdbool.h>
#include "base/check.h"

#define DEVICE_TEXT 48

int device_of(int dir_fd, char ret_device[DEVICE_TEXT]) __must_check;

/* True when what was is known by uuid and is not what is. */
bool device_differs(const char *was, const char *is);
