/*
 * The destinations of one lane (net/lane.h), at the end that asks: memory that the peer may write an answer's bytes into, each from
 * the time when its request is sent until no byte can be written into it any more.
 *
 * An answer has two halves, which come in either order: the header by TCP, and the immediate by RDMA, which follows the bytes. Only
 * when both are there the answer is complete. A header that names no lane says that nothing was written and nothing will be.
 *
 *	FREE		of no request
 *	ASKED		the request was sent, or is about to be
 *	HEADER		its header arrived, its immediate did not
 *	IMMEDIATE	the reverse
 *	QUARANTINED	the request ended before its answer: the peer may still write
 *
 * The cookie of a destination is what the immediate carries: its slot in the upper 16 bits, its generation in the lower 16. The
 * generation changes each time that the slot is freed, and a freed slot is the last to be taken again, so the cookie of an earlier
 * request is recognized.
 *
 * Threads: the loop's of the lane only.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/check.h"

#define LANE_SLOTS_MAX 65535u
/* Of a lane's share: with more than this part of it in quarantine, the lane is to be broken, which frees it. */
#define LANE_QUARANTINE_PART 8u

enum lane_state {
	LANE_FREE,
	LANE_ASKED,
	LANE_HEADER,
	LANE_IMMEDIATE,
	LANE_QUARANTINED,
	LANE_N_STATES,
};

enum lane_event {
	LANE_ON_HEADER,    /* a header that names the lane */
	LANE_ON_ABSENT,    /* a header that names no lane; or the request was never sent */
	LANE_ON_IMMEDIATE, /* by RDMA: all bytes are written */
	LANE_ON_CANCEL, /* the request ended here: cancelled, timed out, or another answer was first */
	LANE_ON_FENCE, /* the queue pair is destroyed: nothing is written any more */
	LANE_N_EVENTS,
};

/* What the event means for the request and its memory. */
enum lane_verdict {
	LANE_WAIT,     /* nothing yet */
	LANE_COMPLETE, /* the bytes are there; the destination is free */
	LANE_RELEASE, /* the destination is free; nothing was written for its request, or no request waits */
	LANE_REPEAT, /* the destination is free; its request is to be sent again, by TCP */
	LANE_BREAK, /* the peer broke the protocol: the lane is to be fenced. The destination is as before */
};

struct lane_slot {
	uint8_t state;
	uint16_t generation;
	uint16_t next; /* free ones: a queue */
	uint32_t bytes;
	void *owner;
};

struct lane_table {
	struct lane_slot *slots;
	uint32_t n;
	uint32_t n_free;
	uint16_t first_free;
	uint16_t last_free;
	uint64_t share;       /* bytes that may be destinations at the same time */
	uint64_t bytes;       /* that are */
	uint64_t quarantined; /* of them */
};

/* `slots` 1..LANE_SLOTS_MAX. -ENOMEM. */
int lane_table_init(struct lane_table *table, uint32_t slots, uint64_t share) __must_check;
void lane_table_release(struct lane_table *table); /* all slots are free */

/* Takes a slot for a request with a destination of `bytes`, 1 or more. -ENOBUFS: no slot is free, or the share is used up; the
 * request then goes without a destination. */
int lane_table_ask(
	struct lane_table *table, void *owner, uint32_t bytes, uint32_t *ret_cookie) __must_check;

/*
 * An event of the destination with this cookie, which for LANE_ON_CANCEL must be that of a request in flight and for
 * LANE_ON_FENCE that of a destination not free. For the others it may be anything a peer can send: one that no destination has is
 * LANE_BREAK, and so is one that cannot follow in its state. *ret_owner: as given to lane_table_ask(); NULL when no
 * destination has the cookie.
 */
enum lane_verdict lane_table_event(struct lane_table *table, uint32_t cookie, enum lane_event event,
	void **ret_owner) __must_check;

/* After the fence: LANE_ON_FENCE for each destination that is not free. `freed` is called with the verdict, LANE_REPEAT or
 * LANE_RELEASE, and may call lane_table_ask() no more. */
void lane_table_fence(struct lane_table *table,
	void (*freed)(void *arg, void *owner, enum lane_verdict verdict), void *arg);

/* Too much is in quarantine: the lane is to be broken. */
bool lane_table_choked(const struct lane_table *table);

/* The state of a destination; LANE_FREE of a cookie that no destination has. */
enum lane_state lane_table_state(const struct lane_table *table, uint32_t cookie);
