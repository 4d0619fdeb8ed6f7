/*
 * An image that a daemon shows itself must be there for its successor, though a newer mount of the
 * source drops it from the image directory meanwhile: a second name keeps it.
 *
 *	DIR/mounted.MAJOR-MINOR		while the mount with that st_dev lives
 *
 * A name that nobody holds open for a day belongs to a mount whose daemons all died; the next mount
 * removes it.
 */
#pragma once

#include <stddef.h>
#include <sys/types.h>
#include "base/err.h"

/*
 * Gives the image at `path` such a name for the mount `dev`; `ret_name` is that name, without the
 * directory. -errno when the file system has no links: the image keeps its one name.
 */
int image_use_take(
	const char *path, dev_t dev, const char *suffix, char *ret_name, size_t size) __must_check;
/* Opens an image; in use for as long as the descriptor lives. */
int image_use_open(const char *path, int *ret_fd) __must_check;
/* The mount is no more. Only such names are removed. */
void image_use_drop(const char *path);
