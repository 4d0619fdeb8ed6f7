/*
 * The keys of this process (net/identity.h) as connections use them: an immutable ring, replaced as a
 * whole when the files are read again. Who holds one keeps it alive.
 *
 * Made of a cluster key K, each with HMAC-SHA256(K, text): the PSK of connections between daemons, and the
 * key that signs tokens. K itself is in the file alone.
 *
 * Claims on the wire, little-endian; the identity of a token's PSK is "t:" and these:
 *
 *	 0  version u8 = 2   1  flags u8 (1: admin)   2  number of volumes u8   3  0
 *	 4  key id u32       8  expires u64 (seconds since 1970)
 *	16  dataset 16      32  serial 8
 *	40  of each volume: its id 16, length of its prefix u16 (0: all objects); then the prefixes
 *
 * Version 1 had volumes without prefixes: such tokens are refused.
 *
 * Threads: any.
 */
#pragma once

#include <stddef.h>
#include <stdatomic.h>
#include "net/identity.h"
#include "proto/hello.h"

#define KEY_BYTES         32u
#define KEYS_MAX          2u
#define TOKEN_CLAIMS_HEAD 40u
#define TOKEN_CLAIM_BYTES 18u /* of a volume, without its prefix */
#define TOKEN_CLAIMS_MAX \
	(TOKEN_CLAIMS_HEAD + TOKEN_CLAIM_BYTES * TOKEN_VOLUMES_MAX + TOKEN_PREFIX_BYTES)
#define KEYS_NONCE_BYTES 8u

struct cluster_key {
	uint32_t id;
	uint8_t psk[KEY_BYTES];
	uint8_t signing[KEY_BYTES];
};

struct token {
	struct token_claims claims;
	uint8_t packed[TOKEN_CLAIMS_MAX];
	size_t packed_len;
	uint8_t key[KEY_BYTES]; /* K_t */
};

struct keyring {
	_Atomic unsigned int refs;
	struct cluster_key cluster[KEYS_MAX];
	unsigned int n_cluster;
	struct token token;
	bool has_token;
	bool encrypt_data;
};

/* What is loaded now; NULL: nothing. */
struct keyring *keyring_get(void);
void keyring_unref(struct keyring *ring);
/* Is anything loaded? */
bool net_keys_any(void);
/* Random, of this process: what comes back with it was sent by itself. */
const uint8_t *keys_nonce(void);
/* The line for a peer that refused what this process says it is. */
void keys_say_refused(const char *address, struct err *e);

/* ---- token.c --------------------------------------------------------------------------------- */

/* Packs; the length. */
size_t token_pack(const struct token_claims *claims, uint8_t out[TOKEN_CLAIMS_MAX]);
/* -EBADMSG. */
int token_unpack(const void *data, size_t len, struct token_claims *ret_claims) __must_check;
/* K_t of packed claims. */
void token_key(
	const struct cluster_key *key, const void *packed, size_t len, uint8_t out[KEY_BYTES]);
/* What shows that somebody has K_t, on a connection that both sides gave a nonce. */
void token_proof(const uint8_t key[KEY_BYTES], const uint8_t from[HELLO_NONCE_BYTES],
	const uint8_t to[HELLO_NONCE_BYTES], const void *packed, size_t len,
	uint8_t out[HELLO_PROOF_BYTES]);
/* A token file's line -> token; -EINVAL with a line that names `path`. */
int token_parse(
	const char *path, const char *text, struct token *ret_token, struct err *e) __must_check;
/* May whoever proves that he has K_t of these claims have what they say, by this ring? Expired ones and
 * such of unknown keys: -EKEYREJECTED. */
int token_check(const struct keyring *ring, const void *packed, size_t len,
	struct token_claims *ret_claims, uint8_t ret_key[KEY_BYTES]) __must_check;
