/*
 * One HTTP request by itself, for services that are asked now and then: token and metadata
 * services, the API of Kubernetes. Threads: any; blocks.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include "base/buf.h"
#include "base/err.h"

/* Who vouches for a server that has its own authority, and the credentials for it: texts in PEM form, or NULL. */
struct http_trust {
	const char *ca_pem;   /* NULL: the system's authorities */
	const char *cert_pem; /* of the client */
	const char *key_pem;  /* its key */
	const char *advice;   /* what to do when the server's certificate is not accepted */
};

/* Keeps connections between requests. One request at a time. */
struct http_session;
struct http_session *http_session_new(void); /* NULL without memory */
void http_session_free(struct http_session *session);

struct http_once {
	const char *method; /* GET, PUT, POST, PATCH, DELETE */
	const char *url;
	const char *name; /* what lines for people say instead of the URL; NULL: the URL */
	const char *const *headers; /* "name: value" */
	size_t n_headers;
	const char *body;               /* NULL: none */
	const char *ca_file;            /* NULL: AWS_CA_BUNDLE, the system's */
	const struct http_trust *trust; /* NULL: ca_file. Must outlive the session */
	struct http_session *session;   /* NULL: a connection for this request */
	bool no_proxy;                  /* a service of this machine or its host */
	uint64_t connect_ns;            /* at most, to connect */
	uint64_t timeout_ns;            /* at most, in all; 0: no bound */
	uint64_t idle_ns;               /* at most, without a byte of the answer; 0: no bound */
	const _Atomic bool *given_up;   /* becomes true: -ECANCELED soon; NULL: never */

	/* Takes the body of a 2xx answer as it arrives, in place of `answer`. Negative: ends the request with that code. */
	int (*on_data)(void *arg, const char *data, size_t len);
	void *arg;
	uint64_t *ret_retry_after_ns; /* the answer's Retry-After, 0: none; NULL: not needed */
};

/*
 * 0: answered, with any status. Its body is appended to `answer`, as far as answer->max goes: what
 * is longer is -EPROTO. -ECONNREFUSED, -EHOSTUNREACH, -ETIMEDOUT, -EPROTO, -EIO with a line that
 * holds neither body nor headers.
 */
int http_once(const struct http_once *request, int *ret_status, struct buf *answer,
	struct err *e) __must_check;
