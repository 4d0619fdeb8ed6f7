/* What a token may ask. See rights.h. */
#include "master/rights.h"
#include "net/rights.h"
#include "proto/granary.pb-c.h"

#include <string.h>

static bool may_read(const struct peer_identity *peer, ProtobufCBinaryData volume)
{
	struct volume_id id;

	if (volume.len != VOLUME_ID_LEN)
		return false;
	memcpy(id.bytes, volume.data, VOLUME_ID_LEN);
	return peer_may_read(peer, &id);
}

/* A source of its dataset, with nothing set. */
static bool may_open(const struct peer_identity *peer, const struct rpc_request *request)
{
	Granary__OpenSource *m =
		granary__open_source__unpack(NULL, request->frame.payload, request->payload);
	bool may = m && !m->source && !m->policy && m->dataset.len == TOKEN_DATASET_BYTES &&
		   peer_may_open(peer, m->dataset.data) &&
		   (m->volume.len == 0 || may_read(peer, m->volume));

	if (m)
		granary__open_source__free_unpacked(m, NULL);
	return may;
}

static bool may_get_table(const struct peer_identity *peer, const struct rpc_request *request)
{
	Granary__GetTable *m =
		granary__get_table__unpack(NULL, request->frame.payload, request->payload);
	bool may = m && may_read(peer, m->volume);

	if (m)
		granary__get_table__free_unpacked(m, NULL);
	return may;
}

static bool may_hold(const struct peer_identity *peer, const struct rpc_request *request)
{
	Granary__Hold *m = granary__hold__unpack(NULL, request->frame.payload, request->payload);
	bool may = m && may_read(peer, m->volume) &&
		   (m->dataset.len == 0 || (m->dataset.len == TOKEN_DATASET_BYTES &&
						   peer_may_open(peer, m->dataset.data)));

	if (m)
		granary__hold__free_unpacked(m, NULL);
	return may;
}

/* Is it about what its token names? */
static bool is_of_own(const struct peer_identity *peer, const struct rpc_request *request)
{
	switch (request->frame.op) {
	case FRAME_OPEN_SOURCE:
	case FRAME_REFRESH:
		return may_open(peer, request);
	case FRAME_GET_TABLE:
		return may_get_table(peer, request);
	case FRAME_TABLE:
		return peer_may_read(peer, &request->frame.volume);
	case FRAME_HOLD:
		return may_hold(peer, request);
	case FRAME_ADMIN: /* which asks for itself */
		return true;
	default:
		return false;
	}
}

bool rights_contradict(const struct peer_identity *peer)
{
	return peer->kind == PEER_CLUSTER || peer_is_local(peer);
}

int rights_check(const struct peer_identity *peer, const struct rpc_request *request, struct err *e)
{
	enum right right = rights_of(principal_of(peer), RIGHTS_MASTER, request->frame.op);

	if (right == RIGHT_ALL || (right != RIGHT_NONE && is_of_own(peer, request)))
		return 0;
	return peer_sees_nothing(e);
}

bool rights_admit(struct rpc_request *request)
{
	struct err e = ERR_INIT;
	int r = rights_check(rpc_conn_peer(request->conn), request, &e);

	if (r < 0)
		rpc_reply_err(request, r, &e);
	return r == 0;
}
