/*
 * How a command finds the master, and asks it. The first that is there of
 *
 *	--master SOCKET, or $GRANARY_MASTER	that one and no other; HOST:PORT for questions only;
 *						tcp:HOST:PORT, on another node, with keys
 *	--cache DIR				the private master of that cache directory
 *	the service of this node		see service.h; of a node without a master of its own
 *						the keeper's, by its configuration (node_config.h)
 *	the only private master that runs here, or that of the default cache directory
 *
 * A private master runs while its cache has mounts.
 */
#pragma once

#include <jansson.h>
#include "base/clock.h"
#include "base/option.h"
#include "base/unix_socket.h"

struct master_where {
	const char *master; /* --master; NULL: not said */
	const char *cache;  /* --cache; likewise */
};

/* For the table of a command whose struct `type` has a struct master_where `member`. */
#define MASTER_OPTION_ROWS(type, member)                                        \
	OPTION_STRING_ROW(type, member.master, "master", "ADDR",                \
		"Admin socket of the master, tcp:HOST:PORT of one on another "  \
		"host, or HOST:PORT of its --admin-listen, which is read-only " \
		"(default: GRANARY_MASTER, or that of this host)"),             \
		OPTION_STRING_ROW(type, member.cache, "cache", "DIR",           \
			"Cache directory whose private master is asked (default: none)")

#define MASTER_CALL_NS (10 * CLOCK_SECOND) /* for an answer that needs nothing from an origin */

/* Its admin socket, or what master_wire.h and admin_is_tcp() mean. -ENOENT, or -EEXIST when there are several, with a line. */
int master_find(
	const struct master_where *where, char out[SOCKET_PATH_MAX], struct err *e) __must_check;

/*
 * As admin_call(), to that master. When nobody is there: -ECONNREFUSED, with a line that says which
 * master, since when as far as that is known, and what to start.
 */
int master_call(const struct master_where *where, const char *method, const char *path,
	const json_t *body, uint64_t timeout_ns, json_t **ret_json, struct err *e) __must_check;
