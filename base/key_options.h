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
		"key of the cluster, for its masters and workers: with it daemons speak to "       \
		"other nodes"),                                                                    \
		OPTION_STRING_ROW(type, member.token, "token", "FILE",                             \
			"token of a dataset, for mounts, or of an administrator"),                 \
		OPTION_ROW(type, member.net_data, "net-data", OPTION_CHOICE,                       \
			.choices = "plain|tls",                                                    \
			.help = "whether cached bytes are encrypted between nodes, too; all else " \
				"always is; plain")
