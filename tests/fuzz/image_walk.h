/*
 * Walks an image that may hold anything, and requires of every answer what holds for a sound image.
 * Shared by the fuzzer and the unit test that damages images byte by byte. The walk is bounded by
 * itself, since the directories of such an image may name each other in a circle; the reader is to
 * bound each single call.
 */
#pragma once

#include <string.h>
#include <sys/stat.h>
#include "base/limits.h"
#include "catalog/image_read.h"

#define IMAGE_WALK_ENTRIES 2000u
#define IMAGE_WALK_DEPTH   8u

struct image_walk {
	struct image *image;
	struct image_view view;
	uint64_t extent_bytes;
	uint32_t entries; /* seen so far */
	uint32_t failed;  /* calls that found damage */
};

static inline void image_walk_inode(const struct image_walk *w, const struct image_inode *inode)
{
	ensure(!(inode->mode & ~(S_IFMT | 0777)));
	ensure(inode->directory == !!S_ISDIR(inode->mode) &&
		(inode->directory || S_ISREG(inode->mode)));
	ensure(inode->mtime_nsec < 1000000000 && inode->nlink > 0);
	ensure(inode->offset % BLOCK_BYTES == 0);
	if (!inode->directory)
		ensure(inode->size <= LIMIT_DEVICES * w->extent_bytes &&
			inode->offset <= LIMIT_DEVICES * w->extent_bytes - inode->size);
}

static inline void image_walk_directory(
	struct image_walk *w, const struct image_inode *dir, uint32_t depth)
{
	uint64_t cookie = 0;
	int r = 0;

	while (w->entries++ < IMAGE_WALK_ENTRIES) {
		struct image_entry entry;
		struct image_inode inode;
		struct image_inode found;
		char name[IMAGE_NAME_MAX];

		r = image_read_entry(w->image, &w->view, dir, cookie, &entry);
		if (r < 0)
			break;
		ensure(entry.name_len > 0 && entry.name_len <= IMAGE_NAME_MAX);
		ensure(!memchr(entry.name, '/', entry.name_len) &&
			!memchr(entry.name, '\0', entry.name_len));
		ensure(entry.next_cookie > cookie && entry.next_cookie < 1ull << 42);
		cookie = entry.next_cookie;
		memcpy(name, entry.name, entry.name_len);
		if (image_lookup(w->image, &w->view, dir, name, entry.name_len, &found) == 0)
			image_walk_inode(w, &found);
		if (image_inode(w->image, &w->view, entry.nid, &inode) < 0) {
			w->failed++;
			continue;
		}
		image_walk_inode(w, &inode);
		if (inode.directory && depth < IMAGE_WALK_DEPTH)
			image_walk_directory(w, &inode, depth + 1);
	}
	ensure(r == 0 || r == -ENOENT || r == -EBADMSG);
	w->failed += r == -EBADMSG;
}

/* From the root, and every inode that the number of a name could be. Returns how many calls found
 * damage. */
static inline uint32_t image_walk(struct image *image, uint64_t extent_bytes, uint64_t image_bytes)
{
	static struct image_walk w;
	struct image_inode inode;

	memset(&w, 0, sizeof(w));
	w.image = image;
	w.extent_bytes = extent_bytes;
	ensure(image_inode(image, &w.view, image_root(image), &inode) == 0 && inode.directory);
	image_walk_directory(&w, &inode, 0);
	for (uint64_t nid = 0; nid <= image_bytes / 32; nid += 1 + image_bytes / 32 / 256)
		if (image_inode(image, &w.view, nid, &inode) == 0)
			image_walk_inode(&w, &inode);
	return w.failed;
}
