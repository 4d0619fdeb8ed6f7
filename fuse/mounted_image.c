/* The image of a mount whose daemon reads it itself. See mounted_internal.h. */
#include "base/cleanup.h"
#include "base/log.h"
#include "fuse/image_use.h"
#include "fuse/mounted_internal.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

int mounted_image_sibling(const struct mounted *m, const char *name, char ret_path[PATH_MAX])
{
	const char *slash = strrchr(m->config.image, '/');
	int dir = slash ? (int)(slash - m->config.image) : 0;
	int n = snprintf(ret_path, PATH_MAX, "%.*s/%s", dir, m->config.image, name);

	return n < PATH_MAX ? 0 : -ENAMETOOLONG;
}

/* The directory of the image that was given, with the name that the slots say. */
int mounted_image_path(const struct mounted *m, char ret_path[PATH_MAX])
{
	return mounted_image_sibling(m, slots_mount(m->config.slots)->image, ret_path);
}

int mounted_image_open(struct mounted *m, int *ret_fd, struct err *e)
{
	struct slots_mount *facts = slots_mount(m->config.slots);
	char path[PATH_MAX];
	int r = 0;

	if (slots_phase(m->config.slots) == SLOTS_NEW)
		r = image_use_take(m->config.image, (dev_t)facts->fuse_dev, "", facts->image,
			sizeof(facts->image));
	if (r < 0)
		log_info("image not stored",
			"error=%s effect=\"a newer mount may remove it from a successor\"",
			err_name(r));
	r = mounted_image_path(m, path);
	if (r == 0)
		r = image_use_open(path, ret_fd);
	return r < 0 ? err_set(e, r, "the image %s cannot be opened: %s", path, err_str(r)) : 0;
}

void mounted_image_drop(const struct mounted *m)
{
	char path[PATH_MAX];

	/* Else there may be a successor. */
	if ((m->ended || slots_phase(m->config.slots) != SLOTS_MOUNTED) &&
		mounted_image_path(m, path) == 0)
		image_use_drop(path);
}
