/*
 * One HTTP request by itself, for services that are asked now and then: token and metadata
 * services. Threads: any; blocks.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include "base/buf.h"
#include "base/err.h"

struct http_once {
	const char *method; /* GET, PUT, POST */
	const char *url;
	const char *name; /* what lines for people say instead of the URL; NULL: the URL */
	const char *const *headers; /* "name: value" */
	size_t n_headers;
	const char *body;             /* of a POST; NULL: none */
	const char *ca_file;          /* NULL: AWS_CA_BUNDLE, the system's */
	bool no_proxy;                /* a service of this machine or its host */
	uint64_t connect_ns;          /* at most, to connect */
	uint64_t timeout_ns;          /* at most, in all */
	const _Atomic bool *given_up; /* becomes true: -ECANCELED soon; NULL: never */
};

/*
 * 0: answered, with any status. Its body is appended to `answer`, as far as answer->max goes: what
 * is longer is -EPROTO. -ECONNREFUSED, -EHOSTUNREACH, -ETIMEDOUT, -EPROTO, -EIO with a line that
 * holds neither body nor headers.
 */
int http_once(const struct http_once *request, int *ret_status, struct buf *answer,
	struct err *e) __must_check;
