/*
 * The native engine over a loop device: the kernel mounts the image as the beginning of one block
 * device, whose other bytes are the volume. For kernels that mount EROFS from block devices only
 * (before 6.12), and for O_DIRECT of applications. See docs/decisions/one-device-flavour.md.
 */
#include "base/cleanup.h"
#include "base/log.h"
#include "fuse/engine/mounted_internal.h"
#include "mount/mounter.h"

#include <sys/stat.h>

static int loop_probe(const struct engine_query *query, struct err *e)
{
	(void)query;
	return mounter_probe(NULL, e);
}

static int loop_tree(struct mounted *m, struct tree **ret_tree, struct err *e)
{
	const struct slots_mount *facts = slots_mount(m->config.slots);
	struct tree_device_config config = {
		.volume_offset = facts->volume_offset,
		.volume_bytes = facts->extents * facts->extent_bytes,
		.extent_bytes = facts->extent_bytes,
		.sources = slots_sources(m->config.slots)->layout,
	};
	_cleanup_close_ int fd = -1;
	struct stat st;
	int r = mounted_image_open(m, &fd, e);

	if (r < 0)
		return r;
	if (fstat(fd, &st) != 0)
		return err_set(e, err_errno(), "the image cannot be inspected: %m");
	config.image_bytes = (uint64_t)st.st_size;
	if (config.image_bytes > config.volume_offset)
		return err_set(e, -EBADMSG,
			"the image is not one for a loop device: unmount with --force and mount "
			"again");
	config.image_fd = TAKE_FD(fd);
	return tree_device_new(&config, ret_tree, e);
}

/* For the log: who is asked why cold reads wait finds it there. */
static void note_requests(const struct mounted *m, dev_t dev)
{
	uint32_t requests = kernel_loop_requests(dev);

	if (requests < slots_count(m->config.slots) / 2)
		log_info("few reads at once",
			"requests=%u slots=%u effect=\"reads of a stalled origin may delay other "
			"reads that are not in memory\" next=\"load the module loop with "
			"hw_queue_depth=4096\"",
			requests, slots_count(m->config.slots));
}

static int loop_finish(struct mounted *m, int root, int *ret_shown, struct err *e)
{
	struct kernel_superblock super = { 0 };
	int r = mounter_mount_loop(root, TREE_DEVICE_NAME, m->config.source, ret_shown, &super, e);

	if (r == 0) {
		slots_mount(m->config.slots)->point_dev = super.dev;
		note_requests(m, super.dev);
	}
	return r;
}

static void loop_free_tree(struct mounted *m, struct tree *tree)
{
	tree_device_free(tree);
	mounted_image_drop(m);
}

const struct engine engine_loop = {
	.name = "native (loop)",
	.option = "loop",
	.number = 3,
	.one_device = true,
	.auto_why = "this kernel mounts EROFS from loop devices",
	.probe = loop_probe,
	.connect = mounted_connect_private,
	.tree = loop_tree,
	.finish = loop_finish,
	.free_tree = loop_free_tree,
};
