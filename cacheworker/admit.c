/* What a token may ask. See admit.h. */
#include "cacheworker/admit.h"
#include "net/allowance.h"
#include "net/rights.h"

int admit_check(const struct peer_identity *peer, const struct frame *frame, struct err *e)
{
	enum principal principal = principal_of(peer);
	enum right right = rights_of(principal, RIGHTS_WORKER, frame->op);
	struct key_prefixes part;

	if (right == RIGHT_ALL)
		return 0;
	if (frame->op == FRAME_MAP && principal == PRINCIPAL_TOKEN)
		return err_set(e, -EOPNOTSUPP,
			"permission denied: the chunk map is not available with a token");
	if (right == RIGHT_NONE || !peer_may_read(peer, &frame->volume))
		return peer_sees_nothing(e);
	if (right == RIGHT_WHOLE && peer_reads_part(peer, &frame->volume, &part))
		return err_set(e, -EOPNOTSUPP,
			"the token covers a part of the source only, so files are not shared: "
			"bytes are sent");
	return 0;
}

/* ns after which the bytes may be asked for again; 0: now. Whoever is refused asks again, and its connection is read from. */
static uint64_t bytes_wait_ns(const struct rpc_request *request)
{
	const struct frame *frame = &request->frame;

	return frame_op_fetches(frame->op)
		       ? allowance_bytes(rpc_conn_allowance(request->conn), frame->length)
		       : 0;
}

bool admit_request(struct rpc_request *request)
{
	const struct peer_identity *peer = rpc_conn_peer(request->conn);
	struct err e = ERR_INIT;
	int r = admit_check(peer, &request->frame, &e);
	uint64_t wait_ns = r == 0 ? bytes_wait_ns(request) : 0;

	if (wait_ns)
		r = allowance_refuse(wait_ns, &e);
	if (r < 0)
		rpc_reply_err(request, r, &e);
	else if (rights_of(principal_of(peer), RIGHTS_WORKER, FRAME_SEEK) == RIGHT_NONE)
		request->frame.flags &=
			(uint16_t)~FRAME_PEER; /* no worker: others are not sent to it */
	return r == 0;
}
