/*
 * Service-account tokens of pods: JSON Web Tokens (RFC 7519) signed as JWS (RFC 7515) by the API server of a Kubernetes cluster, and
 * its public keys, a JSON Web Key Set (RFC 7517). Taken are RS256 and ES256 only, by keys that the set has under the id of the token.
 * Pure: no Kubernetes is asked.
 *
 * Threads: any.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

#define JWT_BYTES_MAX      (16u << 10) /* of a token */
#define JWT_KEYS_BYTES_MAX (64u << 10) /* of a set of keys */
#define JWT_NAME_BYTES     254u        /* of a namespace, a service account, a pod */
#define JWT_ID_BYTES       64u         /* of a uid */

struct jwt_keys;

/* What a token must say. */
struct jwt_rules {
	const char *issuer;
	const char *audience;
	uint64_t now_s; /* since 1970 */
};

/* The pod that a token is bound to. */
struct jwt_pod {
	char name_space[JWT_NAME_BYTES];
	char account[JWT_NAME_BYTES];
	char pod[JWT_NAME_BYTES];
	char pod_id[JWT_ID_BYTES];
	uint64_t expires_s;
};

/* Keys of other kinds are skipped. -EINVAL with a line: not a key set, or one without a key that can be used. */
int jwt_keys_parse(
	const char *text, size_t len, struct jwt_keys **ret_keys, struct err *e) __must_check;
void jwt_keys_free(struct jwt_keys *keys); /* NULL is allowed */

/*
 * -EKEYREJECTED with a line that has nothing of the token but the id of its key: for the log. -ENOKEY: the set does not have that key;
 * a newer one may.
 */
int jwt_verify(const struct jwt_keys *keys, const struct jwt_rules *rules, const char *text,
	size_t len, struct jwt_pod *ret_pod, struct err *e) __must_check;

/* The claims of a token whose signature is valid: part of jwt_verify(). */
int jwt_take_claims(const char *json, size_t len, const struct jwt_rules *rules,
	struct jwt_pod *ret_pod, struct err *e) __must_check;
