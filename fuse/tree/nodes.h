/*
 * Node ids of an image: which inode a node id names, and the reverse.
 *
 *	1				the root
 *	4096 + place / 4096		a file with bytes
 *	2^62 + hash of the path		a directory, or a file without bytes
 *
 * The bytes of a file have a place (base/layout.h) that no other ever gets, so that place is its id;
 * the first chunk's worth of ids is left to the root. What has no bytes is named by its path:
 * hash(name, seeded with the id of its directory); when two meet, the later in the order of the
 * walk takes another seed. So an id is the same for every daemon of a mount and, hashes that meet
 * aside, for a path in every generation of its source. Source i has the ids from i x 2^45 on.
 *
 * Memory: 8 bytes per file with bytes, 24 to 48 per directory and per file without bytes.
 *
 * Threads: any, nothing changes once it is made.
 */
#pragma once

#include <stdint.h>
#include "base/check.h"
#include "base/layout.h"
#include "catalog/image_read.h"

#define NODES_ROOT  1ull
#define NODES_FILES ((uint64_t)CHUNK_BLOCKS) /* the first of a file with bytes */
#define NODES_NAMES (1ull << 62)             /* the first of what has none */

struct nodes;

/*
 * Walks the whole image. `hash_bits`: of a path, 1 to 62. -EBADMSG: damaged, -EFBIG: larger than
 * 128 GiB, -E2BIG: not enough hashes, -ENOMEM, or an error of the disk.
 */
int nodes_new(struct image *image, unsigned int hash_bits, struct nodes **ret_nodes) __must_check;
void nodes_free(struct nodes *nodes); /* NULL is allowed */

/* -ESTALE: a node id that nothing has. */
int nodes_nid(const struct nodes *nodes, uint64_t node, uint64_t *ret_nid) __must_check;
/* The id of `inode`, by its name in directory `parent`. -EBADMSG: the walk did not find it
 * there. */
int nodes_of(const struct nodes *nodes, uint64_t parent, const char *name, size_t len,
	const struct image_inode *inode, uint64_t *ret_node) __must_check;
/* The directory that a directory is in; the root's is itself. -ENOTDIR: not a directory's id. */
int nodes_parent(const struct nodes *nodes, uint64_t node, uint64_t *ret_parent) __must_check;

/* A number below nodes_count() for each node id. -ESTALE. */
int nodes_index(const struct nodes *nodes, uint64_t node, uint64_t *ret_index) __must_check;
/* Two paths had one hash: then an id may be another path's in another generation. */
bool nodes_met(const struct nodes *nodes);
/* Files with bytes are not asked for any more: only directories, and files without. */
void nodes_drop_files(struct nodes *nodes);
uint64_t nodes_count(const struct nodes *nodes);  /* of files and directories */
uint64_t nodes_blocks(const struct nodes *nodes); /* of the files' bytes */
