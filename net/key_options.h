/* Takes what the options say (base/key_options.h) for net_keys_load(). */
#pragma once

#include "base/key_options.h"
#include "net/identity.h"

/* The file that the value of such an option names; NULL: none. */
const char *key_option_file(const char *value);
/* As net_keys_load(). */
int net_keys_open(const struct key_options *options, struct err *e) __must_check;
/* For option_set.look: are the files what they should be? */
int net_keys_look(
	const struct key_options *options, const char **ret_option, struct err *e) __must_check;
