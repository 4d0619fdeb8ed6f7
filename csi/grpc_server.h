/*
 * A unix socket at which gRPC is served (grpc.h), on a loop.
 *
 * Lifetime: struct grpc_service is borrowed until grpc_server_free(). Threads: the loop's.
 */
#pragma once

#include "base/err.h"
#include "base/loop.h"
#include "csi/grpc.h"

#define GRPC_CONNS_MAX 256u /* of one socket */

struct grpc_server;

/* Listens at `path`, as unix_socket_listen(). -ENOMEM or -errno with a line. */
int grpc_server_new(struct loop *loop, const char *path, const struct grpc_service *service,
	struct grpc_server **ret_server, struct err *e) __must_check;
/* Removes the socket and ends all connections. NULL is allowed. */
void grpc_server_free(struct grpc_server *server);
