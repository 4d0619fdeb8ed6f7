/* Takes what the options say (base/key_options.h) for net_keys_load(). */
#pragma once

#include "base/key_options.h"
#include "net/identity.h"

/* As net_keys_load(). */
int net_keys_open(const struct key_options *options, struct err *e) __must_check;
