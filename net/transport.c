/* Which transport an address means. See transport.h. */
#include "net/transport.h"

#include <string.h>
#include <unistd.h>

static const struct transport_ops *const transports[] = {
	&transport_unix,
	&transport_tcp,
	&transport_fake,
};

const struct transport_ops *(*net_debug_wrap)(const struct transport_ops *ops);

int transport_find(const char *address, const struct transport_ops **ret_ops,
	const char **ret_where, struct err *e)
{
	for (unsigned int i = 0; i < ARRAY_SIZE(transports); i++) {
		size_t n = strlen(transports[i]->scheme);

		if (strncmp(address, transports[i]->scheme, n) == 0 && address[n] == ':' &&
			address[n + 1] != '\0') {
			*ret_ops = net_debug_wrap ? net_debug_wrap(transports[i]) : transports[i];
			*ret_where = address + n + 1;
			return 0;
		}
	}
	return err_set(
		e, -EINVAL, "invalid address '%s': use unix:/PATH or tcp:HOST:PORT", address);
}

int rpc_address_access(const char *address)
{
	const struct transport_ops *ops = NULL;
	const char *where = NULL;
	int r = transport_find(address, &ops, &where, NULL);

	return ops && ops->access ? ops->access(where) : r;
}

void net_payload_release(struct net_payload *payload)
{
	void (*release)(void *arg) = payload->release;
	void *arg = payload->arg;

	if (payload->fd > 0)
		(void)close(payload->fd); /* only read from, or passed on */
	*payload = NET_PAYLOAD_NONE;
	if (release)
		release(arg);
}

size_t net_payload_bytes(const struct net_payload *payload)
{
	size_t bytes = 0;

	for (unsigned int i = 0; i < payload->n; i++)
		bytes += payload->parts[i].len;
	return bytes;
}
