/*
 * FRAME_ADMIN: the admin interface (docs/openapi.yaml) for who is on another node. A request is answered
 * by the same routes as on the admin socket; who asks is what the connection proved to have, and may
 * what net/rights.h says.
 *
 * An answer of more than one frame comes in parts: the first reply has the length of the whole in
 * `extent` and the number of the rest in `generation`; a request with that number, and the `offset` to
 * go on from, gets the next part. The rest is kept for its connection for half a minute.
 *
 * Threads: remote_admin_answer() and _closed() on the server's loop.
 */
#pragma once

#include "admin/admin.h"
#include "net/net.h"

struct dataset_set;
struct remote_admin;

/* Both are borrowed. NULL without memory or threads. */
struct remote_admin *remote_admin_new(struct admin_server *server, struct dataset_set *datasets);
/* No request may be under way. NULL is allowed. */
void remote_admin_free(struct remote_admin *remote);

void remote_admin_answer(struct remote_admin *remote, struct rpc_request *request);
/* A connection is gone: nothing is kept for it. */
void remote_admin_closed(struct remote_admin *remote, const struct rpc_conn *conn);
