/*
 * Who has a descriptor of which chunk. A chunk that is unlinked is not free while a reader on this
 * node has its file open: each descriptor handed out is a hold, which keeps the chunk, and with it
 * its charge, until the reader says that he closed it (FRAME_HELD) or his connection is gone.
 *
 * Holds have numbers that grow. Handing the same chunk out again gives its hold the next number; a
 * reader lets go of a number, which counts only while it is still the chunk's last: an answer under
 * way with a newer one keeps the hold.
 *
 * Bounded: HOLDS_PER_CONN, HOLDS_MAX; past them readers get bytes.
 *
 * Threads: any. `holds.lock` is a leaf; chunks are let go of outside.
 */
#pragma once

#include "cacheworker/worker.h"

#define HOLDS_PER_CONN 4096u
#define HOLDS_MAX      65536u

int holds_init(struct worker *w) __must_check;
void holds_release(struct worker *w);

/* Before the chunk's descriptor goes out as the answer to `request`. 0: it must not. */
uint64_t holds_give(struct worker *w, const struct rpc_request *request, struct chunk *chunk);

/* Answers FRAME_HELD. May close files: not on the loop. */
void holds_answer(struct worker *w, struct rpc_request *request);

/* The connection is gone. On the loop. */
void holds_end(struct worker *w, const struct rpc_conn *conn);
