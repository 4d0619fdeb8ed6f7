/*
 * One service on several addresses: a unix socket for its node, tcp for the others. Each has a server of
 * its own; requests come to the same operations, on the same loop. Embedded, zeroed. Threads: as
 * rpc_server_new() and rpc_server_free().
 */
#pragma once

#include "net/net.h"

#define RPC_SERVERS_MAX 16u

struct rpc_servers {
	struct rpc_server *all[RPC_SERVERS_MAX];
	uint32_t n;
};

/* All of them, or none. -E2BIG: more than RPC_SERVERS_MAX; else as rpc_server_new(). */
int rpc_servers_open(struct rpc_servers *servers, struct loop *loop, const char *const *addresses,
	uint32_t n, const struct rpc_server_ops *ops, void *arg, struct err *e) __must_check;
/* May be called twice, and of those that did not open. */
void rpc_servers_close(struct rpc_servers *servers);
