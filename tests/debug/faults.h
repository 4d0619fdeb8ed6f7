/*
 * The fault plane: which calls of a program's disk, origins and connections are to fail, lie or
 * wait. One line says it all, and may be replaced while the program runs:
 *
 *	seed=7 tier.eio=0.01@read,data ufs.delay=1/20 tier.stall=1/60000#1@write
 *
 *	seed=N			the same seed and the same calls in the same order: the same faults
 *	LAYER.KIND=RATE[/MS][#MOST][@WHERE,...]
 *		RATE	of the calls it is about, 0 to 1
 *		MS	how long it takes; for stall and delay
 *		MOST	times it happens at most
 *		WHERE	which calls; several of one sort: any of them; none: all
 *
 *	LAYER	KIND					WHERE
 *	tier	eio enospc erofs flip short torn	calls: read write make remove sync look
 *		stall delay				files: data table other; /PART of the path
 *	ufs	eio short stale stall delay		get list
 *	net	cut refuse flip delay stall		connect message
 *
 * flip: one bit of what is read, written or received differs. short: fewer bytes than asked for,
 * as the call may. torn: a part is written, then EIO. stall: as delay, but one that ends when the
 * line is replaced. A stall of the origin lasts until its timeout.
 *
 * Threads: any.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/buf.h"
#include "base/err.h"

enum fault_layer {
	FAULT_TIER,
	FAULT_UFS,
	FAULT_NET,
	FAULT_LAYERS,
};

enum fault_kind {
	FAULT_NONE,
	FAULT_EIO,
	FAULT_ENOSPC,
	FAULT_EROFS,
	FAULT_FLIP,
	FAULT_SHORT,
	FAULT_TORN,
	FAULT_STALL,
	FAULT_DELAY,
	FAULT_STALE,
	FAULT_CUT,
	FAULT_REFUSE,
	FAULT_KINDS,
};

/* What a call is about: bits of its sort and of its file. */
enum {
	FAULT_READ = 1 << 0,
	FAULT_WRITE = 1 << 1,
	FAULT_MAKE = 1 << 2, /* open, mkdir, truncate, chmod, rename, lock */
	FAULT_REMOVE = 1 << 3,
	FAULT_SYNC = 1 << 4,
	FAULT_LOOK = 1 << 5, /* stat, statvfs, list */
	FAULT_GET = 1 << 6,
	FAULT_LIST = 1 << 7,
	FAULT_CONNECT = 1 << 8,
	FAULT_MESSAGE = 1 << 9,
	FAULT_CALLS = (1 << 10) - 1,
	FAULT_DATA = 1 << 10,
	FAULT_TABLE = 1 << 11,
	FAULT_OTHER = 1 << 12,
	FAULT_FILES = FAULT_DATA | FAULT_TABLE | FAULT_OTHER,
};

#define FAULTS_LINE_BYTES 2048u

struct faults;

struct fault {
	enum fault_kind kind;
	uint64_t ms;
	uint64_t random; /* to choose the bit, the part */
};

/* NULL without memory. No faults until faults_set(). */
struct faults *faults_new(void);
void faults_free(struct faults *faults); /* NULL is allowed */
/* The one of this process, never freed. */
struct faults *faults_global(void);

/* Replaces the line; an empty one ends all faults. -EINVAL with what is allowed. */
int faults_set(struct faults *faults, const char *line, struct err *e) __must_check;

/*
 * Is this call to fail, and how? `where`: bits of the call and its file, `path` (may be NULL) of
 * the file. Delays and stalls are drawn by faults_wait(), before.
 */
struct fault faults_draw(
	struct faults *faults, enum fault_layer layer, unsigned int where, const char *path);
/* The time that this call is to wait before anything else; *ret_stall: a change of the line ends
 * it. */
uint64_t faults_draw_wait(struct faults *faults, enum fault_layer layer, unsigned int where,
	const char *path, bool *ret_stall);
/* Another number for every line. */
uint64_t faults_version(struct faults *faults);
/* Waits so long, or until the line changes. */
void faults_sleep(struct faults *faults, uint64_t ms, bool stall);

/* The line in force, and a line "LAYER.KIND=TIMES" of what happened since it was set. */
int faults_text(struct faults *faults, struct buf *line, struct buf *times) __must_check;
