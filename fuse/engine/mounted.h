/*
 * One mount: a FUSE connection that a session serves, what the mount point shows, and its end. How
 * the two hang together is the engine's (engine.h):
 *
 *	native	application ──► EROFS: names, sizes, page cache
 *				  └─► extent N, a file of the private FUSE mount ──► session ──► reader
 *	fuse	application ──► FUSE: page cache ──► session ──► reader
 *
 * Threads: mounted_switch() any, one at a time; where it says so, any; everything else the thread that made it.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>
#include "base/err.h"
#include "fuse/engine/engine.h"
#include "fuse/session/session.h"
#include "mount/slots.h"

struct mounted;

/*
 * What the devices of the native engine's image are to be: files of this machine, or served by the
 * session.
 */
struct mounted_devices {
	const int *local; /* per device: its file's descriptor, or -1; borrowed */
	uint32_t n;       /* how many of them are files */
	uint64_t mark;    /* whatever who chose them wants to find again after a takeover */
	bool directio;    /* struct kernel_image.directio */
};

struct mounted_config {
	const struct engine *engine; /* at a takeover: that of the slots; NULL: not known here */
	const char *mountpoint;      /* absolute; all borrowed */
	const char *source;          /* URL, as df(1) is to show it; with "://" */
	const char *image;           /* path */
	const char *key;             /* of its superblock: what may share it */
	int point_fd;                /* of mountpoint_open(); -1 at a takeover */
	bool replace;                /* point_fd is a mount of ours, whose place it takes */
	int dev_fd;  /* /dev/fuse; or something else, whose number the connection is to get */
	bool kept;   /* somebody keeps dev_fd for a successor */
	int hand_fd; /* a socket to who does, which mounter_use() knows; -1: none */
	struct slots *slots; /* phase MOUNTED: a takeover; NEW: with the facts of the image */
	struct reader *reader;
	const struct mounted_devices *devices; /* of a new mount; NULL: all are served */
	const char *context;                   /* SELinux label of all files; NULL: none */
	bool allow_other;                      /* a mount of an ordinary user is for all */
	bool live;                             /* fuse engine: mounted_live_switch() is to be had */
	uint64_t prime_max;   /* nodes the kernel may know by READDIRPLUS; fuse engine */
	unsigned int threads; /* 0: the session's default */
	void (*on_failure)(void *arg, uint64_t offset, uint32_t length, int status);
	void (*on_gone)(void *arg);
	void *arg;
};

/* Mounts, or takes a mount over. -ENODEV at a takeover: there is nothing (more) to take over. */
int mounted_new(const struct mounted_config *config, struct mounted **ret_mounted,
	struct err *e) __must_check;
/*
 * Whoever keeps the connection for a successor is about to hear that it serves. Until then the
 * mount ends with this process, however that ends; where nobody keeps it, always.
 */
void mounted_settle(struct mounted *m);
/* Stops serving; the mount should be gone. NULL is allowed. */
void mounted_free(struct mounted *m);

/*
 * Shows the same image with other devices: a new superblock takes the place of the one at the mount
 * point, at no moment is there none, and open files keep the old one. Only the native engine; at
 * most SLOTS_OLD_MAX old ones are known, then the first is forgotten. Waits for the session's
 * answers: not on a thread of it. -EOPNOTSUPP: this kernel or engine cannot; -EBUSY: another switch, or
 * the end; -ENOENT: the mount point does not show ours; -ETIMEDOUT: the next call goes on.
 */
int mounted_switch(
	struct mounted *m, const struct mounted_devices *devices, struct err *e) __must_check;
/* Whether that can be had at all. */
bool mounted_may_switch(const struct mounted *m);

struct mounted_superblocks {
	uint32_t local;    /* devices that are files, of what the mount point shows */
	uint32_t old;      /* superblocks that only open files, or binds elsewhere, keep */
	uint64_t switches; /* since the mount was made */
	uint64_t mark;     /* struct mounted_devices.mark */
	uint8_t bits[LIMIT_DEVICES /
		     8]; /* which devices are files, the lowest of the first byte first */
	uint8_t held[LIMIT_DEVICES / 8]; /* likewise of any superblock there is */
};
/* st_dev of what the mount point shows, of our own. Any thread. */
dev_t mounted_point_dev(struct mounted *m);
/* Also what it is about to show. Any thread. */
bool mounted_shows(struct mounted *m, dev_t dev);
/* Any thread. Looks which of the old ones are gone. */
void mounted_superblocks(struct mounted *m, struct mounted_superblocks *ret);

/*
 * Another generation of the same sources, shown by the same superblock: the daemon's names first,
 * then word to the kernel of each that differs. One thread; not one of the session.
 *
 * prepare: all that can be done before it is shown. `image` and its facts: as images_get() has them;
 * it gets a name that stays for a successor, ret_name. -EXDEV: it cannot be shown by this superblock.
 * switch: shown from the next request on. The slots must say so already.
 * tell: as often as it takes; the slots say whether it is to be done. -ECANCELED: stopped.
 */
struct tree_live_next;
bool mounted_is_live(const struct mounted *m);
int mounted_live_prepare(struct mounted *m, const char *image, uint64_t extent_bytes,
	const struct layout_sources *layout, char ret_name[64], struct tree_live_next **ret_next,
	struct err *e) __must_check;
void mounted_live_switch(struct mounted *m, struct tree_live_next *next);
int mounted_live_tell(
	struct mounted *m, bool (*stopped)(void *arg), void *arg, struct err *e) __must_check;
/* The image that was shown before is of no use to a successor any more. */
void mounted_live_told(struct mounted *m, const char *before);

/*
 * Stops taking requests: a successor with the same descriptors goes on. This process ends at once
 * then, without mounted_free(). -EBUSY: in the middle of a switch; -ENODEV: it is gone.
 */
int mounted_hand_over(struct mounted *m) __must_check;

struct session *mounted_session(struct mounted *m);
const struct engine *mounted_engine(const struct mounted *m);
