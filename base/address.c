/* Addresses as they are written. See address.h. */
#include "base/address.h"
#include "base/limits.h"
#include "base/unix_socket.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#define ALLOWED "unix:/PATH or tcp:HOST:PORT"

static int check_unix(const char *address, const char *path, struct err *e)
{
	if (path[0] != '/')
		return err_set(e, -EINVAL, "'%s' has no absolute path; allowed: " ALLOWED, address);
	if (strlen(path) >= SOCKET_PATH_MAX)
		return err_set(e, -EINVAL,
			"'%s' is too long for a socket; allowed: a path of %d bytes", address,
			SOCKET_PATH_MAX - 1);
	return 0;
}

/*
 * Of `n` bytes; one of IPv6 with or without its brackets, and with a zone, which is not looked at. Its family and what
 * it is in numbers (of IPv4 the first four bytes); 0: none is written.
 */
static int family_of(const char *host, size_t n, struct in6_addr *ret_number)
{
	char text[INET6_ADDRSTRLEN + 64];

	if (n >= sizeof(text))
		return 0;
	memcpy(text, host, n);
	text[n] = '\0';
	if (inet_pton(AF_INET, strcmp(text, "localhost") == 0 ? "127.0.0.1" : text, ret_number) ==
		1)
		return AF_INET;
	if (text[0] == '[' && text[n - 1] == ']') {
		text[n - 1] = '\0';
		memmove(text, text + 1, n - 1);
	}
	text[strcspn(text, "%")] = '\0';
	return inet_pton(AF_INET6, text, ret_number) == 1 ? AF_INET6 : 0;
}

/* A name of DNS: labels of letters, digits, '-' and '_' with dots between them. One whose last label has digits only is meant as a
 * number. */
static bool is_name(const char *host, size_t n)
{
	bool digits = true;

	if (n == 0 || n > LIMIT_HOST_BYTES || host[0] == '.' || host[0] == '-')
		return false;
	for (size_t i = 0; i < n; i++) {
		char c = host[i];
		bool digit = c >= '0' && c <= '9';

		if (!digit && c != '-' && c != '_' && c != '.' && !(c >= 'a' && c <= 'z') &&
			!(c >= 'A' && c <= 'Z'))
			return false;
		if (c == '.' && (i + 1 == n || host[i + 1] == '.'))
			return false;
		digits = c == '.' || (digits && digit);
	}
	return !digits;
}

int address_host(const char *host, size_t n)
{
	struct in6_addr ignored;

	if (family_of(host, n, &ignored) != 0)
		return ADDRESS_NUMBER;
	return is_name(host, n) ? ADDRESS_NAME : -EINVAL;
}

int address_split(const char *text, struct address_parts *ret_parts)
{
	const char *colon = strrchr(text, ':');
	size_t n = colon ? (size_t)(colon - text) : 0;
	char *end = NULL;
	unsigned long port = colon ? strtoul(colon + 1, &end, 10) : 0;
	int kind;

	if (n == 0 || colon[1] < '0' || colon[1] > '9' || *end || port > UINT16_MAX)
		return -EINVAL;
	kind = address_host(text, n);
	if (kind < 0)
		return -ENXIO;
	*ret_parts = (struct address_parts){
		.kind = (enum address_host)kind, .port = colon + 1, .number = (uint16_t)port
	};
	if (text[0] == '[') {
		text++;
		n -= 2;
	}
	memcpy(ret_parts->host, text, n); /* fits: address_host() */
	return 0;
}

static int check_tcp(const char *address, const char *where, struct err *e)
{
	const char *port = strrchr(where, ':');
	struct address_parts parts;
	int r = address_split(where, &parts);

	if (r == -ENXIO)
		return err_set(e, -EINVAL,
			"invalid host in '%s': use a name or an address, such as "
			"tcp:master.example%s or tcp:10.0.0.1%s",
			address, port, port);
	if (r < 0)
		return err_set(e, r, "'%s' has no host and port; allowed: " ALLOWED, address);
	return 0;
}

int address_check(const char *address, struct err *e)
{
	if (strncmp(address, "unix:", 5) == 0)
		return check_unix(address, address + 5, e);
	if (strncmp(address, "tcp:", 4) == 0)
		return check_tcp(address, address + 4, e);
	return err_set(e, -EINVAL, "'%s' is not an address; allowed: " ALLOWED, address);
}

/* ---- whose it is ----------------------------------------------------------------------------- */

bool address_is_own(const char *address)
{
	const char *colon = strrchr(address, ':');
	struct in6_addr number;
	int family;

	if (strncmp(address, "tcp:", 4) != 0)
		return strncmp(address, "unix:", 5) == 0;
	family = family_of(address + 4, (size_t)(colon - address - 4), &number);
	return (family == AF_INET && number.s6_addr[0] == 127) ||
	       (family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&number));
}

bool address_is_loopback(const struct sockaddr *address)
{
	const struct sockaddr_in *v4 = (const void *)address;
	const struct in6_addr *number =
		&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;

	if (address->sa_family != AF_INET6)
		return ntohl(v4->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
	return IN6_IS_ADDR_LOOPBACK(number) ||
	       (IN6_IS_ADDR_V4MAPPED(number) && number->s6_addr[12] == IN_LOOPBACKNET);
}

static bool is_interface(const struct ifaddrs *i, int family, const struct in6_addr *number)
{
	struct sockaddr_in in;
	struct sockaddr_in6 in6;

	if (!i->ifa_addr || i->ifa_addr->sa_family != family)
		return false;
	if (family == AF_INET) {
		memcpy(&in, i->ifa_addr, sizeof(in));
		return memcmp(&in.sin_addr, number, sizeof(in.sin_addr)) == 0;
	}
	memcpy(&in6, i->ifa_addr, sizeof(in6));
	return memcmp(&in6.sin6_addr, number, sizeof(*number)) == 0;
}

bool address_is_here(const char *address)
{
	const char *colon = strrchr(address, ':');
	struct ifaddrs *all = NULL;
	struct in6_addr number;
	bool here = false;
	int family;

	if (address_is_own(address))
		return true;
	if (strncmp(address, "tcp:", 4) != 0)
		return false;
	family = family_of(address + 4, (size_t)(colon - address - 4), &number);
	if (!family || getifaddrs(&all) != 0)
		return false;
	for (const struct ifaddrs *i = all; i && !here; i = i->ifa_next)
		here = is_interface(i, family, &number);
	freeifaddrs(all);
	return here;
}
