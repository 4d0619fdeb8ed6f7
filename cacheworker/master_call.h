/*
 * One question of the worker to its master, waited for on the calling thread, which is not a loop's.
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
