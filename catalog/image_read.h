/*
 * Reads an image that image_build() wrote (image_format.h): the tree of names for a mount that the
 * kernel does not do itself.
 *
 * Nothing in the file is believed: each block, inode and directory is checked where it is used, so
 * that a damaged image gives -EBADMSG, never a crash or an endless loop. The file is read with
 * pread(2), never mapped: a disk error is an errno, not a signal.
 *
 * Threads: any number; each brings its own struct image_view.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"
#include "base/layout.h"

#define IMAGE_NAME_MAX 255u

struct image;

/* `fd` is the image's afterwards, also on failure. `extent_bytes` and `sources` as in struct
 * image_info; NULL: of one. -EBADMSG: not an image of ours; -EPROTONOSUPPORT: one with features that we do not write. */
int image_open(int fd, uint64_t extent_bytes, const struct layout_sources *sources,
	struct image **ret_image, struct err *e) __must_check;
void image_close(struct image *image); /* NULL is allowed */

/* A thread's window on the image: the last blocks it looked at. Plain memory, about 8 KiB. */
struct image_view {
	uint64_t block[2]; /* block number + 1; 0: none */
	uint8_t data[2][BLOCK_BYTES];
};

struct image_inode {
	uint64_t nid;
	bool directory;
	uint32_t mode; /* type and permissions */
	uint32_t uid;
	uint32_t gid;
	uint32_t nlink;
	uint64_t size; /* of a directory: bytes of its blocks */
	int64_t mtime;
	uint32_t mtime_nsec;
	/* Of a file with bytes: the place in the volumes (base/layout.h) where they lie together. Of
	 * a directory: of its blocks in the image. Else 0. */
	uint64_t offset;
};

uint64_t image_root(const struct image *image);     /* nid */
uint64_t image_n_inodes(const struct image *image); /* as the superblock says, checked for sense */

/* -ENOENT: no inode can be there; -EBADMSG, or an error of the disk. Of a file that crosses extents
 * it reads all chunk indexes, 8 bytes per MiB. */
int image_inode(struct image *image, struct image_view *view, uint64_t nid,
	struct image_inode *ret) __must_check;

/* By binary search over the directory's blocks and names, "." and ".." among them. -ENOENT,
 * -ENOTDIR, -EBADMSG. `dir` is as image_inode() or image_lookup() gave it. */
int image_lookup(struct image *image, struct image_view *view, const struct image_inode *dir,
	const char *name, uint32_t name_len, struct image_inode *ret) __must_check;

struct image_entry {
	uint64_t nid;
	bool directory;
	uint32_t name_len;
	/* In the view, without a NUL: stays through image_inode(), until the next look at a
	 * directory. */
	const char *name;
	uint64_t next_cookie; /* of the entry that follows */
};

/*
 * The entry at `cookie`, 0 being the first, in the directory's order, without "." and "..". A
 * cookie means the same entry for as long as the image lives, and is < 2^42. -ENOENT: the end;
 * -EINVAL: no such cookie; -ENOTDIR; -EBADMSG.
 */
int image_read_entry(struct image *image, struct image_view *view, const struct image_inode *dir,
	uint64_t cookie, struct image_entry *ret) __must_check;
