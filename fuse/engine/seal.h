/*
 * Which devices of a native mount are sealed extents: files of this node that the kernel reads
 * without asking anybody (client/client_seal.h says what an extent's state means).
 *
 *	worker: states ──poll, once a second──► seal_choose() ──► take descriptors ──► mounted_switch()
 *
 * A mount starts with what is sealed already (seal_devices()); then periodic work follows the states: it
 * switches when more is sealed, not more often than every `pause`, and at once when an extent that
 * the kernel reads was found damaged or lost bytes, since the new superblock has no page of the old.
 * Every switch leaves a superblock behind as long as files of it are open: with SEAL_OLD_MAX of
 * those only the latter kind is made.
 *
 * What is held is said to the worker with each poll, also what only open files hold.
 *
 * Threads: seal_report() and seal_extent() any; the rest the one that made it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/clock.h"
#include "base/err.h"
#include "client/client_seal.h"
#include "fuse/engine/mounted.h"

#define SEAL_OLD_MAX 8u

/* Where states and descriptors come from; both may block for seconds. */
struct seal_source {
	/* Of the extents [0, n). `held`: a bit each. */
	int (*poll)(void *arg, uint32_t n, const uint8_t *held, struct client_seal *ret_seals,
		struct err *e);
	/* -EAGAIN: not sealed (any more). *ret_fd is the caller's. */
	int (*take)(void *arg, uint32_t extent, struct client_seal *ret_seal, int *ret_fd,
		struct err *e);
	void *arg;
};

struct seal_config {
	struct seal_source source;
	uint32_t extents; /* of the volume: the devices but the last */
	uint64_t pause_ns;
	/* The mount point shows another superblock; on the seal's thread. May be NULL. */
	void (*on_switch)(void *arg);
	void *arg;
};

struct seal;

/* NULL without memory. */
struct seal *seal_new(const struct seal_config *config);
/* Stops the thread. NULL is allowed. */
void seal_free(struct seal *seal);

/*
 * What is sealed now, for a new mount: struct mounted_devices for `extents` + 1 devices. Whatever
 * goes wrong, the others are served. Waits a few seconds at most. seal_devices_release() once they
 * are mounted.
 */
void seal_devices(struct seal *seal, struct mounted_devices *ret_devices);
void seal_devices_release(struct seal *seal);

/* Follows the states from now on. `mounted` (borrowed) outlives the seal. */
int seal_start(struct seal *seal, struct mounted *mounted, struct err *e) __must_check;

struct seal_report {
	uint32_t extents;
	uint32_t sealed;        /* by the worker's word */
	uint32_t verifying;     /* likewise */
	bool may_switch;        /* else what is sealed later is used by the next mount */
	bool polled;            /* the worker answered the last time */
	char why[ERR_TEXT_MAX]; /* why nothing is (or was not) done; "" */
	struct mounted_superblocks shown;
};
void seal_report(struct seal *seal, struct seal_report *ret);
/* What the worker said of one extent, and whether the kernel reads its file. */
void seal_extent(
	struct seal *seal, uint32_t extent, struct seal_status *ret_status, bool *ret_local);

/* ---- the choice ------------------------------------------------------------------------------ */

enum seal_choice {
	SEAL_STAY,
	SEAL_GROW, /* more is sealed: worth a switch */
	SEAL_DROP, /* something that is shown must not be: at once */
};

struct seal_view {
	uint32_t n;
	const uint8_t *shown;           /* bits: extents that are devices now */
	const struct client_seal *then; /* their states when they were taken */
	const struct client_seal *now;
	uint32_t old;      /* superblocks that only open files keep */
	uint64_t since_ns; /* since the last switch, or the mount */
	uint64_t pause_ns;
};

/*
 * Pure. GROW: after the pause, when all is sealed, or at least an eighth of the extents more than
 * are shown; after ten pauses for any.
 */
enum seal_choice seal_choose(const struct seal_view *view);
/* Names states: equal as long as the extents in `shown` are what they were. 0 for none. Pure. */
uint64_t seal_mark(uint32_t n, const uint8_t *shown, const struct client_seal *seals);
