#include "tests/unit/net/cluster_key.h"
#include "net/identity.h"
#include "net/keys_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int cluster_key_load(bool encrypt_data)
{
	char path[] = "/tmp/granary-test-key-XXXXXX";
	const struct net_keys_config config = { .cluster_key = path, .encrypt_data = encrypt_data };
	struct err e = ERR_INIT;
	int fd = mkstemp(path);
	int r;

	net_debug_self = true; /* both ends are this process */
	if (fd < 0 || dprintf(fd, CLUSTER_KEY_WORD " 00c0ffee %064d\n", 7) < 0)
		return -1;
	(void)close(fd);
	r = net_keys_load(&config, &e);
	(void)unlink(path);
	return r;
}

int cluster_key_forget(void)
{
	const struct net_keys_config none = { 0 };
	struct err e = ERR_INIT;

	return net_keys_load(&none, &e);
}

int with_cluster_key(void **state)
{
	(void)state;
	return cluster_key_load(false);
}

int without_cluster_key(void **state)
{
	(void)state;
	return cluster_key_forget();
}
