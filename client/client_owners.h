/*
 * Which worker owns a chunk, and the connections to workers. The table comes from the master once
 * at the start and again when workers do not answer; a table older than the one known is refused.
 *
 * Threads: client_owners_find() and client_owners_refresh() any, they never block;
 * client_owners_load() blocks, not on the loop.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"
#include "net/net.h"

struct client_owners;

/* A worker as this process talks to it; lives as long as the owners. */
struct client_owner {
	struct list link;
	char *address;
	struct rpc_client *rpc;
	bool local; /* on this node: takes descriptors */
};

/* `master` is borrowed. `local_worker` (may be NULL) serves chunks whose slot nobody owns. */
int client_owners_new(struct loop *loop, struct rpc_client *master, const char *local_worker,
	struct client_owners **ret_owners, struct err *e) __must_check;
/* Ends calls under way. No refresh may begin any more. NULL is allowed. */
void client_owners_free(struct client_owners *owners);

/* Asks the master and waits. */
int client_owners_load(struct client_owners *owners, struct err *e) __must_check;
/* Asks the master again, at most once a second; the answer is taken when it comes. */
void client_owners_refresh(struct client_owners *owners);

/* The worker of this node, borrowed; NULL: there is none. */
struct client_owner *client_owners_local(struct client_owners *owners);
/* Borrowed; NULL when nobody is known for the chunk. */
struct client_owner *client_owners_find(
	struct client_owners *owners, uint64_t volume_hash, uint64_t chunk);
