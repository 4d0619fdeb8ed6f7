/*
 * The options of all daemons that say with which keys they speak to others: the same names everywhere, so
 * that one configuration file says them once, outside of its sections. What they mean is net/'s to say
 * (net/identity.h).
 */
#pragma once

#include "base/option.h"

struct key_options {
	const char *cluster_key; /* file; NULL: none */
	const char *token;       /* likewise */
	const char *net_data;    /* "plain", "tls" */
};

#define KEY_OPTION_NONE "none" /* in place of a file: not, though a configuration file says one */

#define KEY_OPTIONS_INIT            \
	{                           \
		.net_data = "plain" \
	}

/* For the table of a daemon whose struct `type` has a struct key_options `member`. */
#define KEY_OPTION_ROWS(type, member)                                                              \
	OPTION_STRING_ROW(type, member.cluster_key, "cluster-key", "FILE",                         \
		"Key of the cluster, for masters and workers that other hosts reach over TCP "     \
		"(default: none)"),                                                                \
		OPTION_STRING_ROW(type, member.token, "token", "FILE",                             \
			"Token of a dataset, for mounts, or of an administrator (default: none)"), \
		OPTION_ROW(type, member.net_data, "net-data", OPTION_CHOICE,                       \
			.choices = "plain|tls",                                                    \
			.help = "Transfer of cached data between nodes; everything else is "       \
				"always encrypted (default: plain)")
