/*
 * Herds at this worker: requests of workers that keep copies (FRAME_PEER) of a chunk that it serves, of
 * which it answers some at a time and sends the others to those that were answered (placement/herd.h).
 * What was sent away comes back when it finds nothing there, at last with FRAME_LAST.
 *
 * What waits is asked about again when an answer of its chunk was sent, and after a while. It holds no
 * thread and no memory but its request's. The number of chunks that are watched is bounded; of others
 * every request is answered.
 *
 * Threads: any; go() is called on the loop or where an answer ends, without a lock.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/layout.h"
#include "base/list.h"
#include "base/loop.h"
#include "base/map.h"
#include "placement/herd.h"

struct worker;
struct herd_ticket;

#define HERDS_MAX 128u /* chunks; of each 256 takers are remembered, 38 KiB */

struct herds {
	pthread_mutex_t lock;
	struct map chunks;
	struct list by_use;  /* the one used longest ago first */
	struct list waiting; /* struct herd_wait, of all chunks */
	bool watched;        /* the task or the timer is due */
	struct loop_task task;
	struct loop_timer *timer; /* the loop's */
};

/* A request that waits. */
struct herd_wait {
	struct list link;
	struct chunk_id id;
	uint64_t until_ns;
	void (*go)(struct herd_wait *wait); /* it is to ask again */
};

/*
 * HERD_SERVE: it is answered, and *ret_ticket (NULL: of none) is given back afterwards. HERD_ASK: it is sent to
 * *ret_worker. HERD_WAIT: `wait`, whose go() follows.
 */
enum herd_answer herds_ask(struct worker *w, const struct chunk_id *id,
	const struct herd_request *request, struct herd_wait *wait, struct herd_ticket **ret_ticket,
	uint16_t *ret_worker);
/* The answer was sent, or was not. NULL is allowed. */
void herds_leave(struct herd_ticket *ticket, bool served);

int herds_init(struct worker *w) __must_check;
void herds_close(struct worker *w);   /* once all requests are answered; not on the loop */
void herds_release(struct worker *w); /* after the loop's use of it */
