/*
 * A timeout for calls that may hang, such as a read of a disk that no longer answers. The call runs on a thread of a pool;
 * its caller waits for it as long as the timeout and then goes on without it. The call keeps its argument, and the
 * thread, until it returns. The pool needs a thread for each call that may hang, or others wait behind those.
 *
 * Threads: any that may block for the timeout.
 */
#pragma once

#include <stdint.h>
#include "base/pool.h"

struct timed_call {
	struct pool *pool; /* borrowed */
	uint64_t timeout_ns;
	int (*run)(void *arg);
	void (*release)(void *arg); /* on the pool's thread, after a run() that timed out */
};

/*
 * run(arg), whose result is returned; `arg` is the caller's again. -ETIMEDOUT: it has not returned; `arg` belongs to the
 * call now, which ends with release(arg). A run() that itself returns -ETIMEDOUT is an -EIO. -ENOMEM, -ECANCELED,
 * -EAGAIN: it was not called.
 */
int timed_call(const struct timed_call *call, void *arg) __must_check;
