/*
 * The object table that an answer of the master is about. On the master's node its descriptor comes
 * along; from far the file is pulled (net/table_pull.h), and kept as DIR/VOLUME.LINEAGE.GENERATION.table
 * beside what the client remembers, so that a successor of this process, or another mount, has it at
 * hand: the last two of a volume stay. Threads: any but a loop's.
 */
#pragma once

#include "catalog/catalog.h"
#include "net/net.h"

/*
 * `id` is what the answer names; `fd` is the table's afterwards, -1: none came. `dir` NULL: nothing is
 * kept. -EBADMSG: what came is another table, or damaged.
 */
int client_table_take(struct rpc_client *master, const struct generation_id *id, int fd,
	const char *dir, struct table **ret_table, struct err *e) __must_check;
