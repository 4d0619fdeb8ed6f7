/* Several addresses. See servers.h. */
#include "net/servers.h"

int rpc_servers_open(struct rpc_servers *servers, struct loop *loop, const char *const *addresses,
	uint32_t n, const struct rpc_server_ops *ops, void *arg, struct err *e)
{
	int r = 0;

	if (n > RPC_SERVERS_MAX)
		return err_set(e, -E2BIG, "%u addresses to listen on are too many: give %u at most",
			n, RPC_SERVERS_MAX);
	for (uint32_t i = 0; i < n && r == 0; i++) {
		r = rpc_server_new(loop, addresses[i], ops, arg, &servers->all[i], e);
		if (r == 0)
			servers->n = i + 1;
	}
	if (r < 0)
		rpc_servers_close(servers);
	return r;
}

void rpc_servers_close(struct rpc_servers *servers)
{
	while (servers->n > 0)
		rpc_server_free(servers->all[--servers->n]);
}
