/*
 * Requests of readers: FETCH, FETCH_CACHED, SEEK, PREFETCH, RECHECK, from arrival to reply.
 *
 * Threads: they arrive and are cancelled on the net loop; the rest is said in fetch.c.
 */
#pragma once

#include "cacheworker/worker.h"

extern const struct rpc_server_ops fetch_server_ops; /* arg: struct worker */
