/* What becomes of a call that nobody waits for. */
#pragma once

#include <stdatomic.h>
#include "net/net.h"

/* Its call's `arg`; zero to begin with. */
struct call_result {
	_Atomic int n; /* how often the call ended; the rest is written before */
	_Atomic int status;
	char text[256]; /* of the reply, which is released */
};

/* For rpc_call.on_done. */
void call_result_note(struct rpc_call *call, int status);
