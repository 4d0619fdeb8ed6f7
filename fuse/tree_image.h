/*
 * The names, sizes and places of an image as a FUSE tree: what the fuse engine shows.
 *
 * Node ids, and what they cost in memory: nodes.h.
 */
#pragma once

#include <stdint.h>
#include "base/err.h"
#include "catalog/image_read.h"
#include "fuse/tree.h"

struct tree_image_config {
	/* Nodes that the kernel may know before READDIRPLUS stops giving it more: each costs it
	 * about 1.1 KB. */
	uint64_t prime_max;
	unsigned int hash_bits; /* of a path; 0: 62; less only in tests */
};

/* Reads the whole image once. `image` is borrowed and must live longer. -EBADMSG: damaged. */
int tree_image_new(struct image *image, const struct tree_image_config *config,
	struct tree **ret_tree, struct err *e) __must_check;
void tree_image_free(struct tree *tree); /* NULL is allowed */
