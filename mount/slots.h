/*
 * The slots of one mount: where its requests are while they are not answered, in a memfd that
 * outlives a crash.
 *
 *	offset 0		struct slots_head: what a successor must know of the mount
 *	offset 16 KiB		struct slots_sources: likewise, of each source
 *	offset 32 KiB		struct slots_live: a switch to another generation that is under way
 *	offset 56 KiB		one more slot, of the keeper: for what it refuses itself
 *	offset 64 KiB		count x 8 KiB: one request each, as the kernel wrote it
 *
 * A request is read(2) from /dev/fuse straight into a free slot. The first word of a request is its
 * length, which the kernel never makes 0: it is zeroed before the read and again after the reply,
 * so at every instant a slot whose first word is not 0 holds a request that wants an answer, and no
 * instruction lies between "taken from the kernel" and "recorded". A successor answers the full
 * slots and then goes on; nothing has to be sent again by the kernel. A second answer to one
 * request is refused by the kernel with ENOENT and harms nobody.
 *
 * The states are of this process; a successor starts with FREE and puts what was left through
 * READING:
 *
 *	FREE ──take──► READING ──parked──► HELD ──who answers──► ANSWERING ──► FREE
 *	                  │  └──────────answered at once───────────────▲
 *	                  └──nothing came──► FREE
 *
 * and HELD ──a part came──► READING, when there is more to wait for.
 *
 * A slot has memory from its first use on. The slot that was used last is taken first, so a mount has memory for as many
 * requests as it had at a time.
 *
 * Threads: any. The lock is a leaf and is never held over I/O.
 */
#pragma once

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/check.h"
#include "base/err.h"
#include "base/hash.h"
#include "base/layout.h"
#include "base/limits.h"

#define SLOT_BYTES          8192u /* FUSE_MIN_READ_BUFFER: the smallest buffer the kernel accepts */
#define SLOTS_HEAD_BYTES    65536u                          /* room for the head */
#define SLOTS_SPARE_BYTE    (SLOTS_HEAD_BYTES - SLOT_BYTES) /* in the head: the keeper's own slot */
#define SLOTS_BLAME_HANDLED 8u                              /* see slots_take_left() */
#define SLOTS_BLAME_WAITED  2u
#define SLOTS_MIN           16u /* of which a quarter is for what is not a READ */

enum slot_state {
	SLOT_FREE,
	SLOT_READING,
	SLOT_HELD,
	SLOT_ANSWERING,
	SLOT_STATES,
};

/* How far the mount has come; only grows. A crash before MOUNTED takes the mount with it. */
enum slots_phase {
	SLOTS_NEW,
	SLOTS_CONNECTED, /* the kernel's INIT was answered */
	SLOTS_MOUNTED,   /* attached to the mount point, or about to be */
};

#define SLOTS_WHY_BYTES 256u

/* What a successor must know of the mount. Native byte order: it never leaves the machine. */
struct slots_mount {
	struct volume_id volume;
	uint64_t lineage;
	uint64_t generation;
	uint8_t hash[SHA256_BYTES];
	uint64_t files;
	uint64_t directories;
	uint64_t skipped;
	uint64_t bytes;
	uint64_t image_bytes;
	uint64_t extent_bytes;
	uint32_t extents;
	uint32_t fuse_minor;     /* protocol 7.N as agreed by INIT */
	uint32_t engine;         /* struct engine.number */
	uint32_t max_background; /* READs that the kernel lets be under way; 0: not known */
	uint64_t prime_max;      /* nodes it may know by READDIRPLUS; 0: the engine has none */
	uint64_t fuse_dev;   /* st_dev of the connection's mount: its minor names the connection */
	uint64_t point_dev;  /* st_dev of what the mount point shows; 0: nothing of ours yet */
	uint64_t mounted_at; /* seconds since 1970 */
	uint64_t volume_offset; /* of the volume on the image's one device; 0: not of one device */
	char image[64];         /* file name in the image directory */
	char engine_why[SLOTS_WHY_BYTES]; /* why that engine, for people */
};

/* One source of it. */
struct slots_source {
	struct volume_id volume;
	uint64_t lineage;
	uint64_t generation;
	uint8_t hash[SHA256_BYTES];
};

/* All of them; slots_mount has what holds for the first. */
struct slots_sources {
	struct layout_sources layout; /* .n 0: a version that knew one only, slots_mount's */
	struct slots_source all[LAYOUT_SOURCES_MAX];
};

#define SLOTS_OLD_MAX 16u

/* A superblock of EROFS that shows the mount's image. */
struct slots_super {
	uint64_t dev;    /* st_dev; 0: none */
	uint64_t mark;   /* struct mounted_devices.mark */
	uint32_t number; /* struct kernel_superblock.number */
	uint32_t local;  /* devices that are files of this machine */
};

/*
 * Which superblocks a mount has whose devices change; see mounted_switch(). Of devices, which are
 * local: bits, the lowest of the first byte first.
 */
struct slots_switch {
	struct slots_super now;  /* what the mount point shows: slots_mount.point_dev */
	struct slots_super next; /* about to take its place, attached or not yet */
	struct slots_super old[SLOTS_OLD_MAX]; /* no longer shown, but maybe with open files */
	uint64_t switches;
	uint8_t local[LIMIT_DEVICES / 8];      /* of `now` */
	uint8_t next_local[LIMIT_DEVICES / 8]; /* of `next` */
	uint8_t old_local[LIMIT_DEVICES / 8];  /* of any of `old` */
};

/*
 * A mount that moves on to another generation, its superblock being the same (live.h). What is said
 * here holds as soon as `number` is not slots_live.done: it is to be copied to slots_mount and
 * slots_sources, and the kernel is to be told what differs from `before`, by a successor too, however
 * often.
 */
struct slots_shown {
	uint64_t files;
	uint64_t directories;
	uint64_t skipped;
	uint64_t bytes;
	uint64_t image_bytes;
	uint64_t extent_bytes;
	uint32_t extents;
	uint32_t zero;
	char image[64];
	struct slots_sources sources;
};

struct slots_live {
	uint64_t
		number; /* of the generation that is shown, counted from 0 with the mount's first */
	uint64_t done;  /* the last that the kernel was told of */
	uint64_t before_extent_bytes; /* of the image that was shown before */
	struct layout_sources before_layout;
	char before_image[64];
	struct slots_shown shown;
	uint64_t listed; /* by follow.c: 1 once the background listing of this mount is done */
};

#define SLOTS_COUNTERS 16u

struct slots;

/*
 * Maps `fd` (a memfd; the caller's, must stay open as long as the slots). One that holds nothing
 * yet is formatted, and made large enough when its size is 0. -EPROTONOSUPPORT: of another version;
 * -EINVAL: too small.
 */
int slots_open(int fd, struct slots **ret_slots, struct err *e) __must_check;
/*
 * Before slots_open(), by a daemon: no other process serves from them any more. One that does was
 * started by a keeper that was killed before it had written that down; it is killed, which loses
 * nothing. The claim ends with this process, or when it closes any descriptor of the memory. -EBUSY:
 * the other one does not go.
 */
int slots_claim(int fd, struct err *e) __must_check;
void slots_free(
	struct slots *slots); /* NULL is allowed; the memory lives as long as its descriptors */

uint32_t slots_count(const struct slots *slots);
enum slots_phase slots_phase(const struct slots *slots);
/* Only forward. */
void slots_set_phase(struct slots *slots, enum slots_phase phase);
/*
 * Whoever leaves full slots from now on does so on purpose: its successor blames no request for it,
 * and counts no crash.
 */
void slots_hand_over(struct slots *slots);
bool slots_were_handed(const struct slots *slots);
/* The mount's facts; written by one thread before SLOTS_MOUNTED, read by anyone afterwards. */
struct slots_mount *slots_mount(struct slots *slots);
/* Likewise of its sources. */
struct slots_sources *slots_sources(struct slots *slots);
/* Written from then on too, by mounted.c alone, which has a lock for it. */
struct slots_switch *slots_switch(struct slots *slots);
/* Written from then on by live.c alone, `listed` by follow.c. */
struct slots_live *slots_live(struct slots *slots);
/* Counts of the mount's whole life, kept over crashes. */
void *slots_counters(struct slots *slots);

/*
 * Takes a free slot for a read: READING, its length 0. Waits while all are taken. -EAGAIN after
 * slots_wake(), and then for ever.
 */
int slots_take(struct slots *slots, uint32_t *ret_slot) __must_check;
void slots_wake(struct slots *slots);
/*
 * The next full slot that a predecessor left, once each: READING. `ret_blame` grows with each
 * daemon that died while it had the request, this time included: by SLOTS_BLAME_HANDLED when it
 * worked on it, by SLOTS_BLAME_WAITED when it only waited with it (HELD). -ENOENT: no more.
 */
int slots_take_left(struct slots *slots, uint32_t *ret_slot, uint32_t *ret_blame) __must_check;

/* SLOT_BYTES for the request. */
void *slot_data(struct slots *slots, uint32_t slot);
/* Length of the request in it by its first word; 0: none. Never more than SLOT_BYTES. */
uint32_t slot_len(struct slots *slots, uint32_t slot);
enum slot_state slot_state(struct slots *slots, uint32_t slot);

/*
 * The one way a state changes. True when the slot was in `from` and is in `to` now; false when
 * somebody else was first. A move the picture above does not show is a bug. To FREE: the length is
 * zeroed and the slot may be taken again.
 */
bool slot_move(
	struct slots *slots, uint32_t slot, enum slot_state from, enum slot_state to) __must_check;

/*
 * A ticket names the request that a slot holds now: once the slot was given to another request it
 * is of no use. For those who look at slots that are not theirs; take it first, then look.
 */
uint32_t slot_ticket(struct slots *slots, uint32_t slot);
bool slot_move_ticket(struct slots *slots, uint32_t slot, uint32_t ticket, enum slot_state from,
	enum slot_state to) __must_check;

struct slots_use {
	uint32_t max;
	uint32_t held; /* HELD now */
	uint32_t peak; /* most HELD at once */
};
void slots_use(struct slots *slots, struct slots_use *ret_use);
