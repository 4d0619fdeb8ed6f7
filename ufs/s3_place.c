/* Endpoint and region of a bucket. See s3_place.h. */
#include "ufs/s3_place.h"

#include <stdio.h>
#include <string.h>

/* Host header and URL from endpoint and style. */
static int put_names(struct s3_place *place, const char *bucket)
{
	char authority[S3_HOST_MAX + 8];
	int n;

	s3_endpoint_authority(&place->endpoint, authority, sizeof(authority));
	n = snprintf(place->host, sizeof(place->host), "%s%s%s", place->path_style ? "" : bucket,
		place->path_style ? "" : ".", authority);
	if (n < 0 || (size_t)n >= sizeof(place->host))
		return -EINVAL;
	(void)snprintf(place->base_url, sizeof(place->base_url), "%s://%s",
		place->endpoint.tls ? "https" : "http", place->host); /* fits */
	return 0;
}

/* What may stand in a signature: other services have regions like "RegionOne". */
static bool is_name(const char *region)
{
	size_t n = strspn(region, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				  "0123456789-_.");

	return n > 0 && n < S3_REGION_MAX && region[n] == '\0';
}

int s3_place_init(struct s3_place *place, const char *endpoint, const char *region,
	const char *bucket, bool path_style, bool obs, struct err *e)
{
	struct s3_place out = { 0 };
	int r;

	if (obs && !(endpoint && *endpoint) && !(region && *region))
		return err_set(e, -EINVAL,
			"obs://%.100s: neither endpoint nor region is known; give --region (or "
			"OBS_REGION), such as cn-north-4, or --endpoint (or OBS_ENDPOINT)",
			bucket);
	if (!region || !*region)
		region = "us-east-1";
	if (!is_name(region)) /* it becomes a part of a header */
		return err_set(e, -EINVAL,
			"region \"%.80s\": not 1 to %u letters, digits, '-', '_' and '.'; write it "
			"like eu-west-1",
			region, S3_REGION_MAX - 1);
	(void)snprintf(out.region, sizeof(out.region), "%s", region); /* fits: checked */
	if (endpoint && *endpoint)
		r = s3_endpoint_parse(endpoint, &out.endpoint, e);
	else if (obs)
		r = s3_endpoint_of_obs(region, &out.endpoint, e);
	else
		r = s3_endpoint_of_region(region, &out.endpoint, e);
	if (r < 0)
		return r;
	out.path_style = s3_endpoint_needs_path(&out.endpoint, bucket, path_style);
	r = put_names(&out, bucket);
	if (r < 0)
		return err_set(
			e, r, "endpoint \"%.80s\": the host name is too long", out.endpoint.host);
	*place = out;
	return 0;
}

/* Whether the endpoint is Amazon's public one of the place's region, or of all regions: the one
 * for another region stands for it. */
static bool follows_region(const struct s3_place *place)
{
	struct s3_endpoint own;

	if (!place->endpoint.tls || place->endpoint.port)
		return false;
	if (strcmp(place->endpoint.host, "s3.amazonaws.com") == 0)
		return true;
	return s3_endpoint_of_region(place->region, &own, NULL) == 0 &&
	       strcmp(own.host, place->endpoint.host) == 0;
}

/* The region in "bucket.s3.eu-west-1.amazonaws.com" or "s3-eu-west-1.amazonaws.com". */
static bool region_of_host(const char *host, char *out, size_t size)
{
	const char *end = strstr(host, ".amazonaws.com");
	const char *from = end;
	size_t n;

	if (!end)
		return false;
	while (from > host && from[-1] != '.')
		from--;
	if (strncmp(from, "s3-", 3) == 0)
		from += 3;
	n = (size_t)(end - from);
	if (n == 0 || n >= size || (n == 2 && memcmp(from, "s3", 2) == 0))
		return false;
	memcpy(out, from, n);
	out[n] = '\0';
	return true;
}

static bool is_cn(const char *region)
{
	return strncmp(region, "cn-", 3) == 0;
}

bool s3_place_learn(
	struct s3_place *place, const char *bucket, const char *region, const char *endpoint)
{
	struct s3_place out = *place;
	struct s3_endpoint to;
	char named[S3_REGION_MAX];

	if (!*region && region_of_host(endpoint, named, sizeof(named)))
		region = named;
	if (!is_name(region) || strcmp(region, place->region) == 0)
		return false;
	(void)snprintf(out.region, sizeof(out.region), "%s", region); /* fits: checked above */
	if (follows_region(place)) {
		/* Accounts of the two partitions do not know each other. */
		if (is_cn(region) != is_cn(place->region) ||
			s3_endpoint_of_region(region, &to, NULL) < 0)
			return false;
		out.endpoint = to;
		if (put_names(&out, bucket) < 0)
			return false;
	}
	*place = out;
	return true;
}
