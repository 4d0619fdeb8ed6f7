/*
 * The identity of the peer of a connection, and the keys by which this process proves its own.
 *
 * Only masters and workers have the *cluster key*. Servers prove that they have it by a certificate whose key pair is derived from
 * it; clients know the *pin*, the hash of the public key, which is no secret. A *mount token* consists of claims, of K_t =
 * HMAC-SHA256(signing key, claims), where the signing key is derived from the cluster key, and of the pin. Its holder proves that
 * it has K_t without sending it, and workers check a token without the master. Two cluster keys are valid at a time: the first of
 * the file is used, both are accepted, so that keys change without a pause.
 *
 * Key file (0600 or stricter), one key a line, # begins a comment:
 *
 *	granary-cluster-key KEYID 64 digits of hex
 *
 * Token file: one line, as `cachectl token create` prints it:
 *
 *	granary-token CLAIMS(base64url) K_t(base64url) PIN(base64url)
 *
 * Without keys daemons listen and connect on unix sockets only.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"
#include "base/key_prefixes.h"
#include "base/layout.h"
#include "base/limits.h"

#define TOKEN_VOLUMES_MAX   LAYOUT_SOURCES_MAX
#define TOKEN_PREFIX_BYTES  LIMIT_KEY_BYTES /* of all prefixes of a token together */
#define TOKEN_DATASET_BYTES 16u
#define CLUSTER_KEY_WORD    "granary-cluster-key"
#define KEYS_MAX            2u
#define PIN_BYTES           32u

/* What a token allows. */
struct token_claims {
	uint8_t dataset[TOKEN_DATASET_BYTES];
	struct volume_id
		volumes[TOKEN_VOLUMES_MAX]; /* of its sources; one may occur several times */
	/* Of each the objects whose keys begin with so many bytes of `prefixes`, where those of the volumes before it
	 * end; 0: all objects. */
	uint16_t prefix_bytes[TOKEN_VOLUMES_MAX];
	uint32_t n_volumes;
	uint64_t expires_s; /* since 1970 */
	uint32_t key_id;    /* of the cluster key that signed it */
	bool admin; /* not for a mount: changes of every dataset (docs/security.md); no volumes */
	uint8_t serial[8]; /* random: what the audit log names it by */
	char prefixes[TOKEN_PREFIX_BYTES];
};

enum peer_kind {
	PEER_UNKNOWN, /* has not proved anything: may nothing */
	PEER_NODE,    /* a unix socket: the file's mode let it in */
	PEER_CLUSTER, /* has the cluster key */
	PEER_TOKEN,   /* has a token */
};

struct peer_identity {
	enum peer_kind kind;
	struct token_claims claims; /* PEER_TOKEN */
	uint32_t uid;               /* PEER_NODE */
};

struct net_keys_config {
	const char *cluster_key; /* file; NULL: this process is no master or worker of a cluster */
	const char *token;       /* file; NULL: none */
	bool encrypt_data;       /* net-data: tls; else payloads of data messages go as they are */
};

/* Reads the files, for all servers and clients that this process makes from then on; before the first.
 * -EACCES: a file that others may read; -EINVAL: not a key or token; each with its line. */
int net_keys_load(const struct net_keys_config *config, struct err *e) __must_check;
/* The same without taking anything into use: what `cachectl config check` says of the files. On failure *ret_token says
 * that it is about the token, not the cluster key. */
int net_keys_check(
	const struct net_keys_config *config, bool *ret_token, struct err *e) __must_check;
/* Reads the same files again, which a daemon does at SIGHUP (base/daemon.h) and when they changed: connections that stand
 * stay, new ones use what is there now. On failure all stays as it was. Any thread. */
int net_keys_reload(struct err *e) __must_check;
/* Does this process have a cluster key? */
bool net_keys_cluster(void);
/* The certificate of the cluster's servers and its private key as PEM, for a server that is not of net/. Both are the caller's to
 * free; it wipes the key. -ENOKEY without a cluster key. */
int net_keys_pem(char **ret_certificate, char **ret_key) __must_check;

struct rpc_conn;
/* Borrowed from the connection of a request, from its first request on. */
const struct peer_identity *rpc_conn_peer(const struct rpc_conn *conn);

/* May it see or read something of this volume? Everybody may but a token for other ones, or one that has
 * expired meanwhile. */
bool peer_may_read(const struct peer_identity *peer, const struct volume_id *volume);
/*
 * Is the peer's token for only a part of the volume? Then *ret_part is that part, sorted; the texts are the peer's. A
 * volume that the token does not name has an empty part.
 */
bool peer_reads_part(const struct peer_identity *peer, const struct volume_id *volume,
	struct key_prefixes *ret_part);
/* Is its token for only a part of any volume? */
bool peer_has_part(const struct peer_identity *peer);
/* The line for what a token does not show: the same whether it exists or not. Returns its code. */
int peer_sees_nothing(struct err *e);
/* May it open this dataset? */
bool peer_may_open(const struct peer_identity *peer, const uint8_t dataset[TOKEN_DATASET_BYTES]);
/* False for a token that expired since it came. */
bool peer_is_current(const struct peer_identity *peer);
/* Is it root or this process's own user, on a unix socket? */
bool peer_is_local(const struct peer_identity *peer);
/* Is it of the cluster itself: master, worker, or this node? */
bool peer_is_trusted(const struct peer_identity *peer);

/* Makes a token of the cluster key that the claims name, of the first one if they name none (0); `out` gets the file's line
 * without its end. -ENOKEY. */
#define TOKEN_TEXT_MAX 2048u
int token_make(
	const struct token_claims *claims, char out[TOKEN_TEXT_MAX], struct err *e) __must_check;
/* The claims of a token that its holder shows whole, as its file's line, over TLS. -EKEYREJECTED: not a token, changed, expired, or
 * signed with a key that this process does not have. */
int token_verify(const char *text, struct token_claims *ret_claims) __must_check;
/* What the token in a file says; nothing of it is checked but its form. Errors as net_keys_load(). */
int token_read(const char *path, struct token_claims *ret_claims, uint8_t ret_pin[PIN_BYTES],
	struct err *e) __must_check;

/* What of a cluster key is no secret. */
struct key_shown {
	uint32_t id;
	uint8_t pin[PIN_BYTES]; /* of the certificate of servers that have it */
};

/* The keys of a key file: how many, the one in use first. Errors as net_keys_load(). */
int keys_read(const char *path, struct key_shown ret_keys[KEYS_MAX], struct err *e) __must_check;
