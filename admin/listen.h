/*
 * Where a daemon answers over TCP, for reading only, in addition to its socket: the options of all daemons.
 *
 * On a loopback address each process of the host may read, without encryption. On any other address a request shows an
 * administrator's token, over TLS with the certificate of the cluster's servers; `/healthz`, `/readyz` and, if so configured,
 * `/metrics` need no token. A process without a cluster key answers only these, without encryption.
 */
#pragma once

#include <stdbool.h>
#include "base/option.h"

struct admin_listen {
	const char *address;    /* HOST:PORT; NULL: none */
	bool anonymous_metrics; /* /metrics needs no token */
};

/* For the table of a daemon whose struct `type` has a struct admin_listen `member`. */
#define ADMIN_LISTEN_ROWS(type, member)                                              \
	OPTION_STRING_ROW(type, member.address, "admin-listen", "HOST:PORT",         \
		"Address for read-only HTTP; other than loopback needs TLS and an "  \
		"administrator's token (default: none)"),                            \
		OPTION_BOOL_ROW(type, member.anonymous_metrics, "anonymous-metrics", \
			"Show /metrics at admin-listen without a token (default: no)")
