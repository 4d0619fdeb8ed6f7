/* The keys of a process that reads, for those above client/ (net/key_options.h). */
#pragma once

#include "base/err.h"
#include "base/key_options.h"

/* Before the first client. -EACCES, -EINVAL and the like with a line. */
int client_keys_open(const struct key_options *options, struct err *e) __must_check;
/* For option_set.look. */
int client_keys_look(
	const struct key_options *options, const char **ret_option, struct err *e) __must_check;
