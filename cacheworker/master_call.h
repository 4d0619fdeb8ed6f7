/*
 * Requests of the worker to its master: waited for on the calling thread, which is not a loop's, or not.
 */
#pragma once

#include "cacheworker/worker.h"

struct master_answer {
	struct frame reply;
	void *payload; /* malloc'ed with a NUL behind it, or NULL */
	int fd;        /* -1: none */
};

/*
 * Sends `payload`, which is only read, and waits. Not rpc_call_wait(): once sources_close() was
 * called no call begins (-ECANCELED), and after the call's end the client, which may be freed by
 * then, is not touched. *ret_answer is written in any case: master_answer_release().
 */
int master_call(struct worker *w, struct frame frame, const void *payload, size_t len,
	uint64_t patience_ns, struct master_answer *ret_answer, struct err *e) __must_check;
/* Likewise; ends at once when there is no master, with an answer that is none (not FRAME_REPLY). */
int master_call_hurry(struct worker *w, struct frame frame, const void *payload, size_t len,
	uint64_t patience_ns, struct master_answer *ret_answer, struct err *e) __must_check;
void master_answer_release(struct master_answer *answer);

/* A request that holds no thread. */
struct master_ask {
	void (*on_answer)(
		struct master_ask *ask); /* set by the caller; on the loop, once. Does not block. */
	/* Private: */
	struct rpc_call call;
	int status;
};
/* 0: on_answer() follows, before the client of the master is gone at the latest; then master_ask_end(). Else it does not: -ENOMEM;
 * -ECANCELED: the worker closes. */
int master_ask(struct worker *w, struct frame frame, const void *payload, size_t len,
	uint64_t patience_ns, bool hurry, struct master_ask *ask) __must_check;
/* The outcome, as of master_call(). */
int master_ask_end(struct worker *w, struct master_ask *ask, struct master_answer *ret_answer,
	struct err *e) __must_check;
