/*
 * Where the requests for a bucket go: endpoint, region they are signed for, style. A value, no
 * ownership; it changes when the service says that the bucket is elsewhere.
 */
#pragma once

#include "ufs/s3_endpoint.h"

struct s3_place {
	struct s3_endpoint endpoint;
	char region[S3_REGION_MAX];
	char host[S3_HOST_MAX + 8]; /* the Host header: with the bucket in virtual-host style */
	char base_url[S3_HOST_MAX + 16]; /* scheme and host */
	bool path_style;
};

/* `endpoint` NULL or "": Amazon's for the region, or OBS's (`obs`), which needs one; `region` NULL
 * or "": us-east-1, which Amazon's answers with the right one. -EINVAL with a line. */
int s3_place_init(struct s3_place *place, const char *endpoint, const char *region,
	const char *bucket, bool path_style, bool obs, struct err *e) __must_check;

/*
 * Takes what an answer said: the bucket's region ("" when it named none) and an endpoint ("" the
 * same; host with or without scheme). True when requests go, or are signed, differently from now
 * on.
 *
 * The region is believed. The host never changes to one that the answer names: credentials go to
 * the endpoint of the configuration, or, when that is Amazon's for a region, to Amazon's for
 * another one.
 */
bool s3_place_learn(
	struct s3_place *place, const char *bucket, const char *region, const char *endpoint);
