/* What is mounted where: /proc/self/mountinfo, read again by each call but mount_table_find_id_in(); it asks no file system.
 * Threads: any. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>
#include "base/buf.h"
#include "base/err.h"

/* The file that a mount's loop device is over, in the root of a FUSE mount that is shown nowhere. */
#define MOUNT_LOOP_NAME "volume"
#define MOUNT_TABLE_MAX \
	(64u << 20) /* of the list: the kernel allows 100,000 mounts in a namespace */

struct mount_entry {
	int id; /* STATX_MNT_ID: unique among the mounts of all namespaces */
	char point[PATH_MAX];
	char source[PATH_MAX];
	char type[64];
	unsigned int dev_major;
	unsigned int dev_minor;
	unsigned int user; /* who mounted it, as FUSE keeps it; else 0, root */
};

/* A line of mountinfo; -EPROTO when it is none. */
int mount_table_parse(const char *line, struct mount_entry *ret_entry) __must_check;

/* The topmost mount at exactly `point` (canonical). -ENOENT: nothing is mounted there. */
int mount_table_find(const char *point, struct mount_entry *ret_entry) __must_check;

/*
 * The topmost of the mounts, at `point` (canonical) or above it, that hide a mount at `point` with st_dev `dev` (0: any mount of
 * ours). -ENOENT: that mount is not there, or is not hidden.
 */
int mount_table_find_cover(const char *point, dev_t dev, struct mount_entry *ret_top) __must_check;

/* That mount of this namespace. -ENOENT: it has none with that id. */
int mount_table_find_id(int id, struct mount_entry *ret_entry) __must_check;

/* The list, and that mount in it: one reading, which takes 1.5 us for each mount, for many ids. `text`: of MOUNT_TABLE_MAX. */
int mount_table_read(struct buf *text) __must_check;
int mount_table_find_id_in(
	const struct buf *text, int id, struct mount_entry *ret_entry) __must_check;

/* The mount with st_dev `dev` at exactly `point` (canonical), topmost or not. -ENOENT: there is none. */
int mount_table_find_at(const char *point, dev_t dev, struct mount_entry *ret_entry) __must_check;

/* Calls fn for each mount, topmost or not. A negative return ends the walk with it. */
int mount_table_each(int (*fn)(void *arg, const struct mount_entry *entry), void *arg) __must_check;
/* Calls fn for each mount of ours, topmost or not. A negative return ends the walk with it. */
int mount_table_each_ours(
	int (*fn)(void *arg, const struct mount_entry *entry), void *arg) __must_check;

/* The mount of ours at `path` or nearest above it. -ENOENT: there is none. */
int mount_table_find_above(const char *path, struct mount_entry *ret_entry) __must_check;

/* The mount that `path` (canonical) lies on, of whatever kind. */
int mount_table_filesystem(const char *path, struct mount_entry *ret_entry) __must_check;

/* True for a mount of ours, of any engine. */
bool mount_entry_ours(const struct mount_entry *entry);
