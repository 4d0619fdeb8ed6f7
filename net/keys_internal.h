/*
 * The keys of this process (net/identity.h) for its connections: an immutable ring, which is replaced as a whole when the files
 * are read again. A reference keeps it alive.
 *
 * Derived from a cluster key K, each by HMAC-SHA256(K, text): the key of clients' proofs, the key that signs tokens, and the seed
 * of the servers' certificate. K itself is not stored.
 *
 * Claims on the wire, little-endian:
 *
 *	 0  version u8 = 3   1  flags u8 (1: admin)   2  number of volumes u8   3  0
 *	 4  key id u32       8  expires u64 (seconds since 1970)
 *	16  dataset 16      32  serial 8
 *	40  of each volume: its id 16, length of its prefix u16 (0: all objects); then the prefixes
 *
 * Version 1 had volumes without prefixes, version 2 came without a pin: such tokens are refused.
 *
 * Threads: any.
 */
#pragma once

#include <stddef.h>
#include <stdatomic.h>
#include "base/cleanup.h"
#include "net/identity.h"
#include "proto/hello.h"

#define KEY_BYTES         32u
#define TOKEN_CLAIMS_HEAD 40u
#define TOKEN_CLAIM_BYTES 18u /* of a volume, without its prefix */
#define TOKEN_CLAIMS_MAX \
	(TOKEN_CLAIMS_HEAD + TOKEN_CLAIM_BYTES * TOKEN_VOLUMES_MAX + TOKEN_PREFIX_BYTES)
#define KEYS_NONCE_BYTES    8u
#define IDENTITY_MAX        (2u + TOKEN_CLAIMS_MAX)
#define PROOF_BINDING_BYTES 32u

struct x509_st;
struct evp_pkey_st;

/* Of all servers of a cluster, derived from a seed that they share. */
struct certificate {
	struct x509_st *x509;
	struct evp_pkey_st *key_pair;
	uint8_t pin
		[PIN_BYTES]; /* SHA-256 of its public key as X.509 encodes it (SubjectPublicKeyInfo) */
};

struct cluster_key {
	uint32_t id;
	uint8_t proving[KEY_BYTES];
	uint8_t signing[KEY_BYTES];
	struct certificate certificate;
};

struct token {
	struct token_claims claims;
	uint8_t packed[TOKEN_CLAIMS_MAX];
	size_t packed_len;
	uint8_t key[KEY_BYTES]; /* K_t */
	uint8_t pin[PIN_BYTES]; /* of the key that signed it */
};

struct keyring {
	_Atomic unsigned int refs;
	struct cluster_key cluster[KEYS_MAX];
	unsigned int n_cluster;
	struct token token;
	bool has_token;
	bool encrypt_data;
};

/* The ring in use; NULL: no keys are loaded. */
struct keyring *keyring_get(void);
void keyring_unref(struct keyring *ring);
DEFINE_CLEANUP(struct keyring *, keyring_unref);
/* Is anything loaded? */
bool net_keys_any(void);
/* Random, and unique to this process. */
const uint8_t *keys_nonce(void);
/* The key that this process uses as a client, and the pin of the servers that have it. */
void keyring_in_use(const struct keyring *ring, uint32_t *ret_id, const uint8_t **ret_pin);
/* The line for a server that refused the identity of this process (-EKEYREJECTED), or did not prove its own (-EKEYREVOKED,
 * -EPFNOSUPPORT). */
void keys_explain_refusal(const char *address, int status, struct err *e);

/* ---- certificate.c --------------------------------------------------------------------------- */

/* The same certificate for the same seed. -ENOMEM. */
int certificate_init(struct certificate *certificate, const uint8_t seed[KEY_BYTES]) __must_check;
/* It and its private key as PEM, as net_keys_pem(). -ENOMEM. */
int certificate_pem(
	const struct certificate *certificate, char **ret_certificate, char **ret_key) __must_check;
void certificate_release(struct certificate *certificate);
/* The pin of a certificate. -ENOMEM. */
int certificate_pin(struct x509_st *x509, uint8_t ret_pin[PIN_BYTES]) __must_check;

/* ---- proof.c --------------------------------------------------------------------------------- */

/* For tests: a process may connect to itself. */
extern bool net_debug_self;

/* What proofs of one connection depend on. */
struct proof_channel {
	struct keyring *ring;
	bool tls;
	/* Unique to the connection. TLS: keying material that both ends export when the handshake is done. Unix socket: the
	 * client's nonce, then the server's. */
	uint8_t binding[PROOF_BINDING_BYTES];
};

/* The identity of this process as a client; returns its length. */
size_t identity_own(const struct keyring *ring, uint8_t out[IDENTITY_MAX]);
/* The proof of that identity. */
void proof_own(const struct proof_channel *channel, uint8_t out[HELLO_PROOF_BYTES]);
/* Who the client is if it sends *ret_proof. -EKEYREJECTED: a key that this ring does not have, an expired token, or this
 * process itself. */
int proof_expected(const struct proof_channel *channel, const void *identity, size_t len,
	struct peer_identity *ret_peer, uint8_t ret_proof[HELLO_PROOF_BYTES]) __must_check;

/* ---- token.c --------------------------------------------------------------------------------- */

/* Packs; the length. */
size_t token_pack(const struct token_claims *claims, uint8_t out[TOKEN_CLAIMS_MAX]);
/* -EBADMSG. */
int token_unpack(const void *data, size_t len, struct token_claims *ret_claims) __must_check;
/* K_t of packed claims. */
void token_key(
	const struct cluster_key *key, const void *packed, size_t len, uint8_t out[KEY_BYTES]);
/* A token file's line -> token; -EINVAL with a line that names `path`. */
int token_parse(
	const char *path, const char *text, struct token *ret_token, struct err *e) __must_check;
/* Unpacks claims and computes their K_t, which the client has to prove. -EKEYREJECTED: malformed, expired, or signed with a key
 * that this ring does not have. */
int token_check(const struct keyring *ring, const void *packed, size_t len,
	struct token_claims *ret_claims, uint8_t ret_key[KEY_BYTES]) __must_check;
