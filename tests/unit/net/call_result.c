#include "tests/unit/net/call_result.h"

#include <stdio.h>

void call_result_note(struct rpc_call *call, int status)
{
	struct call_result *result = call->arg;

	result->status = status;
	(void)snprintf(result->text, sizeof(result->text), "%s",
		call->reply_payload ? (const char *)call->reply_payload : "");
	rpc_call_release(call);
	result->n++;
}
