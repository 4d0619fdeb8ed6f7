/*
 * One request to a worker on its way: the call, the second one that may overtake it, and what they say of
 * their peers (cluster/view.h).
 *
 *	ask ──► peer ........................► answer		the call, the op's one continuation
 *	  │ after the peer's p99, one in fifty at most
 *	  └─────► another that may have it, FETCH_CACHED ──► answer	the hedge, with a reference of its own
 *
 * The first answer counts. The hedge's has its own memory; when it is the first, the call is cancelled, and
 * ends with the hedge's answer in its place.
 *
 * A worker that the master calls down, or that answers nothing at all (view_hangs()), is waited for no longer
 * where another one can be asked.
 *
 * Threads: the client's loop.
 */
#pragma once

#include "client/client_op.h"

/* Asks op->owner; `flags` are the frame's. on_done gets the op as call->arg. */
void client_ask(struct client_op *op, struct rpc_call call);
/* First thing in on_done: what it came to, with the reply in op->call. */
int client_ask_ended(struct client_op *op, int status) __must_check;
/* The op waits for a worker that the master calls down, or that hangs: it is waited for no longer, unless it is
 * connected and no other worker could be asked. Some times a second. */
void client_ask_watch(struct client_op *op);
/* The same of all that are in flight; a view's on_hang. */
void client_ask_hang(void *client);
/* The call of which client_ask_ended() was said: no answer came. A worker that waits for an origin lives;
 * ending, it says so. */
bool client_ask_unanswered(const struct client_op *op, int status);
