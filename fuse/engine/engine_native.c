/* The native engine: the kernel mounts the image, its devices are files of a private FUSE mount. */
#include "base/cleanup.h"
#include "fuse/engine/mounted_internal.h"
#include "mount/mounter.h"

#include <limits.h>

static int native_probe(const struct engine_query *query, struct err *e)
{
	return mounter_probe(query->image_dir, e);
}

static int native_tree(struct mounted *m, struct tree **ret_tree, struct err *e)
{
	const struct slots_mount *facts = slots_mount(m->config.slots);
	/* It is mounted again with every switch, also after newer generations came. */
	int r = mounted_image_open(m, &m->image_fd, e);

	return r < 0 ? r
		     : tree_extents_new(facts->extent_bytes, facts->extents,
			       &slots_sources(m->config.slots)->layout, ret_tree, e);
}

static int native_again(struct mounted *m, int root, const struct mounted_devices *devices,
	int *ret_shown, struct slots_super *ret_super, struct err *e)
{
	char path[PATH_MAX];
	const struct kernel_image image = {
		.path = path,
		.source = m->config.source,
		.fuse_mount_fd = root,
		.local = devices ? devices->local : NULL,
		.extents = slots_mount(m->config.slots)->extents,
		.directio = devices && devices->directio,
	};
	struct kernel_superblock super = { 0 };
	int r = mounted_image_path(m, path);

	if (r < 0)
		return err_set(e, r, "the path of the image is too long");
	r = mounter_mount_image(&image, ret_shown, &super, e);
	if (r == 0)
		*ret_super = (struct slots_super){
			.dev = super.dev,
			.number = super.number,
			.local = devices ? devices->n : 0,
			.mark = devices ? devices->mark : 0,
		};
	return r;
}

static int native_finish(struct mounted *m, int root, int *ret_shown, struct err *e)
{
	struct slots_super super = { 0 };
	int r = native_again(m, root, m->config.devices, ret_shown, &super, e);

	if (r == 0)
		mounted_switch_begin(m, &super, m->config.devices);
	return r;
}

static void native_free_tree(struct mounted *m, struct tree *tree)
{
	tree_extents_free(tree);
	cleanup_close(&m->image_fd);
	mounted_image_drop(m);
}

const struct engine engine_native = {
	.name = "native",
	.option = "native",
	.number = 1,
	.auto_why = "this kernel mounts EROFS from files",
	.probe = native_probe,
	.connect = mounted_connect_private,
	.tree = native_tree,
	.finish = native_finish,
	.again = native_again,
	.free_tree = native_free_tree,
};
