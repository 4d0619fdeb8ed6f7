/*
 * A read that pauses before it asks again: ever longer, a few seconds at most. One that waits because no worker
 * could be reached asks at once when somebody is back: when a connection to a worker has come about, or the
 * master has sent a newer table; with others that come soon after, every 10 ms.
 *
 * Threads: the client's loop.
 */
#pragma once

#include "client/client_op.h"

/* No worker could be asked, or the one that was asked went away. */
bool client_back_is_away(int error);
/* BACKOFF, then START: client_fetch_resume(). `error`: why it pauses. Its deadline is not over. */
void client_back_wait(struct client_op *op, int error, uint64_t now_ns);
/* It was cancelled in BACKOFF: waits no more. */
void client_back_leave(struct client_op *op);
/* A worker may be back: a view's on_back. */
void client_back(void *client);
