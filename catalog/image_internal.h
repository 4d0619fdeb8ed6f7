/*
 * Parts of the EROFS image writer: the file of blocks (image_store.c), its head and its devices
 * (image_head.c), the rows of all sources in the order of the tree (image_rows.c), the tree (image.c),
 * and the rules of names that building and resolving share (image_key.c).
 */
#pragma once

#include "catalog/catalog_internal.h"
#include "catalog/image_format.h"

/* ---- names ----------------------------------------------------------------------------------- */

/* The subtree as text and its length: "" for NULL. -EINVAL unless it is "" or ends with '/'. */
int image_subtree(const char *text, const char **ret_subtree, uint32_t *ret_len) __must_check;

/* Whether `path` is `at` or lies below it; everything is below "". */
bool image_path_below(const char *path, size_t len, const char *at, size_t at_len);

/* ---- rows ------------------------------------------------------------------------------------ */

#define IMAGE_FULL_MAX (LIMIT_KEY_BYTES + 1u + IMAGE_PATH_MAX)

/* What comes next in the image: borrowed until the next one. */
struct image_row {
	uint32_t source;
	const char *path; /* below the root; not NUL-terminated */
	uint32_t len;
	const struct table_row *row; /* NULL: the directory that the source is shown at */
};

/* The live rows of several sources by their paths in the image, which is a walk of the tree. */
struct image_rows;
/* The sources are borrowed. -EINVAL with a line: bad paths or subtrees. */
int image_rows_new(const struct image_source *sources, uint32_t n, struct image_rows **ret_rows,
	struct err *e) __must_check;
void image_rows_free(struct image_rows *rows); /* NULL is allowed */
/* 1: the next; 0: the end; -ENOENT: the subtree of ret->source is not there; or another error. */
int image_rows_next(struct image_rows *rows, struct image_row *ret) __must_check;

/* ---- devices, head --------------------------------------------------------------------------- */

#define IMAGE_ROOT_OFFSET    (EROFS_SUPER_OFFSET + sizeof(struct erofs_super))
#define IMAGE_DEVICES_OFFSET (IMAGE_ROOT_OFFSET + EROFS_SLOT_BYTES)

static_assert(
	IMAGE_DEVICES_OFFSET % EROFS_SLOT_BYTES == 0, "the device table is addressed in slots");

/* What is shown, and of what. */
struct image_shape {
	const struct image_source *sources;
	uint32_t n;
	const struct image_options *options;
	int64_t built_at; /* of the newest table */
	uint64_t end;     /* of all volumes, one after the other */
	uint64_t blocks;  /* of all files */
	struct image_info info;
};

/* The extents' size, how many there are, and whose: end, and of info extent_bytes, extents and
 * sources. -EINVAL: the options' size does not suit; -E2BIG. */
int image_shape_choose(struct image_shape *s) __must_check;
/* Super block and device table, which lie before the first block given. `blocks`: of the image. */
int image_head_write(const struct image_shape *s, int fd, uint64_t blocks) __must_check;

/* ---- blocks ---------------------------------------------------------------------------------- */

#define SEGMENT_BYTES 65536u  /* inodes are gathered in such runs of blocks */
#define PENDING_BYTES 262144u /* directory blocks in a row are written together */

struct image_store {
	struct output out;
	uint64_t next_block; /* first block not given */
	uint64_t segment;    /* offset in the file of the current segment of inodes; 0: none */
	uint32_t segment_used;
	uint64_t pending; /* offset in the file of the bytes in pending_bytes */
	uint32_t pending_used;
	uint8_t segment_bytes[SEGMENT_BYTES];
	uint8_t pending_bytes[PENDING_BYTES];
};

/* `head_bytes`: room for super block and device table. */
int image_store_open(
	struct image_store *s, const char *path, uint64_t head_bytes, struct err *e) __must_check;
void image_store_release(struct image_store *s);
/* Room for an inode and what follows it, <= BLOCK_BYTES; its offset in the file, a multiple of 32.
 * -EFBIG, I/O errors. */
int image_store_inode(struct image_store *s, uint32_t bytes, uint64_t *ret_offset) __must_check;
/* `n` blocks in a row. */
int image_store_blocks(struct image_store *s, uint64_t n, uint64_t *ret_offset) __must_check;
/* Writes into a given inode, or into given blocks. */
int image_store_put_inode(
	struct image_store *s, uint64_t offset, const void *data, uint32_t len) __must_check;
int image_store_put_blocks(
	struct image_store *s, uint64_t offset, const void *data, uint32_t len) __must_check;
/* Everything to the file, which ends at the last block given. */
int image_store_flush(struct image_store *s) __must_check;
