/*
 * Addresses that requests of a source are not sent to unless its caller may name them: of this host (loopback), of its link,
 * and of the metadata services of clouds.
 *
 * Threads: any.
 */
#pragma once

#include <stdbool.h>
#include <sys/socket.h>

/* Also for an address of another family than IPv4 and IPv6. */
bool local_address_is(const struct sockaddr *address);
