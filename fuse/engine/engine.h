/*
 * The ways to show a source at a mount point, behind one ops table:
 *
 *	native	the kernel mounts the image (EROFS) over extents that we serve; root only
 *	loop	the same with image and volume as one loop device, for kernels from 5.15
 *	fuse	we show the image's names and bytes ourselves; any kernel, any user
 *
 * What all have in common, the life of a mount, is mounted.c.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"
#include "mount/slots.h"
#include "fuse/tree/tree.h"

struct mounted;
struct mounted_devices;

struct engine_query {
	const char *engine;     /* an engine's option, or "auto" */
	const char *image_dir;  /* where images are to lie; exists */
	const char *mountpoint; /* absolute */
	bool allow_other;
	const char *context; /* an SELinux label for all files; NULL: none */
};

struct engine {
	const char *name;     /* for people */
	const char *option;   /* of --engine */
	uint32_t number;      /* struct slots_mount.engine */
	bool one_device;      /* its images are (struct image_options) */
	const char *auto_why; /* why `auto` takes it */

	/* Can it be had here? A negative errno with a line that says what is missing. Cheap; leaves
	 * nothing behind. */
	int (*probe)(const struct engine_query *query, struct err *e);
	/* May it mount on this directory? Beside mountpoint_open()'s questions; may be NULL. */
	int (*check_point)(const struct engine_query *query, struct err *e);

	/*
	 * The steps of a new mount, in order, each with a line when it fails.
	 *
	 * connect: a connection on m->config.dev_fd and the root of its file system, *ret_root; the
	 * mount's slots_mount.fuse_dev. Nothing answers yet.
	 * tree: what the session shows. At a takeover too.
	 * finish: with the session answering. *ret_shown is to be attached to the mount point, or
	 * -1 when it is already; slots_mount.point_dev.
	 */
	int (*connect)(struct mounted *m, int *ret_root, struct err *e);
	int (*tree)(struct mounted *m, struct tree **ret_tree, struct err *e);
	int (*finish)(struct mounted *m, int root, int *ret_shown, struct err *e);
	/*
	 * The same image once more, with these devices: a superblock of its own, to be shown in the
	 * other's place. `root`: of the mount's file system, as connect() had it. NULL: this engine
	 * has no devices that may be files.
	 */
	int (*again)(struct mounted *m, int root, const struct mounted_devices *devices,
		int *ret_shown, struct slots_super *ret_super, struct err *e);
	/* What tree() made; NULL is allowed. */
	void (*free_tree)(struct mounted *m, struct tree *tree);
};

extern const struct engine engine_native;
extern const struct engine engine_loop;
extern const struct engine engine_fuse;

/* All there are, in the order in which `auto` asks; NULL ends them. */
extern const struct engine *const engine_list[];

/* Of struct slots_mount.engine; NULL: no such engine. */
const struct engine *engine_of_number(uint32_t number);

/*
 * The engine for a new mount, and why it is that one ("auto: ..."). `auto`: the first of the list
 * that can be had; `native`: over a loop device too, where it is not to be had otherwise. What the
 * probes gave when there is none, with one line for all that was looked at.
 */
int engine_choose(const struct engine_query *query, const struct engine **ret_engine,
	char ret_why[SLOTS_WHY_BYTES], struct err *e) __must_check;
