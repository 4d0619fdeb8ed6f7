/*
 * What the commands about workers and slots share. Threads: one.
 */
#pragma once

#include "ctl/master_call.h"

/* "/v1/workers/NAME" and what follows. -EINVAL with a line: no name. */
#define WORKER_PATH_BYTES 160u
int worker_path(const char *name, const char *rest, char out[WORKER_PATH_BYTES],
	struct err *e) __must_check;
/* Of a failed call: an exit status. */
int worker_exit(int r);
