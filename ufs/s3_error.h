/* From what went wrong with a request to a negative errno and the line a person reads. No
 * secrets in it. */
#pragma once

#include "ufs/s3_answer.h"

/* Whom the request went to; borrowed. */
struct s3_target {
	const char *scheme; /* "s3" or "obs" */
	const char *url;    /* scheme and authority */
	const char *bucket;
	const char *region;     /* that requests are signed for */
	const char *access_key; /* the id, not the secret; NULL: requests are not signed */
	const char *key_place;  /* where it was found */
	const char
		*advice; /* what to do about a certificate that is not accepted; NULL: --ca-file */
};

/* What is known about a failure in addition to its errno and its line. */
struct s3_failure {
	enum ufs_cause cause;
	char region[64];    /* that the answer names as the bucket's; "" none */
	char endpoint[256]; /* the same */
};

/* An answer of 300 and more with its body. `key` is NULL for a LIST. */
int s3_error_status(const struct s3_target *target, const char *key, uint32_t key_len,
	const struct s3_answer *answer, const char *body, size_t body_len,
	struct s3_failure *ret_failure, struct err *e);

/* A transfer that did not end well. */
struct s3_transfer {
	int curl_code;    /* CURLcode */
	const char *text; /* curl's */
	int proxy_status; /* a proxy's answer to CONNECT; 0: none */
	const char
		*refused; /* an address that may not be connected to (s3_way.h); NULL or "": none */
};
int s3_error_transfer(const struct s3_target *target, const struct s3_transfer *transfer,
	enum ufs_cause *ret_cause, struct err *e);
