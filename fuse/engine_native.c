/* The native engine: the kernel mounts the image, its devices are files of a private FUSE mount. */
#include "base/cleanup.h"
#include "fuse/kernel.h"
#include "fuse/mounted_internal.h"

static int native_probe(const struct engine_wish *wish, struct err *e)
{
	return kernel_probe(wish->image_dir, e);
}

/* A /dev/fuse of our own, where whoever started us had none to give. */
static int native_connect(struct mounted *m, int *ret_root, struct err *e)
{
	dev_t dev = 0;
	int r = mounted_need_device(m, e);

	if (r == 0)
		r = kernel_mount_fuse(m->config.dev_fd, NULL, ret_root, &dev, e);
	if (r == 0)
		slots_mount(m->config.slots)->fuse_dev = dev;
	return r;
}

static int native_tree(struct mounted *m, struct tree **ret_tree, struct err *e)
{
	const struct slots_mount *facts = slots_mount(m->config.slots);

	return tree_extents_new(facts->extent_bytes, facts->extents, ret_tree, e);
}

static int native_finish(struct mounted *m, int root, int *ret_shown, struct err *e)
{
	struct slots_mount *facts = slots_mount(m->config.slots);
	const struct kernel_image image = {
		.path = m->config.image,
		.fuse_mount_fd = root,
		.extents = facts->extents,
	};
	struct kernel_superblock super = { 0 };
	int r = kernel_mount_image(&image, ret_shown, &super, e);

	if (r == 0)
		facts->point_dev = super.dev;
	return r;
}

static void native_free_tree(struct mounted *m, struct tree *tree)
{
	(void)m;
	tree_extents_free(tree);
}

const struct engine engine_native = {
	.name = "native",
	.option = "native",
	.number = 1,
	.auto_why = "this kernel mounts EROFS from files",
	.probe = native_probe,
	.connect = native_connect,
	.tree = native_tree,
	.finish = native_finish,
	.free_tree = native_free_tree,
};
