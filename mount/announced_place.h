/*
 * Where the order feed of a mount listens: RUN/order/m-HASH for a mount of RUN/CACHE/MOUNT, or in a
 * directory that was given; and what is left there when its daemon was killed. No state.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>

struct announced_place {
	char directory[PATH_MAX];
	char name[32];
};

/* order_dir: NULL, or the directory. False: there is none. */
bool announced_find_place(const char *run_dir, const char *order_dir, const char *mountpoint,
	struct announced_place *ret_place);

/* The mount is gone: its socket, unless somebody listens there, and the links to it go. */
void announced_forget(const char *run_dir, const char *mountpoint);
