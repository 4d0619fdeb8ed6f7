/* See client_keys.h. */
#include "client/client_keys.h"
#include "net/key_options.h"

int client_keys_open(const struct key_options *options, struct err *e)
{
	return net_keys_open(options, e);
}

int client_keys_look(const struct key_options *options, const char **ret_option, struct err *e)
{
	return net_keys_look(options, ret_option, e);
}
