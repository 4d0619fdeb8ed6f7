/*
 * Who waits for an answer. A thread that was killed may have to wait for it in the kernel all the
 * same; and a signal that a thread handles is no reason to give it an error.
 *
 * Threads: any.
 */
#pragma once

#include <stdint.h>

enum requester {
	REQUESTER_UNKNOWN, /* not to be seen from here: of another user or PID namespace, or gone */
	REQUESTER_LIVES,
	REQUESTER_DIES, /* killed, and not yet dead */
};

/* By /proc; asks nobody who may wait for us. `pid`: a thread's, 0: not known. */
enum requester requester_state(uint32_t pid);
