/* A request to a port of this host, as bytes. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Sends `ask` to 127.0.0.1:port and stores all that is answered until the connection ends, as a string. */
void http_ask(uint16_t port, const char *ask, char *out, size_t size);
