/*
 * The lanes of a process (net/lane.h): which implementation, and the memory that answers pass through. Both ends copy once: bytes
 * to be written are gathered in memory that is registered, and what was written is copied to where the caller has it.
 *
 * Threads: any, but for start and stop.
 */
#pragma once

#include "net/lane.h"

#define LANES_SLOT_BYTES (1u << 20)  /* one answer */
#define LANES_LEAST      (16u << 10) /* shorter answers go by TCP */
#define LANES_WANT       (64u << 10) /* the first request as long as that opens a lane */

struct lanes_options {
	const struct lane_ops *ops;
	unsigned int
		slots; /* of each kind: answers that are received, and sent, at the same time */
};

/* Once, before the first connection. -ENOMEM. Memory is mapped, and takes pages when a device registers it. */
int lanes_start(const struct lanes_options *options) __must_check;
/* After the last connection. */
void lanes_stop(void);
/* NULL: this process has no lanes. */
const struct lane_ops *lanes_ops(void);

/* Memory for one answer: LANE_LAND or LANE_SERVE. NULL: all is in use. */
void *lanes_take(unsigned int domain);
void lanes_give(unsigned int domain, void *slot);
/* Slots in use. */
unsigned int lanes_used(unsigned int domain);
