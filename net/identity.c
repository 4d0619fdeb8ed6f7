/* What who is at the other end may do. See identity.h. */
#include "net/identity.h"
#include "base/clock.h"

#include <string.h>
#include <unistd.h>

bool peer_is_current(const struct peer_identity *peer)
{
	return peer_is_trusted(peer) ||
	       (peer->kind == PEER_TOKEN &&
		       peer->claims.expires_s > clock_wall_ns() / CLOCK_SECOND);
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

bool peer_reads_part(const struct peer_identity *peer, const struct volume_id *volume,
	struct key_prefixes *ret_part)
{
	const struct token_claims *claims = &peer->claims;
	struct key_prefixes part = { 0 };
	const char *text = claims->prefixes;
	bool whole = peer->kind != PEER_TOKEN;

	for (uint32_t i = 0; i < claims->n_volumes && !whole; i++) {
		const struct key_prefix prefix = { text, claims->prefix_bytes[i] };

		text += prefix.len;
		if (!volume_id_equal(&claims->volumes[i], volume))
			continue;
		whole = prefix.len == 0;
		part.all[part.n++] = prefix;
	}
	if (whole)
		return false;
	key_prefixes_sort(&part);
	*ret_part = part;
	return true;
}

bool peer_has_part(const struct peer_identity *peer)
{
	bool part = false;

	for (uint32_t i = 0; peer->kind == PEER_TOKEN && i < peer->claims.n_volumes; i++)
		part |= peer->claims.prefix_bytes[i] > 0;
	return part;
}

int peer_sees_nothing(struct err *e)
{
	return err_set(
		e, -ENXIO, "no such dataset or source for this token: mount one that it covers");
}

bool peer_may_open(const struct peer_identity *peer, const uint8_t dataset[TOKEN_DATASET_BYTES])
{
	return peer_is_trusted(peer) ||
	       (peer->kind == PEER_TOKEN && !peer->claims.admin &&
		       memcmp(peer->claims.dataset, dataset, TOKEN_DATASET_BYTES) == 0 &&
		       peer_is_current(peer));
}

bool peer_is_local(const struct peer_identity *peer)
{
	return peer->kind == PEER_NODE && (peer->uid == 0 || peer->uid == geteuid());
}

bool peer_is_trusted(const struct peer_identity *peer)
{
	return peer->kind == PEER_NODE || peer->kind == PEER_CLUSTER;
}
