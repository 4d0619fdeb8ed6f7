/*
 * What differs between two images of the same sources, name by name: both trees are walked side by
 * side, each directory in the order of its names. Memory: 24 bytes per directory.
 *
 * Threads: any; the images and nodes are only looked at.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/check.h"
#include "catalog/image_read.h"
#include "fuse/tree/nodes.h"

enum live_kind {
	LIVE_SAME,    /* the same file, or a directory that both have */
	LIVE_ATTR,    /* likewise, with other attributes */
	LIVE_OTHER,   /* the name is another file's, or a directory's that was a file */
	LIVE_CAME,    /* a name that was not there */
	LIVE_WENT,    /* a name that is no more */
	LIVE_TOUCHED, /* the directory `parent`: names of it came, went, or are others'; last */
};

struct live_change {
	enum live_kind kind;
	uint64_t parent;  /* node id of the directory */
	uint64_t node;    /* SAME, ATTR: its own id */
	const char *name; /* not ended by NUL */
	uint32_t len;
	bool below; /* of LIVE_WENT, LIVE_TOUCHED: the directory is no more, either */
	const struct image_inode *before; /* NULL: CAME, TOUCHED */
	const struct image_inode *after;  /* NULL: WENT, TOUCHED */
};

struct live_diff {
	struct image *before;
	struct image *after;
	/* NULL: what is below a directory that is no more is not told. */
	const struct nodes *nodes_before;
	const struct nodes *nodes_after;
	/* Negative: the walk ends with that. */
	int (*change)(void *arg, const struct live_change *change);
	void *arg;
};

/* -EBADMSG, an error of the disk, -ENOMEM, or what change() gave. */
int live_diff(const struct live_diff *diff) __must_check;
