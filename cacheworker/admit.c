/* What a token may ask. See admit.h. */
#include "cacheworker/admit.h"
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

bool admit_request(struct rpc_request *request)
{
	const struct peer_identity *peer = rpc_conn_peer(request->conn);
	struct err e = ERR_INIT;
	int r;

	if (peer_is_trusted(peer) || may_ask(peer, request))
		return true;
	r = request->frame.op == FRAME_MAP
		    ? err_set(&e, -EOPNOTSUPP, "the chunk map is not for tokens")
		    : err_set(&e, -ENXIO,
			      "there is no such dataset or source for this token: mount with one "
			      "of its own");
	rpc_reply_err(request, r, &e);
	return false;
}
