#include "tests/unit/net/principals.h"

#include <string.h>
#include <unistd.h>
#include "base/check.h"

struct volume_id volume_number(uint8_t n)
{
	struct volume_id id;

	memset(id.bytes, n, sizeof(id.bytes));
	return id;
}

struct peer_identity peer_of(enum principal principal)
{
	struct peer_identity peer = { .kind = PEER_TOKEN, .claims.expires_s = UINT64_MAX };

	switch (principal) {
	case PRINCIPAL_NONE:
		peer.kind = PEER_UNKNOWN;
		break;
	case PRINCIPAL_CLUSTER:
		peer.kind = PEER_CLUSTER;
		break;
	case PRINCIPAL_LOCAL:
	case PRINCIPAL_OTHER:
		peer.kind = PEER_NODE;
		peer.uid = geteuid() + (principal == PRINCIPAL_OTHER);
		break;
	case PRINCIPAL_TOKEN:
		memset(peer.claims.dataset, 7, sizeof(peer.claims.dataset));
		peer.claims.n_volumes = 2;
		peer.claims.volumes[0] = volume_number(1);
		peer.claims.volumes[1] = volume_number(2);
		peer.claims.prefix_bytes[1] = 2;
		memcpy(peer.claims.prefixes, "a/", 2);
		break;
	case PRINCIPAL_ADMIN:
		peer.claims.admin = true;
		break;
	case PRINCIPALS:
		ensure(false);
	}
	return peer;
}
