/*
 * Asks a master on another node what its admin socket answers there (FRAME_ADMIN), over the cluster's
 * wire: with the keys that this process loaded. One connection, which comes back when it is lost.
 * Threads: one at a time, not a loop's.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include "base/buf.h"
#include "base/err.h"

struct client_admin;

/* `address`: "tcp:host:port" or "unix:/path", as daemons have it. -ECONNREFUSED with a line when no master
 * answers there within seconds, or none that takes our keys. */
int client_admin_open(
	const char *address, struct client_admin **ret_admin, struct err *e) __must_check;
/* NULL is allowed. */
void client_admin_close(struct client_admin *admin);

/*
 * `path` with its query; `body`: `len` bytes of JSON, or NULL. 0: the master answered; *ret_status is
 * HTTP's, and `out` gets the JSON. Else the master's own code and line when it refuses to be asked;
 * -ETIMEDOUT, -ECONNRESET.
 */
int client_admin_ask(struct client_admin *admin, const char *method, const char *path,
	const void *body, size_t len, uint64_t timeout_ns, unsigned int *ret_status,
	struct buf *out, struct err *e) __must_check;
