/* Addresses as they are written. See address.h. */
#include "base/address.h"
#include "base/unix_socket.h"

#include <arpa/inet.h>
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

/* Of `n` bytes; one of IPv6 with or without its brackets, and with a zone, which is not looked at. */
static bool is_numeric(const char *host, size_t n)
{
	char text[INET6_ADDRSTRLEN + 64];
	struct in6_addr ignored; /* large enough for both */

	if (n >= sizeof(text))
		return false;
	memcpy(text, host, n);
	text[n] = '\0';
	if (strcmp(text, "localhost") == 0 || inet_pton(AF_INET, text, &ignored) == 1)
		return true;
	if (text[0] == '[' && text[n - 1] == ']') {
		text[n - 1] = '\0';
		memmove(text, text + 1, n - 1);
	}
	text[strcspn(text, "%")] = '\0';
	return inet_pton(AF_INET6, text, &ignored) == 1;
}

static int check_tcp(const char *address, const char *where, struct err *e)
{
	const char *colon = strrchr(where, ':');
	char *end = NULL;
	unsigned long port = colon ? strtoul(colon + 1, &end, 10) : 0;

	if (!colon || colon == where || colon[1] < '0' || colon[1] > '9' || *end || port > 65535)
		return err_set(e, -EINVAL, "'%s' has no host and port; allowed: " ALLOWED, address);
	if (!is_numeric(where, (size_t)(colon - where)))
		return err_set(e, -EINVAL,
			"'%s' names a host: give its address in numbers, such as tcp:10.0.0.1:%lu",
			address, port);
	return 0;
}

int address_check(const char *address, struct err *e)
{
	if (strncmp(address, "unix:", 5) == 0)
		return check_unix(address, address + 5, e);
	if (strncmp(address, "tcp:", 4) == 0)
		return check_tcp(address, address + 4, e);
	return err_set(e, -EINVAL, "'%s' is no address; allowed: " ALLOWED, address);
}
