/* Requests of readers: FETCH, FETCH_CACHED, PREFETCH, RECHECK, from arrival to reply. */
#pragma once

#include "cacheworker/worker.h"

extern const struct rpc_server_ops fetch_server_ops; /* arg: struct worker */
