/*
 * The superblocks of a node, as the keeper knows them: one per generation and options, shown at any
 * number of mount points, all of which share one page cache and one daemon.
 *
 *	key	what a mount shows: the image (whose name has volume, generation, owner and mode in
 *		it), the engine and what else makes two mounts differ
 *	server	the mount whose daemon serves it
 *	points	where it is attached; a mount each
 *
 * A superblock without points may live on: open files, pods. It is `closed` then, and while its last
 * point is being unmounted: nobody can come to share what is about to end.
 *
 * Threads: none of its own; the caller has a lock. No calls to the kernel.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "base/err.h"
#include "base/list.h"
#include "mount/mounter.h"

#define SUPERBLOCKS_MAX       1024u /* of a node */
#define SUPERBLOCK_POINTS_MAX 1024u /* of one */

struct superblock_point {
	struct list link;
	unsigned int mount; /* the mount that asked for it */
	char *mountpoint;
};

struct superblock {
	uint32_t magic;
	struct list link;
	char key[MOUNTER_KEY_BYTES];
	unsigned int server;
	dev_t point_dev; /* st_dev at its mount points */
	dev_t fuse_dev;  /* of the connection behind it */
	bool closed;
	bool many_owners; /* mounts of more than one user have shown it */
	struct list points;
	unsigned int n_points;
};

struct superblocks {
	struct list all;
	unsigned int n;
};

void superblocks_init(struct superblocks *all);
void superblocks_release(struct superblocks *all);

/* -EEXIST: that server has one; -EINVAL: no key, or one that is too long; -ENOSPC; -ENOMEM. */
int superblock_add(struct superblocks *all, unsigned int server, const char *key, dev_t point_dev,
	dev_t fuse_dev, struct superblock **ret_superblock) __must_check;
void superblock_remove(struct superblocks *all, struct superblock *superblock);

/* One that can be shared; NULL: none. */
struct superblock *superblock_find(struct superblocks *all, const char *key);
/* NULL: that mount serves none. */
struct superblock *superblock_of_server(struct superblocks *all, unsigned int server);
/* The one that is attached there; NULL: none. */
struct superblock *superblock_at(struct superblocks *all, const char *mountpoint);

/* -EEXIST: it has that point; -ENOSPC; -ENOMEM. A closed one is open again. */
int superblock_point_add(
	struct superblock *superblock, unsigned int mount, const char *mountpoint) __must_check;
/* The mount that had asked for it; 0: it is no point of this one. The last one closes it. */
unsigned int superblock_point_remove(struct superblock *superblock, const char *mountpoint);
/* NULL: not one of its points. */
struct superblock_point *superblock_point(
	const struct superblock *superblock, const char *mountpoint);
