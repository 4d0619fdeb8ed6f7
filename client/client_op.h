/*
 * One read in flight, and its life: taken from the client's table, reported to the caller once, given
 * back when nothing of it is left.
 *
 *	START ──► BUDGET	a read of several parts has no memory to put them together yet
 *	  │ ▲◄──────┘
 *	  │ ├──── WORK ◄──┐	an I/O thread reads the chunk file or checks the bytes
 *	  │ │		  │
 *	  ├─┼───► FETCH ──┤	a worker was asked (for a file that was gone, or sent to another or
 *	  │ │		  │	without an answer: START again)
 *	  ├─┼───► RECHECK │	a worker looks at a piece that did not match here
 *	  │ │	     └────┼──► FETCH, without asking for a descriptor
 *	  │ ├──── NEAR	a range that covers it is in flight
 *	  │ ├──── DIRECT	no worker answers: the origin is asked
 *	  │ └── BACKOFF ◄─┘	the worker is away or busy
 *	  └──► BACKOFF
 *
 * A read has one continuation (a posted task, a call, a job, a timer or a place in a queue) and
 * owns one reference for it; a cancel that was posted owns another. State changes happen on the
 * loop. The caller hears of the end once (`finished`); what is still in flight then ends silently.
 *
 * Threads: as each function says; `state` is the loop's.
 */
#pragma once

#include "client/client_internal.h"
#include "client/client_route.h"
#include "client/client_trace.h"

#define CLIENT_OP_MAGIC 0x434c4f50u
#define CLIENT_PARTS    4 /* chunks and payload limits cut a read into at most 3 */

enum client_op_state {
	OP_START,
	OP_BUDGET,
	OP_RECHECK,
	OP_FETCH,
	OP_WORK,
	OP_DIRECT,
	OP_NEAR,
	OP_BACKOFF,
	OP_ENDED,
};

/* What one FETCH asks for: whole pieces of one chunk, or a gap that needs none. */
struct client_part {
	uint64_t offset;
	uint32_t length;
	bool gap;
};

/* A second request for what the first does not answer (client_ask.h). */
struct client_hedge {
	struct rpc_call call;
	struct view_peer *peer;
	struct loop_timer *timer;
	uint64_t asked_ns;
	bool out;    /* `call` is in flight, and has a reference */
	bool wanted; /* so is the first one */
	bool won;    /* its answer is in `call`; the first one is being cancelled */
};

struct client_op {
	uint32_t magic;
	enum client_op_state state; /* the loop's */
	struct list link;           /* client.active or client.ops_free; under client.lock */
	struct client_volume *volume;
	struct client_read *read; /* the caller's: not looked at once finished */
	uint64_t offset;
	uint32_t length;
	unsigned int refs; /* under client.lock, with the next two */
	bool finished;     /* on_done was called, or is being called */
	bool cancel_posted;
	struct loop_task task; /* the next step */
	struct loop_task cancel_task;
	struct list waiter; /* client.budget_waiters, client.away, or of a window (client_near.h) */
	struct loop_timer *timer;
	struct pool_job job;
	struct rpc_call call;
	struct view_peer *owner; /* that was asked last */
	struct client_route route;
	struct client_hedge hedge;
	struct client_direct *direct; /* in state DIRECT */
	uint64_t asked_ns;
	int asked_status; /* what the last call to a worker came to */
	bool downed;      /* the master calls `owner` down: not waited for */

	struct client_part parts[CLIENT_PARTS];
	uint32_t n_parts; /* 0: not planned yet */
	uint32_t part;
	uint8_t *buffer; /* of several parts; `length` bytes out of the budget */

	uint64_t started_ns;
	uint64_t deadline_ns;
	uint64_t entered_ns; /* its state */
	struct client_trace *trace;
	uint32_t attempts; /* without an answer since the last progress */
	uint32_t backs;    /* client.backs when the last one began */
	uint32_t bad_answers;
	bool doubted; /* the last one's bytes did not match: who is asked next looks at them first */
	uint32_t bad_files; /* descriptors that did not give the bytes */
	bool no_local;      /* asks for bytes: the file did not do */
	bool no_file;       /* the map's word was not good: asks for the range */
	bool no_recheck; /* the worker to which damage is reported is not there: this attempt goes on without */
	bool exact; /* the read's */
	bool peek;  /* likewise */
	bool logged;
	bool no_worker; /* answers: the origin is asked */
	int last_error;

	/* The answer being worked on: */
	uint8_t *payload;
	uint64_t charged; /* for the payload */
	uint32_t checksums;
	int fd;
	int work_status;
};

struct client_buffer {
	struct list link;
	uint8_t *data;
};

/* Allocates what reads need, once. -ENOMEM. */
int client_ops_init(struct client *client, unsigned int io_threads) __must_check;
/* No read may be in flight. */
void client_ops_release(struct client *client);
/* Marks the volume as closing and ends its reads with -ECANCELED, soon. Any thread. */
void client_ops_cancel_all(struct client_volume *volume);
/* The volume goes: another one may come to lie where it was. Under client.lock. */
void client_ops_forget_locked(struct client_volume *volume);

static inline struct client *client_op_client(const struct client_op *op)
{
	return op->volume->client;
}

/* On the loop. Asserts that the states follow one another. */
void client_op_set_state(struct client_op *op, enum client_op_state state);

/* Calls the caller back, unless that was done before. Any thread. */
void client_op_finish(struct client_op *op, int status, const void *data);
/* Ends the continuation. The caller does not touch the op afterwards. Any thread. */
void client_op_release(struct client_op *op);
/* On the loop: called back and ended. */
void client_op_end(struct client_op *op, int status, const void *data);
/* True when there is nothing left to do for the caller; the continuation is ended then. On the
 * loop. */
bool client_op_over(struct client_op *op) __must_check;
/* Gives up a reference. Any thread. */
void client_op_unref(struct client_op *op);
/* Frees the answer and gives its bytes back to the budget. */
void client_op_drop_answer(struct client_op *op);

/* One for each I/O thread, so there always is one. */
struct client_buffer *client_buffer_take(struct client *client);
void client_buffer_give(struct client *client, struct client_buffer *buffer); /* NULL is allowed */

/* client_plan.c: cuts the read into parts. Looks up the table: any thread but the loop. -EBADMSG:
 * the table is damaged; -ESTALE: see client_volume_named_only(). */
int client_plan(struct client_op *op) __must_check;
/* The part being worked on. */
const struct client_part *client_plan_part(const struct client_op *op);
/* The bytes of that part that the caller asked for. */
void client_plan_wanted(const struct client_op *op, uint64_t *ret_from, uint32_t *ret_length);

/* client_answer.c: checks the answer and puts its bytes where they belong; *ret_data is the wanted
 * part of them. `buffer` is for an answer with a descriptor. -EBADMSG: they do not match; -EAGAIN:
 * the file has not all of them. */
int client_answer_work(
	struct client_op *op, struct client_buffer *buffer, const void **ret_data) __must_check;

/* client_fetch.c: the first step, as a task; and the end of the timers, on the loop. */
void client_fetch_run(struct loop_task *task);
/* On the loop: it waits no more, and goes on. */
void client_fetch_resume(struct client_op *op);
void client_fetch_stop(void *client);
