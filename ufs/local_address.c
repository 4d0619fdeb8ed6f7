/* Where an endpoint's name leads. See ufs.h and local_address.h. */
#include "ufs/local_address.h"
#include "ufs/ufs.h"
#include "ufs/s3_place.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

/* Of this host, or of the link: services there trust whoever reaches them (metadata services of clouds, 169.254.169.254). */
static bool is_local4(uint32_t a)
{
	return a >> 24 == 127 || a >> 24 == 0 || a >> 16 == 0xa9fe;
}

static bool is_local6(const struct in6_addr *a)
{
	static const struct in6_addr metadata = { { { 0xfd, 0, 0x0e, 0xc2, [14] = 0x02, 0x54 } } };
	static const uint8_t nat64[12] = { 0, 0x64, 0xff, 0x9b }; /* RFC 6052 */
	uint32_t low = (uint32_t)a->s6_addr[12] << 24 | (uint32_t)a->s6_addr[13] << 16 |
		       (uint32_t)a->s6_addr[14] << 8 | a->s6_addr[15];

	if (IN6_IS_ADDR_V4MAPPED(a) || IN6_IS_ADDR_V4COMPAT(a) ||
		memcmp(a, nat64, sizeof(nat64)) == 0)
		return is_local4(low);
	return IN6_IS_ADDR_LOOPBACK(a) || IN6_IS_ADDR_UNSPECIFIED(a) || IN6_IS_ADDR_LINKLOCAL(a) ||
	       memcmp(a, &metadata, sizeof(metadata)) == 0;
}

bool local_address_is(const struct sockaddr *address)
{
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;

	if (address->sa_family == AF_INET) {
		memcpy(&v4, address, sizeof(v4));
		return is_local4(ntohl(v4.sin_addr.s_addr));
	}
	if (address->sa_family != AF_INET6)
		return true; /* none that a request could be sent to */
	memcpy(&v6, address, sizeof(v6));
	return is_local6(&v6.sin6_addr);
}

/* The name or number in "host:port" or "[address]:port". */
static void host_of(const char *authority, char out[S3_HOST_MAX + 8])
{
	bool bracket = authority[0] == '[';
	size_t n = strcspn(authority + bracket, bracket ? "]" : ":");

	(void)snprintf(out, S3_HOST_MAX + 8, "%.*s", (int)n, authority + bracket); /* no longer */
}

int ufs_check_endpoint(const struct ufs_config *config, struct err *e)
{
	const struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
	char host[S3_HOST_MAX + 8];
	struct addrinfo *all = NULL;
	struct s3_place place;
	bool local = false;
	int r = s3_place_init(&place, config->endpoint, config->region, config->bucket,
		config->path_style, config->scheme == UFS_OBS, e);

	if (r < 0)
		return r;
	if (s3_endpoint_is_loopback(&place.endpoint))
		return -EPERM; /* libcurl does not ask DNS about names below "localhost" */
	host_of(place.host, host);
	r = getaddrinfo(host, NULL, &hints, &all);
	if (r != 0)
		return err_set(e, -ENXIO, "endpoint %.200s: %s cannot be looked up: %s",
			config->endpoint, host, gai_strerror(r));
	for (const struct addrinfo *a = all; a; a = a->ai_next)
		local |= local_address_is(a->ai_addr);
	freeaddrinfo(all);
	return local ? -EPERM : 0;
}
