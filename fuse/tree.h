/*
 * What a FUSE connection shows: the seam between session.c, which moves requests and answers, and
 * what the files are. Two implementations:
 *
 *	tree_extents.c	the private mount of the native engine: a flat directory of extents
 *	tree_image.c	the fuse engine: the names, sizes and places of an image
 *
 * All answers are in terms of the FUSE protocol (linux/fuse.h), negative errnos are sent as they
 * are. No operation waits for the network.
 *
 * Threads: any. Each thread of a session passes a scratch area of its own.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <linux/fuse.h>
#include "base/check.h"
#include "fuse/request.h"

struct tree;

/* A READ as a range of the volume: [offset, offset + length), both multiples of BLOCK_BYTES, length
 * at most LIMIT_PAYLOAD_BYTES + BLOCK_BYTES; of which the answer is `size` bytes from `skip` on.
 * size 0: nothing is to be read, the answer is empty (the end of a file). */
struct tree_range {
	uint64_t offset;
	uint32_t length;
	uint32_t skip;
	uint32_t size;
};

struct tree_ops {
	/* A negative answer that the kernel may keep is 0 with ret->nodeid 0. */
	int (*lookup)(struct tree *tree, void *scratch, uint64_t parent, const char *name,
		struct fuse_entry_out *ret);
	int (*getattr)(struct tree *tree, void *scratch, uint64_t node, struct fuse_attr_out *ret);
	/* -ENOSYS: the kernel is not to ask again, for no file of the connection. */
	int (*open)(struct tree *tree, uint64_t node, struct fuse_open_out *ret);
	int (*opendir)(struct tree *tree, uint64_t node, struct fuse_open_out *ret);
	/* Entries from `req->read.offset` on, with attributes when `plus`, at most `size` bytes into
	 * buf. *ret_len 0: the end. */
	int (*readdir)(struct tree *tree, void *scratch, const struct request *req, bool plus,
		void *buf, size_t size, size_t *ret_len);
	int (*range)(struct tree *tree, void *scratch, const struct request *req,
		struct tree_range *ret);
	void (*forget)(struct tree *tree, uint64_t node, uint64_t n);
	void (*statfs)(struct tree *tree, struct fuse_statfs_out *ret);
};

struct tree {
	const struct tree_ops *ops;
	size_t scratch_bytes; /* what each thread passes, zeroed before its first use; may be 0 */
	/* INIT: what is asked for when the kernel offers it, beside what every session asks for. */
	uint64_t init_flags;
	uint32_t read_errno; /* positive: of a READ that failed, when there is only one; 0: its own */
};
