/*
 * The private mount of the native engine over a loop device: one file, the image and behind it the
 * volume, for the loop device alone. See tree.h.
 */
#include "fuse/tree/tree.h"
#include "base/file.h"
#include "base/layout.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEVICE_NODE (REQUEST_ROOT_NODE + 1)

struct tree_device {
	struct tree tree;
	int image_fd;
	uint64_t image_bytes;
	uint64_t volume_offset;
	uint64_t bytes;
	uint64_t extent_bytes;
	struct layout_sources sources;
};

static const struct tree_device *device_of(struct tree *tree)
{
	return container_of(tree, struct tree_device, tree);
}

static int device_attr(const struct tree_device *t, uint64_t node, struct stat *ret)
{
	if (node != REQUEST_ROOT_NODE && node != DEVICE_NODE)
		return -ENOENT;
	*ret = (struct stat){ .st_ino = node, .st_nlink = 2, .st_mode = S_IFDIR | 0500 };
	if (node == DEVICE_NODE) {
		ret->st_mode = S_IFREG | 0400;
		ret->st_nlink = 1;
		ret->st_size = (off_t)t->bytes;
		ret->st_blocks = (blkcnt_t)(t->bytes / 512);
	}
	ret->st_blksize = BLOCK_BYTES;
	return 0;
}

static int device_lookup(struct tree *tree, void *scratch, uint64_t parent, const char *name,
	struct fuse_entry_param *ret)
{
	struct fuse_entry_param out = { .ino = DEVICE_NODE,
		.entry_timeout = TREE_VALID_SECONDS,
		.attr_timeout = TREE_VALID_SECONDS };
	int r;

	(void)scratch;
	if (parent != REQUEST_ROOT_NODE)
		return -ENOTDIR;
	if (strcmp(name, TREE_DEVICE_NAME) != 0)
		return -ENOENT;
	r = device_attr(device_of(tree), DEVICE_NODE, &out.attr);
	if (r == 0)
		*ret = out;
	return r;
}

static int device_getattr(struct tree *tree, void *scratch, uint64_t node, struct stat *ret)
{
	(void)scratch;
	return device_attr(device_of(tree), node, ret);
}

static int device_open(struct tree *tree, uint64_t node, struct fuse_file_info *ret)
{
	(void)tree;
	if (node != DEVICE_NODE)
		return node == REQUEST_ROOT_NODE ? -EISDIR : -ENOENT;
	/* Direct: the bytes land once, in EROFS' page cache, and nothing in FUSE's. */
	ret->direct_io = true;
	ret->noflush = true;
	return 0;
}

static int device_opendir(struct tree *tree, uint64_t node, struct fuse_file_info *ret)
{
	(void)tree;
	(void)node;
	(void)ret;
	return -ENOSYS;
}

static int device_readdir(
	struct tree *tree, void *scratch, const struct request *req, struct tree_entries *entries)
{
	(void)tree;
	(void)scratch;
	(void)req;
	(void)entries;
	return -ENOSYS; /* the loop device is given its file by name */
}

/* -EIO: nothing a loop device with blocks of 4 KiB sends. */
static int check_read(const struct tree_device *t, const struct request *req)
{
	uint64_t offset = req->read.offset;
	uint32_t size = req->read.size;

	if (req->nodeid != DEVICE_NODE || size == 0 || size > LIMIT_PAYLOAD_BYTES ||
		(offset | size) % BLOCK_BYTES != 0)
		return -EIO;
	return offset < t->bytes && size <= t->bytes - offset ? 0 : -EIO;
}

/* Where byte `offset` of all volumes is. -EIO: what follows on it reaches into the next volume,
 * which no file does. */
static int find_place(
	const struct tree_device *t, uint64_t offset, uint32_t size, uint64_t *ret_place)
{
	uint64_t device = offset / t->extent_bytes;
	uint64_t last = (offset + size - 1) / t->extent_bytes;

	if (layout_source_of_device(&t->sources, device) !=
		layout_source_of_device(&t->sources, last))
		return -EIO;
	*ret_place = layout_place_of_device(
		&t->sources, t->extent_bytes, device, offset % t->extent_bytes);
	return 0;
}

static int device_range(
	struct tree *tree, void *scratch, const struct request *req, struct tree_range *ret)
{
	const struct tree_device *t = device_of(tree);
	uint64_t offset;
	int r = check_read(t, req);

	(void)scratch;
	if (r < 0)
		return r;
	if (req->read.offset < t->volume_offset)
		return -EIO; /* device_own()'s */
	offset = req->read.offset - t->volume_offset;
	if (t->sources.n > 1)
		r = find_place(t, offset, req->read.size, &offset);
	if (r == 0)
		*ret = (struct tree_range){
			.offset = offset, .length = req->read.size, .size = req->read.size
		};
	return r;
}

/* Behind the image there is nothing until the volume begins. */
static int device_own(struct tree *tree, const struct request *req, void *buf)
{
	const struct tree_device *t = device_of(tree);
	uint64_t offset = req->read.offset;
	uint32_t size = req->read.size;
	uint64_t there;
	int r = check_read(t, req);

	if (r < 0)
		return r;
	if (offset >= t->volume_offset)
		return -ENXIO;
	if (size > t->volume_offset - offset)
		return -EIO; /* an image's blocks and a file's are never asked for together */
	there = t->image_bytes - min(t->image_bytes, offset);
	there = min(there, (uint64_t)size);
	memset((char *)buf + there, 0, size - there);
	return there && file_pread_exact(t->image_fd, buf, there, offset) < 0 ? -EIO : 0;
}

static uint64_t device_give(struct tree *tree, uint64_t node)
{
	(void)tree;
	(void)node;
	return 1; /* lookups, not nodes: there is one */
}

static uint64_t device_forget(struct tree *tree, uint64_t node, uint64_t lookups)
{
	(void)tree;
	(void)node;
	return lookups;
}

static void device_statfs(struct tree *tree, struct statvfs *ret)
{
	*ret = (struct statvfs){ .f_bsize = BLOCK_BYTES,
		.f_frsize = BLOCK_BYTES,
		.f_namemax = 16,
		.f_files = 1,
		.f_blocks = device_of(tree)->bytes / BLOCK_BYTES };
}

static const struct tree_ops ops = {
	.lookup = device_lookup,
	.getattr = device_getattr,
	.open = device_open,
	.opendir = device_opendir,
	.readdir = device_readdir,
	.own = device_own,
	.range = device_range,
	.give = device_give,
	.forget = device_forget,
	.statfs = device_statfs,
};

int tree_device_new(const struct tree_device_config *config, struct tree **ret_tree, struct err *e)
{
	struct tree_device *t = calloc(1, sizeof(*t));

	if (!t) {
		(void)close(config->image_fd); /* read only */
		return err_set(e, -ENOMEM, "out of memory");
	}
	t->tree.ops = &ops;
	t->tree.read_status = -EIO; /* a block device has one errno for what cannot be read */
	t->tree.write_status = -ENOSYS;
	t->image_fd = config->image_fd;
	t->image_bytes = config->image_bytes;
	t->volume_offset = config->volume_offset;
	t->bytes = config->volume_offset + config->volume_bytes;
	t->extent_bytes = config->extent_bytes;
	t->sources = config->sources;
	*ret_tree = &t->tree;
	return 0;
}

void tree_device_free(struct tree *tree)
{
	struct tree_device *t = tree ? container_of(tree, struct tree_device, tree) : NULL;

	if (!t)
		return;
	(void)close(t->image_fd); /* read only */
	free(t);
}
