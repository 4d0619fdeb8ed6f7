/*
 * What a FUSE connection shows: the seam between session.c, which moves requests and answers, and
 * what the files are. Three implementations:
 *
 *	tree_extents.c	the private mount of the native engine: a flat directory of extents
 *	tree_device.c	the same over a loop device: one file, the image and the volume behind it
 *	tree_image.c	the fuse engine: the names, sizes and places of an image
 *
 * All answers are in terms of libfuse3 (fuse_lowlevel.h), negative errnos are sent as they are. No
 * operation waits for the network.
 *
 * Threads: any. Each thread of a session passes a scratch area of its own.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include "base/check.h"
#include "base/err.h"
#include "base/layout.h"
#include "base/mount_table.h"
#include "fuse/protocol/lowlevel.h"
#include "mount/request.h"

/* Names and attributes hold for ever, or until the kernel is notified. */
#define TREE_VALID_SECONDS 1e9

struct tree;

/* A READ as a range of one volume: [offset, offset + length), a place (base/layout.h) and a length
 * that are multiples of BLOCK_BYTES, length at most LIMIT_PAYLOAD_BYTES + BLOCK_BYTES; of which the
 * answer is `size` bytes from `skip` on. size 0: nothing is to be read, the answer is empty (the end of a file). */
struct tree_range {
	uint64_t offset;
	uint32_t length;
	uint32_t skip;
	uint32_t size;
};

/* Entries of a directory, as the kernel takes them. */
struct tree_entries {
	void *buf; /* the caller's, aligned to 8; `size` bytes of it may be used */
	size_t size;
	uint64_t prime; /* READDIRPLUS: so many nodes may be made known to the kernel */
	size_t len;     /* out: bytes used; 0: the end of the directory */
	uint64_t given; /* out: nodes that were, by ops->give() */
};

struct tree_ops {
	/* A negative answer that the kernel may keep is 0 with ret->ino 0. */
	int (*lookup)(struct tree *tree, void *scratch, uint64_t parent, const char *name,
		struct fuse_entry_param *ret);
	int (*getattr)(struct tree *tree, void *scratch, uint64_t node, struct stat *ret);
	/* -ENOSYS: the kernel is not to ask again, for no file of the connection. */
	int (*open)(struct tree *tree, uint64_t node, struct fuse_file_info *ret);
	int (*opendir)(struct tree *tree, uint64_t node, struct fuse_file_info *ret);
	/* READDIR and READDIRPLUS: entries from `req->read.offset` on. */
	int (*readdir)(struct tree *tree, void *scratch, const struct request *req,
		struct tree_entries *entries);
	/* Asked before range(), where it is not NULL: a READ of bytes that the tree has itself, which
	 * it writes to `buf`, all of them. -ENXIO: range() knows where they are. May block on the
	 * disk. */
	int (*own)(struct tree *tree, const struct request *req, void *buf);
	int (*range)(struct tree *tree, void *scratch, const struct request *req,
		struct tree_range *ret);
	/* The kernel gets to know a node. By how many it knows more: none if it knew this one. */
	uint64_t (*give)(struct tree *tree, uint64_t node);
	/* It gives the lookups of a node back. By how many nodes it knows fewer. */
	uint64_t (*forget)(struct tree *tree, uint64_t node, uint64_t lookups);
	void (*statfs)(struct tree *tree, struct statvfs *ret);
};

struct tree {
	const struct tree_ops *ops;
	size_t scratch_bytes; /* what each thread passes, zeroed before its first use; may be 0 */
	/* INIT: FUSE_CAP_* to be used where the kernel has them, in addition to every session's. */
	uint32_t capabilities;
	/* READDIRPLUS gives no more node ids once the kernel knows this many (SESSION_COUNTERS). */
	uint64_t prime_max;
	int read_status;  /* of every READ that failed; 0: its own, in words a reader knows */
	int write_status; /* of requests that would change something; negative */
};

/* The extents of all volumes, files "0", "1", ... of one directory. `sources`: whose they are. */
int tree_extents_new(uint64_t extent_bytes, uint32_t extents, const struct layout_sources *sources,
	struct tree **ret_tree, struct err *e) __must_check;
void tree_extents_free(struct tree *tree); /* NULL is allowed */

#define TREE_DEVICE_NAME MOUNT_LOOP_NAME

struct tree_device_config {
	int image_fd; /* of an image of one device; the tree's afterwards, also on failure */
	uint64_t image_bytes;
	uint64_t volume_offset; /* as the image was built with; a multiple of BLOCK_BYTES */
	uint64_t volume_bytes;  /* of all volumes */
	uint64_t extent_bytes;  /* what each volume begins at a multiple of */
	struct layout_sources sources;
};

/* One file, TREE_DEVICE_NAME: the image, and the volumes from volume_offset on. */
int tree_device_new(const struct tree_device_config *config, struct tree **ret_tree,
	struct err *e) __must_check;
void tree_device_free(struct tree *tree); /* NULL is allowed */
