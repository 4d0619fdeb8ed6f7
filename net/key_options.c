/* Options to keys. See key_options.h. */
#include "net/key_options.h"

#include <string.h>

static const char *file_of(const char *value)
{
	return value && strcmp(value, KEY_OPTION_NONE) == 0 ? NULL : value;
}

int net_keys_open(const struct key_options *options, struct err *e)
{
	const struct net_keys_config config = { .cluster_key = file_of(options->cluster_key),
		.token = file_of(options->token),
		.encrypt_data = options->net_data && strcmp(options->net_data, "tls") == 0 };

	return net_keys_load(&config, e);
}
