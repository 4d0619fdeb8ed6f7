/*
 * Requests to the mount keeper, on a loop: none holds a thread. At most KEEPER_CALLS_MAX are sent at a time, since the keeper answers
 * few at a time; the rest wait for their turn.
 *
 * Threads: the loop's.
 */
#pragma once

#include <jansson.h>
#include "base/err.h"
#include "base/list.h"
#include "base/loop.h"

#define KEEPER_CALLS_MAX 8u

struct keeper_calls {
	struct loop *loop;
	const char *socket;
	struct list running; /* struct keeper_call */
	struct list waiting;
	unsigned int n_running;
	uint64_t answered_ns; /* the last answer, of whatever kind; 0: none */
};

struct keeper_call;

/* `socket` is borrowed. */
void keeper_calls_init(struct keeper_calls *calls, struct loop *loop, const char *socket);

/*
 * Sends a request with `body` (borrowed; NULL: a GET) and calls done(arg, r, answer, e) once: 0 with the answer, borrowed; the
 * keeper's own error with its line; -ECONNREFUSED: no keeper listens; -ETIMEDOUT: no answer timeout_ns after it was sent. Never before it returns. NULL
 * without memory.
 */
struct keeper_call *keeper_call_start(struct keeper_calls *calls, const char *path,
	const json_t *body, uint64_t timeout_ns,
	void (*done)(void *arg, int r, const json_t *answer, const struct err *e), void *arg);
/* done() is not called any more. The keeper may have got the request. NULL is allowed. */
void keeper_call_cancel(struct keeper_call *call);
