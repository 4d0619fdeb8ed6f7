/*
 * Which tiers this host has had, remembered outside their disks: DIR/HASH-OF-PATH, text.
 *
 *	path /mnt/nvme0/tier
 *	uuid 0c9f...
 *	device uuid:4f1e...
 *
 * The empty directory that is left when a disk is not mounted looks like one that was never used.
 * With this a tier is not made anew where one was on another device.
 *
 * At most REMEMBERED_MAX are kept, the newest. Threads: any; all block.
 */
#pragma once

#include <limits.h>
#include "base/err.h"

#define REMEMBERED_MAX 256u

/*
 * May a tier be made at `path`, which need not exist? -ENODEV with a line when one that was there
 * lies on another device than what is there now. What cannot be read forbids nothing.
 */
int remembered_check(const char *dir, const char *path, struct err *e) __must_check;

/* Remembers the tier at `path`, by its uuid and base/device.h; writes only what is not known yet. */
int remembered_note(
	const char *dir, const char *path, const char *uuid, const char *device) __must_check;

/*
 * DIR of this host: $GRANARY_STATE_DIR/tiers; else /var/lib/granary/tiers for root, for others below
 * $XDG_STATE_HOME or ~/.local/state. NULL when there is no such place.
 */
const char *remembered_dir(char out[PATH_MAX]);
