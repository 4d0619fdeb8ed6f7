/* From what went wrong with a request to a negative errno and the line a person reads. No
 * secrets in it. */
#pragma once

#include "ufs/s3_answer.h"

/* Whom the request went to; borrowed. */
struct s3_target {
	const char *url; /* scheme and authority */
	const char *bucket;
	const char *region;     /* that requests are signed for */
	const char *access_key; /* the id, not the secret */
};

/* An answer of 300 and more with its body. `key` is NULL for a LIST. */
int s3_error_status(const struct s3_target *target, const char *key, uint32_t key_len,
	const struct s3_answer *answer, const char *body, size_t body_len, struct err *e);

/* A transfer that did not end well: a CURLcode and curl's text for it. */
int s3_error_transfer(
	const struct s3_target *target, int curl_code, const char *text, struct err *e);
