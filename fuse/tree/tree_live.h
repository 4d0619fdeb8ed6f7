/*
 * The fuse engine's tree of a mount that follows its source: the names of one generation, exchanged
 * for those of the next while the kernel goes on asking.
 *
 * Each lookup and each listing is of one generation. Node ids mean the same in all of them (nodes.h):
 * a directory keeps its own for as long as there is one of that path, a file for as long as it is the
 * same version of the same object. Files that are shown no more are found in `gone`; places in
 * listings that are under way are carried over by the name that comes next, over the last LIVE_OLD
 * generations.
 *
 * Threads: the tree's operations any; all that is declared here one.
 */
#pragma once

#include <stdint.h>
#include "base/err.h"
#include "catalog/image_read.h"
#include "fuse/tree/gone.h"
#include "fuse/tree/live_diff.h"
#include "fuse/tree/tree_image.h"

#define LIVE_OLD 4u

/* Generation `number` of the mount, counted from 0. `image` is the tree's afterwards, also on
 * failure; `gone` is borrowed. */
int tree_live_new(struct image *image, uint64_t number, const struct tree_image_config *config,
	struct gone *gone, struct tree **ret_tree, struct err *e) __must_check;
void tree_live_free(struct tree *tree); /* NULL is allowed */

/* The generation before the one shown, of which the kernel may know names; at a takeover. `image`
 * as above. */
int tree_live_remember(struct tree *tree, struct image *image, struct err *e) __must_check;

struct tree_live_next;
/*
 * The next generation, with all that can be done before it is shown: its nodes, which of them the
 * kernel knows, and what is gone. `image` as above. -EXDEV: node ids would not mean the same.
 */
int tree_live_prepare(struct tree *tree, struct image *image, struct tree_live_next **ret_next,
	struct err *e) __must_check;
/* Not shown after all; NULL is allowed. */
void tree_live_drop(struct tree_live_next *next);
/* Shows it, from the next request on. `next` is gone. */
void tree_live_switch(struct tree *tree, struct tree_live_next *next);
/* What differs between the generation before and the one shown: live_diff.h. -ENOENT: there is none
 * before. */
int tree_live_changes(struct tree *tree, int (*change)(void *arg, const struct live_change *change),
	void *arg) __must_check;
