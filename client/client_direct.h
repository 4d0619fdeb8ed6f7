/*
 * The last resort, for datasets with `direct: true`: while no worker answers, a mount reads from the origin
 * itself, with the credentials that its own process finds by the source's reference, rate-limited. Every
 * answer is checked against the version that the object table names, as the workers do it; what is read so is
 * cached by the kernel alone.
 *
 *	DOWN for CLIENT_DIRECT_AFTER: no worker that could be asked has answered a read
 *	      ├─► the origin is asked, while every worker's breaker is open
 *	      └─► a breaker lets one read through (cluster/view.h): its answer ends it
 *
 * Threads: the client's loop, unless stated.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/clock.h"
#include "base/err.h"
#include "ufs/ufs.h"

#define CLIENT_DIRECT_AFTER     (2 * CLOCK_SECOND)
#define CLIENT_DIRECT_BANDWIDTH (64ull << 20) /* bytes a second of one source */

struct client;
struct client_op;
struct client_volume;

/* Of a volume. */
struct client_origin {
	_Atomic bool allowed;     /* by the policy of now */
	struct ufs_config config; /* .prefix NULL: of no kind that can be read from here */
	pthread_mutex_t lock;
	struct ufs *ufs;       /* under lock: opened when first needed */
	uint64_t refused_ns;   /* under lock: opening it failed then; 0: not */
	_Atomic uint64_t down; /* since when no worker answers; 0: one does */
};

/* Any thread, before the first read. The config is taken over. */
void client_origin_init(struct client_origin *origin, bool allowed, struct ufs_config *config);
/* The policy changed. Any thread. */
void client_origin_allow(struct client_origin *origin, bool allowed);
/* No read is in flight. */
void client_origin_release(struct client_origin *origin);

/* No worker answered a read; or one did. */
void client_direct_down(struct client_volume *volume);
void client_direct_up(struct client_volume *volume);
/* It is time to ask the origin for this chunk. */
bool client_direct_wanted(struct client_volume *volume, uint64_t chunk);

/*
 * Reads what the op wants of its part into op->buffer, which it has; done(op) follows on the loop, with
 * op->work_status: 0, -ESTALE, or what another attempt may cure. 0, or -EAGAIN: not now.
 */
int client_direct_read(struct client_op *op, void (*done)(struct client_op *op)) __must_check;
/* It is not needed any more: done() follows soon. */
void client_direct_cancel(struct client_op *op);
