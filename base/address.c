/* Addresses as they are written. See address.h. */
#include "base/address.h"
#include "base/unix_socket.h"

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

static int check_tcp(const char *address, const char *where, struct err *e)
{
	const char *colon = strrchr(where, ':');
	char *end = NULL;
	unsigned long port = colon ? strtoul(colon + 1, &end, 10) : 0;

	if (!colon || colon == where || colon[1] < '0' || colon[1] > '9' || *end || port > 65535)
		return err_set(e, -EINVAL, "'%s' has no host and port; allowed: " ALLOWED, address);
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
