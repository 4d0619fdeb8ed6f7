/* What a token may ask. See rights.h. */
#include "master/rights.h"
#include "net/identity.h"
#include "proto/granary.pb-c.h"

#include <string.h>
#include <unistd.h>

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

static bool may_ask(const struct peer_identity *peer, const struct rpc_request *request)
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
	case FRAME_GET_SLOTS:
	case FRAME_ADMIN: /* which asks for itself */
		return peer_is_current(peer);
	default:
		return false;
	}
}

bool rights_local(const struct peer_identity *peer)
{
	return peer->kind == PEER_NODE && (peer->uid == 0 || peer->uid == geteuid());
}

int rights_join(const struct peer_identity *peer, struct err *e)
{
	if (peer->kind != PEER_NODE || rights_local(peer))
		return 0;
	return err_set(e, -EPERM,
		"user %u may not run a worker of this cluster: root and the master's own user (%u) "
		"may",
		peer->uid, geteuid());
}

bool rights_contradict(const struct peer_identity *peer)
{
	return peer->kind == PEER_CLUSTER || rights_local(peer);
}

bool rights_admit(struct rpc_request *request)
{
	const struct peer_identity *peer = rpc_conn_peer(request->conn);
	struct err e = ERR_INIT;
	int r = request->frame.op == FRAME_JOIN ? rights_join(peer, &e) : 0;

	if (r < 0) {
		rpc_reply_err(request, r, &e);
		return false;
	}
	if (peer_is_trusted(peer) || may_ask(peer, request))
		return true;
	rpc_reply_err(request, peer_sees_nothing(&e), &e);
	return false;
}
