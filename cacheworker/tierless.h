/*
 * A worker whose tiers cannot be opened, started with --serve-without-tier: it has none, readers get
 * their bytes from the origin, and it ends as by SIGTERM as soon as the tiers can be opened, so that
 * whoever keeps it running starts it with them.
 *
 * Threads: a periodic work of the worker, between start and stop.
 */
#pragma once

#include "cacheworker/worker.h"

/* May a worker do without a tier that failed to open with this status? Not where another process
 * has it, or where what was asked for makes no sense. */
bool tierless_may(int status);

void tierless_start(struct worker *w);
void tierless_stop(struct worker *w); /* also when not started */
