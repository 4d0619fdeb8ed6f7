/*
 * The fake transport, "fake:NAME": pairs of ends in this process, for tests and behind a debug
 * flag. It can hold messages back for a while by chance, so that connections overtake each other
 * (never messages of one connection), cut connections, and refuse new ones. Flow is bounded as over
 * a socket: an end takes FAKE_WINDOW bytes that its user has not seen; the rest waits at the
 * sender.
 *
 * Ends may live on different loops. Descriptors are passed (duplicated). Threads of these
 * functions: any.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define FAKE_WINDOW (4u << 20)

/* Behaviour of one name, from now on. Names without a listener are ignored. */
/* Each message arrives after 0 to max_ns. */
void fake_set_delay(const char *name, uint64_t max_ns);
/* New connections are refused. */
void fake_set_refuse(const char *name, bool refuse);
/* Every connection is lost, with what is in flight in both directions. */
void fake_cut(const char *name);
