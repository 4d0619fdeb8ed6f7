/*
 * What the commands about workers and slots share. Threads: one.
 */
#pragma once

#include "ctl/master_call.h"

/* "/v1/workers/NAME" and what follows. -EINVAL with a line: no name. */
#define WORKER_PATH_BYTES 160u
int worker_path(const char *name, const char *rest, char out[WORKER_PATH_BYTES],
	struct err *e) __must_check;
/*
 * Of one of "workers", for people: the master's word on him, "up", "down", "out", "draining", "drained"; but "unknown" when he is up for
 * want of any word from him since the master began, and "suspect" when he is up and one of his tiers is not well. Borrowed.
 */
const char *worker_state(const json_t *worker);
