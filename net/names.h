/*
 * Addresses of hosts that are given by name. A loop cannot wait for DNS, so a thread of its own looks names up while there is one to
 * look up, and connections use the addresses that it found last. Each use of a name starts another lookup in the background: an
 * address that has changed costs one attempt to connect.
 *
 * Threads: any; none of these functions waits.
 */
#pragma once

#include <netinet/in.h>
#include "base/err.h"

union host_address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

/* Starts a lookup of `host` unless one ended a second ago or is in progress. */
void names_want(const char *host);
/*
 * An address of `host` without a port, of several the next one at each call. -EHOSTUNREACH with its line: the lookup has not ended
 * yet, or failed; -ENOSPC: too many names.
 */
int names_get(const char *host, union host_address *ret_address, struct err *e) __must_check;
