/* What the HTTP server and its client share. */
#pragma once

#include <sys/un.h>
#include "admin/admin.h"

#define ADMIN_REQUEST_BYTES (1u << 20)  /* largest body of a request */
#define ADMIN_ANSWER_BYTES  (16u << 20) /* largest answer a client takes */
#define ADMIN_HEADER_BYTES  16384u

/* -ENAMETOOLONG. */
int admin_address(const char *path, struct sockaddr_un *ret_address) __must_check;

/* A connected, non-blocking socket; -ENOENT, -ECONNREFUSED, -EAGAIN (its queue is full), ... */
int admin_connect(const char *path, int *ret_fd) __must_check;
