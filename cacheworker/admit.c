/* What a token may ask. See admit.h. */
#include "cacheworker/admit.h"
#include "net/allowance.h"
#include "net/identity.h"

static bool may_ask(const struct peer_identity *peer, struct rpc_request *request)
{
	struct frame *frame = &request->frame;

	switch (frame->op) {
	case FRAME_FETCH:
	case FRAME_FETCH_CACHED:
	case FRAME_PREFETCH:
	case FRAME_RECHECK:
	case FRAME_FILE:
	case FRAME_SEAL:
		frame->flags &= (uint8_t)~FRAME_PEER; /* it is no worker: nobody is sent to it */
		return peer_may_read(peer, &frame->volume);
	case FRAME_HELD: /* of its own connection */
		return peer_is_current(peer);
	default: /* the map has chunks of all volumes */
		return false;
	}
}

/* Is it about files, which hold more than a part of the volume, and the token is for a part? */
static bool is_of_files(const struct peer_identity *peer, const struct frame *frame)
{
	struct key_prefixes part;

	return (frame->op == FRAME_FILE || frame->op == FRAME_SEAL) &&
	       peer_reads_part(peer, &frame->volume, &part);
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
	bool may = peer_is_trusted(peer) || may_ask(peer, request);
	bool files = may && is_of_files(peer, &request->frame);
	uint64_t wait_ns = may && !files ? bytes_wait_ns(request) : 0;
	struct err e = ERR_INIT;
	int r;

	if (may && !files && wait_ns == 0)
		return true;
	if (wait_ns)
		r = allowance_refuse(wait_ns, &e);
	else if (request->frame.op == FRAME_MAP)
		r = err_set(&e, -EOPNOTSUPP, "the chunk map is not for tokens");
	else if (may)
		r = err_set(&e, -EOPNOTSUPP,
			"files are not for a token of a part of their source: its bytes are sent");
	else
		r = peer_sees_nothing(&e);
	rpc_reply_err(request, r, &e);
	return false;
}
