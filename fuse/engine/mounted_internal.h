/* What mounted.c and the engines know of a mount. */
#pragma once

#include <limits.h>
#include <pthread.h>
#include <sys/types.h>
#include "fuse/engine/fusermount.h"
#include "fuse/engine/mounted.h"

#define MOUNTED_MAGIC 0x4A71FE01u

struct gone;
struct image;

struct guard {
	pid_t pid; /* 0: none */
	int fd;    /* a socket that closes with this process */
};

struct mounted {
	uint32_t magic;
	struct mounted_config config;
	const struct engine *engine;
	struct tree *tree;
	struct image *image; /* the fuse engine's; NULL: none */
	struct gone *gone;   /* of one that is live; NULL: it is not */
	int image_fd;        /* the native engine's: keeps it there; -1: none */
	struct session *session;
	bool own_device; /* dev_fd is another connection than the one given */
	bool ended;      /* the connection is gone: no successor */
	struct guard guard;
	pthread_mutex_t switching; /* held over one mounted_switch() */
	pthread_mutex_t supers;    /* a leaf: slots_switch() and slots_mount.point_dev, where
				    * `switching` is not held */
};

/* That dev_fd is a /dev/fuse: one of our own, where whoever started us had none to give. */
int mounted_need_device(struct mounted *m, struct err *e) __must_check;
/* engine.connect of those whose FUSE mount is shown to nobody but the kernel. */
int mounted_connect_private(struct mounted *m, int *ret_root, struct err *e) __must_check;
/* `fd` becomes m->config.dev_fd, also for the keeper; the caller closes `fd`. `dev`: as of mounter_hand(). */
int mounted_take_device(struct mounted *m, int fd, dev_t dev, struct err *e) __must_check;

/*
 * The image of an engine that reads it itself, under a name that stays for a successor. *ret_fd is
 * the caller's.
 */
int mounted_image_open(struct mounted *m, int *ret_fd, struct err *e) __must_check;
/* Where it is. -ENAMETOOLONG. */
int mounted_image_path(const struct mounted *m, char ret_path[PATH_MAX]) __must_check;
/* Another file of its directory. */
int mounted_image_sibling(
	const struct mounted *m, const char *name, char ret_path[PATH_MAX]) __must_check;
/* The fuse engine's tree of one that is live; m->gone and m->image. */
int mounted_live_tree(
	struct mounted *m, uint64_t prime_max, struct tree **ret_tree, struct err *e) __must_check;
void mounted_live_free(struct mounted *m, struct tree *tree);
/* That name goes, unless there may be a successor. */
void mounted_image_drop(const struct mounted *m);

/* The first superblock of a mount. */
void mounted_switch_begin(
	struct mounted *m, const struct slots_super *super, const struct mounted_devices *devices);
