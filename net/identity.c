/* What who is at the other end may do. See identity.h. */
#include "net/identity.h"
#include "base/clock.h"

#include <string.h>

bool peer_is_current(const struct peer_identity *peer)
{
	return peer->kind != PEER_TOKEN || peer->claims.expires_s > clock_wall_ns() / CLOCK_SECOND;
}

bool peer_may_read(const struct peer_identity *peer, const struct volume_id *volume)
{
	bool found = false;

	if (peer->kind != PEER_TOKEN)
		return peer_is_trusted(peer);
	for (uint32_t i = 0; i < peer->claims.n_volumes;
		i++) /* all, whatever is found: takes the same time */
		found |= volume_id_equal(&peer->claims.volumes[i], volume);
	return found && peer_is_current(peer);
}

bool peer_may_open(const struct peer_identity *peer, const uint8_t dataset[TOKEN_DATASET_BYTES])
{
	return peer_is_trusted(peer) ||
	       (peer->kind == PEER_TOKEN && !peer->claims.admin &&
		       memcmp(peer->claims.dataset, dataset, TOKEN_DATASET_BYTES) == 0 &&
		       peer_is_current(peer));
}

bool peer_is_trusted(const struct peer_identity *peer)
{
	return peer->kind == PEER_NODE || peer->kind == PEER_CLUSTER;
}

bool peer_may_admin(const struct peer_identity *peer)
{
	return peer_is_trusted(peer) ||
	       (peer->kind == PEER_TOKEN && peer->claims.admin && peer_is_current(peer));
}
