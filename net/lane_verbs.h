/*
 * Lanes by libibverbs: RoCE cards, and soft RoCE (rdma_rxe). Queue pairs without librdmacm: what each end must know of the other goes by
 * TLS. A device is opened when the first lane with one of its addresses is.
 *
 * Everything of a device but posting and polling is done by the jobs of one pool, one at a time: open, register, create, modify,
 * destroy, asynchronous events, and once a second a check that the device is there. A removed device announces nothing, and its
 * removal hangs until its last object is destroyed: its lanes break with LANE_REMOVED_CAUSE, and with the last of them it is released.
 *
 * A process that has opened a device forks only to exec: a child that does not keeps the queue pairs of its parent alive.
 */
#pragma once

#include "net/lane.h"

struct lane_verbs_options {
	const char *devices; /* names, separated by commas; NULL: all */
	int gid_index;       /* -1: by the address of the connection */
	unsigned int traffic_class;
	unsigned int timeout; /* of a packet: 4.096 us * 2^timeout; 1..31; 0: 12 */
};

/* Once, before the first lane or memory, and before other threads, as it sets an environment variable of libibverbs. -ENOMEM. Opens
 * nothing yet. */
int lane_verbs_start(const struct lane_verbs_options *options) __must_check;
/* After the last lane was closed and all memory removed. */
void lane_verbs_stop(void);

extern const struct lane_ops lane_verbs;
