/*
 * A client proves its identity by an HMAC with its key over a value that is unique to the connection. Servers prove theirs by the
 * cluster's certificate, inside TLS (tls.c); on unix sockets the kernel knows the user of the peer.
 *
 * An identity is "c:KEYID(4 bytes)NONCE" of a process with the cluster key, "t:CLAIMS" of one with a token. The nonce identifies
 * the process: a process that is connected to itself by a man in the middle refuses its own.
 *
 *	proof = HMAC-SHA256(key of the identity, label | 1: TLS, 2: unix socket | binding | identity)
 *
 * The label names the role: servers send no proof, and clients accept none. Over TLS the binding depends on this handshake and
 * on the certificate shown in it, so that a proof is worthless on any other connection.
 */
#include "net/keys_internal.h"
#include "base/hash.h"
#include "base/little.h"

#include <string.h>

#define HEAD          2u
#define CLUSTER_BYTES (HEAD + 4u + KEYS_NONCE_BYTES)

static const uint8_t cluster_head[HEAD] = { 'c', ':' };
static const uint8_t token_head[HEAD] = { 't', ':' };

bool net_debug_self;

size_t identity_own(const struct keyring *ring, uint8_t out[IDENTITY_MAX])
{
	_Static_assert(CLUSTER_BYTES <= IDENTITY_MAX, "fits");
	if (ring->n_cluster > 0) {
		memcpy(out, cluster_head, HEAD);
		little_put32(out + HEAD, ring->cluster[0].id);
		memcpy(out + HEAD + 4, keys_nonce(), KEYS_NONCE_BYTES);
		return CLUSTER_BYTES;
	}
	memcpy(out, token_head, HEAD);
	memcpy(out + HEAD, ring->token.packed, ring->token.packed_len);
	return HEAD + ring->token.packed_len;
}

static void prove(const struct proof_channel *channel, const uint8_t key[KEY_BYTES],
	const void *identity, size_t len, uint8_t out[HELLO_PROOF_BYTES])
{
	static const char label[] = "granary 2 client's proof";
	uint8_t text[sizeof(label) + 1 + PROOF_BINDING_BYTES + IDENTITY_MAX];
	uint8_t *at = text;

	_Static_assert(IDENTITY_MAX <= HELLO_IDENTITY_MAX, "a greeting holds it");
	_Static_assert(HELLO_PROOF_BYTES == SHA256_BYTES, "the same");
	ensure(len <= IDENTITY_MAX);
	at = mempcpy(at, label, sizeof(label));
	*at++ = channel->tls ? 1 : 2;
	at = mempcpy(at, channel->binding, PROOF_BINDING_BYTES);
	at = mempcpy(at, identity, len);
	hash_hmac_sha256(key, KEY_BYTES, text, (size_t)(at - text), out);
}

void proof_own(const struct proof_channel *channel, uint8_t out[HELLO_PROOF_BYTES])
{
	const struct keyring *ring = channel->ring;
	uint8_t identity[IDENTITY_MAX];
	size_t len = identity_own(ring, identity);

	prove(channel, ring->n_cluster > 0 ? ring->cluster[0].proving : ring->token.key, identity,
		len, out);
}

static int find_cluster(
	const struct keyring *ring, const uint8_t *identity, size_t len, uint8_t ret_key[KEY_BYTES])
{
	if (len != CLUSTER_BYTES || (!net_debug_self && memcmp(identity + HEAD + 4, keys_nonce(),
								KEYS_NONCE_BYTES) == 0))
		return -EKEYREJECTED;
	for (unsigned int i = 0; i < ring->n_cluster; i++)
		if (ring->cluster[i].id == little_get32(identity + HEAD)) {
			memcpy(ret_key, ring->cluster[i].proving, KEY_BYTES);
			return 0;
		}
	return -EKEYREJECTED;
}

int proof_expected(const struct proof_channel *channel, const void *identity, size_t len,
	struct peer_identity *ret_peer, uint8_t ret_proof[HELLO_PROOF_BYTES])
{
	struct peer_identity peer = { .uid = (uint32_t)-1 };
	const uint8_t *bytes = identity;
	uint8_t key[KEY_BYTES];
	int r = -EKEYREJECTED;

	if (len > HEAD && len <= IDENTITY_MAX && memcmp(bytes, cluster_head, HEAD) == 0) {
		peer.kind = PEER_CLUSTER;
		r = find_cluster(channel->ring, bytes, len, key);
	} else if (len > HEAD && len <= IDENTITY_MAX && memcmp(bytes, token_head, HEAD) == 0) {
		peer.kind = PEER_TOKEN;
		r = token_check(channel->ring, bytes + HEAD, len - HEAD, &peer.claims, key);
	}
	if (r < 0)
		return r;
	prove(channel, key, identity, len, ret_proof);
	explicit_bzero(key, sizeof(key));
	*ret_peer = peer;
	return 0;
}
