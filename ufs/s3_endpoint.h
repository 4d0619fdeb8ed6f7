/*
 * Where an S3 service answers: "https://s3.eu-west-1.amazonaws.com", "http://127.0.0.1:9000". A
 * value; no ownership.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include "base/err.h"

#define S3_HOST_MAX   256
#define S3_REGION_MAX 64

struct s3_endpoint {
	bool tls;
	char host[S3_HOST_MAX]; /* lower-case; an IPv6 address with its brackets */
	unsigned int port;      /* 0: the scheme's own */
};

/* -EINVAL with a line that says what an endpoint looks like. A path other than "/" is refused. */
int s3_endpoint_parse(
	const char *text, struct s3_endpoint *ret_endpoint, struct err *e) __must_check;

/* Amazon's for a region; -EINVAL for a region that cannot be part of a host name. */
int s3_endpoint_of_region(
	const char *region, struct s3_endpoint *ret_endpoint, struct err *e) __must_check;

/* OBS's for a region, the same. */
int s3_endpoint_of_obs(
	const char *region, struct s3_endpoint *ret_endpoint, struct err *e) __must_check;

/* S3 of Amazon itself, of a region or of all: https://s3[-fips][.dualstack].REGION.amazonaws.com[.cn], the older s3-REGION,
 * and bucket.vpce-ID.s3.REGION.vpce. Buckets of the same name are the same there, but for those of China and of us-gov. No other name below amazonaws.com is. */
bool s3_endpoint_is_aws(const struct s3_endpoint *endpoint);
bool s3_endpoint_is_obs(const struct s3_endpoint *endpoint);
bool s3_endpoint_is_loopback(const struct s3_endpoint *endpoint); /* no proxy on the way */

/* Whether buckets are named in the path: asked for, or the host or the bucket cannot make a host
 * name. */
bool s3_endpoint_needs_path(const struct s3_endpoint *endpoint, const char *bucket, bool asked);

/* "host" or "host:port" as the Host header has it; size >= S3_HOST_MAX + 8. */
void s3_endpoint_authority(const struct s3_endpoint *endpoint, char *out, size_t size);
