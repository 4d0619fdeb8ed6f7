/*
 * Herds at this worker: requests of workers that keep copies (FRAME_PEER) of a chunk that it serves, of
 * which it answers some at a time and sends the others to those that were answered (placement/herd.h).
 * What was sent away comes back when it finds nothing there, at last with FRAME_LAST. To this worker, too,
 * others are sent: it answers HERD_GIVES at a time, and no more when it is busy as an owner.
 *
 * What waits is asked about again when its chunk is asked for, when an answer of its chunk was sent, and
 * after a while. It holds no thread and no memory but its request's. The number of chunks that are watched
 * is bounded; of others every request is answered. An answer that takes longer than HERDS_PATIENCE_NS is
 * not counted any more: its reader hangs, and others wait.
 *
 * Threads: any; go() is called on the loop or where an answer ends or a request came, without a lock.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/clock.h"
#include "base/layout.h"
#include "base/list.h"
#include "base/loop.h"
#include "base/map.h"
#include "placement/herd.h"

struct worker;
struct herd_ticket;

#define HERDS_MAX         128u /* chunks; of each HERD_TAKERS are remembered, 97 KiB at most */
#define HERDS_PATIENCE_NS (5 * CLOCK_SECOND)

struct herds {
	pthread_mutex_t lock;
	struct map chunks;
	struct list by_use;  /* the one used longest ago first */
	struct list waiting; /* chunks that are waited for */
	struct list tickets; /* of answers under way, none that hangs; by their beginning */
	uint32_t giving;     /* how many */
	uint64_t patience_ns;
	bool watched; /* the task or the timer is due */
	struct loop_task task;
	struct loop_timer *timer; /* the loop's */
};

/* A request that waits. */
struct herds_wait {
	struct herd_wait wait;
	struct herd_ticket *ticket; /* of HERD_SERVE, as below */
	enum herd_answer answer;    /* HERD_SERVE or HERD_ASK */
	uint16_t worker;            /* of HERD_ASK */
	void (*go)(struct herds_wait *wait);
};

/*
 * HERD_SERVE: it is answered, and *ret_ticket (NULL: of none) is given back afterwards. HERD_ASK: it is sent to
 * *ret_worker. HERD_WAIT: `wait`, whose go() follows, with its answer.
 */
enum herd_answer herds_ask(struct worker *w, const struct chunk_id *id,
	const struct herd_request *request, struct herds_wait *wait,
	struct herd_ticket **ret_ticket, uint16_t *ret_worker);
/* It was sent here by an owner, and what it wants is here. False: this worker sends enough already. Else
 * *ret_ticket, as above. */
bool herds_give(struct worker *w, struct herd_ticket **ret_ticket) __must_check;
/* The answer was sent, or was not. NULL is allowed. */
void herds_leave(struct herd_ticket *ticket, bool served);

int herds_init(struct worker *w) __must_check;
void herds_close(struct worker *w);   /* once all requests are answered; not on the loop */
void herds_release(struct worker *w); /* after the loop's use of it */
