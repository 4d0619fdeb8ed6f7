/*
 * The service accounts of a Kubernetes cluster whose pods may exchange their tokens for mount tokens: the issuer, and its public keys,
 * of a file or a URL. Keys are read again after five minutes, and, at most every ten seconds, when a token has an unknown one; keys that
 * cannot be read leave those that are known in use.
 *
 * Threads: any that may block.
 */
#pragma once

#include "master/jwt.h"

struct service_accounts_config {
	const char *issuer;   /* borrowed, as the rest */
	const char *audience; /* of tokens */
	const char *keys;     /* absolute path, or https://URL, http://URL */
	const char *ca_file;  /* of the URL; NULL: those of the system */
};

struct service_accounts;

/* A file without keys is an error, with a line. A URL that does not answer is asked again later. */
int service_accounts_new(const struct service_accounts_config *config,
	struct service_accounts **ret_accounts, struct err *e) __must_check;
void service_accounts_free(struct service_accounts *accounts); /* NULL is allowed */

/* As jwt_verify(), now; -EAGAIN with a line: the keys of the issuer are not known yet. */
int service_accounts_verify(struct service_accounts *accounts, const char *token, size_t len,
	struct jwt_pod *ret_pod, struct err *e) __must_check;
