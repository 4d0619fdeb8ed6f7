/*
 * The private mount of the native engine: one directory, one file per extent, for EROFS alone. See
 * tree.h.
 */
#include "fuse/tree/tree.h"
#include "base/layout.h"

#include <errno.h>
#include <stdlib.h>

struct tree_extents {
	struct tree tree;
	uint64_t extent_bytes;
	uint32_t extents;
	struct layout_sources sources;
};

static const struct tree_extents *extents_of(struct tree *tree)
{
	return container_of(tree, struct tree_extents, tree);
}

static int extents_lookup(struct tree *tree, void *scratch, uint64_t parent, const char *name,
	struct fuse_entry_param *ret)
{
	const struct tree_extents *t = extents_of(tree);
	struct fuse_entry_param out = { .entry_timeout = TREE_VALID_SECONDS,
		.attr_timeout = TREE_VALID_SECONDS };
	uint32_t extent = 0;
	int r;

	(void)scratch;
	if (parent != REQUEST_ROOT_NODE)
		return -ENOTDIR;
	r = request_extent_of_name(name, t->extents, &extent);
	if (r < 0)
		return r;
	out.ino = REQUEST_EXTENT_NODE(extent);
	r = request_attr(out.ino, t->extent_bytes, t->extents, &out.attr);
	if (r == 0)
		*ret = out;
	return r;
}

static int extents_getattr(struct tree *tree, void *scratch, uint64_t node, struct stat *ret)
{
	const struct tree_extents *t = extents_of(tree);

	(void)scratch;
	return request_attr(node, t->extent_bytes, t->extents, ret);
}

static int extents_open(struct tree *tree, uint64_t node, struct fuse_file_info *ret)
{
	const struct tree_extents *t = extents_of(tree);
	struct stat attr;
	int r = request_attr(node, t->extent_bytes, t->extents, &attr);

	if (r < 0)
		return r;
	if (node == REQUEST_ROOT_NODE)
		return -EISDIR;
	/* Direct: the bytes land once, in EROFS' page cache, and nothing in FUSE's. */
	ret->direct_io = true;
	ret->noflush = true;
	return 0;
}

static int extents_opendir(struct tree *tree, uint64_t node, struct fuse_file_info *ret)
{
	(void)tree;
	(void)node;
	(void)ret;
	return -ENOSYS;
}

static int extents_readdir(
	struct tree *tree, void *scratch, const struct request *req, struct tree_entries *entries)
{
	(void)tree;
	(void)scratch;
	(void)req;
	(void)entries;
	return -ENOSYS; /* EROFS knows its devices by name */
}

static int extents_range(
	struct tree *tree, void *scratch, const struct request *req, struct tree_range *ret)
{
	const struct tree_extents *t = extents_of(tree);
	uint64_t offset = 0;
	int r = request_volume_range(req, t->extent_bytes, t->extents, &offset);

	(void)scratch;
	if (r < 0)
		return r;
	if (t->sources.n > 1)
		offset = layout_place_of_device(&t->sources, t->extent_bytes,
			offset / t->extent_bytes, offset % t->extent_bytes);
	*ret = (struct tree_range){
		.offset = offset, .length = req->read.size, .size = req->read.size
	};
	return 0;
}

static uint64_t extents_give(struct tree *tree, uint64_t node)
{
	(void)tree;
	(void)node;
	return 1; /* lookups, not nodes: EROFS looks once */
}

static uint64_t extents_forget(struct tree *tree, uint64_t node, uint64_t lookups)
{
	(void)tree;
	(void)node;
	return lookups;
}

static void extents_statfs(struct tree *tree, struct statvfs *ret)
{
	const struct tree_extents *t = extents_of(tree);

	*ret = (struct statvfs){ .f_bsize = BLOCK_BYTES,
		.f_frsize = BLOCK_BYTES,
		.f_namemax = 16,
		.f_files = t->extents,
		.f_blocks = t->extents * (t->extent_bytes / BLOCK_BYTES) };
}

static const struct tree_ops ops = {
	.lookup = extents_lookup,
	.getattr = extents_getattr,
	.open = extents_open,
	.opendir = extents_opendir,
	.readdir = extents_readdir,
	.range = extents_range,
	.give = extents_give,
	.forget = extents_forget,
	.statfs = extents_statfs,
};

int tree_extents_new(uint64_t extent_bytes, uint32_t extents, const struct layout_sources *sources,
	struct tree **ret_tree, struct err *e)
{
	struct tree_extents *t = calloc(1, sizeof(*t));

	if (!t)
		return err_set(e, -ENOMEM, "out of memory");
	t->tree.ops = &ops;
	t->tree.read_status = -EIO; /* EROFS has one errno for a device that cannot be read */
	t->tree.write_status = -ENOSYS;
	t->extent_bytes = extent_bytes;
	t->extents = extents;
	t->sources = *sources;
	*ret_tree = &t->tree;
	return 0;
}

void tree_extents_free(struct tree *tree)
{
	if (tree)
		free(container_of(tree, struct tree_extents, tree));
}
