/*
 * A mount of the fuse engine that shows the newest generation without another superblock: the
 * daemon's names are exchanged first, then the kernel is told of each that differs. What is bound
 * elsewhere, and who works in there, moves on too; what is open stays.
 *
 * A daemon that is killed on the way has a successor that finds in the slots what is shown, and
 * tells the kernel once more (struct slots_live).
 *
 * Threads: live_move() and live_pending() follow.c's; live_renew() the main thread; live_stop() any;
 * all others before and after those.
 */
#pragma once

#include <stdbool.h>
#include "fuse/daemon/cachefuse.h"

struct live;

/* What a predecessor switched to and did not write down whole. Before anything looks at the slots. */
void live_adopt(struct slots *slots);
/* c->live, where the mount is. -ENOMEM. */
int live_open(struct cachefuse *c) __must_check;
void live_close(struct cachefuse *c);

/*
 * Shows the newest generation, if it is another one. An error has a line: to be called again. `why` as
 * mounter_newer() has it.
 */
int live_move(struct cachefuse *c, char why[ERR_TEXT_MAX], struct err *e) __must_check;
/* The kernel is still to be told: live_move() does. Closes what is not read any more. */
bool live_pending(struct cachefuse *c);
/* live_move() is to end soon. */
void live_stop(struct cachefuse *c);
/* Older generations that are held. */
void live_renew(struct cachefuse *c);
