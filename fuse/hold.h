/*
 * A process that does nothing but hold duplicates of descriptors: those of the keeper's mounts, for
 * when keeper and daemon die together. It has no rights, reads nothing of what it holds, and knows
 * only which place a descriptor has.
 *
 *	keeper ──place, descriptors──► holder
 *	   └──dies──► the holder waits for the next keeper, which takes them with pidfd_getfd(2), gives
 *		      them to a holder of its own, and ends this one
 *
 * Without a next keeper it ends after a while, or when no connection is left: then readers get an
 * error, as without it.
 *
 * Threads: the owner's, one at a time.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "base/err.h"

#define HOLD_PLACES 1040u
#define HOLD_FDS    4u /* of a place; the first is a connection, if any is */

struct hold_book; /* what the holder has, in a memory of its own that others can read */

struct hold {
	pid_t pid;  /* 0: there is none, and nothing is held */
	int socket; /* -1 then */
	struct hold_book *book;
	uint64_t token; /* names it, as its number may be given again */
};

/* `hold` is valid in any case. A process is started, which holds on for so long without us. */
int hold_begin(struct hold *hold, uint64_t holds_ns) __must_check;
/* From now on for so long. Nothing without a process. */
void hold_set_time(struct hold *hold, uint64_t holds_ns);
/* It ends, and what it held. */
void hold_end(struct hold *hold);
/* Did it die? Then nothing is held any more, and it can be begun again. */
bool hold_lost(struct hold *hold);

/* Duplicates of fds (-1: none) are held at that place, instead of what was. Never blocks. Nothing
 * without a process. */
int hold_put(struct hold *hold, unsigned int place, const int fds[HOLD_FDS]) __must_check;
void hold_drop(struct hold *hold, unsigned int place);

/* ---- of another process, which has died ------------------------------------------------------ */

struct hold_other {
	int pidfd; /* -1: there is none */
	struct hold_book *book;
};

/* Waits until it has taken all that its owner sent. -ESRCH: it is not there. */
int hold_find(pid_t pid, uint64_t token, struct hold_other *ret_other) __must_check;
/* A duplicate of what it holds; -EBADF: nothing. */
int hold_take(const struct hold_other *other, unsigned int place, unsigned int which,
	int *ret_fd) __must_check;
/* It ends. */
void hold_release(struct hold_other *other);
