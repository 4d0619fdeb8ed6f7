/* Options to keys. See key_options.h. */
#include "net/key_options.h"

#include <string.h>

const char *key_option_file(const char *value)
{
	return value && strcmp(value, KEY_OPTION_NONE) == 0 ? NULL : value;
}

static struct net_keys_config config_of(const struct key_options *options)
{
	return (struct net_keys_config){ .cluster_key = key_option_file(options->cluster_key),
		.token = key_option_file(options->token),
		.encrypt_data = options->net_data && strcmp(options->net_data, "tls") == 0 };
}

int net_keys_open(const struct key_options *options, struct err *e)
{
	const struct net_keys_config config = config_of(options);

	return net_keys_load(&config, e);
}

int net_keys_look(const struct key_options *options, const char **ret_option, struct err *e)
{
	const struct net_keys_config config = config_of(options);
	bool token;
	int r = net_keys_check(&config, &token, e);

	*ret_option = token ? "token" : "cluster-key";
	return r;
}
