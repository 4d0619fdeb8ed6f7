/*
 * The table of a generation from a master that is on another node: the file next to the tier when it
 * is that very one, else pulled from the master into a file next to the tier (net/table_pull.h). Threads: the
 * control pool's.
 */
#pragma once

#include "cacheworker/worker.h"

struct Granary__Generation;

/* `message`: the master's answer about it. *ret_fd is the caller's. -ECANCELED: the worker closes. */
int far_table(struct worker *w, const struct Granary__Generation *message, int *ret_fd,
	struct err *e) __must_check;
