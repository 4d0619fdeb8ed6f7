/*
 * AWS Signature Version 4 in the Authorization header, and the encoding of URIs that it prescribes.
 * https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html
 *
 * For S3: a path is encoded once and never normalised. Not thread-safe: one signer belongs to one
 * thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/buf.h"
#include "base/hash.h"

#define S3_EMPTY_SHA256 "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define S3_TIME_SIZE    17 /* "20130524T000000Z" */

/* Appends bytes with everything but A-Z a-z 0-9 - . _ ~ (and '/' when it is kept) as %XX. */
int s3_encode(struct buf *out, const char *s, size_t len, bool keep_slash) __must_check;

struct s3_param {
	const char *name;
	const char *value; /* raw */
	size_t value_len;
};
/* Appends the query string, encoded and in canonical order; sorts `params`. */
int s3_encode_query(struct buf *out, struct s3_param *params, size_t n) __must_check;

struct s3_header {
	const char *name; /* lower-case */
	const char *value;
};

struct s3_signed {
	const char *method;
	const char *path;                /* encoded */
	const char *query;               /* encoded, canonical; "" without one */
	const struct s3_header *headers; /* in order of their names, "host" among them */
	size_t n_headers;
	const char *payload_hash;
	const char *time; /* as in x-amz-date */
};

struct s3_signer {
	const char *access_key; /* borrowed */
	const char *secret_key; /* borrowed */
	const char *region;     /* borrowed */
	const char *service;    /* borrowed */
	char date[9];           /* of `key`; "" before the first signature */
	uint8_t key[SHA256_BYTES];
	struct buf scratch;
};

void s3_signer_init(struct s3_signer *signer, const char *access_key, const char *secret_key,
	const char *region, const char *service);
void s3_signer_release(struct s3_signer *signer);

/* Appends "AWS4-HMAC-SHA256 Credential=..., SignedHeaders=..., Signature=...". The key of a day
 * is derived once. */
int s3_sign(
	struct s3_signer *signer, const struct s3_signed *request, struct buf *out) __must_check;

void s3_time(uint64_t wall_ns, char out[S3_TIME_SIZE]);
