/*
 * The object table that an answer of the master is about. On the master's node its descriptor comes
 * along; from far the file is pulled (net/table_pull.h), and kept as DIR/VOLUME.LINEAGE.GENERATION[.PART].table
 * next to what the client remembers, so that a successor of this process, or another mount, has it at
 * hand: the last two of a volume stay. Threads: any but a loop's.
 */
#pragma once

#include "catalog/catalog.h"
#include "net/net.h"

/* What an answer of the master names. */
struct client_table_named {
	struct generation_id id;
	uint64_t part; /* 0: the whole table comes; else one cut to a part, */
	uint8_t cut_hash
		[SHA256_BYTES]; /* which has a hash of its own (catalog.h, table_take_cut()) */
};

/*
 * `fd` is the table's afterwards, -1: none came. `dir` NULL: nothing is
 * kept. -EBADMSG: what came is another table, or damaged.
 */
int client_table_take(struct rpc_client *master, const struct client_table_named *named, int fd,
	const char *dir, struct table **ret_table, struct err *e) __must_check;
