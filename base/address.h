/*
 * Addresses of daemons as they are written: "unix:/PATH", "tcp:HOST:PORT", HOST a number or a name. What they mean is net/'s
 * to say; this is what a configuration can be refused for before anything starts. Threads: any.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include "base/err.h"
#include "base/limits.h"

/* 0, or -EINVAL with what is wrong and what is allowed: an option's `check`. */
int address_check(const char *address, struct err *e) __must_check;
/* Is `host`, of `n` bytes, one to connect to, by its form? -EINVAL: it is not. "localhost" counts as a number. */
enum address_host { ADDRESS_NUMBER, ADDRESS_NAME };
int address_host(const char *host, size_t n) __must_check;

/* "HOST:PORT", "[::1]:PORT" or "::1:PORT". */
struct address_parts {
	char host[LIMIT_HOST_BYTES + 1]; /* without brackets */
	enum address_host kind;
	const char *port; /* digits, the end of the text */
	uint16_t number;  /* that port */
};
/* -EINVAL: not a host and a port of 0 to 65535; -ENXIO: no host has such a name or address. */
int address_split(const char *text, struct address_parts *ret_parts) __must_check;

/* Somebody on this host is meant, for whoever is on this host: a path, the loopback, or an address that an interface has now. Of
 * addresses that address_check() takes. */
bool address_is_here(const char *address) __must_check;
/* It names the same peer on each host. */
bool address_is_own(const char *address) __must_check;
/* Can only processes of this host connect to it? Of AF_INET or AF_INET6. */
bool address_is_loopback(const struct sockaddr *address) __must_check;
