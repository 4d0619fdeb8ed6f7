/*
 * The names, sizes and places of an image as a FUSE tree: what the fuse engine shows.
 *
 * Node ids, and what they cost in memory: nodes.h.
 */
#pragma once

#include <stdint.h>
#include "base/err.h"
#include "catalog/image_read.h"
#include "fuse/tree/nodes.h"
#include "fuse/tree/tree.h"

#define TREE_IMAGE_HASH_BITS   62u /* of a path, where the configuration has 0 */
#define TREE_IMAGE_OFFSET_BITS 42u /* of a place in a listing, but for the stamp */
#define TREE_IMAGE_STAMP_BITS  20u
#define TREE_IMAGE_ENTRIES     2u /* the place of the entry with cookie 0: "." and ".." come first */

struct tree_image_config {
	/* Nodes that the kernel may know before READDIRPLUS stops giving it more: each costs it
	 * about 1.1 KB. */
	uint64_t prime_max;
	unsigned int hash_bits; /* of a path; 0: 62; less only in tests */
	uint64_t
		stamp; /* of TREE_IMAGE_STAMP: part of every place in a listing but its beginning */
};

/* Reads the whole image once. `image` is borrowed and must live longer. -EBADMSG: damaged. */
int tree_image_new(struct image *image, const struct tree_image_config *config,
	struct tree **ret_tree, struct err *e) __must_check;
const struct nodes *tree_image_nodes(struct tree *tree);
/* They are the caller's; of the tree there is nothing left but tree_image_free(). */
struct nodes *tree_image_take_nodes(struct tree *tree);
/* That the kernel knows it. */
bool tree_image_knows(struct tree *tree, uint64_t node);
/* What the kernel knows is written down in `heir`, too; NULL: no more. Not while the tree is used. */
void tree_image_set_heir(struct tree *tree, struct tree *heir);
/* What the kernel gets to see of a file or directory. */
void tree_image_attr(uint64_t node, const struct image_inode *inode, struct stat *ret);
/* A READ of a file with bytes and of that size. */
int tree_image_range_of(
	const struct request *req, uint64_t size, struct tree_range *ret) __must_check;
void tree_image_free(struct tree *tree); /* NULL is allowed */
