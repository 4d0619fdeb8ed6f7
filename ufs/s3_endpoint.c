/* Endpoints of S3 services. See s3_endpoint.h. */
#include "ufs/s3_endpoint.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Without what stands before an '@', keys perhaps. */
static int bad(struct err *e, const char *text, const char *why)
{
	const char *at = strrchr(text, '@');

	return err_set(e, -EINVAL,
		"endpoint \"%.200s\": %s; write it as http://HOST[:PORT] or https://HOST[:PORT]",
		at ? at + 1 : text, why);
}

static bool host_char(char c)
{
	return isalnum((unsigned char)c) || c == '.' || c == '-' || c == '_';
}

/* Length of the host at `s`, 0 when there is none. */
static size_t host_len(const char *s)
{
	size_t n = 0;

	if (*s == '[') {
		n = 1 + strspn(s + 1, "0123456789abcdefABCDEF:.");
		return n > 2 && s[n] == ']' ? n + 1 : 0;
	}
	while (host_char(s[n]))
		n++;
	return n;
}

static int parse_port(const char *text, const char **s, struct s3_endpoint *out, struct err *e)
{
	char *end;
	unsigned long port;

	if (!isdigit((unsigned char)(*s)[1]))
		return bad(e, text, "no port after ':'");
	port = strtoul(*s + 1, &end, 10);
	if (port < 1 || port > 65535)
		return bad(e, text, "the port is not between 1 and 65535");
	*s = end;
	out->port = port == (out->tls ? 443u : 80u) ? 0 : (unsigned int)port;
	return 0;
}

int s3_endpoint_parse(const char *text, struct s3_endpoint *ret_endpoint, struct err *e)
{
	struct s3_endpoint out = { 0 };
	const char *s = text;
	size_t n;
	int r;

	if (strncasecmp(s, "https://", 8) == 0) {
		out.tls = true;
		s += 8;
	} else if (strncasecmp(s, "http://", 7) == 0) {
		s += 7;
	} else {
		return bad(e, text, "it does not begin with http:// or https://");
	}
	n = host_len(s);
	if (n == 0 || n >= sizeof(out.host))
		return bad(e, text, n ? "the host name is too long" : "no host name");
	for (size_t i = 0; i < n; i++)
		out.host[i] = (char)tolower((unsigned char)s[i]);
	s += n;
	if (*s == ':') {
		r = parse_port(text, &s, &out, e);
		if (r < 0)
			return r;
	}
	if (s[0] == '/' && s[1] == '\0')
		s++;
	if (*s != '\0')
		return bad(e, text, "nothing may follow host and port");
	*ret_endpoint = out;
	return 0;
}

int s3_endpoint_of_region(const char *region, struct s3_endpoint *ret_endpoint, struct err *e)
{
	struct s3_endpoint out = { .tls = true };
	size_t n = strspn(region, "abcdefghijklmnopqrstuvwxyz0123456789-");

	if (n == 0 || region[n] != '\0' || n >= S3_REGION_MAX)
		return err_set(e, -EINVAL,
			"region \"%.80s\": not a region of Amazon's; write it like eu-west-1",
			region);
	(void)snprintf(out.host, sizeof(out.host), "s3.%s.amazonaws.com%s", region,
		strncmp(region, "cn-", 3) == 0 ? ".cn" : ""); /* fits: n is bounded */
	*ret_endpoint = out;
	return 0;
}

int s3_endpoint_of_obs(const char *region, struct s3_endpoint *ret_endpoint, struct err *e)
{
	struct s3_endpoint out = { .tls = true };
	size_t n = strspn(region, "abcdefghijklmnopqrstuvwxyz0123456789-");

	if (n == 0 || region[n] != '\0' || n >= S3_REGION_MAX)
		return err_set(e, -EINVAL,
			"region \"%.80s\": not a region of OBS; write it like cn-north-4", region);
	(void)snprintf(out.host, sizeof(out.host), "obs.%s.myhuaweicloud.com",
		region); /* fits: n is bounded */
	*ret_endpoint = out;
	return 0;
}

static bool ends_with(const char *s, const char *end)
{
	size_t n = strlen(s);
	size_t m = strlen(end);

	return n >= m && strcmp(s + n - m, end) == 0;
}

/* Is it the name of a region from `s` to `end`: "eu-west-1"? */
static bool is_region(const char *s, const char *end)
{
	size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789-");

	return s + n >= end && end - s > 3 && end - s < S3_REGION_MAX && s[2] == '-';
}

/* "bucket.vpce-ID.s3.REGION.vpce": the service through an interface of a private network; up to `end`. */
static bool is_private_interface(const char *host, const char *end)
{
	static const char first[] = "bucket.vpce-";
	static const char last[] = ".vpce";
	const char *service = strstr(host, ".s3.");

	if (strncmp(host, first, strlen(first)) != 0 || !service ||
		end - host < (ptrdiff_t)strlen(last))
		return false;
	end -= strlen(last);
	return strncmp(end, last, strlen(last)) == 0 && service + 4 < end &&
	       memchr(host + strlen(first), '.', (size_t)(service - host) - strlen(first)) ==
		       NULL &&
	       is_region(service + 4, end);
}

/* Virtual machines, load balancers and functions of customers have names below amazonaws.com, too. */
bool s3_endpoint_is_aws(const struct s3_endpoint *endpoint)
{
	static const char *const services[] = { "s3.", "s3-", "s3-fips.", "s3.dualstack.",
		"s3-fips.dualstack." };
	static const char *const alone[] = { "s3", "s3-external-1", "s3-accelerate",
		"s3-accelerate.dualstack", "s3-fips-us-gov-west-1" };
	const char *host = endpoint->host;
	const char *end = strstr(host, ".amazonaws.com");

	if (!end || (strcmp(end, ".amazonaws.com") != 0 && strcmp(end, ".amazonaws.com.cn") != 0))
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(alone); i++)
		if ((size_t)(end - host) == strlen(alone[i]) &&
			strncmp(host, alone[i], strlen(alone[i])) == 0)
			return true;
	for (size_t i = 0; i < ARRAY_SIZE(services); i++) {
		size_t n = strlen(services[i]);

		if (strncmp(host, services[i], n) == 0 && is_region(host + n, end))
			return true;
	}
	return is_private_interface(host, end);
}

bool s3_endpoint_is_obs(const struct s3_endpoint *endpoint)
{
	return ends_with(endpoint->host, ".myhuaweicloud.com") ||
	       ends_with(endpoint->host, ".myhuaweicloud.eu");
}

static bool is_address(const char *host)
{
	return host[0] == '[' || host[strspn(host, "0123456789.")] == '\0';
}

bool s3_endpoint_is_loopback(const struct s3_endpoint *endpoint)
{
	const char *host = endpoint->host;

	/* With a dot at the end it is the same name. */
	return strcmp(host, "localhost") == 0 || strcmp(host, "localhost.") == 0 ||
	       ends_with(host, ".localhost") || ends_with(host, ".localhost.") ||
	       strcmp(host, "[::1]") == 0 || (is_address(host) && strncmp(host, "127.", 4) == 0);
}

/* Lower-case letters, digits and '-'; with TLS no '.', which a wildcard certificate does not
 * cover. */
static bool bucket_makes_host(const char *bucket, bool tls)
{
	size_t n = strlen(bucket);

	if (n < 3 || n > 63 || !isalnum((unsigned char)bucket[0]))
		return false;
	for (const char *c = bucket; *c; c++)
		if (!islower((unsigned char)*c) && !isdigit((unsigned char)*c) && *c != '-' &&
			(*c != '.' || tls))
			return false;
	return true;
}

bool s3_endpoint_needs_path(const struct s3_endpoint *endpoint, const char *bucket, bool asked)
{
	return asked || is_address(endpoint->host) || strcmp(endpoint->host, "localhost") == 0 ||
	       !bucket_makes_host(bucket, endpoint->tls) ||
	       strlen(bucket) + strlen(endpoint->host) + 1 >= S3_HOST_MAX;
}

void s3_endpoint_authority(const struct s3_endpoint *endpoint, char *out, size_t size)
{
	if (endpoint->port)
		(void)snprintf(
			out, size, "%s:%u", endpoint->host, endpoint->port); /* fits by contract */
	else
		(void)snprintf(out, size, "%s", endpoint->host);
}
