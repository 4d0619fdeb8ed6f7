/* Generations of a mount that moves on under one superblock. See mounted.h, live.h. */
#include "base/cleanup.h"
#include "base/log.h"
#include "catalog/image_read.h"
#include "fuse/tree/gone.h"
#include "fuse/engine/image_use.h"
#include "fuse/engine/mounted_internal.h"
#include "fuse/protocol/notify.h"
#include "fuse/tree/tree_live.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>

bool mounted_is_live(const struct mounted *m)
{
	return m->gone != NULL;
}

static int gone_path(const struct mounted *m, char ret_path[PATH_MAX])
{
	dev_t dev = (dev_t)slots_mount(m->config.slots)->fuse_dev;
	char name[64];

	(void)snprintf(name, sizeof(name), "mounted.%u-%u.gone", major(dev), minor(dev)); /* fits */
	return mounted_image_sibling(m, name, ret_path);
}

static int open_gone(struct mounted *m, struct err *e)
{
	char path[PATH_MAX];
	int r = gone_path(m, path);

	if (r == 0)
		r = gone_open(path, slots_phase(m->config.slots) == SLOTS_NEW, GONE_HALF, &m->gone);
	return r < 0 ? err_set(e, r, "%s cannot be written: %s: check the disk of the cache", path,
			       err_str(r))
		     : 0;
}

/* What the predecessor did not tell the kernel to its end. */
static int open_before(struct mounted *m, struct tree *tree, struct err *e)
{
	const struct slots_live *live = slots_live(m->config.slots);
	struct image *image = NULL;
	char path[PATH_MAX];
	int fd = -1;
	int r;

	if (live->number == live->done)
		return 0;
	r = mounted_image_sibling(m, live->before_image, path);
	if (r == 0)
		r = image_use_open(path, &fd);
	if (r < 0)
		return err_set(e, r, "the image %s cannot be opened: %s", path, err_str(r));
	r = image_open(fd, live->before_extent_bytes, &live->before_layout, &image, e);
	return r < 0 ? r : tree_live_remember(tree, image, e);
}

int mounted_live_tree(struct mounted *m, uint64_t prime_max, struct tree **ret_tree, struct err *e)
{
	const struct tree_image_config config = { .prime_max = prime_max };
	const struct slots_live *live = slots_live(m->config.slots);
	struct err why = ERR_INIT;
	int fd = -1;
	int r = mounted_image_open(m, &fd, e);

	if (r == 0)
		r = image_open(fd, slots_mount(m->config.slots)->extent_bytes,
			&slots_sources(m->config.slots)->layout, &m->image, e);
	if (r < 0)
		return r;
	r = open_gone(m, e);
	if (r < 0) {
		image_close(m->image);
		m->image = NULL;
		return r;
	}
	r = tree_live_new(m->image, live->number, &config, m->gone, ret_tree, e);
	if (r < 0) {
		m->image = NULL;
		return r;
	}
	if (open_before(m, *ret_tree, &why) < 0)
		log_error("previous names unknown",
			"mountpoint=\"%s\" why=\"%s\" effect=\"removed names may be shown\" "
			"next=\"mount again\"",
			m->config.mountpoint, why.text);
	return 0;
}

void mounted_live_free(struct mounted *m, struct tree *tree)
{
	char path[PATH_MAX];

	tree_live_free(tree);
	gone_free(m->gone);
	m->gone = NULL;
	/* Else there may be a successor. */
	if ((m->ended || slots_phase(m->config.slots) != SLOTS_MOUNTED) && gone_path(m, path) == 0)
		(void)unlink(path); /* the next mount of that number begins it anew */
}

int mounted_live_prepare(struct mounted *m, const char *image, uint64_t extent_bytes,
	const struct layout_sources *layout, char ret_name[64], struct tree_live_next **ret_next,
	struct err *e)
{
	dev_t dev = (dev_t)slots_mount(m->config.slots)->fuse_dev;
	const struct slots_live *live = slots_live(m->config.slots);
	const char *name = strrchr(image, '/');
	struct image *opened = NULL;
	char path[PATH_MAX];
	char suffix[8];
	int fd = -1;
	int r;

	CHECK_MAGIC(m, MOUNTED_MAGIC);
	/* Two names in turn: of what is shown, and of what was before. */
	(void)snprintf(suffix, sizeof(suffix), ".%u", (unsigned int)(live->number % 2));
	/* A file system without links: it keeps its one name, as the first one does. */
	if (image_use_take(image, dev, suffix, ret_name, 64) < 0)
		(void)snprintf(ret_name, 64, "%s", name ? name + 1 : image);
	r = mounted_image_sibling(m, ret_name, path);
	if (r == 0)
		r = image_use_open(path, &fd);
	if (r < 0)
		return err_set(e, r, "the image %s cannot be opened: %s", image, err_str(r));
	r = image_open(fd, extent_bytes, layout, &opened, e);
	return r < 0 ? r : tree_live_prepare(m->tree, opened, ret_next, e);
}

void mounted_live_switch(struct mounted *m, struct tree_live_next *next)
{
	CHECK_MAGIC(m, MOUNTED_MAGIC);
	tree_live_switch(m->tree, next);
}

/* ---- word to the kernel ---------------------------------------------------------------------- */

/* Any name: such a message takes the lock of its directory, where others do not. */
#define SOME_NAME "\1"

struct teller {
	struct notify notify;
	uint64_t locked; /* the last directory whose lock a message takes; 0: none */
};

static int tell_name(struct teller *t, uint64_t parent, const char *name, uint32_t len)
{
	t->locked = parent;
	return notify_entry(&t->notify, parent, name, len);
}

/* A LOOKUP that was answered before the exchange must have been written down, or the kernel does not
 * know the inode yet when it is told, and has the old attributes afterwards. */
static int tell_attr(struct teller *t, const struct live_change *c)
{
	int r = t->locked == c->parent ? 0 : tell_name(t, c->parent, SOME_NAME, 1);

	return r < 0 ? r : notify_inode(&t->notify, c->node, false);
}

/* Below directories that are no more, too: whoever has one open, or bound elsewhere, keeps its inode,
 * which is the new one's when there is such a path again. */
static int tell_change(void *arg, const struct live_change *c)
{
	struct teller *t = arg;

	switch (c->kind) {
	case LIVE_ATTR:
		return tell_attr(t, c);
	case LIVE_OTHER:
	case LIVE_CAME:
	case LIVE_WENT:
		return tell_name(t, c->parent, c->name, c->len);
	case LIVE_TOUCHED:
		return notify_inode(&t->notify, c->parent, true);
	case LIVE_SAME:
	default:
		return 0;
	}
}

int mounted_live_tell(struct mounted *m, bool (*stopped)(void *arg), void *arg, struct err *e)
{
	struct teller t = { .locked = 0 };
	int r;
	int end;

	CHECK_MAGIC(m, MOUNTED_MAGIC);
	r = notify_start(&t.notify, m->config.dev_fd, stopped, arg, e);
	if (r < 0)
		return r;
	r = tree_live_changes(m->tree, tell_change, &t);
	if (r == 0)
		r = notify_inode(&t.notify, NODES_ROOT, true);
	if (r == -ENOENT)
		r = 0; /* a successor that knows of none before */
	end = notify_end(&t.notify);
	r = r < 0 ? r : end;
	if (r < 0)
		return err_set(e, r, "not all changes were reported to the kernel: %s: tried again",
			err_str(r));
	log_debug("kernel notified", "messages=%" PRIu64, t.notify.sent);
	return 0;
}

void mounted_live_told(struct mounted *m, const char *before)
{
	char path[PATH_MAX];

	if (mounted_image_sibling(m, before, path) == 0)
		image_use_drop(path);
}
